"""A world with one server that has JetStream, and a machine for its clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager

import attrs
import orjson
import trio

import tnats.harness.sim.imports  # noqa: F401
from tnats.client import Client, ClientError, connect
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime
from tnats.runtime.sim.node import Node as Machine
from tnats.runtime.sim.world import Outcome, Settings, World, run_world
from tnats.server.compose import build
from tnats.server.config.jetstream import JetStreamOptions
from tnats.server.config.options import Options
from tnats.server.node import Node

STORE = "/data/jetstream"


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

    async def sleep(self, seconds: float) -> None:
        await self.world.sleep_ns(round(seconds * SECOND_NS))

    async def restart(self) -> None:
        """Kill the server's process and start it again."""
        self.machine.kill()
        await self.machine.wait_ended()
        self.machine.start()
        await self.sleep(1)


def play(
    seed: int,
    scene: Callable[[Stage], Awaitable[object]],
    sync_interval: tuple[int, bool] = (0, True),
    keys: Iterator[tuple[str, str]] | None = None,
) -> Outcome[object]:
    """Run `scene` beside a server; its value is the outcome's. `sync_interval` in ns, or always.

    `keys`: the store's key and its previous one, for each start.
    """

    async def main(world: World) -> object:
        outcome: list[object] = []
        nodes: list[Node] = []

        async def serve(runtime: Runtime) -> None:
            key, prev_key = ("", "") if keys is None else next(keys)
            jetstream = JetStreamOptions(
                enabled=True, store_dir=STORE, sync_interval=sync_interval, key=key, prev_key=prev_key
            )
            nodes.append(build(runtime, Options(jetstream=jetstream)))
            await nodes[-1].run()

        async def clients(runtime: Runtime) -> None:
            outcome.append(await scene(Stage(world, server, runtime, nodes)))

        server = world.node("server")
        server.start(serve)
        await world.sleep_ns(SECOND_NS)
        machine = world.node("clients")
        machine.start(clients)
        await machine.wait_ended()
        return outcome[0]

    return run_world(seed, main, Settings(buggify=False))


def open_client(stage: Stage) -> AbstractAsyncContextManager[Client]:
    """A client that comes back, however often its server goes."""
    return connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None)


async def call(client: Client, subject: str, body: object = None) -> dict[str, object]:
    """A JetStream request, until it is answered."""
    while True:
        try:
            answer = await client.request(f"$JS.API.{subject}", orjson.dumps(body) if body else b"", timeout_s=2)
        except ClientError:
            await trio.lowlevel.checkpoint()
        else:
            found: dict[str, object] = orjson.loads(answer.data)
            return found


async def publish(client: Client, subject: str, payload: bytes = b"") -> dict[str, object] | None:
    """Publish once; the answer, None if there was none."""
    try:
        answer = await client.request(subject, payload, timeout_s=1)
    except ClientError:
        return None
    found: dict[str, object] = orjson.loads(answer.data)
    return found


async def message_count(client: Client, stream: str = "S") -> int:
    """How many messages a stream holds."""
    state = (await call(client, f"STREAM.INFO.{stream}"))["state"]
    assert isinstance(state, dict)
    count: int = state["messages"]
    return count
