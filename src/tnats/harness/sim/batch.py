"""A batch of runs and what it comes to: verdicts, probes, canaries, and its forms for machines.

A batch passes when every run passed, every canary failed, and, if it was large enough, every probe was hit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import attrs

from tnats.harness.scenario import Scenario
from tnats.harness.sim.drill import Drill
from tnats.harness.sim.run import Result
from tnats.records import define


@define
class Batch:
    """Results as they come in. `kinds` are the scenarios of the batch, by name."""

    kinds: dict[str, type[Scenario]]
    counts: dict[str, int] = attrs.field(factory=dict)
    """Runs by scenario."""
    failures: list[Result] = attrs.field(factory=list)
    caught: dict[str, int] = attrs.field(factory=dict)
    """Failed runs of canaries, by scenario."""
    probes: dict[str, dict[str, int]] = attrs.field(factory=dict)
    event_count: int = 0
    run_count: int = 0

    def add(self, result: Result) -> bool:
        """Take a result in; whether it is as it should be."""
        self.run_count += 1
        self.event_count += result.event_count
        self.counts[result.scenario] = self.counts.get(result.scenario, 0) + 1
        probes = self.probes.setdefault(result.scenario, {})
        for name, count in result.probes.items():
            probes[name] = probes.get(name, 0) + count
        kind = self.kinds.get(result.scenario)
        if kind is not None and kind.must_fail:
            self.caught[result.scenario] = self.caught.get(result.scenario, 0) + (not result.passed)
            return True
        if not result.passed:
            self.failures.append(result)
        return result.passed

    def problems(self) -> Iterator[str]:
        """Why the batch as a whole fails, apart from its failed runs."""
        for name, kind in self.kinds.items():
            count = self.counts.get(name, 0)
            if kind.must_fail:
                if count and not self.caught.get(name):
                    yield f"the canary {name} passed in all of its {count} runs: the checkers see nothing"
            elif issubclass(kind, Drill) and count >= kind.probes_within:
                hit = self.probes.get(name, {})
                for probe in kind.probes:
                    if not hit.get(probe):
                        yield f"{name}: in {count} runs it never happened that {probe!r}"

    def missing(self) -> int:
        """Probes not hit so far, in batches of any size."""
        return sum(
            1
            for name, kind in self.kinds.items()
            if issubclass(kind, Drill) and not kind.must_fail
            for probe in kind.probes
            if not self.probes.get(name, {}).get(probe)
        )

    @property
    def fault_count(self) -> int:
        """Faults carried out: probes that are named like kinds of faults."""
        return sum(
            count for hit in self.probes.values() for name, count in hit.items() if name[1:2] == "_" and " " not in name
        )

    @property
    def passed(self) -> bool:
        return not self.failures and not list(self.problems())

    def record(self) -> dict[str, Any]:
        """As JSON-like values."""
        return {
            "passed": self.passed,
            "runs": self.run_count,
            "events": self.event_count,
            "scenarios": self.counts,
            "canaries_caught": self.caught,
            "problems": list(self.problems()),
            "probes": self.probes,
            "failures": [attrs.asdict(failure) for failure in self.failures],
        }

    def junit(self, replay: dict[tuple[str, int], str]) -> str:
        """JUnit XML: one case a scenario that passed, one a failed run with its replay command."""
        failed_names = {failure.scenario for failure in self.failures}
        cases = [
            f"  <testcase classname={quoteattr(name)} name={quoteattr(f'{count} seeds')}/>"
            for name, count in self.counts.items()
            if name not in failed_names
        ]
        for failure in self.failures:
            command = replay.get((failure.scenario, failure.seed), "")
            message = printable(f"{failure.rule}: {failure.text}")
            cases.append(
                f"  <testcase classname={quoteattr(failure.scenario)} name={quoteattr(f'seed {failure.seed}')}>"
                f"<failure type={quoteattr(failure.rule)} message={quoteattr(message[:500])}>"
                f"{escape(command)}\n{escape(printable(failure.trace))}</failure></testcase>"
            )
        cases += [
            f'  <testcase classname="batch" name={quoteattr(problem[:100])}>'
            f'<failure type="batch" message={quoteattr(problem)}/></testcase>'
            for problem in self.problems()
        ]
        failed = len(self.failures) + len(list(self.problems()))
        head = f'<testsuite name="tnats sim" tests="{len(cases)}" failures="{failed}">'
        return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', head, *cases, "</testsuite>", ""])


def printable(text: str) -> str:
    """`text` without what XML cannot hold."""
    return "".join(character for character in text if character in "\n\t" or 32 <= ord(character) < 0xD800)
