"""A run as one self-contained HTML page: what was kept and lost over time, the faults, the verdict.

Each publish is a mark at the time of its invocation and the height of its sequence (or of its neighbours', if it was
never acknowledged), in Jepsen's colours for its queue workload. Marks that fall on the same spot are drawn once. Of a
cluster there is one plot for what was kept anywhere, and one for each node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from tnats.harness.checkers.acked_present import classes
from tnats.harness.checkers.evidence import Evidence, Replica
from tnats.harness.history import Operation
from tnats.limits import SECOND_NS

WIDTH, HEIGHT = 960, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 10, 24, 54
LETTER_WIDTH = 6
TICKS = 6
MENDING = ("start", "start-failed", "resume", "removed", "removed-from-stream", "join", "decoys")
"""What the nemesis does that is no fault."""
CELL = 3
COLOURS = {
    "ok": "#4a90d9",
    "lost_prefix": "#f5a623",
    "lost_middle": "#d0021b",
    "lost_postfix": "#bd10e0",
    "unread": "#8b572a",
    "unknown": "#9b9b9b",
}
LABELS = {
    "ok": "kept",
    "lost_prefix": "lost before the first that was kept",
    "lost_middle": "lost between others that were kept",
    "lost_postfix": "lost after the last that was kept",
    "unread": "acknowledged; nothing could be read back",
    "unknown": "not acknowledged",
}

STYLE = """\
:root { color-scheme: light dark; --text: #222; --dim: #555; --good: #1a7f37; --bad: #b3001b;
  --open: #8a6d00 }
@media (prefers-color-scheme: dark) { :root { --text: #ddd; --dim: #aaa; --good: #4cc26f;
  --bad: #ff6b7d; --open: #d9b44a } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 980px; margin: 2em auto; padding: 0 1em; color: var(--text) }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 1.6em }
table { border-collapse: collapse } td, th { padding: 2px 12px 2px 0; text-align: left; vertical-align: top }
th, .faults td:nth-child(-n+2) { white-space: nowrap }
.kept { color: var(--good) } .broken { color: var(--bad) } .unknown { color: var(--open) }
svg text { font: 12px system-ui, sans-serif; fill: var(--dim) }
"""


def svg(evidence: Evidence, replica: Replica | None = None) -> str:
    """The plot: of what was kept anywhere, or by one replica."""
    marked = classes(evidence, replica)
    end_ns = max((event.time_ns for event in evidence.history.events), default=1)
    top_seq = max((int(op.told("seq") or 0) for op, _ in marked), default=1) or 1
    body = "".join([*axes(end_ns, top_seq), *fault_lines(evidence, end_ns), *marks(marked, end_ns, top_seq)])
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="kept and lost writes over time">{body}</svg>'


def across(time_ns: int, end_ns: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * time_ns / end_ns


def down(seq: int, top_seq: int) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * seq / top_seq


def axes(end_ns: int, top_seq: int) -> Iterator[str]:
    base = HEIGHT - BOTTOM
    yield f'<path d="M{LEFT} {TOP}V{base}H{WIDTH - RIGHT}" fill="none" stroke="#999"/>'
    for time_s in ticks(end_ns / SECOND_NS):
        place = across(int(time_s * SECOND_NS), end_ns)
        yield f'<text x="{place:.0f}" y="{base + 16}" text-anchor="middle">{time_s:g} s</text>'
    for seq in ticks(top_seq):
        yield f'<text x="{LEFT - 6}" y="{down(int(seq), top_seq) + 4:.0f}" text-anchor="end">{seq:,.0f}</text>'
    yield f'<text x="{LEFT}" y="{TOP - 10}">sequence</text>'


def ticks(end: float) -> Iterator[float]:
    """Round numbers from 0 to `end`, `TICKS` steps at most."""
    size = 10.0 ** math.floor(math.log10(end / TICKS))
    step = next(size * digit for digit in (1, 2, 5, 10) if size * digit * TICKS >= end)
    return (step * number for number in range(math.floor(end / step) + 1))


def fault_lines(evidence: Evidence, end_ns: int) -> Iterator[str]:
    """A line for each fault, and its name where there is room for it on one of two rows."""
    free = [0.0, 0.0]
    for event in evidence.history.nemesis():
        if event.f in MENDING or event.f.startswith("stop-"):
            continue
        place = across(event.time_ns, end_ns)
        name = event.f.removeprefix("start-")
        half = len(name) * LETTER_WIDTH / 2
        row = next((number for number, right in enumerate(free) if place - half > right), None)
        label = ""
        if row is not None:
            free[row] = place + half
            label = f'<text x="{place:.1f}" y="{HEIGHT - 20 + 14 * row}" text-anchor="middle">{name}</text>'
        title = escape(f"{event.time_ns / SECOND_NS:.2f} s: {name} {told(event.value)}")
        yield (
            f'<g><title>{title}</title><path d="M{place:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#888" '
            f'stroke-dasharray="3 3"/>{label}</g>'
        )


def marks(marked: Sequence[tuple[Operation, str]], end_ns: int, top_seq: int) -> Iterator[str]:
    """Losses last, so that they lie on top."""
    cells: dict[str, dict[tuple[int, int], None]] = {name: {} for name in COLOURS}
    height = 0
    for operation, name in marked:
        height = int(operation.told("seq") or height)
        spot = (int(across(operation.invoke.time_ns, end_ns)) // CELL, int(down(height, top_seq)) // CELL)
        cells[name][spot] = None
    for name in ("unknown", "unread", "ok", "lost_prefix", "lost_postfix", "lost_middle"):
        path = "".join(f"M{x * CELL} {y * CELL}h{CELL}v{CELL}h-{CELL}z" for x, y in cells[name])
        if path:
            yield f'<path fill="{COLOURS[name]}" d="{path}"/>'


def by_node(evidence: Evidence) -> str:
    """A plot for each replica of several; those that look the same share one."""
    if len(evidence.replicas) < 2:
        return ""
    nodes: dict[str, list[str]] = {}
    for replica in evidence.replicas:
        if not replica.failure:
            nodes.setdefault(svg(evidence, replica), []).append(replica.node)
    return "".join(f"<h2>What is held by {escape(', '.join(names))}</h2>{plot}" for plot, names in nodes.items())


def page(title: str, verdict: str, rows: Sequence[tuple[str, str]], lines: Sequence[str], evidence: Evidence) -> str:
    """The page: title, facts, verdict with its lines, the plot, what the nemesis did."""
    counts: dict[str, int] = dict.fromkeys(COLOURS, 0)
    for _, name in classes(evidence):
        counts[name] += 1
    legend = "".join(
        f'<tr><td><span style="color:{COLOURS[name]}">&#9632;</span> {LABELS[name]}</td><td>{counts[name]:,}</td></tr>'
        for name in COLOURS
    )
    facts = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    said = "".join(f"<li>{escape(line)}</li>" for line in lines)
    done = "".join(
        f"<tr><td>{event.time_ns / SECOND_NS:.2f} s</td><td>{event.f}</td><td>{escape(told(event.value))}</td></tr>"
        for event in evidence.history.nemesis()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1><table>{facts}</table>"
        f'<h2>Verdict: the contract is <span class="{verdict}">{verdict}</span></h2><ul>{said}</ul>'
        f"<h2>Writes over time</h2>{svg(evidence)}<table>{legend}</table>{by_node(evidence)}"
        f'<h2>Faults</h2><table class="faults">{done}</table></body></html>'
    )


def told(value: Any) -> str:
    """What the nemesis says that it did."""
    return ", ".join(str(part) for part in value) if isinstance(value, list) else str(value or "")
