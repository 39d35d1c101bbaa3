"""What a run of the storage core leaves to be judged, and its rules.

| rule | property (checks of the contract) |
|---|---|
| C1 acked | an acknowledged message is served, with its content, until its removal was asked for |
| C2 reused | no sequence is acknowledged for two messages |
| C3 invented | whatever is served was appended at that sequence; what was definitely refused is not there |
| C13 risen | a message whose removal was acknowledged does not come back |
| C33 silent | what cannot be read is named by the health check |
| C33 alarm | no alarm without damage |
| C31 recovery | starting once more gives the same content |

What a class of damage (`ledger`) excuses: from B3 on a message may be unreadable, and a removal forgotten, if the
health check says so; in B4 it may be missing or old. Nothing excuses C3.

One more thing is excused from B3 on: what was acknowledged last before a loss of power, or before its journal part was
damaged twice, may be missing, and its sequence be used again. That it was durable stands at one other place, which is
on the medium with the next sync: without it, damage that takes everything looks like an unfinished write
(docs/storage.md). Whatever was acknowledged before has its proof in what came after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from tnats.harness.scenario import Violation
from tnats.harness.sim.ledger import CLASSES
from tnats.harness.sim.recording import Note
from tnats.records import define

DAMAGED = "damaged"


@define(eq=False)
class Life:
    """What was done with one stream. Values are unique; ticks are indexes of the recording."""

    name: str
    attempted: dict[str, int] = attrs.field(factory=dict)
    """Value: the sequence it was proposed at."""
    refused: dict[str, None] = attrs.field(factory=dict)
    acked: dict[int, tuple[str, int]] = attrs.field(factory=dict)
    """Sequence: value, tick of the acknowledgement."""
    reused: list[tuple[int, tuple[str, int], tuple[str, int]]] = attrs.field(factory=list)
    """Sequence, and value and tick of both acknowledgements."""
    doomed: dict[int, None] = attrs.field(factory=dict)
    """Sequences whose removal was asked for."""
    removed: dict[int, int] = attrs.field(factory=dict)
    """Sequences whose removal was acknowledged, with the tick."""

    def ack(self, sequence: int, value: str, tick: int) -> None:
        before = self.acked.get(sequence)
        if before is not None and before[0] != value:
            self.reused.append((sequence, before, (value, tick)))
        self.acked[sequence] = value, tick

    def copy(self) -> Life:
        """As it stands now: for a look at what would be there after a crash at this moment."""
        return attrs.evolve(
            self,
            attempted=dict(self.attempted),
            refused=dict(self.refused),
            acked=dict(self.acked),
            doomed=dict(self.doomed),
            removed=dict(self.removed),
        )


@define
class Reading:
    """What a start of the store served: by stream and sequence the value, or DAMAGED."""

    when: str
    content: dict[str, dict[int, str]]
    health: list[str]
    failure: str = ""
    """Why it did not open at all."""


def unproved(notes: Sequence[Note], *, is_cut: bool = False) -> frozenset[int]:
    """Ticks of what was acknowledged last before each loss of power, with `is_cut` also before the end of the notes, or
    before the second damage of a journal part.
    """
    found: set[int] = set()
    last: list[Note] = []
    damaged: list[str] = []
    for note in notes:
        if note.kind == "ack":
            last = [*(each for each in last if each.time_ns == note.time_ns), note]
            damaged = []
        elif note.kind == "damage" and note.text.endswith(".part"):
            damaged.append(note.text.split()[-1])
        is_cut_here = note.kind == "fault" and "D_POWER" in note.text.split()
        if is_cut_here or len(damaged) > len(set(damaged)):
            found.update(each.index for each in last)
    return frozenset(found.union(each.index for each in last) if is_cut else found)


def judge(lives: dict[str, Life], reading: Reading, reached: str, unproved: frozenset[int]) -> Iterator[Violation]:
    """The violations of one reading, given the class of damage that was reached and `unproved`."""
    damaged = CLASSES.index(reached) >= CLASSES.index("B3")
    amnesic = reached == "B4"
    excused = unproved if damaged else frozenset()
    if reading.failure:
        if not damaged:
            yield Violation(f"{reading.when}: the store does not open: {reading.failure}", rule="LIVE open")
        return
    if reading.health and not damaged:
        text = f"{reading.when}: nothing was damaged, yet the health check says: {reading.health[0]}"
        yield Violation(text, rule="C33 alarm")
    unreadable = False
    for life in lives.values():
        content = reading.content.get(life.name, {})
        unreadable |= DAMAGED in content.values()
        yield from judge_stream(life, content, reading.when, excused, damaged=damaged, amnesic=amnesic)
    if unreadable and not reading.health:
        yield Violation(f"{reading.when}: a message cannot be read, and the health check is silent", rule="C33 silent")


def judge_stream(
    life: Life, content: dict[int, str], when: str, excused: frozenset[int], *, damaged: bool, amnesic: bool
) -> Iterator[Violation]:
    for sequence, (first, first_tick), (second, tick) in life.reused:
        text = f"{life.name} acknowledged sequence {sequence} for {first} and for {second}"
        if not amnesic and first_tick not in excused:
            yield Violation(text, rule="C2 reused", note_index=tick)
    for sequence, value in content.items():
        if value == DAMAGED:
            continue
        if life.attempted.get(value) != sequence:
            text = f"{when}: {life.name} serves {value[:40]!r} at {sequence}, which was never appended there"
            yield Violation(text, rule="C3 invented")
        elif value in life.refused and life.acked.get(sequence, ("",))[0] != value:
            yield Violation(f"{when}: {life.name} serves {value}, which was refused", rule="C3 refused")
        if sequence in life.removed and not damaged:
            text = f"{when}: {life.name} serves {value} at {sequence}, whose removal was acknowledged"
            yield Violation(text, rule="C13 risen", note_index=life.removed[sequence])
    for sequence, (value, tick) in life.acked.items():
        served = content.get(sequence)
        if served == value or sequence in life.doomed or amnesic or (served == DAMAGED and damaged):
            continue
        if served is None and tick in excused:
            continue
        answer = "nothing" if served is None else "an error" if served == DAMAGED else served
        text = f"{when}: {life.name} acknowledged {value} at {sequence}; there it serves {answer}"
        yield Violation(text, rule="C1 acked", note_index=tick)
