"""Makes a failing plan small: what is left is what the bug needs.

Order: faults, operations, clients, then parameters toward calm, faults once more in milder forms. Each step keeps an
edit only if the same rule is still violated. Lists are reduced by delta debugging (Zeller and Hildebrandt,
"Simplifying and Isolating Failure-Inducing Input", TSE 2002). Last comes the counterfactual pass: each remaining
fault is left out once more, alone, to say whether the bug needs it or it only happens to be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

import attrs

from tnats.harness.faults import At, Fault
from tnats.harness.sim.plan import Operation, Plan, PlanError
from tnats.limits import SECOND_NS
from tnats.records import define

RUNS_MAX = 1000
DURATION_MIN_MS = 250
TIMES_NS = (SECOND_NS, SECOND_NS // 10, SECOND_NS // 100)
"""Round durations that a fault is tried with, shortest last."""

T = TypeVar("T")


@define
class Shrunk:
    """`needed` tells for each fault of `plan`, in order, whether the violation goes away without it."""

    plan: Plan
    needed: tuple[bool, ...]
    run_count: int

    @property
    def needs(self) -> str:
        """The counterfactual in words, by the numbers of the faults."""
        names = [f"F{number}" for number, needed in enumerate(self.needed, 1) if needed]
        others = [f"F{number}" for number, needed in enumerate(self.needed, 1) if not needed]
        if not self.needed:
            return "no fault at all"
        told = " and ".join(names) or "none of its faults alone"
        shift = "only shifts timing" if len(others) == 1 else "only shift timing"
        return told + (f"; {' and '.join(others)} {shift}" if others else "")


class Shrinker:
    """Shrinks one plan. `fails` says whether a plan still violates the same rule."""

    def __init__(
        self,
        plan: Plan,
        fails: Callable[[Plan], bool],
        *,
        calm: Mapping[str, int | str],
        on_step: Callable[[Plan, int], None] = lambda plan, run_count: None,
        runs_max: int = RUNS_MAX,
    ) -> None:
        self.plan = plan
        self.run_count = 0
        self._fails = fails
        self._calm = calm
        self._on_step = on_step
        self._runs_max = runs_max
        self._known: dict[str, bool] = {}

    def run(self) -> Shrunk:
        """The smallest plan that was found."""
        while True:
            before = str(self.plan.record())
            self._keep_if(lambda plan: attrs.evolve(plan, faults=()))
            self._reduce_faults()
            self._reduce_operations()
            self._drop_clients()
            self._calm_down()
            self._simplify_faults()
            if str(self.plan.record()) == before or self.run_count >= self._runs_max:
                break
        needed = tuple(not self.try_plan(self._without(index)) for index in range(len(self.plan.faults)))
        return Shrunk(self.plan, needed, self.run_count)

    def _without(self, index: int) -> Plan:
        faults = self.plan.faults
        return attrs.evolve(self.plan, faults=faults[:index] + faults[index + 1 :])

    def try_plan(self, plan: Plan) -> bool:
        """Whether `plan` fails in the same way; each is run once, and one that makes no sense does not."""
        key = str(plan.record())
        if key not in self._known:
            self.run_count += 1
            self._known[key] = False
            with suppress(PlanError):
                self._known[key] = self._fails(plan)
        return self._known[key]

    def _keep_if(self, change: Callable[[Plan], Plan]) -> bool:
        """Make a change if the plan still fails after it."""
        changed = change(self.plan)
        if changed == self.plan or self.run_count >= self._runs_max or not self.try_plan(changed):
            return False
        self.plan = changed
        self._on_step(changed, self.run_count)
        return True

    def _reduce_faults(self) -> None:
        def keep(faults: tuple[Fault, ...]) -> bool:
            return self._keep_if(lambda plan: attrs.evolve(plan, faults=faults))

        delta_debug(self.plan.faults, keep)

    def _reduce_operations(self) -> None:
        def keep(operations: tuple[Operation, ...]) -> bool:
            return self._keep_if(lambda plan: attrs.evolve(plan, operations=operations))

        delta_debug(self.plan.operations, keep)

    def _drop_clients(self) -> None:
        """Fewer clients: leave the last one out, or give its part to nobody."""
        while int(self.plan.parameters.get("clients", 1)) > 1:
            count = int(self.plan.parameters["clients"])
            names = sorted({operation.actor for operation in self.plan.operations})
            if not self._keep_if(lambda plan, count=count, names=names: fewer_clients(plan, count - 1, names)):  # type: ignore[misc]
                return

    def _calm_down(self) -> None:
        for name, value in self._calm.items():
            if name in self.plan.parameters:
                self._keep_if(lambda plan, name=name, value=value: with_parameter(plan, name, value))  # type: ignore[misc]
        while int(self.plan.parameters.get("duration_ms", 0)) > DURATION_MIN_MS:
            shorter = int(self.plan.parameters["duration_ms"]) // 2
            if not self._keep_if(lambda plan, shorter=shorter: with_parameter(plan, "duration_ms", shorter)):  # type: ignore[misc]
                return

    def _simplify_faults(self) -> None:
        for index in range(len(self.plan.faults)):
            for milder in milder_faults(self.plan.faults[index]):
                faults = [*self.plan.faults]
                faults[index] = milder
                self._keep_if(lambda plan, faults=faults: attrs.evolve(plan, faults=tuple(faults)))  # type: ignore[misc]
        for index, operation in enumerate(self.plan.operations):
            for simpler in simpler_operations(operation):
                operations = [*self.plan.operations]
                operations[index] = simpler
                self._keep_if(lambda plan, operations=operations: attrs.evolve(plan, operations=tuple(operations)))  # type: ignore[misc]


def delta_debug(items: tuple[T, ...], keep: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Remove what can go: `keep(rest)` tells whether the rest will do. Returns what is left, 1-minimal."""
    chunk = len(items)
    while chunk >= 1 and items:
        start = 0
        while start < len(items):
            rest = items[:start] + items[start + chunk :]
            if keep(rest):
                items = rest
            else:
                start += chunk
        if chunk == 1:
            break
        chunk = max(1, chunk // 2)
    return items


def with_parameter(plan: Plan, name: str, value: int | str) -> Plan:
    return attrs.evolve(plan, parameters={**plan.parameters, name: value})


def fewer_clients(plan: Plan, count: int, names: list[str]) -> Plan:
    """The plan with `count` clients: those that do something are moved to the low numbers, if they fit."""
    if len(names) > count:
        return plan
    renamed = {name: f"c{number}" for number, name in enumerate(names, 1)}
    operations = tuple(
        attrs.evolve(operation, actor=renamed.get(operation.actor, operation.actor)) for operation in plan.operations
    )
    faults = tuple(retargeted(fault, renamed, count) for fault in plan.faults)
    changed = attrs.evolve(plan, operations=operations, faults=faults)
    return with_parameter(changed, "clients", count)


def retargeted(fault: Fault, renamed: Mapping[str, str], count: int) -> Fault:
    targets = [renamed.get(name, name) for name in fault.word("targets", "").split(",")]
    kept = [name for name in targets if not (name[:1] == "c" and name[1:].isdigit() and int(name[1:]) > count)]
    return attrs.evolve(fault, parameters={**fault.parameters, "targets": ",".join(dict.fromkeys(kept or targets))})


def milder_faults(fault: Fault) -> Iterator[Fault]:
    """The same fault against fewer nodes, for a rounder time, at a rounder time."""
    targets = fault.word("targets", "").split(",")
    if len(targets) > 1:
        for name in targets:
            yield attrs.evolve(fault, parameters={**fault.parameters, "targets": name})
    for name, value in fault.parameters.items():
        if name in ("for_ns", "down_ns") and isinstance(value, int):
            for time_ns in TIMES_NS:
                if time_ns < value:
                    yield attrs.evolve(fault, parameters={**fault.parameters, name: time_ns})
    if isinstance(fault.anchor, At):
        for unit_ns in TIMES_NS:
            rounded = fault.anchor.time_ns // unit_ns * unit_ns
            if rounded != fault.anchor.time_ns:
                yield attrs.evolve(fault, anchor=At(rounded))
                break


def simpler_operations(operation: Operation) -> Iterator[Operation]:
    """The same operation with less: one message, no size, no headers."""
    for name, calm in (("count", "1"), ("size", "0"), ("headers", "0"), ("reply", "0")):
        if operation.arguments.get(name, calm) != calm:
            arguments = {key: value for key, value in operation.arguments.items() if key != name}
            yield attrs.evolve(operation, arguments=arguments)
