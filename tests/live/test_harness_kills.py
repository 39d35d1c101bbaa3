"""kill -9 of a real server under load, again and again: nothing that it promised is lost.

`TNATS_KILLS` says how often; the figures of docs/testing.md are from 200.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import trio

from tnats.harness.real.kills import KillsReport, KillsRun, run_kills
from tnats.harness.real.targets import find_target
from tnats.runtime.live import live_runtime

KILLS = int(os.environ.get("TNATS_KILLS", "10"))

pytestmark = pytest.mark.slow


@pytest.mark.timeout(3600)
async def test_kills_under_load() -> None:
    """After every start: acknowledged messages once each, confirmed acks and terminations in force, registers right;
    with one stream and, at the same time, with six on a server of their own.
    """
    target = await find_target("tnats")
    reports: list[KillsReport] = []

    async def kill(stream_count: int) -> None:
        reports.append(await run_kills(live_runtime(), target, kill_count=KILLS, stream_count=stream_count, seed=1))

    async with trio.open_nursery() as nursery:
        for stream_count in (1, 6):
            nursery.start_soon(kill, stream_count)
    for report in reports:
        assert (report.faults, report.kill_count, report.directory) == ([], KILLS, "")
        assert report.figures["acked"] > KILLS
        assert report.figures["confirmed"] > 0


async def test_a_broken_promise_leaves_everything_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with a fault ends at once and keeps the store as the kill left it, the log, and how to repeat the run."""

    async def look(self: KillsRun, *, whole: bool = False) -> None:
        self.faults.append("planted")

    monkeypatch.setattr(KillsRun, "look", look)
    report = await run_kills(live_runtime(), await find_target("tnats"), kill_count=3, stream_count=1, seed=7)
    try:
        assert (report.faults, report.kill_count) == (["planted"], 1)
        place = Path(report.directory)
        assert (place / "killed" / "tnats").is_dir()
        assert (place / "n1.log").exists()
        assert (place / "events.jsonl").read_text().count("acknowledged") > 0
        described = json.loads((place / "report.json").read_text())
        assert described["again"] == "tnats jepsen kills --target tnats --kills 3 --streams 1 --seed 7"
    finally:
        shutil.rmtree(report.directory)
