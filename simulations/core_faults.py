"""Core messaging of the real server and the real client on a bad network."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable

import trio

from tnats.client import connect
from tnats.client.client import Client
from tnats.client.errors import ConnectionLost
from tnats.harness.scenario import Scenario, expect
from tnats.runtime.api import Runtime
from tnats.runtime.sim import rules
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.runtime.sim.node import Node
from tnats.runtime.sim.rules import Rule
from tnats.runtime.sim.world import World
from tnats.server.compose import build
from tnats.server.config.options import Options

SECOND_NS = 1_000_000_000
PUBLISHERS = 3
PUBLISHED_EACH = 400
FINAL_EACH = 50


async def serve(runtime: Runtime) -> None:
    """One server with default options."""
    options = Options()
    options.host, options.port = "0.0.0.0", 4222
    await build(runtime, options).run()


async def on_server(runtime: Runtime, use: Callable[[Client], Awaitable[None]]) -> None:
    """Use a client that never gives up its server."""
    async with connect(
        "nats://server:4222", runtime=runtime, reconnect_attempts_max=None, ping_interval_s=1.0, connect_timeout_s=60.0
    ) as client:
        await use(client)


class Receiver:
    """Remembers what one subscription got."""

    def __init__(self, subject: str, queue: str = "") -> None:
        self.subject = subject
        self.queue = queue
        self.got: list[str] = []

    async def run(self, runtime: Runtime) -> None:
        async def use(client: Client) -> None:
            subscription = client.subscribe(self.subject, queue=self.queue)
            async for message in subscription:
                self.got.append(message.data.decode())

        await on_server(runtime, use)


class Publisher:
    """Publishes numbered messages; once told that all is healed, a last few that must arrive."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent = 0
        self.healed = trio.Event()
        self.done = trio.Event()

    async def run(self, runtime: Runtime) -> None:
        rng = runtime.chance.rng("publisher")

        async def use(client: Client) -> None:
            for _ in range(PUBLISHED_EACH):
                await self.publish(client)
                await runtime.clock.sleep_ns(rng.randrange(100_000_000))
            self.done.set()
            await self.healed.wait()
            try:
                await client.flush(timeout_s=60.0)
            except ConnectionLost:
                pass  # tells of messages that went down with a connection: core messaging is at most once
            for _ in range(FINAL_EACH):
                await self.publish(client)
            await client.flush(timeout_s=60.0)

        await on_server(runtime, use)

    async def publish(self, client: Client) -> None:
        await client.publish(f"load.{self.name}", f"{self.name} {self.sent}".encode())
        self.sent += 1


class CoreFaults(Scenario):
    """Nothing is made up or delivered twice; a queue group shares; after the faults everything arrives, in order."""

    def __init__(self) -> None:
        self.publishers = [Publisher(f"p{number}") for number in range(PUBLISHERS)]
        self.alone = [Receiver(">"), Receiver("load.*")]
        self.group = [Receiver("load.>", "workers"), Receiver("load.>", "workers")]
        self.publisher_nodes: list[Node] = []

    async def setup(self, world: World) -> None:
        world.node("server").start(serve)
        await world.sleep_ns(SECOND_NS)
        for number, receiver in enumerate([*self.alone, *self.group]):
            world.node(f"s{number}").start(receiver.run)
        await world.sleep_ns(SECOND_NS)

    async def workload(self, world: World) -> None:
        for publisher in self.publishers:
            node = world.node(publisher.name)
            self.publisher_nodes.append(node)
            node.start(publisher.run)
        for publisher in self.publishers:
            await publisher.done.wait()

    async def faults(self, world: World) -> None:
        rng = world.rng("nemesis")
        await world.sleep_ns(SECOND_NS)
        while True:
            some = [name for name in world.nodes if name != "server" and rng.random() < 0.5] or ["p0"]
            kinds: list[Rule] = [
                rules.partition(some, ["server"]),
                rules.deafen(some, ["server"]),
                rules.deafen(["server"], some),
                rules.reject(some, ["server"]),
                rules.clog(some, ["server"]),
                rules.delay(some, ["server"], added_ns=rng.randrange(300_000_000), jitter_ns=100_000_000),
                rules.slow(some, ["server"], bytes_per_second=rng.choice([1_000, 100_000])),
                rules.resets(some, ["server"], chance=rng.choice([0.01, 0.1])),
                rules.splits(some, ["server"], chance=0.9),
            ]
            with world.fabric.apply(rng.choice(kinds)):
                victim = world.nodes["server"] if rng.random() < 0.5 else world.nodes[rng.choice(some)]
                if rng.random() < 0.2:
                    victim.pause()
                elif rng.random() < 0.2:
                    victim.slow_down(rng.choice([100_000, 10_000_000]))
                await world.sleep_ns(rng.randrange(6_000_000_000))
                victim.slow_down(0)
                victim.resume()
            if rng.random() < 0.2:
                await self.restart(world, rng)
            await world.sleep_ns(rng.randrange(1_000_000_000))

    async def restart(self, world: World, rng: random.Random) -> None:
        """Let the server die in one way or another, and come back."""
        server = world.nodes["server"]
        try:
            way = rng.randrange(3)
            if way == 0:
                server.kill()
            elif way == 1:
                server.power_loss(rng.choice(list(CrashPolicy)))
            else:
                await server.stop()
            await world.sleep_ns(rng.randrange(3_000_000_000))
        finally:
            if not server.running:
                server.start()

    async def settle(self, world: World) -> None:
        # Long enough for every client to find its dead connection out, and to come back.
        await world.sleep_ns(30 * SECOND_NS)
        if not world.nodes["server"].running:  # an orderly stop was under way when the faults ended
            world.nodes["server"].start()
        await world.sleep_ns(30 * SECOND_NS)
        for publisher in self.publishers:
            publisher.healed.set()
        with world.deadline(120 * SECOND_NS):
            for node in self.publisher_nodes:
                await node.wait_ended()
        await world.sleep_ns(5 * SECOND_NS)

    def check(self, world: World) -> None:
        sent = {f"{publisher.name} {number}" for publisher in self.publishers for number in range(publisher.sent)}
        final = {
            publisher.name: [f"{publisher.name} {number}" for number in range(PUBLISHED_EACH, publisher.sent)]
            for publisher in self.publishers
        }
        for publisher in self.publishers:
            expect(publisher.sent == PUBLISHED_EACH + FINAL_EACH, f"{publisher.name} is not done after all was healed")
        for receiver in self.alone:
            made_up = [text for text in receiver.got if text not in sent]
            expect(not made_up, f"{receiver.subject} got what nobody sent: {made_up[:5]}")
            twice = [text for text, count in Counter(receiver.got).items() if count > 1]
            expect(not twice, f"{receiver.subject} got twice: {twice[:5]}")
            for name, wanted in final.items():
                got = [text for text in receiver.got if text in set(wanted)]
                expect(
                    got == wanted, f"{receiver.subject} got of the last messages of {name} only, or in the order {got}"
                )
        shared = [text for receiver in self.group for text in receiver.got]
        twice = [text for text, count in Counter(shared).items() if count > 1]
        expect(not twice, f"the queue group got twice: {twice[:5]}")
        missing = [text for wanted in final.values() for text in wanted if text not in set(shared)]
        expect(not missing, f"the queue group did not get {missing[:5]}, sent after all was healed")


scenario = CoreFaults
