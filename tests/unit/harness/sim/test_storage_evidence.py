"""What the judge of the storage drills excuses, and what not."""

from __future__ import annotations

import pytest

from tnats.harness.sim.recording import Note
from tnats.harness.sim.storage_evidence import Life, Reading, judge, unproved

HEARD = [
    Note(0, 10, "server", "ack", "s-1 at 1"),
    Note(1, 20, "server", "ack", "s-2 at 2"),
    Note(2, 20, "server", "ack", "s-3 at 3"),
    Note(3, 30, "nemesis", "fault", "F1 at 30ns D_POWER targets=server"),
    Note(4, 40, "nemesis", "fault", "F2 at 40ns D_ZERO targets=server files=wal"),
    Note(5, 50, "server", "ack", "s-4 at 2"),
]


def test_only_what_was_acknowledged_last_before_a_loss_of_power_is_unproved() -> None:
    """All of one moment, nothing before it; the last of all only if the power fails at the end."""
    assert unproved(HEARD) == {1, 2}
    assert unproved(HEARD, is_cut=True) == {1, 2, 5}
    assert unproved(HEARD[:3]) == frozenset()


def test_what_was_acknowledged_last_is_unproved_when_its_part_was_damaged_twice() -> None:
    """One damage takes the messages or their proof, a second one both; in between nothing else is acknowledged."""
    one, two = (Note(index, 30, "server", "damage", "D_ZERO of /data/tnats/journal/1.part") for index in (3, 4))
    other = Note(4, 30, "server", "damage", "D_ZERO of /data/tnats/journal/2.part")
    assert unproved([*HEARD[:3], one, two]) == {1, 2}
    assert unproved([*HEARD[:3], one, other]) == frozenset()
    assert unproved([*HEARD[:2], one, HEARD[5], two]) == frozenset()


@pytest.mark.parametrize(
    ("reached", "lost", "rules"),
    [
        ("B3", (3,), []),
        ("B3", (1, 3), ["C1 acked"]),
        ("B1", (3,), ["C1 acked", "C2 reused"]),
        ("B3", (4,), ["C1 acked"]),
    ],
)
def test_a_loss_is_excused_where_damage_looks_like_an_unfinished_write(
    reached: str, lost: tuple[int, ...], rules: list[str]
) -> None:
    """With damage, and for what is unproved: missing, or its sequence used again. Nothing else, and nothing without."""
    life = Life("s")
    for note in HEARD:
        if note.kind == "ack":
            value, _, sequence = note.text.split()
            life.attempted[value] = int(sequence)
            life.ack(int(sequence), value, note.index)
    content = {1: "s-1", 2: "s-4", 3: "s-3", 4: "s-5"}
    if 4 in lost:  # acknowledged when the power had come back
        life.attempted["s-5"] = 4
        life.ack(4, "s-5", 6)
    else:
        del content[4]
    reading = Reading("later", {"s": {key: value for key, value in content.items() if key not in lost}}, [])
    found = {violation.rule for violation in judge({"s": life}, reading, reached, unproved(HEARD))}
    assert sorted(found) == rules
