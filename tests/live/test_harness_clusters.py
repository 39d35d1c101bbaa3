"""Clusters of nats-server on this machine: a sound one keeps the contract, and nothing of it outlives the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from tests.conformance.programs import NATS_SERVER, needs_nats_server
from tests.live.server_process import PATIENCE_S, wait_until

from tnats.harness.faults import parse_fault
from tnats.harness.findings import Profile
from tnats.harness.real.finding_files import load_findings
from tnats.harness.real.run import run_variant
from tnats.harness.real.stores import missing_for_mount
from tnats.harness.real.targets import find_target
from tnats.runtime.live import live_runtime

DIRECTORY = Path(__file__).parents[2] / "jepsen"
PROFILE = Profile(worker_count=3, rate_per_s=60, quiet_s=0.5, duration_s=6, time_scale=1, timeout_s=2)

pytestmark = [pytest.mark.slow, needs_nats_server, pytest.mark.timeout(300)]


async def test_a_partition_and_a_kill_lose_nothing() -> None:
    """Three nodes: every replica, read by itself, has what was acknowledged, before and after a restart."""
    finding = next(found for found in load_findings(str(DIRECTORY)) if found.id == "F1")
    faults = ("at 0s N_PART kind=isolate targets=n1 for=2s", "at 4s P_KILL targets=n2 down=500ms")
    variant = attrs.evolve(finding.variants[0], nodes=3, faults=tuple(parse_fault(text) for text in faults))
    report = await run_variant(
        live_runtime(),
        attrs.evolve(finding, profiles={"tiny": PROFILE}),
        variant,
        "tiny",
        await find_target("nats-server"),
        seed=1,
        keep=False,
        progress=lambda phase, done_s, total_s: None,
    )
    assert report.judgement == attrs.evolve(report.judgement, verdict="kept", broken=())
    acked = {operation.value for operation in report.evidence.acked()}
    assert acked
    assert all(acked <= values for values in report.observed.values_on_disk.values())
    assert len(report.observed.values_on_disk) == 3
    for replicas in (report.evidence.replicas, report.evidence.restarted):
        assert [replica.node for replica in replicas] == ["n1", "n2", "n3"]
        assert [replica.failure for replica in replicas] == [""] * 3
    done = [event.f for event in report.evidence.history.nemesis()]
    assert done[:3] == ["start-partition", "stop-partition", "kill"]


def mentioning(place: Path) -> list[int]:
    """Processes with `place` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(place).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass  # it has just ended
    return found


def mounts(place: Path) -> list[str]:
    """Mounts beneath `place`."""
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(place) in line]


@pytest.mark.skipif(missing_for_mount() is not None, reason=str(missing_for_mount()))
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_a_run_that_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    """Five servers and five mounts are gone after Ctrl-C, and after a kill that leaves no time to clear up."""
    command = [sys.executable, "-m", "tnats", "jepsen", "run", "F5", "--variant", "part-kill"]
    command += ["--target", NATS_SERVER, "--dir", str(DIRECTORY), "--out", str(tmp_path / "results")]
    place = tmp_path / "work"
    place.mkdir()
    environment = {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        wait_until(
            lambda: len(mentioning(place)) >= 11 and len(mounts(place)) == 5,
            "five servers on five mounts, and who clears up",
        )
        run.send_signal(number)
        run.wait(PATIENCE_S)

    def left() -> list[object]:
        return [*mentioning(place), *place.iterdir(), *mounts(place)]

    wait_until(lambda: not left(), "the end of all", left)
