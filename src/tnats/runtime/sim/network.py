"""Listening, connecting and resolving on the simulated network."""

from __future__ import annotations

import trio

from tnats.errors import ensure
from tnats.limits import SECOND_NS
from tnats.runtime.api import Address, Buffer, Conn, NetworkError, TlsContext, TlsOptions
from tnats.runtime.sim import trace as kinds
from tnats.runtime.sim.chance import stream
from tnats.runtime.sim.conn import SimConn
from tnats.runtime.sim.fabric import Fabric, Host
from tnats.runtime.sim.life import Life
from tnats.runtime.sim.listener import SimListener
from tnats.runtime.sim.poller import SimPoller
from tnats.runtime.sim.timeline import QUIET, deadline_of_time
from tnats.runtime.sim.tls import SimTlsContext, start_tls

SYN_RETRY_NS = SECOND_NS
WILDCARDS = ("", "0.0.0.0", "::")


class SimNetwork:
    """`tnats.runtime.api.Network` of one incarnation."""

    __slots__ = ("_fabric", "_host", "_life", "_poller_count", "_seed")

    def __init__(self, life: Life, fabric: Fabric, host: Host, seed: int) -> None:
        self._life = life
        self._fabric = fabric
        self._host = host
        self._seed = seed
        self._poller_count = 0

    async def listen(self, host: str, port: int, *, backlog: int = 1024) -> SimListener:
        self._life.check()
        await trio.lowlevel.checkpoint()
        self._life.check()
        where = f"cannot listen on {host}:{port}"
        if host not in WILDCARDS:
            try:
                address = self._fabric.resolve(host, self._host)
            except NetworkError:
                raise NetworkError(f"{where}: name or service not known") from None
            if address not in ("127.0.0.1", self._host.address):
                raise NetworkError(f"{where}: cannot assign requested address")
        if port == 0:
            port = self._host.free_port()
        if port in self._host.listeners:
            raise NetworkError(f"{where}: address already in use")
        return SimListener(self._life, self._fabric, self._host, (host, port), backlog)

    async def connect(self, host: str, port: int, *, timeout_ns: int) -> SimConn:
        self._life.check()
        where = f"cannot connect to {host}:{port}"
        try:
            address = self._fabric.resolve(host, self._host)
        except NetworkError as exc:
            await trio.lowlevel.checkpoint()
            raise NetworkError(f"{where}: name or service not known") from exc
        attempt = Attempt(self._life, self._fabric, self._host, (address, port))
        timeline = self._fabric.timeline
        timeout = timeline.at(
            timeline.now_ns + timeout_ns, attempt.end, f"no answer within {timeout_ns / SECOND_NS:g} s"
        )
        try:
            await attempt.wait()
        finally:
            timeline.cancel(timeout)
        self._life.check()
        if attempt.conn is None:
            raise NetworkError(f"{where}: {attempt.failure}")
        return attempt.conn

    def tls_context(self, options: TlsOptions, *, server_side: bool) -> SimTlsContext:
        self._life.check()
        return SimTlsContext(options, server_side)

    async def start_tls(
        self, conn: Conn, context: TlsContext, *, server_name: str = "", received: Buffer = b"", timeout_ns: int
    ) -> SimConn:
        self._life.check()
        ensure(isinstance(conn, SimConn), f"{conn!r} is not a simulated connection")
        ensure(isinstance(context, SimTlsContext), f"{context!r} is not a simulated TLS context")
        await start_tls(
            conn,  # type: ignore[arg-type]  # just ensured
            context,  # type: ignore[arg-type]
            self.poller(),
            server_name=server_name,
            received=received,
            deadline=trio.CancelScope(deadline=deadline_of_time(self._fabric.timeline.now_ns + timeout_ns)),
            timeout_s=timeout_ns / SECOND_NS,
        )
        return conn  # type: ignore[return-value]

    async def resolve(self, host: str) -> list[str]:
        self._life.check()
        await trio.lowlevel.checkpoint()
        self._life.check()
        return [self._fabric.resolve(host, self._host)]

    def poller(self) -> SimPoller:
        self._life.check()
        self._poller_count += 1
        rng = stream(self._seed, self._life.node.name, self._life.number, "poller", self._poller_count)
        return SimPoller(self._life, rng)

    def interface_addresses(self) -> list[str]:
        self._life.check()
        return [self._host.address]


