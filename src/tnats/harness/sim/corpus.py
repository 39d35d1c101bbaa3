"""The regression corpus: plans that once found something, run first.

An entry passes when its run passes *and* each of its faults struck. A fault whose moment never came (its anchor is
stale) makes the entry worthless, and that is a failure: it must be drawn up anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from tnats.harness.sim.files import corpus, load_drill
from tnats.harness.sim.plan import Plan
from tnats.harness.sim.run import Result, run_plan

STALE = "corpus stale"


def run_entry(directory: Path, path: Path, plan: Plan) -> Result:
    """One entry; raises TnatsError when its scenario is unknown."""
    result = run_plan(load_drill(directory, plan.scenario), plan).result
    result = attrs.evolve(result, scenario=f"{path.parent.name}/{path.stem}")
    if result.passed and result.missed:
        text = f"stale: {'; '.join(result.missed)} never struck, so nothing was tried; draw the entry up anew"
        return attrs.evolve(result, verdict="violation", rule=STALE, text=text, plan=plan.record())
    return result


def run_corpus(directory: Path) -> Iterator[Result]:
    """All entries, one after the other. Raises TnatsError."""
    for path, plan in corpus(directory):
        yield run_entry(directory, path, plan)
