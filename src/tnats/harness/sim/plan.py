"""A plan: everything that was decided about one run before it started, readable and editable.

A seed gives a plan (`Drill.draw`), a plan and its seed give a run. The plan names its faults and operations one by
one, anchored to times or events instead of to draws, so that a plan found by one version of the code means the same
to the next, and so that parts of it can be left out: shrinking is editing a plan.

Text forms: a fault as in `tnats.harness.faults`; an operation as

    at 1.2s c3 publish subject=a.b size=100

and the whole as JSON (`scenario.json`), one line a fault and an operation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tnats.errors import TnatsError
from tnats.harness.faults import Choosing, Fault, FaultError, duration_text, parse_duration, parse_fault
from tnats.records import frozen

FORMAT = "tnats-sim/1"


class PlanError(TnatsError):
    """A text that is no plan; says what is wrong with it."""


@frozen
class Operation:
    """One thing that an actor does. `at_ns` counts from the start of the safety phase; arguments are text."""

    at_ns: int
    actor: str
    verb: str
    arguments: Mapping[str, str] = attrs.field(factory=dict)

    def word(self, name: str, default: str = "") -> str:
        return self.arguments.get(name, default)

    def number(self, name: str, default: int = 0) -> int:
        """Raises PlanError where it is none."""
        text = self.arguments.get(name)
        try:
            return default if text is None else int(text)
        except ValueError:
            raise PlanError(f"operation '{self}': {name} is to be a whole number") from None

    def duration_ns(self, name: str, default_ns: int) -> int:
        """Raises FaultError where it is none."""
        text = self.arguments.get(name)
        return default_ns if text is None else parse_duration(text)

    def unknown_verb(self) -> PlanError:
        """What is raised by an actor that does not know the verb."""
        return PlanError(f"operation '{self}': there is no verb {self.verb}")

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.arguments.items()]
        return " ".join(["at", duration_text(self.at_ns), self.actor, self.verb, *words])


def parse_operation(text: str) -> Operation:
    """Read one operation. Raises PlanError."""
    match text.split():
        case ["at", time, actor, verb, *words] if all("=" in word for word in words):
            arguments = dict(word.split("=", 1) for word in words)
            try:
                return Operation(parse_duration(time), actor, verb, arguments)
            except FaultError as exc:
                raise PlanError(f"operation {text!r}: {exc}") from None
    raise PlanError(f"operation {text!r}: expected `at TIME ACTOR VERB NAME=VALUE ...`")


@frozen
class Plan(Choosing):
    """See the module. `parameters` are numbers and words that the drill understands: sizes, profiles, policies."""

    scenario: str
    seed: int
    parameters: Mapping[str, int | str]
    faults: tuple[Fault, ...]
    operations: tuple[Operation, ...]

    def number(self, name: str) -> int:
        """Raises PlanError where the parameter is missing, or none."""
        word = self.word(name)
        try:
            return int(word)
        except ValueError:
            raise PlanError(f"parameter {name} is to be a whole number, not {word!r}") from None

    def word(self, name: str) -> str:
        """Raises PlanError where the parameter is missing."""
        if name not in self.parameters:
            raise PlanError(f"{self.scenario} needs the parameter {name}")
        return str(self.parameters[name])

    def __str__(self) -> str:
        return f"a plan of {self.scenario}"

    def operations_of(self, actors: Sequence[str]) -> dict[str, list[Operation]]:
        """What each actor does, in the plan's order. Raises PlanError where somebody is to act who is not there."""
        found: dict[str, list[Operation]] = {name: [] for name in actors}
        for operation in self.operations:
            if operation.actor not in found:
                known = ", ".join(actors)
                raise PlanError(f"operation '{operation}': there is no {operation.actor}; there are {known}")
            found[operation.actor].append(operation)
        return found

    def record(self) -> dict[str, Any]:
        """The plan as JSON-like values."""
        return {
            "format": FORMAT,
            "scenario": self.scenario,
            "seed": self.seed,
            "parameters": dict(self.parameters),
            "faults": [str(fault) for fault in self.faults],
            "operations": [str(operation) for operation in self.operations],
        }


def plan_of(record: object) -> Plan:
    """The plan in JSON-like values; keys that it does not know (what was found, notes) are left alone.

    Raises PlanError.
    """
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise PlanError(f"no plan: expected an object with format {FORMAT!r}")
    try:
        return Plan(
            scenario=str(record["scenario"]),
            seed=int(record["seed"]),
            parameters={
                str(name): value if isinstance(value, int) else str(value)
                for name, value in record["parameters"].items()
            },
            faults=tuple(map(parse_fault, record["faults"])),
            operations=tuple(map(parse_operation, record["operations"])),
        )
    except KeyError as exc:
        raise PlanError(f"no plan: {exc} is missing") from None
    except (AttributeError, TypeError, ValueError) as exc:
        raise PlanError(f"no plan: {exc}") from None
    except FaultError as exc:
        raise PlanError(str(exc)) from None


def parse_plan(text: str) -> Plan:
    """Read `scenario.json`. Raises PlanError."""
    try:
        return plan_of(json.loads(text))
    except (ValueError, RecursionError) as exc:
        raise PlanError(f"no plan: not JSON: {exc}") from None
