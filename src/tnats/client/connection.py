"""Keeps one client connected: the servers, the current link, the outgoing buffer, the way back after a loss.

Theory of operation
-------------------
* A `Link` is one TCP connection, from log-in to its end. `Connection.run` is the only place where links come and go.
* Operations are appended to `outbound`. While connected that is the link's own buffer, which its writer empties;
  while disconnected it is a spare one that holds publishes alone, and the next link takes it over after it has
  renewed the subscriptions.
* Delivery is at most once. What had not left when a connection broke is lost with it; what is published while
  disconnected is kept, up to `pending_bytes_max`.
* State changes in synchronous functions only, so cancelling a waiting call never leaves a change half done.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import trio

from tnats.client.errors import (
    AuthorizationFailed,
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    PendingBufferFull,
    PermissionsViolation,
    ServerError,
)
from tnats.client.events import (
    Closed,
    Connected,
    Disconnected,
    ErrorReported,
    Event,
    LameDuck,
    Reconnected,
    ReconnectFailed,
    ServersDiscovered,
)
from tnats.client.link import Link, open_link
from tnats.client.options import Options, ServerAddress, nanoseconds
from tnats.client.outbound import Outbound
from tnats.client.servers import Server, ServerPool
from tnats.client.table import SubscriptionTable
from tnats.records import define
from tnats.runtime.api import NetworkError, Runtime
from tnats.wire.info import ServerInfo

if TYPE_CHECKING:
    from tnats.client.client import Client


class Status(enum.Enum):
    """Where a client stands."""

    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    CLOSED = "closed"


@define
class Statistics:
    """Counters since the client was made. Bytes are payload and headers."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    reconnect_count: int = 0
    messages_unconfirmed: int = 0
    """Messages on their way, without the server's word, when their connection was lost: they may not have arrived."""


