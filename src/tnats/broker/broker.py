"""The broker: accounts, connections and the reactor of one server, and what other parts may do with them.

    broker = Broker(runtime, options, gatekeeper, log)
    await nursery.start(broker.run)            # serves until cancelled
    broker.open_door(listener)                 # front door: from now on clients are accepted
    ...
    broker.close_door(listener)
    await broker.close_clients(duration_ns)    # lame duck

Ownership: `run` owns the tasks: the reactor, the keep-alive scan, one per connection. Cancelling it closes every
connection with reason "Server Shutdown", what can be written at once being written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import trio

from tnats.auth.users import GLOBAL_ACCOUNT, ConnectionType
from tnats.broker.account import Account, Traffic
from tnats.broker.closed import ClosedRing
from tnats.broker.connection import Connection
from tnats.broker.hot.message import Message
from tnats.broker.hot.outbound import Exchange
from tnats.broker.internal import InternalClient
from tnats.broker.keepalive import KeepAlive
from tnats.broker.options import BrokerOptions, fixed_differences
from tnats.broker.ports import ConnectionObserver, Gatekeeper, Log
from tnats.broker.reactor import Reactor
from tnats.broker.snapshot import BrokerSnapshot, ConnectionSnapshot, connection_snapshot
from tnats.errors import TnatsError, ensure
from tnats.limits import CLOSE_STEP_NS, CLOSED_SUBSCRIPTIONS_MAX
from tnats.runtime.api import Conn, Listener, Runtime
from tnats.subjects.draw import Draw
from tnats.wire.errors import MAX_CONNECTIONS_EXCEEDED, ClosedReason
from tnats.wire.info import ServerInfo


class Broker:
    """See the module's text."""

    def __init__(self, runtime: Runtime, options: BrokerOptions, gatekeeper: Gatekeeper, log: Log) -> None:
        self.runtime = runtime
        self.options = options
        self.gatekeeper = gatekeeper
        self.log = log
        self.now_ns: Callable[[], int] = runtime.clock.mono_ns
        self.draw = Draw(runtime.chance.rng("broker").getrandbits(64))
        self._timer_draw = Draw(runtime.chance.rng("broker timers").getrandbits(64))
        self.exchange = Exchange(self.draw, self._wake_settler)
        if runtime.buggify("broker.reference_every_message"):
            self.exchange.view_bytes = 1
        if runtime.buggify("broker.own_buffer_for_every_partial_message"):
            self.exchange.own_body_bytes = 1
        if runtime.buggify("broker.write_at_once"):
            self.exchange.flush_bytes = 1
        if runtime.buggify("broker.defer_after_every_message"):
            self.exchange.deliveries_per_feed = 0
        self.poller = runtime.network.poller()
        self.reactor = Reactor(self)
        self.keepalive = KeepAlive(self, self._timer_draw)
        self.info = _info(options)
        """What INFO tells to everybody; change it by `update_info`."""
        self.accounts: dict[str, Account] = {}
        self.connections: dict[int, Connection] = {}
        """By cid, in the order in which they came."""
        self.closed: ClosedRing[ConnectionSnapshot] = ClosedRing(options.max_closed_connections)
        self.observers: list[ConnectionObserver] = []
        self.total_connections = 0
        self.slow_consumer_count = 0
        self.stale_connection_count = 0
        self.stall_count = 0
        self._next_cid = 0
        self._unsettled = trio.Event()
        self._nursery: trio.Nursery | None = None

    # ------------------------------------------------------------------ running

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self.reactor.run)
                nursery.start_soon(self.keepalive.run)
                nursery.start_soon(self._settle_outside_passes)
                task_status.started()
        finally:
            self._nursery = None
            self.poller.close()

    @property
    def nursery(self) -> trio.Nursery:
        """Where connections live."""
        ensure(self._nursery is not None, "the broker does not run")
        assert self._nursery is not None
        return self._nursery

    def _wake_settler(self) -> None:
        self._unsettled.set()

    async def _settle_outside_passes(self) -> None:
        """Write what was published by other tasks than the reactor."""
        while True:
            await self._unsettled.wait()
            self._unsettled = trio.Event()
            self.exchange.settle()

    # ------------------------------------------------------------------ doors and connections

    def open_door(self, listener: Listener, connection_type: ConnectionType = ConnectionType.STANDARD) -> None:
        """Accept clients from `listener`, which stays the caller's to close."""
        self.reactor.open_door(listener, connection_type)

    def close_door(self, listener: Listener) -> None:
        """Accept no more clients from `listener`."""
        self.reactor.close_door(listener)

    def next_cid(self) -> int:
        """A connection id; all kinds of connections share one sequence."""
        self._next_cid += 1
        return self._next_cid

    def adopt(self, conn: Conn, connection_type: ConnectionType = ConnectionType.STANDARD) -> Connection:
        """Serve `conn` as a client connection: INFO is sent and reading begins."""
        connection = Connection(self, conn, self.next_cid(), connection_type, self.now_ns())
        self.total_connections += 1
        self.connections[connection.cid] = connection
        self.reactor.add(conn, connection)
        connection.greet()
        self.nursery.start_soon(connection.run)
        self.log.debug(f"{connection} - Client connection created")
        if len(self.connections) > self.options.max_connections:
            self.log.error(f"{connection} - maximum connections exceeded ({self.options.max_connections})")
            connection.send_error(MAX_CONNECTIONS_EXCEEDED)
        else:
            self.keepalive.watch(connection)
        return connection

    def on_logged_in(self, connection: Connection) -> None:
        """`connection` has entered its account."""
        for observer in self.observers:
            observer.on_connected(connection.cid)

    def on_closed(self, connection: Connection) -> None:
        """`connection` has just been closed; its task ends soon."""
        connection.stopped_ns = self.now_ns()
        self.reactor.remove(connection.conn)
        self.keepalive.forget(connection)
        del self.connections[connection.cid]
        connection.account.clients.pop(connection.cid, None)
        connection.account.closed_traffic.add(connection.traffic())
        few = len(connection.subscriptions) <= CLOSED_SUBSCRIPTIONS_MAX
        self.closed.add(self._snapshot(connection, with_subscriptions=few))
        assert connection.reason is not None
        self.log.debug(f"{connection} - Client connection closed: {connection.reason.value}")
        for observer in self.observers:
            observer.on_disconnected(connection.cid)

    def count_slow_consumer(self, connection: Connection, limit: str) -> None:
        """`connection` is about to be cut off for being slower than `limit` says."""
        self.slow_consumer_count += 1
        connection.account.slow_consumer_count += 1
        self.log.info(f"{connection} - Slow Consumer Detected: {limit}, {connection.outbound.pending()} bytes pending")

    def report_bug(self, bug: Exception, connection: Connection) -> None:
        """An exception that is nobody's plan reached a connection: it is the one to go."""
        self.runtime.process.on_bug(bug, str(connection))
        connection.close(ClosedReason.UNKNOWN)

    async def close_clients(self, duration_ns: int) -> None:
        """Close all clients one by one, spread over `duration_ns` with jitter (client protocol, "Lame duck")."""
        waiting = list(self.connections.values())
        if not waiting:
            return
        step_ns = min(CLOSE_STEP_NS, max(2, duration_ns // len(waiting)))
        for connection in waiting:
            connection.close(ClosedReason.SERVER_SHUTDOWN)
            await self.runtime.clock.sleep_ns(step_ns // 2 + self._timer_draw.below(step_ns // 2))

    # ------------------------------------------------------------------ accounts and internal clients

    def account(self, name: str = GLOBAL_ACCOUNT) -> Account:
        """The account of that name, made on first use."""
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name, self.draw)
        return account

    def internal_client(
        self, account: Account, name: str, deliver: Callable[[list[Message]], None], *, echo: bool = False
    ) -> InternalClient:
        """A client for a part of the server itself; see `tnats.broker.internal`."""
        return InternalClient(self.exchange, account, name, deliver, echo=echo)

    def internal_funnel(
        self, account: Account, name: str, prefix: bytes, deliver: Callable[[bytearray], None]
    ) -> InternalClient:
        """A client that gets everything under `prefix` ("name."), in bundles; an account can have one."""
        return InternalClient(self.exchange, account, name, deliver, echo=False, prefix=prefix)

    def run_pass(self, work: Callable[[], None]) -> None:
        """Call `work` outside of the reactor's passes; what it publishes goes out at once."""
        self.exchange.passing = True  # it needs no wake-up
        work()
        self.exchange.settle()

    # ------------------------------------------------------------------ changes while running

    def update_info(self, **changes: Any) -> None:
        """Change fields of INFO (`connect_urls`, `ldm`, `jetstream`, ...) and tell clients that understand it."""
        self.info = attrs.evolve(self.info, **changes)
        for connection in list(self.connections.values()):
            connection.send_info()

    def reload(self, options: BrokerOptions, gatekeeper: Gatekeeper) -> None:
        """Take over the reloadable options and who may connect.

        Raises TnatsError, with nothing changed, if others differ.
        """
        differences = fixed_differences(self.options, options)
        if differences:
            raise TnatsError(f"cannot reload {', '.join(differences)}: restart the server to change it")
        payload_changed = options.max_payload != self.options.max_payload
        self.options = options
        self.gatekeeper = gatekeeper
        for connection in list(self.connections.values()):
            connection.apply_limits()
            connection.login.judge_again()
        excess = len(self.connections) - max(0, options.max_connections)
        for connection in list(self.connections.values())[::-1][: max(0, excess)]:
            connection.send_error(MAX_CONNECTIONS_EXCEEDED)
        if payload_changed:
            self.update_info(max_payload=options.max_payload)

    # ------------------------------------------------------------------ figures

    def snapshot(self) -> BrokerSnapshot:
        """Counters of the whole broker."""
        traffic = Traffic()
        for account in self.accounts.values():
            traffic.add(account.traffic())
        return BrokerSnapshot(
            connections=len(self.connections),
            total_connections=self.total_connections,
            subscriptions=sum(len(account.sublist) for account in self.accounts.values()),
            traffic=traffic,
            slow_consumers=self.slow_consumer_count,
            stale_connections=self.stale_connection_count,
            stalls=self.stall_count,
            accounts=len(self.accounts),
        )

    def connection_snapshots(self) -> Iterator[ConnectionSnapshot]:
        """The open connections, oldest first, without their subscriptions. Those that were closed are in `closed`."""
        for connection in self.connections.values():
            yield self._snapshot(connection, with_subscriptions=False)

    def connection_snapshot(self, cid: int) -> ConnectionSnapshot:
        """An open connection with its subscriptions."""
        return self._snapshot(self.connections[cid], with_subscriptions=True)

    def _snapshot(self, connection: Connection, *, with_subscriptions: bool) -> ConnectionSnapshot:
        return connection_snapshot(
            connection,
            mono_ns=self.now_ns(),
            wall_ns=self.runtime.clock.wall_ns(),
            with_subscriptions=with_subscriptions,
        )


def _info(options: BrokerOptions) -> ServerInfo:
    return ServerInfo(
        server_id=options.server_id,
        server_name=options.server_name,
        version=options.version,
        git_commit=options.git_commit,
        go=options.language_version,
        host=options.host,
        port=options.port,
        headers=not options.no_header_support,
        max_payload=options.max_payload,
        jetstream=options.jetstream,
        cluster=options.cluster_name,
        domain=options.domain,
        api_lvl=options.api_level,
        xkey=options.xkey,
    )
