"""Deadlines of all client connections, from one task: login, PING, staleness (client protocol, "Ping/pong and timers").

Every connection has one moment, its next deadline. When that has come, `_check` does what has come to be and says when
to look again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.broker.connection import Connection
from tnats.broker.state import State
from tnats.limits import FIRST_PING_NS, RTT_REFRESH_NS
from tnats.timers import Timers
from tnats.wire import errors

if TYPE_CHECKING:
    from tnats.broker.broker import Broker
    from tnats.subjects.draw import Draw


class KeepAlive:
    """See the module's text."""

    def __init__(self, broker: Broker, draw: Draw) -> None:
        self._broker = broker
        self._draw = draw
        self._timers = Timers(broker.runtime.clock, self._check)

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
        self._timers.set(connection, now_ns + wait_ns)

    def forget(self, connection: Connection) -> None:
        self._timers.set(connection, None)

    async def run(self) -> None:
        """Until cancelled."""
        await self._timers.run()

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
        self._timers.set(connection, now_ns + options.ping_interval_ns)
