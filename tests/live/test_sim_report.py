"""The commands as people use them: real processes, real files, and the report drawn by a real browser."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.live.server_process import PATIENCE_S, wait_until

from tnats.harness.sim import farm

SCENARIOS = Path(__file__).parents[2] / "simulations"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def sim(*arguments: str, directory: Path = SCENARIOS) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tnats", "sim", "--dir", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def token_in(text: str) -> str:
    return next(word for word in text.split() if word.startswith("sim1-"))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A directory with a scenario that fails: the canary, without being called one."""
    (tmp_path / "scenarios").mkdir()
    text = (SCENARIOS / "canary.py").read_text().replace("must_fail = True", "must_fail = False")
    (tmp_path / "scenarios" / "hearing.py").write_text(text)
    return tmp_path / "scenarios"


def test_from_a_failure_to_its_report(broken: Path, tmp_path: Path) -> None:
    """A failing seed gives a token; the token replays, shrinks and draws a page; each tells by its exit code."""
    out = str(tmp_path / "out")
    junit = tmp_path / "junit.xml"
    failed = sim("run", "hearing", "3", "--out", out, "--junit", str(junit), directory=broken)
    assert failed.returncode == 1
    assert "FAILED C32 duplicate" in failed.stdout
    token = token_in(failed.stdout)
    assert token in junit.read_text()
    again = sim("replay", token, "--json", directory=broken)
    assert again.returncode == 1
    first = json.loads(again.stdout)
    assert first["trace_hash"] in failed.stdout
    small = sim("shrink", token, "--out", out, "--runs", "60", directory=broken)
    assert small.returncode == 1
    assert "needs:" in small.stdout
    shown = sim("report", f"{out}/hearing-3-small.json", "--out", out, directory=broken)
    assert shown.stdout == f"{out}/hearing-3-small.html\n"
    assert f"{out}/hearing-3-small.json</code>" in Path(shown.stdout.strip()).read_text()
    assert sim("replay", f"{out}/hearing-3-small.json", directory=broken).returncode == 1
    made = sim("report", token, "--out", out, directory=broken)
    assert made.returncode == 1
    page = Path(made.stdout.strip()).read_text()
    assert token in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    (broken / "hearing.py").write_text((broken / "hearing.py").read_text() + "\n# changed\n")
    stale = sim("replay", token, directory=broken)
    assert stale.returncode == 2
    assert stale.stderr.startswith("tnats sim: stale token")
    assert sim("replay", token, "--stale", directory=broken).returncode == 1


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium to draw the page")
def test_the_report_draws_itself(broken: Path, tmp_path: Path) -> None:
    """In a browser the page has a lane for each node and marks the violating event, without an error of its script."""
    failed = sim("run", "hearing", "3", "--out", str(tmp_path), directory=broken)
    made = sim("report", token_in(failed.stdout), "--out", str(tmp_path), directory=broken)
    page = Path(made.stdout.strip())
    watched = page.read_text().replace("<script>", "<script>onerror = text => { document.title = 'ERROR ' + text };", 1)
    page.write_text(watched)
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    drawn = done.stdout
    assert "<title>ERROR" not in drawn
    plan = json.loads((tmp_path / "hearing-3.json").read_text())
    for number in range(1, plan["parameters"]["clients"] + 1):
        assert f">c{number}</text>" in drawn
    assert 'r="6"' in drawn


def test_a_failure_is_told_though_its_plan_cannot_be_kept(broken: Path) -> None:
    """A directory that cannot be written costs the plan, and neither the violation nor its token."""
    failed = sim("run", "hearing", "3", "--out", "/proc/nowhere", directory=broken)
    assert failed.returncode == 1
    assert "FAILED C32 duplicate" in failed.stdout
    assert token_in(failed.stdout)
    assert failed.stderr.startswith("tnats sim: the plan is not kept: ")
    assert len(failed.stderr.splitlines()) == 1


def test_misuse_is_one_line_and_code_2(tmp_path: Path) -> None:
    """An unknown scenario, a cut token, a directory that is none, a file that is no plan: one clear line each."""
    for arguments, words in (
        (("run", "nothing"), "no scenario nothing"),
        (("replay", "sim1-abc"), "is no token"),
        (("replay", str(tmp_path / "missing.json")), "No such file"),
        (("shrink", str(SCENARIOS / "README.md")), "not JSON"),
        (("run", "core", "--junit", "/proc/nowhere/results.xml"), "/proc/nowhere"),
    ):
        done = sim(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("tnats sim: ")
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
    for directory in (tmp_path, tmp_path / "nowhere"):
        assert sim("list", directory=directory).returncode == 2


def test_a_worker_that_ends_early_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search does not go on without a worker that was killed, and says how it ended."""
    start, workers = farm.start, []

    def remembered(*arguments: Any) -> subprocess.Popen[bytes]:
        workers.append(start(*arguments))
        return workers[-1]

    monkeypatch.setattr(farm, "start", remembered)
    results = farm.work(SCENARIOS, ["core"], range(1, 100_000), jobs=2, budget_s=None)
    assert next(result for result in results if result is not None).passed
    workers[0].kill()
    with pytest.raises(farm.WorkerFailed, match="a worker ended with code -9: without a word"):
        list(results)
    assert workers[1].returncode is not None


@pytest.mark.slow
def test_an_interrupted_search_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a search ends its workers with it, leaves no file, and shows in the exit code."""
    command = [sys.executable, "-m", "tnats", "sim", "--dir", str(SCENARIOS), "swarm", "core", "--budget", "600s"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as search:
        try:
            listed = Path(f"/proc/{search.pid}/task/{search.pid}/children")
            wait_until(lambda: len(listed.read_text().split()) == 2, "two workers")
            children = listed.read_text().split()
            time.sleep(1)
            search.send_signal(signal.SIGINT)
            assert search.wait(PATIENCE_S) == 130
        finally:
            search.kill()
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not (tmp_path / "out").exists()
