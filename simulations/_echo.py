"""An echo server and its clients: what the network scenarios trouble."""

from __future__ import annotations

from tnats.harness.scenario import Scenario, expect
from tnats.limits import SECOND_NS
from tnats.runtime.api import Conn, ConnectionBroken, NetworkError, Poller, Runtime
from tnats.runtime.sim.node import Node
from tnats.runtime.sim.world import World

PORT = 7


class EchoServer:
    """Sends back what it gets: one reactor, back-pressure by pausing who does not read."""

    async def run(self, runtime: Runtime) -> None:
        listener = await runtime.network.listen("0.0.0.0", PORT)
        poller = runtime.network.poller()
        poller.add(listener)
        waiting: dict[Conn, bytes] = {}
        buffer = bytearray(4096)
        while True:
            for source in await poller.wait():
                if source is listener:
                    while (conn := listener.accept()) is not None:
                        poller.add(conn)
                else:
                    self.echo(source, poller, waiting, buffer)  # type: ignore[arg-type]
            for conn, data in list(waiting.items()):
                self.push(conn, data, poller, waiting)
            if waiting:
                await runtime.clock.sleep_ns(1_000_000)

    def echo(self, conn: Conn, poller: Poller, waiting: dict[Conn, bytes], buffer: bytearray) -> None:
        try:
            count = conn.read_into(buffer)
        except ConnectionBroken:
            count = 0
        if count == 0:
            conn.close()
            waiting.pop(conn, None)
        elif count is not None:
            self.push(conn, bytes(buffer[:count]), poller, waiting)

    def push(self, conn: Conn, data: bytes, poller: Poller, waiting: dict[Conn, bytes]) -> None:
        try:
            taken = conn.write([data])
        except ConnectionBroken:
            conn.close()
            waiting.pop(conn, None)
            return
        if taken < len(data):
            waiting[conn] = data[taken:]
            poller.pause(conn)
        elif waiting.pop(conn, None) is not None:
            poller.resume(conn)


class EchoClient:
    """Sends numbered lines on one connection after another, until each line has come back once."""

    def __init__(self, name: str, line_count: int) -> None:
        self.name = name
        self.line_count = line_count
        self.confirmed_count = 0
        self.connection_count = 0

    async def run(self, runtime: Runtime) -> None:
        rng = runtime.chance.rng("client")
        while self.confirmed_count < self.line_count:
            try:
                conn = await runtime.network.connect("server", PORT, timeout_ns=2 * SECOND_NS)
            except NetworkError:
                await runtime.clock.sleep_ns(rng.randrange(100_000_000, 500_000_000))
                continue
            self.connection_count += 1
            await self.converse(runtime, conn)
            conn.close(reset=rng.random() < 0.5)

    async def converse(self, runtime: Runtime, conn: Conn) -> None:
        """Send and compare until all is confirmed, the connection breaks, or nothing comes for a while."""
        rng = runtime.chance.rng("lines")
        poller = runtime.network.poller()
        poller.add(conn)
        sent = b""
        received = bytearray()
        buffer = bytearray(4096)
        next_line = self.confirmed_count
        try:
            while self.confirmed_count < self.line_count:
                await runtime.clock.sleep_ns(rng.randrange(100_000_000))
                while next_line < self.line_count and next_line - self.confirmed_count < 20 and rng.random() < 0.8:
                    line = f"{self.name} {next_line} {'x' * rng.randrange(200)}\n".encode()
                    if conn.write([line]) < len(line):
                        return
                    sent += line
                    next_line += 1
                if next_line == self.confirmed_count:
                    continue
                with runtime.clock.deadline(runtime.clock.mono_ns() + 5 * SECOND_NS) as patience:
                    await poller.wait()
                if patience.cancelled_caught:
                    return
                count = conn.read_into(buffer)
                if count == 0:
                    return
                received += buffer[: count or 0]
                expect(
                    sent.startswith(received),
                    f"{self.name}, connection {self.connection_count}: got {bytes(received[-80:])!r} back, which is "
                    f"not what was sent at this place",
                )
                done = received.rfind(b"\n") + 1
                self.confirmed_count += received.count(b"\n", 0, done)
                sent = sent[done:]
                del received[:done]
        except ConnectionBroken:
            return
        finally:
            poller.remove(conn)


class EchoScenario(Scenario):
    """Three clients with a thousand lines each."""

    def __init__(self) -> None:
        self.clients: list[EchoClient] = []
        self.nodes: list[Node] = []

    async def setup(self, world: World) -> None:
        world.node("server").start(EchoServer().run)
        for number in range(3):
            client = EchoClient(f"client{number}", line_count=1000)
            self.clients.append(client)
            self.nodes.append(world.node(client.name))

    async def workload(self, world: World) -> None:
        for node, client in zip(self.nodes, self.clients, strict=True):
            node.start(client.run)
        # The nemesis goes on for a minute; what is left after that must be done in the healed world.
        with world.deadline(60 * SECOND_NS):
            for node in self.nodes:
                await node.wait_ended()

    async def settle(self, world: World) -> None:
        with world.deadline(60 * SECOND_NS):
            for node in self.nodes:
                await node.wait_ended()

    def check(self, world: World) -> None:
        for client in self.clients:
            expect(
                client.confirmed_count == client.line_count,
                f"{client.name} got {client.confirmed_count} of {client.line_count} lines back, a minute after all "
                "was healed",
            )
