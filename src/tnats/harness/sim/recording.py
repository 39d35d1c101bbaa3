"""What happened in a run, as people want to see it: events on lanes, with what caused them.

A lane is a node or the nemesis. An event may name the event that caused it (a delivery its publish), so that a
violation can be followed back. Probes count rare things: a batch of runs in which one of them never happened has
not tried what it claims to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from tnats.records import define

NEMESIS = "nemesis"


@define
class Note:
    """One event. `until_ns` is set for what lasts (a fault, an incarnation)."""

    index: int
    time_ns: int
    lane: str
    kind: str
    text: str
    cause: int | None = None
    until_ns: int | None = None
    targets: tuple[str, ...] = ()
    """Lanes that a fault troubles."""

    def record(self) -> dict[str, Any]:
        """As JSON-like values, without what is empty."""
        return {
            name: value
            for name, value in attrs.asdict(self, recurse=False).items()
            if (value is not None and value != ()) or name == "index"
        }


class Recording:
    """The notes and probes of one run."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.notes: list[Note] = []
        self.probes: dict[str, int] = {}
        self.closed = False
        """The run is over: what the end of the world brings is not recorded any more."""
        self._now_ns = now_ns

    def note(self, lane: str, kind: str, text: str, *, cause: int | None = None, targets: tuple[str, ...] = ()) -> Note:
        """Something happened now."""
        found = Note(len(self.notes), self._now_ns(), lane, kind, text, cause, None, targets)
        if not self.closed:
            self.notes.append(found)
        return found

    def end(self, note: Note) -> None:
        """What `note` began is over."""
        note.until_ns = self._now_ns()

    def probe(self, name: str, count: int = 1) -> None:
        """Something rare was seen."""
        if count:
            self.probes[name] = self.probes.get(name, 0) + count

    def close(self) -> None:
        """Record nothing more."""
        self.closed = True

    def chain(self, note: Note) -> Iterator[Note]:
        """`note`, its cause, the cause of that, and so on."""
        found: Note | None = note
        while found is not None:
            yield found
            found = None if found.cause is None else self.notes[found.cause]
