"""The reactor: one task that reads every connection and writes what came of it.

One pass: the ready connections -> each is read once and what it sent is routed -> `Exchange.settle` gives internal
clients what gathered for them and writes every outbound that has something. There is no await inside a pass, so
shared tables never change under anybody's eyes.

Work is bounded: PASS_BYTES of input are followed by a settling and a checkpoint, and a connection whose messages fan
out widely is deferred (`Inbound.deferred`) behind the others. While traffic flows the reactor looks again at once
instead of waiting (IDLE_LOOKS times): a request and its reply are closer together than one wake-up is long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import trio

from tnats.auth.users import ConnectionType
from tnats.limits import (
    ACCEPT_PAUSE_NS,
    ACCEPTS_PER_PASS_MAX,
    IDLE_LOOKS,
    IDLE_TRIAL,
    PASS_BYTES,
    PASSES_PER_CHECKPOINT,
)
from tnats.runtime.api import Conn, ConnectionBroken, Listener, NetworkError, OutOfDescriptors
from tnats.wire.errors import ClosedReason

if TYPE_CHECKING:
    from tnats.broker.broker import Broker
    from tnats.broker.connection import Connection


class Reactor:
    """See the module's text."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._poller = broker.poller
        self._exchange = broker.exchange
        self._connections: dict[Conn | Listener, Connection] = {}
        self._doors: dict[Conn | Listener, ConnectionType] = {}
        self._deferred: list[Connection] = []
        self._budget = PASS_BYTES
        """Bytes that may still be read before other tasks get their turn, over as many passes as that takes."""
        self._idle_count = 0
        self._luck = 0
        """How many looks in vain are still allowed."""

    def add(self, conn: Conn, connection: Connection) -> None:
        """Read from `conn`."""
        self._connections[conn] = connection
        self._poller.add(conn)

    def remove(self, conn: Conn) -> None:
        """Read no more from `conn`."""
        del self._connections[conn]
        self._poller.remove(conn)

    def open_door(self, listener: Listener, connection_type: ConnectionType) -> None:
        """Accept from `listener`."""
        self._doors[listener] = connection_type
        self._poller.add(listener)

    def close_door(self, listener: Listener) -> None:
        """Accept no more from `listener`; nothing happens if it was not open."""
        if self._doors.pop(listener, None) is not None:
            self._poller.remove(listener)

    async def run(self) -> None:
        """Until cancelled."""
        poller = self._poller
        passes = 0
        while True:
            passes += 1
            ready = poller.ready_nowait()
            if not ready and not self._deferred:
                ready = self._look_again()
                if not ready:
                    passes = 0
                    ready = await poller.wait()
                    self._budget = PASS_BYTES
            elif passes > PASSES_PER_CHECKPOINT:
                passes = 0
                await trio.lowlevel.checkpoint()
            deferred = self._deferred
            if deferred:
                self._deferred = []
                for connection in deferred:
                    self.resume(connection)
                    await trio.lowlevel.checkpoint()
            await self._serve(ready)

    def _look_again(self) -> list[Conn | Listener]:
        """What becomes ready within a few looks, if that is likely by experience; else nothing."""
        self._idle_count += 1
        if not self._luck and self._idle_count % IDLE_TRIAL:
            return []
        for _ in range(IDLE_LOOKS):
            ready = self._poller.ready_nowait()
            if ready:
                self._luck = IDLE_TRIAL
                return ready
        self._luck = max(0, self._luck - 1)
        return []

    async def _serve(self, ready: list[Conn | Listener]) -> None:
        """One pass, or several with checkpoints between."""
        exchange = self._exchange
        now_ns = self._broker.now_ns()
        exchange.passing = True
        for source in ready:
            connection = self._connections.get(source)
            if connection is not None:
                self._budget -= self._read(connection, now_ns)
                if self._budget <= 0:
                    exchange.settle()
                    await trio.lowlevel.checkpoint()
                    self._budget = PASS_BYTES
                    now_ns = self._broker.now_ns()
                    exchange.passing = True
            elif source in self._doors:
                self._accept(cast(Listener, source))
        exchange.settle()

    def _read(self, connection: Connection, now_ns: int) -> int:
        """Read once; bytes read."""
        inbound = connection.inbound
        if inbound.halted or inbound.deferred:
            return 0
        connection.start_read(now_ns)
        try:
            count = inbound.receive()
        except ConnectionBroken:
            connection.close(ClosedReason.READ_ERROR, flush=False)
            return 0
        except Exception as bug:
            self._broker.report_bug(bug, connection)
            return 0
        if count < 0:
            return 0
        if count == 0:
            connection.close(ClosedReason.CLIENT_CLOSED)
        elif inbound.deferred:
            self._deferred.append(connection)
        return count

    def resume(self, connection: Connection) -> None:
        """Let `connection` go on with what it has read already (outside a pass)."""
        exchange = self._exchange
        exchange.passing = True
        try:
            connection.inbound.resume()
        except Exception as bug:
            self._broker.report_bug(bug, connection)
        if connection.inbound.deferred:
            self._deferred.append(connection)
        exchange.settle()

    def _accept(self, listener: Listener) -> None:
        for _ in range(ACCEPTS_PER_PASS_MAX):
            try:
                conn = listener.accept()
            except OutOfDescriptors as full:
                self._poller.pause(listener)
                self._broker.log.warn(f"{full}; accepting goes on in a moment")
                self._broker.nursery.start_soon(self._accept_later, listener)
                return
            except NetworkError as error:
                self._broker.log.warn(str(error))
                return
            if conn is None:
                return
            self._broker.adopt(conn, self._doors[listener])

    async def _accept_later(self, listener: Listener) -> None:
        await self._broker.runtime.clock.sleep_ns(ACCEPT_PAUSE_NS)
        if listener in self._doors:
            self._poller.resume(listener)
