"""A broker on a simulated node, and raw client connections to it, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio

from tnats.auth.users import Authenticator, Credentials
from tnats.broker.broker import Broker
from tnats.broker.options import BrokerOptions
from tnats.limits import SECOND_NS
from tnats.runtime.api import Conn, ConnectionBroken, Runtime
from tnats.runtime.sim.world import Outcome, Settings, World, run_world

PORT = 4222
QUIET_S = 0.05
"""Longer than any chain of messages takes in the simulated network."""


def broker_options(**changes: object) -> BrokerOptions:
    return attrs.evolve(
        BrokerOptions(server_id="NSERVER", server_name="one", version="2.15.1", language_version="go1"), **changes
    )


class ListLog:
    """Keeps the lines of a broker's log."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def debug(self, text: str) -> None:
        self.lines.append(f"DBG {text}")

    def info(self, text: str) -> None:
        self.lines.append(f"INF {text}")

    def warn(self, text: str) -> None:
        self.lines.append(f"WRN {text}")

    def error(self, text: str) -> None:
        self.lines.append(f"ERR {text}")


class RawClient:
    """A connection that says what a test wants and remembers what it was told."""

    def __init__(self, stage: Stage, conn: Conn) -> None:
        self.stage = stage
        self.conn = conn
        self.closed = False
        self._buffer = bytearray(1 << 20)

    async def send(self, data: bytes) -> None:
        """Write all of `data`, waiting for room; what a closed connection does not take is lost."""
        try:
            while data:
                count = self.conn.write([data])
                data = data[count:]
                if data:
                    await self.conn.wait_writable()
        except ConnectionBroken:
            self.closed = True

    def take(self) -> bytes:
        """What has arrived."""
        parts = []
        try:
            while not self.closed:
                count = self.conn.read_into(self._buffer)
                if count is None:
                    break
                if count == 0:
                    self.closed = True
                else:
                    parts.append(bytes(self._buffer[:count]))
        except ConnectionBroken:
            self.closed = True
        return b"".join(parts)

    async def read(self) -> bytes:
        """What has arrived once all is quiet."""
        parts = []
        while True:
            await self.stage.sleep(QUIET_S)
            part = self.take()
            if not part:
                return b"".join(parts)
            parts.append(part)

    async def ask(self, data: bytes) -> bytes:
        """What comes back for `data`."""
        await self.send(data)
        return await self.read()


class Stage:
    """What a scene is given."""

    def __init__(
        self, world: World, options: BrokerOptions, gatekeeper: Authenticator, broker_class: type[Broker]
    ) -> None:
        self.world = world
        self._broker_class = broker_class
        self.tune: Callable[[Broker], None] = lambda broker: None
        self.options = options
        self.gatekeeper = gatekeeper
        self.log = ListLog()
        self.broker: Broker
        self.runtime: Runtime
        """Of the clients."""
        self.server_scope = trio.CancelScope()

    async def serve(self, runtime: Runtime) -> None:
        self.broker = self._broker_class(runtime, self.options, self.gatekeeper, self.log)
        self.tune(self.broker)
        with self.server_scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.broker.run)
                listener = await runtime.network.listen("0.0.0.0", PORT)
                self.broker.open_door(listener)

    async def sleep(self, seconds: float) -> None:
        await self.runtime.clock.sleep_ns(round(seconds * SECOND_NS))

    async def connect(self, connect: bytes | None = b'{"verbose":false,"pedantic":false,"headers":true}') -> RawClient:
        """A client that has read INFO and, unless `connect` is None, sent CONNECT."""
        client = RawClient(self, await self.runtime.network.connect("server", PORT, timeout_ns=SECOND_NS))
        if connect is None:
            return client
        answer = await client.ask(b"CONNECT %b\r\n" % connect)
        assert answer.startswith(b"INFO {")
        return client


Scene = Callable[[Stage], Awaitable[None]]


def play(
    scene: Scene,
    *,
    credentials: Credentials | None = None,
    seed: int = 1,
    broker_class: type[Broker] = Broker,
    tune: Callable[[Broker], None] = lambda broker: None,
    buggify: bool = False,
    **changes: object,
) -> Outcome[None]:
    """Run `scene` beside a broker with these options; raises what either raises."""

    async def main(world: World) -> None:
        stage = Stage(world, broker_options(**changes), Authenticator(credentials or Credentials()), broker_class)
        stage.tune = tune

        async def clients(runtime: Runtime) -> None:
            stage.runtime = runtime
            try:
                await scene(stage)
            except Exception as exc:
                world.fail(exc)

        world.node("server").start(stage.serve)
        await world.sleep_ns(SECOND_NS // 10)
        node = world.node("clients")
        node.start(clients)
        await node.wait_ended()

    outcome = run_world(seed, main, Settings(buggify=buggify))
    outcome.unwrap()
    return outcome
