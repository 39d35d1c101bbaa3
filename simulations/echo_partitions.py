"""Networks that are cut, deaf on one side, held up, slow."""

from __future__ import annotations

from simulations._echo import EchoScenario

from tnats.runtime.sim import rules
from tnats.runtime.sim.rules import Rule
from tnats.runtime.sim.world import World


class EchoPartitions(EchoScenario):
    """Partitions of all kinds, delays and pauses lose no byte of a living connection, and all clients finish."""

    async def faults(self, world: World) -> None:
        rng = world.rng("nemesis")
        while True:
            await world.sleep_ns(rng.randrange(1_000_000_000))
            some = [client.name for client in self.clients if rng.random() < 0.5] or [self.clients[0].name]
            kinds: list[Rule] = [
                rules.partition(some, ["server"]),
                rules.deafen(some, ["server"]),
                rules.deafen(["server"], some),
                rules.reject(some, ["server"]),
                rules.clog(some, ["server"]),
                rules.swallow(some, ["server"]),
                rules.delay(some, ["server"], added_ns=rng.randrange(300_000_000), jitter_ns=100_000_000),
                rules.slow(some, ["server"], bytes_per_second=rng.choice([1_000, 100_000])),
            ]
            with world.fabric.apply(rng.choice(kinds)):
                if rng.random() < 0.3:
                    world.nodes["server"].pause()
                await world.sleep_ns(rng.randrange(5_000_000_000))
                world.nodes["server"].resume()


scenario = EchoPartitions
