"""`tnats jepsen`: run what Jepsen found about NATS again, against a real server."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tnats.cli.output import json_option, print_json
from tnats.cli.progress import drawing
from tnats.cli.session import run as run_live
from tnats.cli.tables import console as table_console
from tnats.errors import TnatsError, leaves
from tnats.harness.contract import CLAUSES
from tnats.harness.findings import EXPECTATIONS, Finding, FindingError, Variant, with_nodes
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.finding_files import load_findings
from tnats.harness.real.kills import KillsReport, run_kills
from tnats.harness.real.results import faults_done, make_directory, save, seen_by_node, seen_now, summary
from tnats.harness.real.run import Report, run_variant
from tnats.harness.real.targets import Target, find_target
from tnats.runtime.api import Runtime

EXIT_KEPT, EXIT_BROKEN, EXIT_COULD_NOT_RUN = 0, 1, 2

directory_option = click.option("--dir", "directory", help="Scenario files. [default: jepsen/ of the clone]")


@click.group("jepsen")
def command() -> None:
    """Run what Jepsen found about NATS again, against nats-server or this server."""


@command.command("list")
@directory_option
@json_option
def list_findings(directory: str | None, as_json: bool) -> int:
    """Show the findings, their variants, and what each needs."""
    try:
        findings = load_findings(directory)
    except TnatsError as exc:
        return could_not_run(exc)
    if as_json:
        for finding in findings:
            print_json(listed(finding))
        return EXIT_KEPT
    table = Table(box=None, pad_edge=False)
    for heading in ("", "finding", "published for", "runs on", "variants"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "variants")
    for finding in findings:
        counts = sorted({variant.nodes for variant in finding.variants})
        needs = " or ".join("one node" if count == 1 else f"a cluster of {count}" for count in counts)
        names = "\n".join(variant.name for variant in finding.variants)
        table.add_row(finding.id, f"{finding.title} ({finding.reference})", finding.affected, needs, names)
    table_console().print(table)
    return EXIT_KEPT


def listed(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "title": finding.title,
        "reference": finding.reference,
        "affected": finding.affected,
        "profiles": list(finding.profiles),
        "variants": [
            {
                "name": variant.name,
                "text": variant.text,
                "nodes": variant.nodes,
                "faults": [str(fault) for fault in variant.faults],
            }
            for variant in finding.variants
        ],
    }


@command.command("run")
@click.argument("finding_id", metavar="FINDING")
@click.option(
    "--target", required=True, help="tnats, nats-server, nats-server==VERSION, or the path of a server program."
)
@click.option("--profile", default="short", show_default=True, help="How long and how fast: short, real.")
@click.option("--variant", "variant_name", help="Only this variant. [default: all]")
@click.option("--nodes", type=click.IntRange(2, 9), help="Of a cluster. [default: as the scenario file says]")
@click.option("--seed", default=1, show_default=True, help="Of what is drawn: files, bits, what a power loss spares.")
@click.option("--out", default="jepsen-results", show_default=True, help="Directory for history, figures, plot.")
@click.option("--keep", is_flag=True, help="Keep the working directory with stores and server logs.")
@directory_option
@json_option
def run_finding(
    finding_id: str,
    target: str,
    profile: str,
    variant_name: str | None,
    nodes: int | None,
    seed: int,
    out: str,
    keep: bool,
    directory: str | None,
    as_json: bool,
) -> int:
    """Run FINDING (F1, F2, ...) and hold what happens against the contract.

    Exit code 0: the contract was kept; 1: it was broken (or a checker could not decide); 2: could not run.
    """
    try:
        finding, variants = choose(load_findings(directory), finding_id, variant_name, profile)
        if nodes is not None:
            variants = [with_nodes(variant, nodes) for variant in variants]
    except TnatsError as exc:
        return could_not_run(exc)
    reports: list[Report] = []
    console = table_console(stderr=as_json)

    async def work(runtime: Runtime) -> None:
        found = await find_target(target)
        make_directory(out)
        console.print(f"[bold]{finding.id}[/] {finding.title} ({finding.reference}), against {found.name}")
        console.print(f"Jepsen saw: {finding.seen_by_jepsen.strip()}\n", style="dim", highlight=False)
        runnable = runnable_on(found, finding, variants)
        for variant in runnable:
            report = await run_one(runtime, finding, variant, profile, found, seed=seed, keep=keep)
            reports.append(report)
            show(console, report)
            if as_json:
                print_json(summary(report))
            console.print(f"  {save(report, out)}\n", style="dim", highlight=False)  # last: the disk may be full
        for variant in (variant for variant in variants if variant not in runnable):
            text = f"[bold]{variant.name}[/]: not run: it needs a cluster, and {found.name} has none yet"
            console.print(text, highlight=False)

    if code := carry_out(work):
        return code
    kept = all(report.judgement.verdict == "kept" for report in reports)
    return EXIT_KEPT if kept else EXIT_BROKEN


@command.command("kills")
@click.option("--target", default="tnats", show_default=True, help="As of `run`.")
@click.option("--kills", "kill_count", default=200, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--streams", "stream_count", default=2, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--seed", default=1, show_default=True, help="Of what is drawn: when to kill, and what clients do.")
@click.option("--sync-interval", help="Of the server's configuration. [default: the target's own]")
@click.option("--keep", is_flag=True, help="Keep the working directory even if all is well.")
@json_option
def run_kills_command(
    target: str, kill_count: int, stream_count: int, seed: int, sync_interval: str | None, keep: bool, as_json: bool
) -> int:
    """Kill a server under load again and again, and look after every start whether it keeps what it promised.

    Exit code 0: it does; 1: it does not, and the store, the log and what clients were told are kept; 2: could not run.
    """
    console = table_console(stderr=as_json)
    reports: list[KillsReport] = []

    async def work(runtime: Runtime) -> None:
        found = await find_target(target)
        with drawing(BarColumn(), TextColumn("{task.description}")) as bar:
            task = bar.add_task("", total=kill_count)

            def progress(number: int, text: str) -> None:
                bar.update(task, description=f"kill {number}: {text}", completed=number - 1)

            reports.append(
                await run_kills(
                    runtime,
                    found,
                    kill_count=kill_count,
                    stream_count=stream_count,
                    seed=seed,
                    sync_interval=sync_interval,
                    keep=keep,
                    progress=progress,
                )
            )

    if code := carry_out(work):
        return code
    [report] = reports
    if as_json:
        print_json(attrs.asdict(report))
    console.print(f"{report.kill_count} kills of {report.target} in {report.seconds:.0f} s", highlight=False)
    console.print("  " + ", ".join(f"{name} {count:,}" for name, count in report.figures.items()), highlight=False)
    for fault in report.faults:
        console.print(f"  [red]{escape(fault)}[/]", highlight=False)
    if report.directory:
        console.print(f"  store, log, history, and how to repeat it: {report.directory}", highlight=False)
    return EXIT_BROKEN if report.faults else EXIT_KEPT


def choose(
    findings: list[Finding], finding_id: str, variant_name: str | None, profile: str
) -> tuple[Finding, list[Variant]]:
    """The finding and its variants to run. Raises FindingError."""
    known = {finding.id.lower(): finding for finding in findings}
    finding = known.get(finding_id.lower())
    if finding is None:
        raise FindingError(f"unknown finding {finding_id!r}; known: {', '.join(found.id for found in findings)}")
    if profile not in finding.profiles:
        raise FindingError(f"{finding.id} has no profile {profile!r}; it has: {', '.join(finding.profiles)}")
    variants = [variant for variant in finding.variants if variant_name in (None, variant.name)]
    if not variants:
        names = ", ".join(variant.name for variant in finding.variants)
        raise FindingError(f"{finding.id} has no variant {variant_name!r}; it has: {names}")
    return finding, variants


def runnable_on(target: Target, finding: Finding, variants: list[Variant]) -> list[Variant]:
    """Those that the target can run. Raises CouldNotRun when it is none of them."""
    runnable = [variant for variant in variants if variant.nodes == 1 or target.has_clusters]
    if not runnable:
        needed = f"{finding.id} needs a cluster of {variants[0].nodes} nodes"
        raise CouldNotRun(f"{needed}, and {target.name} has no clusters yet")
    return runnable


async def run_one(
    runtime: Runtime, finding: Finding, variant: Variant, profile: str, target: Target, *, seed: int, keep: bool
) -> Report:
    """One variant, with a progress bar on standard error."""
    with drawing(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task(variant.name, total=1.0)

        def progress(phase: str, done_s: float, total_s: float) -> None:
            bar.update(task, description=f"{variant.name}: {phase}", completed=done_s / total_s)

        return await run_variant(runtime, finding, variant, profile, target, seed=seed, keep=keep, progress=progress)


def carry_out(work: Callable[[Runtime], Awaitable[None]]) -> int:
    """Run it; 0 if it came to its end, otherwise the exit code, after one line that says why."""
    try:
        return run_live(work)
    except (TnatsError, OSError) as exc:
        return could_not_run(exc)
    except ExceptionGroup as group:
        known, others = group.split((TnatsError, OSError))
        if known is None or others is not None:
            raise
        return could_not_run(next(leaves(known)))


def could_not_run(exc: Exception) -> int:
    print(f"tnats jepsen: {exc}", file=sys.stderr)
    return EXIT_COULD_NOT_RUN


def show(console: Console, report: Report) -> None:
    """The result of one variant, for people."""
    judgement = report.judgement
    colour = {"kept": "green", "broken": "red", "unknown": "yellow"}[judgement.verdict]
    console.print(f"[bold]{report.variant.name}[/]: {report.variant.text}", highlight=False)
    console.print(f"  asked: {EXPECTATIONS[report.variant.expect]}", highlight=False)
    done = ", ".join(f"{name} {count} x" for name, count in faults_done(report).items())
    console.print(f"  faults: {done}", highlight=False)
    console.print(f"  seen now: {seen_now(report)}", highlight=False)
    for line in seen_by_node(report):
        console.print(f"    {line}", highlight=False)
    for note in judgement.notes:
        console.print(f"  {note}", highlight=False)
    console.print(f"  contract [{colour}]{judgement.verdict}[/]", highlight=False)
    for clause, text in judgement.broken:
        console.print(f"    [red]{clause}[/] ({CLAUSES[clause]}): {escape(text)}", highlight=False)
    if report.directory:
        console.print(f"  store and logs: {report.directory}", style="dim", highlight=False)
