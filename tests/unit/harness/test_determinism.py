"""The determinism gate: passes what repeats, and names the first event that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tnats.cli.app import main as tnats
from tnats.errors import TnatsError
from tnats.harness.catalogue import load_scenario, scenario_names, summary_of
from tnats.harness.determinism import compare_processes, first_difference
from tnats.harness.scenario import Scenario, Violation, run_scenario
from tnats.runtime.sim.world import Settings

SCENARIOS = Path(__file__).parents[3] / "simulations"

STEADY = '''
from tnats.harness.scenario import Scenario

class Steady(Scenario):
    """Sleeps, draws and notes."""

    async def workload(self, world):
        rng = world.rng("x")
        for _ in range(100):
            await world.sleep_ns(rng.randrange(1000000))
            world.note(1, rng.randrange(1000))

scenario = Steady
'''

UNSTEADY = '''
from tnats.harness.scenario import Scenario

class Unsteady(Scenario):
    """Walks through a set of strings, whose order depends on the hash seed."""

    async def workload(self, world):
        await world.sleep_ns(1500000000)
        for word in {f"word {number}" for number in range(50)}:
            world.note(int(word.split()[1]), 0)

scenario = Unsteady
'''


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "steady.py").write_text(STEADY)
    (tmp_path / "unsteady.py").write_text(UNSTEADY)
    (tmp_path / "_helper.py").write_text("")
    return tmp_path


def test_a_repeatable_scenario_passes(directory: Path) -> None:
    """Two processes with different hash seeds and heaps agree on a scenario that follows from its seed."""
    verdict = compare_processes(directory, "steady", 1)
    assert verdict.agree
    assert "twice over" in verdict.report


def test_dependence_on_the_hash_seed_is_found(directory: Path) -> None:
    """A scenario that walks through a set of strings is refused, with the virtual time of the first difference."""
    verdict = compare_processes(directory, "unsteady", 1)
    assert not verdict.agree
    assert "NOT deterministic" in verdict.report
    assert "1.500000000 s" in verdict.report
    assert "note" in verdict.report


def main(arguments: list[str], directory: Path) -> int:
    return tnats(["sim", "--dir", str(directory), *arguments])


def test_command_tells_by_its_exit_code(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`meta` gives 0 for agreement and 1 for a difference; an unknown scenario is misuse, 2."""
    assert main(["meta", "steady", "1"], directory) == 0
    assert main(["meta", "--all"], directory) == 1
    assert main(["meta", "nothing", "1"], directory) == 2
    assert main(["run", "steady", "1-3"], directory) == 0
    assert main(["run", "--all", "--seeds", "2", "--jobs", "1"], directory) == 0
    assert main(["list"], directory) == 0
    shown = capsys.readouterr().out
    assert "Walks through a set" in shown
    assert "6 seeds" not in shown
    assert "4 runs" in shown


@pytest.mark.parametrize("name", scenario_names(SCENARIOS))
def test_own_scenarios_repeat_in_one_process(name: str) -> None:
    """Each scenario of the repository gives the same trace twice in one process, and another for another seed."""
    kind = load_scenario(SCENARIOS, name)
    first, second, other = (run_scenario(kind, seed) for seed in (3, 3, 4))
    assert (first.error is None) is not kind.must_fail
    assert (first.trace_hash, first.step_count, first.time_ns) == (second.trace_hash, second.step_count, second.time_ns)
    assert first.trace_hash != other.trace_hash


def test_first_difference() -> None:
    """The first differing line is found with its time, also when one trace is only longer."""
    assert first_difference(["1 a", "2 b"], ["1 a", "2 b"]) is None
    assert "event 1, 0.000000002 s" in str(first_difference(["1 a", "2 b"], ["1 a", "2 c"]))
    assert "+ (the end)" in str(first_difference(["1 a", "2 b"], ["1 a"]))


def test_catalogue_knows_what_is_no_scenario(directory: Path) -> None:
    """Helpers are not listed; a file without a scenario and an unknown name are refused with what to do."""
    (directory / "empty.py").write_text("scenario = 5")
    assert scenario_names(directory) == ["empty", "steady", "unsteady"]
    assert summary_of(load_scenario(directory, "steady")) == "Sleeps, draws and notes."
    with pytest.raises(TnatsError, match="must name its subclass of Scenario"):
        load_scenario(directory, "empty")
    with pytest.raises(TnatsError, match=r"no scenario nothing in .*; there are: empty, steady, unsteady"):
        load_scenario(directory, "nothing")


def test_a_violation_is_the_outcome() -> None:
    """What `check` raises is the outcome's error, as it is."""

    class Broken(Scenario):
        def check(self, world: object) -> None:
            raise Violation("two and two are five")

    with pytest.raises(Violation, match="two and two are five"):
        run_scenario(Broken, 1).unwrap()


def test_lines_do_not_change_the_run() -> None:
    """Keeping the trace as text gives the same hash as not keeping it."""
    kind = load_scenario(SCENARIOS, "echo_resets")
    kept = run_scenario(kind, 5, Settings(keep_lines=True))
    assert kept.trace_hash == run_scenario(kind, 5).trace_hash
    assert kept.trace_lines
