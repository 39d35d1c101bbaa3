"""A run as one self-contained HTML page: lanes, fault bands, message arrows, and the chain of causes of a violation.

The page holds its data as JSON and draws itself; it loads nothing. Light or dark follows the reader's system.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape

from tnats.harness.sim.drill import Drill
from tnats.harness.sim.recording import NEMESIS, Note
from tnats.harness.sim.report_page import SCRIPT, STYLE
from tnats.harness.sim.run import Played
from tnats.harness.sim.sync_lag import VOLATILE
from tnats.limits import SECOND_NS

NOTES_MAX = 20_000
"""Events on one page; of a longer run those around the violation, or the last ones."""
FEW = 15
AROUND_MAX = 40
"""Events beside the chain of causes that are told with it."""
VALUE = re.compile(r"[cs]\d+-\d+\b")
"""What workloads write: a violation that names no event names these."""
PLACE = re.compile(r"consumer (\w+)|^(\w+) (?:at|acknowledged)\b")
"""Or it begins with a consumer or a stream,"""
NUMBER = re.compile(r"\d+")
"""and goes on with a sequence there,"""
MOMENT = re.compile(r"at (\d+\.\d+) s\b")
"""and may say when."""
LOG_LEVELS = ("[WRN]", "[ERR]", "[FTL]")
TELLING = ("connect", "disconnect", "subscribe", "unsubscribe", "start", "damage", "failure", "power", "phase")
"""Kinds of events that help to understand others on their lane."""


def page(played: Played, *, replay: str, needs: str = "") -> str:
    """The page of a drill that was run. `replay` is the command that does it again, `needs` what shrinking found."""
    drill, result = played.drill, played.result
    assert drill is not None
    plan = drill.plan
    story = chain_of(played)
    heading = f"{result.scenario}, seed {result.seed}"
    verdict = "everything held" if result.passed else result.rule
    sections = [
        f"<header class='{'good' if result.passed else 'bad'}'><p class=verdict>{escape(verdict)}</p>"
        f"<h1>{escape(heading)}</h1>{paragraph(result.text)}"
        f"<p class=replay><code>{escape(replay)}</code></p></header>",
        causes(drill, story),
        TIMELINE.format(lag=lag_of(drill)),
        faults(drill, needs),
        table("Parameters", [(name, str(value)) for name, value in plan.parameters.items()]),
        listing(
            f"Operations ({len(plan.operations)})",
            [str(operation) for operation in plan.operations],
            is_open=len(plan.operations) <= FEW,
        ),
        table("Seen along the way", [(name, str(count)) for name, count in sorted(result.probes.items())]),
        listing("Server log", [line for node in drill.stage.world.nodes.values() for line in log_of(node.log_lines)]),
        listing("Stack trace", result.trace.splitlines()),
    ]
    data = json.dumps(data_of(drill, story), separators=(",", ":")).replace("<", "\\u003c")
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(verdict)} · {escape(heading)}</title><style>{STYLE}</style>"
        f"<main>{''.join(sections)}</main>"
        f"<script type=application/json id=data>{data}</script><script>{SCRIPT}</script></html>\n"
    )


MARKS = (
    ("publish", "published, appended"),
    ("receive", "received, acknowledged"),
    ("answer", "request answered"),
    ("flush", "round trip"),
    ("link", "connected, started"),
    ("net", "nobody knows"),
    ("bad", "refused, disconnected, violated"),
    ("admin", "asked, subscribed"),
)
BANDS = (("net", "network"), ("proc", "process"), ("disk", "disk"), ("clock", "clock"), ("admin", "administration"))

TIMELINE = (
    "<section><h2>Timeline</h2><p class=tools>"
    "<label><input type=checkbox id=order> in order of events, not of time</label>"
    "<label><input type=checkbox id=arrows> all messages</label>"
    "<button id=focus>the violation</button><button id=whole>the whole run</button>"
    "<span class=hint>wheel zooms, dragging moves, a click on an event shows its messages</span></p>"
    "<div id=chart></div><p class=legend>"
    + "".join(f"<span><i style='background:var(--{name})'></i>{text}</span>" for name, text in MARKS)
    + "".join(f"<span><i class=band style='background:var(--{name})'></i>{text}</span>" for name, text in BANDS)
    + "{lag}</p><p id=detail class=hint>&nbsp;</p></section>"
)


def lag_of(drill: Drill) -> str:
    """What the strips of a server that acknowledges before it syncs are, and how long the longest one lasts."""
    lags_ns = [
        note.until_ns - note.time_ns for note in drill.recording.notes if note.kind == VOLATILE and note.until_ns
    ]
    if not lags_ns:
        return ""
    text = f"acknowledged, not durable yet (at most {seconds(max(lags_ns))})"
    return f"<span><i class=strip></i>{text}</span>"


def chain_of(played: Played) -> list[Note]:
    """The events that the violation is about, the most telling one first: the one that it names, and what led there; or
    those in which the values stand that it names; or those of the consumer or stream that it names, with the sequence
    that it names if there are such.
    """
    assert played.drill is not None
    recording = played.drill.recording
    index = getattr(played.error, "note_index", None)
    if index is not None and index < len(recording.notes):
        return list(recording.chain(recording.notes[index]))
    text = played.result.text
    values = dict.fromkeys(VALUE.findall(text))
    found = [note for note in recording.notes if not values.keys().isdisjoint(VALUE.findall(note.text))]
    return found[::-1][-FEW:] or at_place(recording.notes, text)


def at_place(notes: list[Note], text: str) -> list[Note]:
    """The last events of the consumer or stream that a violation names, the latest one first."""
    place, moment = PLACE.search(text), MOMENT.search(text)
    if place is None:
        return []
    word = f"consumer={place[1]}" if place[1] else f"stream={place[2]}"
    until_ns = float(moment[1]) * SECOND_NS if moment else notes[-1].time_ns
    there = [note for note in notes if note.time_ns <= until_ns and word in note.text.split()]
    number = NUMBER.search(text, place.end())
    exact = [note for note in there if number and number[0] in re.findall(r"(?:^|seq=)(\d+)", note.text)]
    return (exact or there)[-FEW:][::-1]


def data_of(drill: Drill, story: list[Note]) -> dict[str, object]:
    """What the page draws from."""
    notes = drill.recording.notes
    shown = shown_of(notes, story)
    busy = {lane for note in notes for lane in (note.lane, *note.targets)}
    return {
        "lanes": [name for name in drill.stage.world.nodes if name in busy],
        "notes": [note.record() for note in shown],
        "left_out": len(notes) - len(shown),
        "culprit": story[0].index if story else None,
        "chain": [note.index for note in story],
        "end": drill.stage.world.now_ns(),
    }


def shown_of(notes: list[Note], story: list[Note]) -> list[Note]:
    """The events that a page has room for, by time: the whole story, and what lies around its first event."""
    first = max(0, len(notes) - NOTES_MAX)
    if story:
        first = min(first, max(0, story[0].index - NOTES_MAX // 2))
    window = notes[first : first + NOTES_MAX]
    told = {note.index: note for note in [*story, *window]}
    return [told[index] for index in sorted(told)]


def seconds(time_ns: int) -> str:
    return f"{time_ns / SECOND_NS:.6f} s"


def causes(drill: Drill, story: list[Note]) -> str:
    """From the violating event back to where it came from, with the faults in force and what the server logged, oldest
    first.
    """
    if not story:
        return ""
    lanes = {note.lane for note in story} | {"server"}
    first, last = min(story, key=lambda note: note.index), max(story, key=lambda note: note.index)
    since_ns = first.time_ns - SECOND_NS
    around = [note for note in drill.recording.notes if is_telling(note, lanes) and in_force(note, since_ns, last)]
    told = {note.index: note for note in [*story, *around[-AROUND_MAX:]]}.values()
    rows = [
        (
            note.time_ns,
            note.index,
            f"<li class='{'culprit' if note is story[0] else 'cause' if note in story else 'around'}' "
            f"data-note={note.index}><time>{seconds(note.time_ns)}</time><b>{escape(note.lane)}</b> "
            f"{escape(kind_of(note))} <span>{escape(note.text)}</span></li>",
        )
        for note in told
    ]
    logged = [
        (
            time_ns,
            -1,
            f"<li class=log><time>{seconds(time_ns)}</time><b>server</b> log <span>{escape(line)}</span></li>",
        )
        for time_ns, line in logged_by(drill, since_ns, last.time_ns)
    ]
    body = "".join(row for _, _, row in sorted([*rows, *logged], key=lambda each: each[:2]))
    return f"<section><h2>How it came about</h2><ol class=chain>{body}</ol></section>"


def kind_of(note: Note) -> str:
    """Its kind, where the text does not begin with it."""
    return "" if note.text.startswith(note.kind) else note.kind


def logged_by(drill: Drill, since_ns: int, until_ns: int) -> list[tuple[int, str]]:
    """What the server warned of in this time, and a little of what came later: time, and the line from its level
    on; the same text once.
    """
    server = drill.stage.world.nodes.get("server")
    found: dict[str, int] = {}
    for time_ns, line in server.log_lines if server is not None else ():
        if since_ns <= time_ns and any(level in line for level in LOG_LEVELS):
            found.setdefault(line[line.index("[", 1) :], time_ns)
    before = [(time_ns, text) for text, time_ns in found.items() if time_ns <= until_ns]
    after = [(time_ns, text) for text, time_ns in found.items() if time_ns > until_ns]
    return [*before[-AROUND_MAX:], *after[: FEW // 3]]


def is_telling(note: Note, lanes: set[str]) -> bool:
    """Whether an event beside the chain helps to understand it."""
    if note.kind == "fault":
        return bool(lanes & set(note.targets))
    return note.lane in lanes and note.kind in TELLING


def in_force(note: Note, since_ns: int, last: Note) -> bool:
    """Whether an event, or what it began, falls between `since_ns` and the last event of the chain."""
    end_ns = note.until_ns if note.until_ns is not None else note.time_ns
    return note.index < last.index and end_ns >= since_ns


def faults(drill: Drill, needs: str) -> str:
    struck = drill.nemesis.struck
    rows = [
        (f"F{number}", str(fault), "" if struck[number - 1] else "its moment never came")
        for number, fault in enumerate(drill.plan.faults, 1)
    ]
    body = "".join(
        f"<tr><th>{name}</th><td><code>{escape(text)}</code></td><td>{more}</td></tr>" for name, text, more in rows
    )
    need = f"<p>needs: <b>{escape(needs)}</b></p>" if needs else ""
    refused = [note.text for note in drill.recording.notes if note.lane == NEMESIS and note.kind == "refused"]
    more = "".join(f"<p class=hint>refused: {escape(text)}</p>" for text in refused)
    none = "" if rows else "<p class=hint>none</p>"
    hint = "<p class=hint>times count from the safety phase</p>"
    return f"<section><h2>Faults</h2>{hint}{need}{none}<table>{body}</table>{more}</section>"


def table(title: str, rows: list[tuple[str, str]]) -> str:
    body = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<details><summary>{escape(title)}</summary><table>{body}</table></details>" if rows else ""


def listing(title: str, lines: list[str], *, is_open: bool = False) -> str:
    body = "\n".join(map(escape, lines))
    opening = "<details open>" if is_open else "<details>"
    return f"{opening}<summary>{escape(title)}</summary><pre>{body}</pre></details>" if lines else ""


def log_of(lines: object) -> Iterator[str]:
    for time_ns, line in lines:  # type: ignore[attr-defined]
        yield f"{seconds(time_ns)}  {line}"


def paragraph(text: str) -> str:
    return f"<p class=what>{escape(text)}</p>" if text else ""
