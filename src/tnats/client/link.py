"""One TCP connection to a server, from the first INFO to its end: the client side of the protocol.

Theory of operation
-------------------
`open_link` connects, reads INFO, sends CONNECT and PING and waits for PONG, so that a link that exists is logged in.
`Link.run` then holds three tasks: the reader (poll, read, parse, deliver, with no wait between), the writer (asleep
unless the socket was full or somebody queued bytes), and the keep-alive. Whichever finds the connection over names
the reason and ends all three. A broken connection never raises to those who write: it ends the link.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs
import trio

import tnats
from tnats import limits
from tnats.client.errors import AuthorizationFailed, ConnectFailed, ConnectionLost, ServerError, server_error
from tnats.client.message import Message
from tnats.client.options import ServerAddress, nanoseconds
from tnats.client.outbound import Outbound
from tnats.records import define
from tnats.runtime.api import Conn, ConnectionBroken
from tnats.subjects.tokens import to_text
from tnats.wire import client as wire
from tnats.wire.client import PING_LINE, PONG_LINE, ErrorReceived, ServerParser, Signal
from tnats.wire.connect import ConnectInfo, encode_connect
from tnats.wire.info import ServerInfo

if TYPE_CHECKING:
    from tnats.client.connection import Connection

PROTOCOL_VERSION = 1
LANGUAGE = "python-trio"


@define(eq=False)
class RoundTrip:
    """A PING on its way: done when its PONG is back, or `lost` with the link."""

    published_count: int
    """Messages that had been published when it was sent: its PONG confirms them."""
    done: trio.Event = attrs.Factory(trio.Event)
    lost: bool = False


class Link:
    """A connection that is logged in. `Connection` owns it: one `run`, then `close`."""

    def __init__(self, owner: Connection, url: str, conn: Conn) -> None:
        self.url = url
        self.outbound = Outbound()
        self.idle = False
        """The writer sleeps: who queues bytes wakes it."""
        self.info = ServerInfo()
        self._owner = owner
        self._conn = conn
        self._clock = owner.runtime.clock
        self._poller = owner.runtime.network.poller()
        self._poller.add(conn)
        self._parser = ServerParser()
        self._buffer = bytearray(limits.CLIENT_READ_BYTES)
        self._view = memoryview(self._buffer)
        self._round_trips: deque[RoundTrip] = deque()
        self._unanswered_ping_count = 0
        self._greeted = False
        """The first INFO has come."""
        self._logged_in = False
        self._closed = False
        self._end_reason: str | None = None
        self._last_error: ServerError | None = None
        self._scope = trio.CancelScope()
        self._queued = trio.lowlevel.ParkingLot()

    # ---------------------------------------------------------------- life

    async def log_in(self, address: ServerAddress) -> None:
        """From INFO to the first PONG. Raises AuthorizationFailed, ConnectFailed."""
        while not self._greeted:
            await self._pump()
        if self.info.tls_required:
            raise ConnectFailed(f"{self.url}: the server requires TLS, which this client does not offer yet")
        self.outbound.append(self._connect_operation(address))
        trip = self._ping()
        while not trip.done.is_set():
            self.write_nowait()
            await self._pump()
        self._logged_in = True

    async def run(self) -> str:
        """Serve until the connection is over; returns why."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._write)
                nursery.start_soon(self._keep_alive)
        self.close()
        return self._end_reason or "closed"

    def close(self) -> None:
        """Give the connection back; who waits for a PONG learns that it is lost. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._poller.close()
        self._conn.close()
        for trip in self._round_trips:
            trip.lost = True
            trip.done.set()
        self._round_trips.clear()

    def _fail(self, reason: str) -> None:
        """The connection is over; the first reason given is kept."""
        if self._end_reason is None:
            self._end_reason = reason
            self._scope.cancel()

    # ---------------------------------------------------------------- outgoing

    def wake(self) -> None:
        """Bytes were queued in `outbound`."""
        self.idle = False
        self._queued.unpark()

    def send(self, operation: bytes) -> None:
        """Queue a protocol operation."""
        self.outbound.append(operation)
        if self.idle:
            self.wake()

    def write_nowait(self) -> None:
        """Hand what is queued to the network at once, for an answer that somebody waits for."""
        try:
            if not self.outbound.write_to(self._conn) and self.idle:
                self.wake()
            self._owner.made_room()
        except ConnectionBroken as exc:
            self._fail(str(exc))

    async def round_trip(self) -> None:
        """Return when the server answered everything sent before. Raises ConnectionLost."""
        trip = self._ping()
        self.write_nowait()
        await trip.done.wait()
        if trip.lost:
            raise ConnectionLost(
                f"{self.url}: the connection was lost ({self._end_reason or 'closed'}) before the server answered; "
                "whether it received what was sent before is unknown"
            )

    def _connect_operation(self, address: ServerAddress) -> bytes:
        options = self._owner.options
        from_url = address.user is not None or address.token is not None
        return encode_connect(
            ConnectInfo(
                verbose=False,
                pedantic=False,
                echo=options.echo,
                user=(address.user if from_url else options.user) or "",
                password=(address.password if from_url else options.password) or "",
                auth_token=(address.token if from_url else options.token) or "",
                name=options.name,
                lang=LANGUAGE,
                version=tnats.__version__,
                protocol=PROTOCOL_VERSION,
                headers=True,
                no_responders=True,
            )
        )

    def _ping(self) -> RoundTrip:
        # Before the log-in no message has gone this way: those of an outage follow after it.
        trip = RoundTrip(self._owner.statistics.messages_out if self._logged_in else 0)
        if self._end_reason is None:
            self._round_trips.append(trip)
            self.send(PING_LINE)
        else:
            trip.lost = True
            trip.done.set()
        return trip

    async def _write(self) -> None:
        outbound, conn = self.outbound, self._conn
        try:
            while True:
                if not outbound.byte_count:
                    self.idle = True
                    await self._queued.park()
                done = outbound.write_to(conn)
                self._owner.made_room()
                if not done:
                    await conn.wait_writable()
        except ConnectionBroken as exc:
            self._fail(str(exc))

    async def _keep_alive(self) -> None:
        options = self._owner.options
        interval_ns = nanoseconds(options.ping_interval_s)
        while True:
            await self._clock.sleep_ns(interval_ns)
            if self._unanswered_ping_count >= options.pings_outstanding_max:
                self._fail(f"stale connection: {self._unanswered_ping_count} PINGs were not answered")
                return
            self._unanswered_ping_count += 1
            self._ping()

    # ---------------------------------------------------------------- incoming

    async def _read(self) -> None:
        wait = self._poller.wait
        while self._end_reason is None:
            await wait()
            self._read_ready()

    async def _pump(self) -> None:
        """One read while logging in. Raises AuthorizationFailed, ConnectFailed."""
        await self._poller.wait()
        self._read_ready()
        if isinstance(self._last_error, AuthorizationFailed):
            raise AuthorizationFailed(f"{self.url}: {self._last_error}")
        if self._last_error is not None or self._end_reason is not None:
            raise ConnectFailed(f"{self.url}: {self._last_error or self._end_reason}")

    def _read_ready(self) -> None:
        """Read and handle what waits, within bounds, so that the consumers get their turn."""
        conn, buffer, view = self._conn, self._buffer, self._view
        try:
            for _ in range(limits.CLIENT_READS_PER_WAKE_MAX):
                count = conn.read_into(buffer)
                if not count:
                    if count == 0:
                        self._fail(str(self._last_error or "closed by the server"))
                    return
                self._take(self._parser.feed(bytes(view[:count])))
                if self._parser.fault:
                    self._fail(f"the server broke the protocol: {self._parser.fault}")
                    return
                if count < len(buffer):
                    return
        except ConnectionBroken as exc:
            self._fail(str(self._last_error or exc))

    def _take(self, operations: list[wire.Operation]) -> None:
        """Handle what the server sent. The hot path of receiving."""
        interests = self._owner.table.interests
        client = self._owner.client
        message_count = byte_count = 0
        for operation in operations:
            if type(operation) is wire.Message:
                reply = to_text(operation.reply) if operation.reply else ""
                message = Message(client, to_text(operation.subject), reply, operation.headers, operation.payload)
                message_count += 1
                byte_count += message.size
                interest = interests.get(operation.sid)
                if interest is not None:
                    interest.deliver(message)
            else:
                self._take_control(operation)
        statistics = self._owner.statistics
        statistics.messages_in += message_count
        statistics.bytes_in += byte_count

    def _take_control(self, operation: wire.Operation) -> None:
        """Handle what is no message."""
        if operation is Signal.PING:
            self.send(PONG_LINE)
        elif operation is Signal.PONG:
            self._unanswered_ping_count = 0
            if self._round_trips:
                trip = self._round_trips.popleft()
                trip.done.set()
                self._owner.confirmed(trip.published_count)
        elif isinstance(operation, ServerInfo):
            self.info = operation
            self._greeted = True
            if self._logged_in:
                self._owner.take_info()
        elif isinstance(operation, ErrorReceived):
            self._last_error = server_error(operation.text.decode("utf-8", "replace"))
            if self._logged_in:
                self._owner.take_error(self._last_error)


async def open_link(owner: Connection, address: ServerAddress) -> Link:
    """Connect and log in within `connect_timeout_s`. Raises NetworkError, ConnectFailed, AuthorizationFailed."""
    clock = owner.runtime.clock
    timeout_s = owner.options.connect_timeout_s
    deadline_ns = clock.mono_ns() + nanoseconds(timeout_s)
    conn = await owner.runtime.network.connect(address.host, address.port, timeout_ns=nanoseconds(timeout_s))
    link = Link(owner, address.url, conn)
    try:
        with clock.deadline(deadline_ns) as scope:
            await link.log_in(address)
    except BaseException:
        link.close()
        raise
    if scope.cancelled_caught:
        link.close()
        raise ConnectFailed(f"{address.url}: no log-in within {timeout_s:g} s")
    return link
