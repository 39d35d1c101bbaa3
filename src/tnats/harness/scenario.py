"""A scenario: what runs in a simulated world, what goes wrong there, and what must hold.

A scenario file defines a subclass of `Scenario` and names it `scenario`. One object is made for each run and keeps
what the run needs to remember; everything it draws comes from `world.rng(label)`.
"""

from __future__ import annotations

import trio

from tnats.runtime.sim.world import Outcome, Settings, World, run_world


class Violation(Exception):
    """A property that must hold did not; the text says which, and shows the evidence."""


def expect(condition: object, text: str) -> None:
    """Raise `Violation(text)` unless `condition` holds."""
    if not condition:
        raise Violation(text)


class Scenario:
    """The phases of a run, in order; a subclass fills in what it needs. The docstring says what must hold."""

    settings = Settings()

    async def setup(self, world: World) -> None:
        """Make and start the nodes."""

    async def workload(self, world: World) -> None:
        """Use the system; the run goes on until this returns."""

    async def faults(self, world: World) -> None:
        """Trouble the system while the workload runs; cancelled when that ends. Then the world is healed."""

    async def settle(self, world: World) -> None:
        """Wait until the healed system has come to rest, and collect what `check` looks at."""

    def check(self, world: World) -> None:
        """Raise `Violation` unless everything that must hold does."""


async def play(scenario: Scenario, world: World) -> None:
    """Run the phases of `scenario`."""
    await scenario.setup(world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scenario.faults, world, name="faults")
        await scenario.workload(world)
        nursery.cancel_scope.cancel()
    world.heal()
    await scenario.settle(world)
    scenario.check(world)


def run_scenario(kind: type[Scenario], seed: int, settings: Settings | None = None) -> Outcome[None]:
    """One run of a scenario in a world of its own."""
    scenario = kind()

    async def main(world: World) -> None:
        await play(scenario, world)

    return run_world(seed, main, settings or scenario.settings)