class Attempt:
    """One connection on its way: SYN there (again every 1, 2, 4 ... s), answer back."""

    def __init__(self, life: Life, fabric: Fabric, host: Host, target: Address) -> None:
        self.conn: SimConn | None = None
        self.failure: str | None = None
        self._life = life
        self._fabric = fabric
        self._host = host
        self._target = target
        self._remote_host = host if target[0] == "127.0.0.1" else fabric.host_at(target[0])
        self._waiting: trio.lowlevel.Task | None = None
        self._half: SimConn | None = None
        self._local_port = host.free_port()

    async def wait(self) -> None:
        """Return once `conn` or `failure` is there."""
        self._send(SYN_RETRY_NS)
        self._waiting = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiting = None
            self._give_up("cancelled")
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def end(self, failure: str) -> object:
        """Fail, unless there is an outcome already."""
        if self._done:
            return QUIET
        self._give_up(failure)
        return self._finish()

    @property
    def _done(self) -> bool:
        return self.conn is not None or self.failure is not None

    def _give_up(self, failure: str) -> None:
        self.failure = failure
        if self._half is not None:
            self._half.end(reset=True)

    def _finish(self) -> object:
        if self._waiting is None:
            return QUIET
        trio.lowlevel.reschedule(self._waiting)
        self._waiting = None
        return None

    def _send(self, retry_ns: int) -> object:
        if self._done or self._remote_host is None:
            return QUIET  # nobody has this address: only the time-out ends it
        fabric = self._fabric
        there = fabric.link(self._host, self._remote_host, self._target[1])
        now_ns = fabric.timeline.now_ns
        if there.condition.reject:
            fabric.timeline.at(now_ns + there.draw_delay_ns(), self.end, "connection refused")
            return QUIET
        if there.open:
            fabric.timeline.at(now_ns + there.draw_delay_ns(), self._arrive)
        fabric.timeline.at(now_ns + retry_ns, self._send, 2 * retry_ns)
        return QUIET

    def _arrive(self) -> object:
        """The SYN reached the other host."""
        remote_host = self._remote_host
        assert remote_host is not None
        if self._done or self._half is not None or not remote_host.up:
            return self._answer() if self._half is not None else QUIET
        fabric = self._fabric
        host, port = self._host, self._target[1]
        back = fabric.link(remote_host, host, port)
        listener = remote_host.listeners.get(port)
        if listener is None or not serves(listener, self._target[0]):
            if back.open:
                fabric.timeline.at(fabric.timeline.now_ns + back.draw_delay_ns(), self.end, "connection refused")
            return QUIET
        if listener.full:
            return QUIET
        there = fabric.link(host, remote_host, port)
        source = "127.0.0.1" if remote_host is host else host.address
        local, peer = (source, self._local_port), self._target
        self._half = SimConn(self._life, fabric, host, there, local, peer)
        fabric.trace.add(kinds.CONNECT, self._half.number, port)
        remote = SimConn(listener.life, fabric, remote_host, back, peer, local)
        self._half.join(remote)
        if there.condition.swallow:
            remote.end_of_power()
            self._half.silence()
        else:
            listener.arrive(remote)
        self._answer()
        return None

    def _answer(self) -> object:
        assert self._half is not None
        back = self._fabric.link(self._half.remote_host, self._host, self._target[1])
        if back.open:
            self._fabric.timeline.at(self._fabric.timeline.now_ns + back.draw_delay_ns(), self._established)
        return QUIET

    def _established(self) -> object:
        if self._done:
            return QUIET
        self.conn = self._half
        return self._finish()


def serves(listener: SimListener, address: str) -> bool:
    """Whether `listener` takes connections to `address`: wildcards take all, loopback only its own."""
    host = listener.address[0]
    if host in WILDCARDS:
        return True
    return (host in ("127.0.0.1", "localhost")) == (address == "127.0.0.1")