class Connection:
    """The client's tie to whichever server it uses now."""

    client: Client
    """Given to the messages; set by the client."""

    def __init__(self, runtime: Runtime, options: Options, addresses: Sequence[ServerAddress]) -> None:
        self.runtime = runtime
        self.options = options
        self.table = SubscriptionTable()
        self.statistics = Statistics()
        self.outbound = Outbound()
        self.link: Link | None = None
        self.server_info = ServerInfo()
        self.payload_max = 0
        """The server's `max_payload`, bytes."""
        self.error: ClientError | None = None
        """Why the client gave up; None while it lives and after it was closed on purpose."""
        self.ended = trio.Event()
        self._server: Server | None = None
        self._confirmed_count = 0
        """Of `statistics.messages_out`, how many are known to have arrived or counted as unconfirmed."""
        self._unreported_count = 0
        """Unconfirmed messages that no flush has told yet."""
        self._pool = ServerPool(addresses, runtime.chance.rng("client.servers"), shuffle=options.shuffle_servers)
        self._scope = trio.CancelScope()
        self.accepting = True
        """Publishes may still be queued."""
        self._linked = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    @property
    def status(self) -> Status:
        if self.ended.is_set():
            return Status.CLOSED
        return Status.RECONNECTING if self.link is None else Status.CONNECTED

    @property
    def servers(self) -> list[str]:
        """URLs of every known server, most preferred first."""
        return self._pool.urls

    def report(self, event: Event) -> None:
        """Hand `event` to the user's callback."""
        self.options.on_event(event)

    # ---------------------------------------------------------------- life

    async def open_first(self) -> None:
        """Join one of the given servers, each tried once. Raises ConnectFailed, AuthorizationFailed."""
        failures: list[ClientError | NetworkError] = []
        for server in self._pool.round():
            try:
                link = await open_link(self, server.address)
            except (ClientError, NetworkError) as exc:
                failures.append(exc)
                continue
            try:
                self._adopt(server, link, Connected(server.address.url))
            except BaseException:  # out of the user's callback: nobody runs the link yet
                link.close()
                raise
            return
        if len(failures) == 1 and isinstance(failures[0], AuthorizationFailed):
            raise failures[0]
        raise ConnectFailed("no server could be joined: " + "; ".join(map(str, failures)))

    async def run(self) -> None:
        """Serve the link of `open_first` and its successors until `stop`, cancellation, or no server is left."""
        error: ClientError | None = ConnectionClosed("the client was cancelled")
        try:
            with self._scope:
                while self.link is not None:
                    reason = await self.link.run()
                    self._abandon(reason)
                    await self._rejoin(reason)
            error = None
        except ClientError as exc:
            error = exc
        finally:
            self._finish(error)

    def stop(self) -> None:
        """End `run` now; what has not left is discarded. Idempotent."""
        self._scope.cancel()

    def _adopt(self, server: Server, link: Link, event: Event) -> None:
        self._server = server
        self._pool.connected(server)
        link.outbound.append(self.table.renewal())
        link.outbound.take_over(self.outbound)
        self.outbound = link.outbound
        self.link = link
        self._linked.unpark_all()
        self.report(event)
        self.take_info()

    def _abandon(self, reason: str) -> None:
        assert self._server is not None
        self.link = None
        self.outbound = Outbound()
        self._room.unpark_all()
        unconfirmed_count = self.statistics.messages_out - self._confirmed_count
        self._confirmed_count = self.statistics.messages_out
        self._unreported_count += unconfirmed_count
        self.statistics.messages_unconfirmed += unconfirmed_count
        self._pool.lost(self._server)
        self.report(Disconnected(self._server.address.url, reason))

    async def _rejoin(self, lost_reason: str) -> None:
        """Try all servers, round after round, until one takes us. Raises when none is left to try."""
        options = self.options
        wait_min_ns = nanoseconds(options.reconnect_wait_min_s)
        wait_max_ns = nanoseconds(options.reconnect_wait_max_s)
        error: ClientError | NetworkError = ConnectionLost(f"connection lost: {lost_reason}")
        if options.reconnect_attempts_max == 0:
            raise error
        round_index = 0
        while len(self._pool):
            wait_ns = self._pool.wait_ns(round_index, wait_min_ns, wait_max_ns)
            await self.runtime.clock.sleep_ns(wait_ns)
            for server in self._pool.round():
                try:
                    link = await open_link(self, server.address)
                except (ClientError, NetworkError) as exc:
                    error = exc
                    refused = isinstance(exc, AuthorizationFailed)
                    self._pool.failed(server, refused=refused, attempts_max=options.reconnect_attempts_max)
                    self.report(ReconnectFailed(server.address.url, str(exc)))
                    continue
                self.statistics.reconnect_count += 1
                self._adopt(server, link, Reconnected(server.address.url))
                return
            round_index += 1
        raise error if isinstance(error, AuthorizationFailed) else ConnectFailed(f"no server is left to try: {error}")

    def _finish(self, error: ClientError | None) -> None:
        self.error = error
        self.accepting = False
        if self.link is not None:
            self.link.close()
            self.link = None
        self.table.end_all(error)
        self.ended.set()
        self._linked.unpark_all()
        self._room.unpark_all()
        self.report(Closed(error))

    # ---------------------------------------------------------------- outgoing

    def send(self, operation: bytes) -> None:
        """Queue SUB or UNSUB; nothing while there is no link, for the next one renews every subscription."""
        if self.link is not None:
            self.link.send(operation)

    def wake_writer(self) -> None:
        """Bytes were queued in `outbound`."""
        if self.link is not None and self.link.idle:
            self.link.wake()

    def write_nowait(self) -> None:
        """Hand what is queued to the network now, for an answer that somebody waits for."""
        if self.link is not None:
            self.link.write_nowait()

    def raise_no_room(self) -> NoReturn:
        """Raise what keeps a publish from being queued now."""
        self.check_accepting()
        raise PendingBufferFull(
            f"{self.outbound.byte_count} bytes wait to leave, the limit pending_bytes_max is "
            f"{self.options.pending_bytes_max}: await publish instead, or raise the limit"
        )

    async def wait_room(self) -> None:
        """Let other tasks run, then return when a publish may be queued. Raises ConnectionClosed."""
        await trio.lowlevel.checkpoint()
        while self.outbound.byte_count >= self.options.pending_bytes_max:
            self.check_accepting()
            await self._room.park()
        self.check_accepting()

    def made_room(self) -> None:
        """The link's writer got rid of bytes."""
        if self._room and self.outbound.byte_count < self.options.pending_bytes_max:
            self._room.unpark_all()

    def check_open(self) -> None:
        """Raise ConnectionClosed once the client has ended."""
        if self.ended.is_set():
            raise ConnectionClosed("the client is closed" + (f": {self.error}" if self.error else ""))

    def check_accepting(self) -> None:
        """Raise ConnectionClosed once no publish may be queued any more."""
        self.check_open()
        if not self.accepting:
            raise ConnectionClosed("the client is draining: nothing can be published any more")

    async def wait_link(self) -> Link:
        """The current link, or the next one. Raises ConnectionClosed."""
        while self.link is None:
            self.check_open()
            await self._linked.park()
        return self.link

    async def round_trip(self) -> int:
        """Nanoseconds until the server answered everything sent before. Raises ConnectionLost, ConnectionClosed."""
        link = await self.wait_link()
        start_ns = self.runtime.clock.mono_ns()
        await link.round_trip()
        return self.runtime.clock.mono_ns() - start_ns

    def raise_unconfirmed(self) -> None:
        """Raise ConnectionLost, once, if messages were on their way when a connection was lost."""
        count, self._unreported_count = self._unreported_count, 0
        if count:
            raise ConnectionLost(
                f"{count} message{'s were' if count > 1 else ' was'} on the way when the connection was lost "
                "and may not have arrived"
            )

    # ---------------------------------------------------------------- incoming, called by the link

    def confirmed(self, published_count: int) -> None:
        """The server has handled the first `published_count` messages of this client, but for what was lost before."""
        self._confirmed_count = max(self._confirmed_count, published_count)

    def take_info(self) -> None:
        """The server sent a new INFO: cluster members, lame duck mode."""
        assert self.link is not None
        assert self._server is not None
        info = self.link.info
        self.server_info = info
        self.payload_max = info.max_payload
        if info.ldm and not self._server.lame_duck:
            self._server.lame_duck = True
            self.report(LameDuck(self._server.address.url))
        if self.options.discover_servers and info.connect_urls:
            urls = self._pool.discovered(info.connect_urls, self._server)
            if urls:
                self.report(ServersDiscovered(urls))

    def take_error(self, error: ServerError) -> None:
        """The server sent `-ERR`."""
        if isinstance(error, PermissionsViolation):
            self.table.deny(error)
        self.report(ErrorReported(error))
