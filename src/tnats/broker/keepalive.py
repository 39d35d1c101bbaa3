"""Deadlines of all client connections, from one task: login, PING, staleness (client protocol, "Ping/pong and timers").

Every connection has one entry in a heap, due at its next deadline. When it is due, `_check` does what has come to be
and says when to look again. An entry that no longer counts is dropped when it comes up, or when such entries are the
majority.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import trio

from tnats.broker.connection import Connection
from tnats.broker.state import State
from tnats.limits import FIRST_PING_NS, RTT_REFRESH_NS
from tnats.wire import errors

if TYPE_CHECKING:
    from tnats.broker.broker import Broker
    from tnats.subjects.draw import Draw

HEAP_COUNT_MIN = 1024
"""A heap this small is not cleared of entries that do not count."""


class KeepAlive:
    """See the module's text."""

    def __init__(self, broker: Broker, draw: Draw) -> None:
        self._broker = broker
        self._draw = draw
        self._heap: list[tuple[int, int]] = []
        """Moment and cid."""
        self._due_ns: dict[int, int] = {}
        """By cid: the one entry that counts."""
        self._earlier = trio.Event()

    def watch(self, connection: Connection) -> None:
        """Look after `connection`, just accepted or just logging in."""
        now_ns = self._broker.now_ns()
        options = self._broker.options
        if connection.state is State.GREETED:
            wait_ns = options.auth_timeout_ns if connection.inbound.locked else options.ping_interval_ns
        else:
            wait_ns = min(options.ping_interval_ns, FIRST_PING_NS)
            # Spread, so that clients that came together are not pinged together.
            wait_ns += self._draw.below(max(1, wait_ns // 5_000)) * 1_000
        self._schedule(connection, now_ns + wait_ns)

    def forget(self, connection: Connection) -> None:
        self._due_ns.pop(connection.cid, None)

    async def run(self) -> None:
        """Until cancelled."""
        clock = self._broker.runtime.clock
        while True:
            self._earlier = trio.Event()
            if not self._heap:
                await self._earlier.wait()
                continue
            due_ns, cid = self._heap[0]
            if due_ns > clock.mono_ns():
                with clock.deadline(due_ns):
                    await self._earlier.wait()
                continue
            heapq.heappop(self._heap)
            if self._due_ns.get(cid) == due_ns:
                self._check(self._broker.connections[cid], clock.mono_ns())

    def _schedule(self, connection: Connection, due_ns: int) -> None:
        self._due_ns[connection.cid] = due_ns
        if not self._heap or due_ns < self._heap[0][0]:
            self._earlier.set()
        heapq.heappush(self._heap, (due_ns, connection.cid))
        if len(self._heap) > HEAP_COUNT_MIN + 2 * len(self._due_ns):  # mostly of connections that are gone
            self._heap = sorted((due_ns, cid) for cid, due_ns in self._due_ns.items())

    def _check(self, connection: Connection, now_ns: int) -> None:
        options = self._broker.options
        if connection.state is State.GREETED and connection.inbound.locked:
            connection.send_error(errors.AUTHENTICATION_TIMEOUT)
            return
        measured = connection.rtt_measured_ns and now_ns - connection.rtt_measured_ns < RTT_REFRESH_NS
        if not measured or now_ns - connection.last_in_ns >= options.ping_interval_ns:
            if connection.pings_outstanding + 1 > options.ping_max:
                self._broker.stale_connection_count += 1
                connection.send_error(errors.STALE_CONNECTION)
                return
            connection.ping(now_ns)
        self._schedule(connection, now_ns + options.ping_interval_ns)
