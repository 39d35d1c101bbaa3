"""A scenario: what runs in a simulated world, what goes wrong there, and what must hold.

A scenario file defines a subclass of `Scenario` and names it `scenario`. One object is made for each run and keeps
what the run needs to remember; everything it draws comes from `world.rng(label)`.

Most scenarios are drills (`tnats.harness.sim.drill`): what happens in them is a plan that can be read, shrunk and
kept. A plain `Scenario` decides as it goes, and only its seed repeats it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import trio

from tnats.runtime.sim.world import Outcome, Settings, World, run_world


class Violation(Exception):
    """A property that must hold did not; the text says which, and shows the evidence.

    `rule` names the checker and the property ("C32 order"): two violations of one rule count as the same bug.
    `note_index` is the event of the run's recording that broke it, if there is one.
    """

    def __init__(self, text: str, *, rule: str = "expectation", note_index: int | None = None) -> None:
        super().__init__(text)
        self.rule = rule
        self.note_index = note_index


def expect(condition: object, text: str) -> None:
    """Raise `Violation(text)` unless `condition` holds."""
    if not condition:
        raise Violation(text)


class Scenario:
    """The phases of a run, in order; a subclass fills in what it needs. The docstring says what must hold."""

    settings = Settings()
    must_fail = False
    """A canary: a batch in which it passes proves that nothing is looked at."""

    def profile(self) -> AbstractContextManager[None]:
        """What is scaled down for the length of the run."""
        return nullcontext()

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
    with scenario.profile():
        await scenario.setup(world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scenario.faults, world, name="faults")
            await scenario.workload(world)
            nursery.cancel_scope.cancel()
        world.heal()
        await scenario.settle(world)
        scenario.check(world)


def run_scenario(
    kind: type[Scenario], seed: int, settings: Settings | None = None, scenario: Scenario | None = None
) -> Outcome[None]:
    """One run of a scenario in a world of its own; `scenario` is the object to use, a new one if not given."""
    played = scenario or kind()

    async def main(world: World) -> None:
        await play(played, world)

    return run_world(seed, main, settings or played.settings)
