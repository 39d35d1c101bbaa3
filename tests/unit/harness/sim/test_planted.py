"""The drills find bugs: each planted one within its stated seeds; the corpus still finds what it was drawn up for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.harness.sim.planted import PLANTED, Planted
from tests.unit.harness.sim.planted_admin import PLANTED_ADMIN
from tests.unit.harness.sim.planted_consumers import PLANTED_CONSUMERS
from tests.unit.harness.sim.planted_found import PLANTED_FOUND
from tests.unit.harness.sim.planted_jetstream import PLANTED_JETSTREAM
from tests.unit.harness.sim.planted_limits import PLANTED_LIMITS

from tnats.harness.catalogue import load_scenario
from tnats.harness.sim import files
from tnats.harness.sim.corpus import STALE, run_entry
from tnats.harness.sim.drill import Drill
from tnats.harness.sim.plan import Plan
from tnats.harness.sim.run import run_plan, run_seed
from tnats.harness.sim.shrink import Shrinker

SCENARIOS = Path(__file__).parents[4] / "simulations"
ALL_PLANTED = (*PLANTED, *PLANTED_JETSTREAM, *PLANTED_CONSUMERS, *PLANTED_ADMIN, *PLANTED_LIMITS, *PLANTED_FOUND)
CORPUS = files.corpus(SCENARIOS)


def first_found(bug: Planted) -> tuple[type[Drill], Plan, str] | None:
    """The first plan that finds the bug, with the rule it broke."""
    kind = load_scenario(SCENARIOS, bug.scenario)
    assert issubclass(kind, Drill)
    for seed in range(1, bug.seeds + 1):
        result = run_seed(kind, bug.scenario, seed).result
        if result.rule in bug.rules:
            return kind, kind.draw(seed), result.rule
    return None


RARE_SEEDS = 40


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, id=bug.name, marks=[pytest.mark.slow] if bug.seeds >= RARE_SEEDS else [])
        for bug in ALL_PLANTED
        if bug.seeds
    ],
)
def test_a_planted_bug_is_found(bug: Planted) -> None:
    """Within the stated seeds some run breaks one of the rules that stand for this bug."""
    with bug.planted():
        assert first_found(bug) is not None


@pytest.mark.parametrize(
    "name",
    [
        "a client never looks whether its connection lives",
        pytest.param("fsync errors are ignored", marks=pytest.mark.slow),
    ],
)
def test_a_planted_bug_shrinks_to_little(name: str) -> None:
    """What is left of a failing plan is at most three faults and six operations, and each fault is needed."""
    bug = next(bug for bug in ALL_PLANTED if bug.name == name)
    with bug.planted():
        found = first_found(bug)
        assert found is not None
        kind, plan, rule = found
        fails = lambda candidate: run_plan(kind, candidate).result.rule == rule  # noqa: E731
        shrunk = Shrinker(plan, fails, calm=kind.calm, runs_max=400).run()
        assert fails(shrunk.plan)
    assert len(shrunk.plan.faults) <= 3
    assert len(shrunk.plan.operations) <= 6
    assert all(shrunk.needed)
    assert run_plan(kind, shrunk.plan).result.passed, "the sound build breaks it too"


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry[0].stem)
def test_the_corpus_holds_and_still_bites(entry: tuple[Path, Plan]) -> None:
    """An entry passes on the sound build with all its faults met, and breaks its rule when its bug is planted."""
    path, plan = entry
    assert run_entry(SCENARIOS, path, plan).passed
    found = files.read_found(path)
    bug = next(bug for bug in ALL_PLANTED if bug.name == found["bug"])
    with bug.planted():
        assert run_entry(SCENARIOS, path, plan).rule == found["rule"]


def test_a_stale_anchor_is_a_failure_of_the_corpus() -> None:
    """An entry whose fault never strikes fails: it shows nothing any more."""
    path, plan = CORPUS[0]
    from tnats.harness.faults import parse_fault

    never = Plan(plan.scenario, plan.seed, plan.parameters, (parse_fault("at 9m P_PAUSE targets=server for=1s"),), ())
    result = run_entry(SCENARIOS, path, never)
    assert result.rule == STALE
    assert "at 9m P_PAUSE" in result.text
