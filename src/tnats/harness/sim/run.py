"""One run of one scenario, and its verdict."""

from __future__ import annotations

import traceback
from typing import Any, Literal

import attrs

from tnats.harness.faults import FaultError
from tnats.harness.scenario import Scenario, Violation, run_scenario
from tnats.harness.sim.clean import rule_of
from tnats.harness.sim.drill import Drill, settings_of
from tnats.harness.sim.plan import Plan, PlanError
from tnats.records import frozen
from tnats.runtime.sim.world import Outcome, Settings

Verdict = Literal["pass", "violation"]


@frozen
class Result:
    """What came of a run. `rule`, `text` and `trace` say what was violated; they are empty when nothing was."""

    scenario: str
    seed: int
    verdict: Verdict
    rule: str = ""
    text: str = ""
    trace: str = ""
    trace_hash: str = ""
    time_ns: int = 0
    event_count: int = 0
    probes: dict[str, int] = attrs.field(factory=dict)
    missed: tuple[str, ...] = ()
    """Faults of the plan whose moment never came."""
    plan: dict[str, Any] | None = None
    """The plan of a violation, as its record."""

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"


@frozen
class Played:
    """A run with everything that it left: for reports."""

    result: Result
    drill: Drill | None
    error: BaseException | None
    trace_lines: tuple[str, ...] = ()
    """The trace as text, if it was kept."""


def run_seed(kind: type[Scenario], name: str, seed: int) -> Played:
    """The run of a seed."""
    if issubclass(kind, Drill):
        return run_plan(kind, kind.draw(seed))
    return played(name, run_scenario(kind, seed), None)


def run_plan(kind: type[Drill], plan: Plan, settings: Settings | None = None) -> Played:
    """The run of a plan."""
    drill = kind(plan)
    return played(plan.scenario, run_scenario(kind, plan.seed, settings or settings_of(plan), drill), drill)


def played(name: str, outcome: Outcome[None], drill: Drill | None) -> Played:
    error = outcome.error
    if isinstance(error, PlanError | FaultError):  # what was asked for makes no sense: that says nothing of the system
        raise error
    base = Result(name, outcome.seed, "pass", "", "", "", outcome.trace_hash, outcome.time_ns, outcome.event_count)
    if drill is not None and hasattr(drill, "nemesis"):
        drill.stage.over = True
        drill.nemesis.end()
        missed = tuple(str(fault) for fault in drill.nemesis.missed())
        base = attrs.evolve(base, probes=dict(drill.recording.probes), missed=missed)
    if error is None:
        return Played(base, drill, None, tuple(outcome.trace_lines or ()))
    text = str(error) or type(error).__name__
    trace = "" if isinstance(error, Violation) else "".join(traceback.format_exception(error))
    plan = drill.plan.record() if drill is not None else None
    result = attrs.evolve(base, verdict="violation", rule=rule_of(error), text=text, trace=trace, plan=plan)
    return Played(result, drill, error, tuple(outcome.trace_lines or ()))
