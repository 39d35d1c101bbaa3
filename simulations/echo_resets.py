"""Connections that break at any byte."""

from __future__ import annotations

from collections.abc import Sequence

from simulations._echo import EchoScenario

from tnats.runtime.sim import rules
from tnats.runtime.sim.world import World


class EchoResets(EchoScenario):
    """Under resets in the middle of frames every connection stays in order, and all clients finish."""

    async def faults(self, world: World) -> None:
        rng = world.rng("nemesis")
        clients: Sequence[str] = [client.name for client in self.clients]
        while True:
            await world.sleep_ns(rng.randrange(500_000_000))
            with (
                world.fabric.apply(rules.resets(clients, ["server"], chance=rng.choice([0.01, 0.1, 0.5]))),
                world.fabric.apply(rules.splits(clients, ["server"], chance=rng.random())),
            ):
                await world.sleep_ns(rng.randrange(2_000_000_000))
            for client in clients:
                if rng.random() < 0.3:
                    world.fabric.reset_between(client, "server")


scenario = EchoResets
