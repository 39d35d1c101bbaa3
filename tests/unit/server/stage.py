"""A whole simulated world with one server, for tests of the node: its configuration is text, its clients raw bytes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import attrs

import tnats.edges.http_server  # imported by a node that needs it; pytest would then read files in the simulation
import tnats.server.jetstream
import tnats.server.reports  # noqa: F401
from tnats.limits import SECOND_NS
from tnats.runtime.api import Conn, ConnectionBroken, NetworkError, Runtime
from tnats.runtime.sim.node import Node as Machine
from tnats.runtime.sim.world import Settings, World, run_world
from tnats.server.compose import build
from tnats.server.config.load import read_options
from tnats.server.config.options import Options
from tnats.server.node import Node

PATH = "/etc/server.conf"
QUIET_NS = SECOND_NS // 20


class RawClient:
    """Says what a test wants and remembers what it was told."""

    def __init__(self, runtime: Runtime, conn: Conn) -> None:
        self.closed = False
        self.closed_ns = 0
        """When the end was seen, in monotonic time of the clients."""
        self._runtime = runtime
        self._conn = conn
        self._buffer = bytearray(1 << 16)

    async def ask(self, data: bytes = b"") -> bytes:
        """What comes back for `data`, once all is quiet."""
        if data:
            self._conn.write([data])
        answer = bytearray()
        while True:
            await self._runtime.clock.sleep_ns(QUIET_NS)
            part = self._take()
            if not part:
                return bytes(answer)
            answer += part

    def close(self) -> None:
        """Leave without a word."""
        self._conn.close()

    def _take(self) -> bytes:
        parts = []
        while not self.closed:
            try:
                count = self._conn.read_into(self._buffer)
            except ConnectionBroken:
                count = 0
            if count is None:
                break
            if count == 0:
                self.closed, self.closed_ns = True, self._runtime.clock.mono_ns()
            parts.append(bytes(self._buffer[:count]))
        return b"".join(parts)


@attrs.define
class Stage:
    """What a scene is given."""

    world: World
    machine: Machine
    runtime: Runtime
    """Of the clients."""
    nodes: list[Node]

    @property
    def node(self) -> Node:
        """The server that runs now."""
        return self.nodes[-1]

    @property
    def logged(self) -> list[str]:
        """Texts of the log so far, with their labels: `[INF] Server is ready`."""
        return texts(self.machine)

    @property
    def now_ns(self) -> int:
        return self.runtime.clock.mono_ns()

    def write_config(self, text: str) -> None:
        self.machine.texts[PATH] = text

    async def signal(self, name: str) -> None:
        """Send a signal and let its effects settle."""
        self.machine.signal(name)
        await self.sleep(0.2)

    async def reload(self, text: str) -> list[str]:
        """Change the configuration and send HUP; what was logged."""
        before = len(self.logged)
        self.write_config(text)
        await self.signal("HUP")
        return self.logged[before:]

    async def sleep(self, seconds: float) -> None:
        await self.runtime.clock.sleep_ns(round(seconds * SECOND_NS))

    async def connect(self, **connect: object) -> RawClient:
        """A client that has sent CONNECT with these fields and PING."""
        client = RawClient(self.runtime, await self.runtime.network.connect("server", 4222, timeout_ns=SECOND_NS))
        fields = {"verbose": False, "pedantic": False, "protocol": 1, **connect}
        assert (await client.ask(b"CONNECT %b\r\nPING\r\n" % json.dumps(fields).encode())).startswith(b"INFO {")
        return client

    async def accepts(self) -> bool:
        """Whether the server takes new connections."""
        try:
            conn = await self.runtime.network.connect("server", 4222, timeout_ns=SECOND_NS)
        except NetworkError:
            return False
        conn.close()
        return True


def texts(machine: Machine) -> list[str]:
    """What the server on `machine` has logged, without pid and time."""
    return ["[" + line.split(" [", 1)[1] for _, line in machine.log_lines]


Scene = Callable[[Stage], Awaitable[None]]


def play(scene: Scene, config: str = "", *, seed: int = 1) -> None:
    """Run `scene` beside a server with this configuration; raises what either raises."""

    async def main(world: World) -> None:
        machine, nodes = start_server(world, config or "port: 4222")

        async def clients(runtime: Runtime) -> None:
            try:
                await scene(Stage(world, machine, runtime, nodes))
            except Exception as exc:
                world.fail(exc)

        await world.sleep_ns(SECOND_NS)
        audience = world.node("clients")
        audience.start(clients)
        await audience.wait_ended()

    run_world(seed, main, Settings(buggify=False)).unwrap()


def start_server(world: World, config: str) -> tuple[Machine, list[Node]]:
    """A machine that runs a server with this configuration, and the nodes it has run, oldest first."""
    nodes: list[Node] = []

    async def serve(runtime: Runtime) -> None:
        def read() -> Options:
            return read_options(PATH, read=runtime.process.read_text, env={})

        node = build(runtime, read(), read_options=read)
        nodes.append(node)
        await node.run()

    machine = world.node("server")
    machine.texts[PATH] = config
    machine.start(serve)
    return machine, nodes
