"""Whole runs against real processes: what is known to be wrong with nats-server is found, what is right is let be; and
this server keeps the contract.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from tests.conformance.programs import needs_nats_server

from tnats.harness.contract import touched_at_most
from tnats.harness.findings import Profile, Variant
from tnats.harness.real.finding_files import load_findings
from tnats.harness.real.results import save
from tnats.harness.real.run import Report, run_variant
from tnats.harness.real.stores import missing_for_mount
from tnats.harness.real.targets import find_target
from tnats.runtime.live import live_runtime

DIRECTORY = Path(__file__).parents[2] / "jepsen"
PROFILE = Profile(worker_count=3, rate_per_s=150, quiet_s=0.5, duration_s=6, time_scale=0.2, timeout_s=1)
DAMAGE = attrs.evolve(PROFILE, duration_s=14, time_scale=0.6)
TRIES = 3
POWER = attrs.evolve(PROFILE, duration_s=14, time_scale=0.1)

pytestmark = pytest.mark.slow
needs_mount = pytest.mark.skipif(missing_for_mount() is not None, reason=str(missing_for_mount()))


async def run(
    finding_id: str,
    variant_name: str,
    faults_of: str | None = None,
    *,
    target: str = "nats-server",
    profile: Profile = PROFILE,
) -> Report:
    """One variant in a few seconds; with the faults of another variant if one is named."""
    finding = next(found for found in load_findings(str(DIRECTORY)) if found.id == finding_id)
    by_name: dict[str, Variant] = {variant.name: variant for variant in finding.variants}
    variant = by_name[variant_name]
    if faults_of is not None:
        variant = attrs.evolve(variant, faults=by_name[faults_of].faults)
    return await run_variant(
        live_runtime(),
        attrs.evolve(finding, profiles={"tiny": profile}),
        variant,
        "tiny",
        await find_target(target),
        seed=1,
        keep=False,
        progress=lambda phase, done_s, total_s: None,
    )


async def run_all(
    finding_id: str, *variants: str, target: str = "nats-server", profile: Profile = PROFILE
) -> list[Report]:
    """Several variants, each with its own server, at once: most of their time is waiting."""
    reports: dict[str, Report] = {}

    async def one(variant: str) -> None:
        reports[variant] = await run(finding_id, variant, target=target, profile=profile)

    async with trio.open_nursery() as nursery:
        for variant in variants:
            nursery.start_soon(one, variant)
    return [reports[variant] for variant in variants]


@needs_nats_server
async def test_two_flipped_bits_are_found_to_lose_writes(tmp_path: Path) -> None:
    """nats-server skips damaged records without a word: K5, by exact sequences. History, figures and page are kept.

    Once in some forty runs it does not come up again on what it finds (K8), and shows nothing.
    """
    for _ in range(TRIES):
        report = await run("F2", "bitflip-kill")
        clauses = {clause for clause, _ in report.judgement.broken}
        if "K8" not in clauses:
            break
    assert report.judgement.verdict == "broken"
    assert "K5" in clauses
    assert report.figures["C1"]["lost"] > 0
    page = Path(save(report, str(tmp_path)))
    assert {path.name for path in page.parent.iterdir()} == {
        "history.edn",
        "history.jsonl",
        "results.json",
        "report.html",
    }


@needs_nats_server
@needs_mount
async def test_power_loss_with_the_default_sync_interval_is_found_to_lose_writes() -> None:
    """No acknowledgement that was audited was durable, and writes are gone."""
    report = await run("F4", "default", faults_of="always")
    assert report.judgement.verdict == "broken"
    assert report.figures["C1"]["lost"] > 0
    assert report.observed.audited_volatile_count == report.observed.audited_count


@needs_nats_server
@needs_mount
async def test_power_loss_with_sync_always_loses_nothing() -> None:
    """The same failures, another setting of the server: the harness finds nothing to object to."""
    for report in await run_all("F4", "always", "always-register"):
        assert report.judgement == attrs.evolve(report.judgement, verdict="kept", broken=())
        assert len(report.evidence.history.operations()) > 50
        assert report.observed.audited_volatile_count == 0


@pytest.mark.timeout(300)
async def test_this_server_keeps_the_contract_on_damaged_files() -> None:
    """F2: it starts again, serves all that was not damaged, names the rest, and uses no sequence again."""
    variants = ("bitflip-kill", "bitflip-rest", "truncate-kill")
    for report in await run_all("F2", *variants, target="tnats", profile=DAMAGE):
        assert report.judgement == attrs.evolve(report.judgement, verdict="kept", broken=())
        done = {event.f for event in report.evidence.history.nemesis()}
        assert report.figures["C1"]["acked"] > 0
        if report.variant.name == "truncate-kill":
            assert "truncate" in done
        else:
            assert "bitflip" in done
            assert report.figures["C1"]["lost"] <= touched_at_most(report.evidence.history)


@pytest.mark.timeout(300)
@needs_mount
async def test_this_server_loses_nothing_by_a_power_loss() -> None:
    """F4, with its default: every audited acknowledgement was durable, and everything acknowledged is there."""
    report = await run("F4", "default", target="tnats", profile=POWER)
    assert report.judgement == attrs.evolve(report.judgement, verdict="kept", broken=())
    assert len(report.observed.power_losses) >= 1
    assert report.figures["C1"]["acked"] > 0
    assert report.figures["C1"]["lost"] == 0
    assert report.observed.audited_count > 0
    assert report.observed.audited_volatile_count == 0


@pytest.mark.timeout(300)
@needs_mount
async def test_this_server_reports_what_a_power_loss_took_within_a_sync_interval() -> None:
    """F4, with the setting that risks it: writes are gone, all of the last interval, each named, no sequence twice."""
    report = await run("F4", "interval-10s", target="tnats", profile=POWER)
    assert report.judgement == attrs.evolve(report.judgement, verdict="kept", broken=())
    assert len(report.observed.power_losses) >= 1
    assert report.figures["C1"]["lost"] > 0
