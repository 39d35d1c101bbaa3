"""Two nodes, live or simulated, on which the contract tests play the same scenes."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import attrs
import pytest
import trio

from tnats.runtime.api import Conn, Listener, Network, Runtime
from tnats.runtime.live import live_runtime
from tnats.runtime.sim.node import Node
from tnats.runtime.sim.world import Settings, World, run_world

Scene = Callable[["Stage"], Awaitable[None]]
SECOND_NS = 1_000_000_000


class TrackedNetwork:
    """A network whose connections and listeners are closed at the end of the scene."""

    def __init__(self, network: Network, keep: Callable[[Conn | Listener], None]) -> None:
        self.poller = network.poller
        self.resolve = network.resolve
        self.tls_context = network.tls_context
        self.start_tls = network.start_tls
        self.interface_addresses = network.interface_addresses
        self._network = network
        self._keep = keep

    async def listen(self, host: str, port: int, *, backlog: int = 1024) -> Listener:
        listener = await self._network.listen(host, port, backlog=backlog)
        self._keep(listener)
        return listener

    async def connect(self, host: str, port: int, *, timeout_ns: int) -> Conn:
        conn = await self._network.connect(host, port, timeout_ns=timeout_ns)
        self._keep(conn)
        return conn


class Stage:
    """`server` and `client` are runtimes of two nodes (live: twice the same machine)."""

    server: Runtime
    client: Runtime
    server_host: str
    """The name by which the client reaches the server."""

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._opened: list[Conn | Listener] = []
        self._client_node: Node | None = None
        self._server_node: Node | None = None

    @property
    def simulated(self) -> bool:
        return self.seed is not None

    def run(self, scene: Scene) -> None:
        """Play `scene` to its end."""
        if self.seed is None:
            runtime = live_runtime(argv=["tnats", "--flag"])
            network = TrackedNetwork(runtime.network, self.keep)
            self.server = self.client = attrs.evolve(runtime, network=network)
            self.server_host = "127.0.0.1"
            trio.run(self._bounded, scene)
        else:
            run_world(self.seed, lambda world: self._play(world, scene), Settings(buggify=False)).unwrap()

    async def _bounded(self, scene: Scene) -> None:
        try:
            with trio.fail_after(60):
                await scene(self)
        finally:
            for opened in self._opened:
                opened.close()

    async def _play(self, world: World, scene: Scene) -> None:
        self.server_host = "server"
        started = trio.Event()

        async def serve(runtime: Runtime) -> None:
            self.server = runtime
            started.set()
            await trio.sleep_forever()

        async def play(runtime: Runtime) -> None:
            self.client = runtime
            await scene(self)

        self._server_node = world.node("server")
        self._client_node = world.node("client")
        self._client_node.argv = ["tnats", "--flag"]
        self._server_node.start(serve)
        await started.wait()
        self._client_node.start(play)
        await self._client_node.wait_ended()

    # helpers of many scenes

    def keep(self, opened: Conn | Listener) -> None:
        """Close `opened` when the scene is over."""
        self._opened.append(opened)

    async def listen(self) -> Listener:
        return await self.server.network.listen("0.0.0.0" if self.simulated else "127.0.0.1", 0)

    async def pair(self, listener: Listener | None = None) -> tuple[Conn, Conn]:
        """A connection, as (client's end, server's end)."""
        own = listener or await self.listen()
        client = await self.client.network.connect(self.server_host, own.address[1], timeout_ns=30 * SECOND_NS)
        server = await accepted(self, own)
        if listener is None:
            own.close()
        return client, server

    def signal(self, name: str) -> None:
        """Send a signal to the client's process."""
        if self._client_node is None:
            os.kill(os.getpid(), getattr(signal, f"SIG{name}"))
        else:
            self._client_node.signal(name)

    @contextmanager
    def descriptors_exhausted(self) -> Iterator[None]:
        """Leave the server no free file descriptor."""
        if self._server_node is not None:
            self._server_node.exhausted = "too many open files"
            yield
            self._server_node.exhausted = ""
            return
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        probe = os.dup(2)
        os.close(probe)
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture(params=[None, 1, 2, 3], ids=["live", "sim-1", "sim-2", "sim-3"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


async def accepted(stage: Stage, listener: Listener) -> Conn:
    """The next connection of the server's `listener`."""
    poller = stage.server.network.poller()
    poller.add(listener)
    conn = None
    while conn is None:
        await poller.wait()
        conn = listener.accept()
    stage.keep(conn)
    poller.remove(listener)
    poller.close()
    return conn


async def read_exactly(runtime: Runtime, conn: Conn, count: int) -> bytes:
    """`count` bytes of `conn`, fewer at the end of the stream."""
    poller = runtime.network.poller()
    poller.add(conn)
    received = bytearray()
    buffer = bytearray(65536)
    while len(received) < count:
        got = conn.read_into(memoryview(buffer)[: count - len(received)])
        if got is None:
            await poller.wait()
        elif got == 0:
            break
        else:
            received += buffer[:got]
    poller.remove(conn)
    poller.close()
    return bytes(received)


async def write_all(conn: Conn, data: bytes) -> None:
    """Write all of `data`, waiting for room."""
    view = memoryview(data)
    while view:
        view = view[conn.write([view]) :]
        if view:
            await conn.wait_writable()
