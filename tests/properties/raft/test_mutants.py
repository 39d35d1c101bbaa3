"""The schedules must find what is planted, each within its stated number of seeds."""

from __future__ import annotations

import random

import pytest
from tests.properties.raft.mutants import MUTANTS, Mutant
from tests.properties.raft.schedules import run_schedule

from tnats.errors import InvariantBroken


def hunt(mutant: Mutant, first: int = 0) -> tuple[int, str] | None:
    """The first seed that finds the mutant, and what it said."""
    with mutant.planted():
        for seed in range(first, first + mutant.seeds):
            swarm = mutant.swarm(random.Random(seed)) if mutant.swarm is not None else None
            try:
                run_schedule(seed, mutant.world_class, swarm=swarm, heal=True)
            except (AssertionError, InvariantBroken) as found:
                return seed, str(found)
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_fault_is_found(mutant: Mutant) -> None:
    """A machine with this fault breaks a rule within the stated number of schedules."""
    assert hunt(mutant) is not None, f"{mutant.name}: not found within {mutant.seeds} seeds"


def test_recipes_find_nothing_in_the_real_machine() -> None:
    """The recipes that find the mutants find nothing without them: it is the mutant that they find."""
    for number, recipe in enumerate(dict.fromkeys(mutant.swarm for mutant in MUTANTS if mutant.swarm is not None)):
        for seed in range(5):
            run_schedule(1_000 * number + seed, swarm=recipe(random.Random(seed)))
