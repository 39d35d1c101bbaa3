"""Histories as other programs read them: histories/history.edn and history.jsonl.

Held against the form that jepsen.history, Knossos and Elle document: one map an event, indices dense from 0, keywords
for type, function, the nemesis, and what a transaction does; a process is not used again after `:info`.
`TNATS_REWRITE=1` writes the files.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tnats.harness.history import History, Recorder

FOLDER = Path(__file__).parent / "histories"


def recorded() -> History:
    """Something of each kind that our workloads record."""
    times = iter(range(1_000_000, 100_000_000, 1_000_000))
    recorder = Recorder(lambda: next(times), 3)
    recorder.invoke(0, "publish", "0-0", node="n1")
    recorder.invoke(1, "publish", "1-0", node="n2")
    recorder.end(0, "ok", "publish", "0-0", stream="jepsen-stream", seq=1, duplicate=False)
    recorder.nemesis("start-partition", ["n1 to n2 n3", "n2 to n1"])
    recorder.nemesis("kill", "n2")
    recorder.end(1, "info", "publish", "1-0", error='TimedOut: "no answer"')
    recorder.invoke(1, "publish", "4-0", node="n2")
    recorder.end(1, "fail", "publish", "4-0", error="not connected")
    recorder.nemesis("stop-partition")
    recorder.invoke(2, "fetch", None, node="n3")
    recorder.end(2, "ok", "fetch", ["0-0", "1-0"], node="n3", seqs=[1, 2])
    recorder.invoke(0, "update", ["k1", "0-1"], node="n1", connection=0, revision=4)
    recorder.end(0, "ok", "update", ["k1", "0-1"], seq=5)
    recorder.invoke(0, "get", ["k2", None], node="n1", connection=0)
    recorder.end(0, "ok", "get", ["k2", None], seq=0)
    recorder.invoke(2, "txn", [("r", "a", None), ("append", "b", "v1")])
    recorder.end(2, "ok", "txn", [("r", "a", ["v0"]), ("append", "b", "v1")], seq=7)
    return recorder.history


@pytest.mark.parametrize("name", ["history.edn", "history.jsonl"])
def test_histories_have_the_documented_form(name: str) -> None:
    """Every event, to the byte."""
    history = recorded()
    lines = history.to_edn() if name == "history.edn" else history.to_json_lines()
    text = "".join(f"{line}\n" for line in lines)
    path = FOLDER / name
    if os.environ.get("TNATS_REWRITE") == "1":
        path.write_text(text)
    assert text == path.read_text()
