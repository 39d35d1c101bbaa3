"""What is kept of a run: history, figures, and a page with the plot."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import orjson

from tnats.harness import loss_plot
from tnats.harness.checkers.evidence import Evidence
from tnats.harness.contract import CLAUSES, lost_on, node_figures
from tnats.harness.findings import EXPECTATIONS
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.run import Report


def seen_now(report: Report) -> str:
    """One line of figures."""
    found = report.figures
    if report.variant.workload == "queue" and not report.evidence.was_read:
        return f"acked {found['C1']['acked']:,}; nothing could be read back"
    if "C1" in found:
        text = (
            "acked {acked:,}, lost {lost:,} (prefix {lost_prefix:,}, middle {lost_middle:,}, postfix {lost_postfix:,})"
        )
        text = text.format(**found["C1"])
        if report.variant.nodes > 1:
            text += f"; {len(lost_somewhere(report.evidence)):,} are missing on at least one node"
        return text
    return "{calls:,} calls on {keys} keys, {violations} not linearizable, {unknown} undecided".format(**found["C8"])


def lost_somewhere(evidence: Evidence) -> set[str]:
    """Acknowledged values that at least one replica does not hold."""
    readable = [replica for replica in evidence.replicas if not replica.failure]
    return {operation.value for replica in readable for operation in lost_on(replica, evidence)}


def seen_by_node(report: Report) -> list[str]:
    """A line for each node that messages were published to."""
    lines: list[str] = []
    if report.variant.workload != "queue":
        return lines
    for row in node_figures(report.evidence, report.observed):
        held = "" if row.on_disk_count is None else f" with {row.on_disk_count:,}"
        disk = f"{row.on_disk_bytes:,} bytes of message files{held}"
        disk += "".join(f'; it logged "{words}"' for words in row.logged)
        if row.failure:
            lines.append(f"{row.node}: not read, {row.failure}; {disk}")
            continue
        text = f"{row.node}: holds {row.held_count:,}, lost {row.lost_count:,}"
        if report.variant.nodes > 1:
            text += f", differs from the first node at {row.diverged_count:,} sequences"
        if row.drained_lost_count is not None:
            text += f", its clients missed {row.drained_lost_count:,}"
        lines.append(f"{text}; {disk}")
    return lines


def faults_done(report: Report) -> dict[str, int]:
    """How often the nemesis did what."""
    return dict(Counter(event.f for event in report.evidence.history.nemesis()))


def summary(report: Report) -> dict[str, Any]:
    """The result of one variant, for programs."""
    return {
        "finding": report.finding.id,
        "variant": report.variant.name,
        "target": report.target,
        "profile": report.profile,
        "seed": report.seed,
        "started": report.started,
        "verdict": report.judgement.verdict,
        "broken": [{"clause": clause, "text": text} for clause, text in report.judgement.broken],
        "notes": list(report.judgement.notes),
        "figures": report.figures,
        "faults": faults_done(report),
        "missing_on_some_node": len(lost_somewhere(report.evidence)),
        "nodes": [attrs.asdict(row) for row in node_figures(report.evidence, report.observed)],
        "audited": report.observed.audited_count,
        "audited_volatile": report.observed.audited_volatile_count,
    }


def make_directory(out: str) -> None:
    """Where results will go, before anything that takes long. Raises CouldNotRun."""
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise CouldNotRun(f"--out {out}: {exc.strerror}") from None


def save(report: Report, out: str) -> str:
    """Write history, figures and plot of one run into a directory beneath `out`; returns the path of the page."""
    place = Path(out) / f"{report.finding.id}-{report.variant.name}-{report.target}-{report.profile}-{report.seed}"
    place.mkdir(parents=True, exist_ok=True)
    history = report.evidence.history
    (place / "history.edn").write_text("\n".join(history.to_edn()) + "\n")
    (place / "history.jsonl").write_text("\n".join(history.to_json_lines()) + "\n")
    (place / "results.json").write_bytes(orjson.dumps(summary(report), option=orjson.OPT_INDENT_2))
    rows = [
        ("finding", f"{report.finding.id}: {report.finding.title} ({report.finding.reference})"),
        ("variant", f"{report.variant.name}: {report.variant.text}"),
        ("target", f"{report.target}, profile {report.profile}, seed {report.seed}, {report.started}"),
        ("Jepsen saw", report.finding.seen_by_jepsen.strip()),
        ("seen now", seen_now(report)),
        *((line.partition(": ")[0], line.partition(": ")[2]) for line in seen_by_node(report)),
        ("asked", EXPECTATIONS[report.variant.expect]),
    ]
    lines = [f"{clause} ({CLAUSES[clause]}): {text}" for clause, text in report.judgement.broken]
    title = f"{report.finding.id} {report.variant.name} on {report.target}"
    page = loss_plot.page(title, report.judgement.verdict, rows, [*lines, *report.judgement.notes], report.evidence)
    (place / "report.html").write_text(page)
    return str(place / "report.html")
