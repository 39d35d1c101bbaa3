"""A run as files for other programs: what clients saw, what happened, and every step of the world.

| file | what it holds |
|---|---|
| `history.edn`, `history.jsonl` | operations as Jepsen writes them, for Knossos and Elle (JetStream drills) |
| `notes.jsonl` | the recording: one event a line, with its cause |
| `trace.txt` | the trace: time in nanoseconds and event, one a line; two runs of one seed have the same |
| `scenario.json` | the plan, to be replayed and edited |
"""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from tnats.harness.sim.drill import Drill, settings_of
from tnats.harness.sim.files import write_plan, write_text
from tnats.harness.sim.plan import Plan
from tnats.harness.sim.run import Played, run_plan


def export(kind: type[Drill], plan: Plan, directory: Path) -> tuple[Played, list[Path]]:
    """Run a plan and write its files into `directory`; returns the run and the paths. Raises OSError."""
    played = run_plan(kind, plan, attrs.evolve(settings_of(plan), keep_lines=True))
    assert played.drill is not None
    texts = {
        "notes.jsonl": (json.dumps(note.record(), ensure_ascii=False) for note in played.drill.recording.notes),
        "trace.txt": played.trace_lines,
    }
    history = played.drill.history
    if history is not None:
        texts |= {"history.edn": history.to_edn(), "history.jsonl": history.to_json_lines()}
    paths = []
    for name, lines in texts.items():
        paths.append(directory / name)
        write_text(paths[-1], "".join(f"{line}\n" for line in lines))
    write_plan(directory / "scenario.json", plan.record())
    return played, [*paths, directory / "scenario.json"]
