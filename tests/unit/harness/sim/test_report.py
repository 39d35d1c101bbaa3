"""What a report page tells of a run: which events, and which of them a violation is about."""

from __future__ import annotations

import pytest

from tnats.harness.sim.recording import Note
from tnats.harness.sim.report import NOTES_MAX, at_place, shown_of
from tnats.limits import SECOND_NS


def note(index: int, text: str) -> Note:
    return Note(index, index * SECOND_NS, "c1", "ack", text)


NOTES = [
    note(0, "c1-1 stream=S subject=s.a seq=2"),
    note(1, "2 stream=S consumer=C kind=sync"),
    note(2, "3 stream=S consumer=C kind=sync"),
    note(3, "2 stream=S consumer=CC kind=sync"),
    note(4, "2 stream=S consumer=C kind=sync"),
    note(5, "c1-12 stream=K subject=k.2 seq=12"),
]


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("consumer C delivered 2 4 times; 3 are allowed", [4, 1]),
        ("after a power loss at 3.500000 s: consumer C has forgotten the acknowledgement of 2 (and 1 more)", [1]),
        ("consumer C has 22 messages pending; 10 are allowed", [4, 2, 1]),
        ("K acknowledged 12, and a loss of power would have taken it", [5]),
        ("S at rest holds 7 messages; 4 are allowed", [4, 3, 2, 1, 0]),
        ("the server ended by itself", []),
    ],
)
def test_a_violation_leads_to_the_events_of_what_it_names(text: str, indexes: list[int]) -> None:
    """Of its consumer or stream, with its sequence if there are such, until its moment; the latest one first."""
    assert [found.index for found in at_place(NOTES, text)] == indexes


@pytest.mark.parametrize("culprit", [50, NOTES_MAX, 3 * NOTES_MAX - 1])
def test_a_long_run_shows_what_its_violation_is_about(culprit: int) -> None:
    """However long the run: its story is on the page with what lies around its first event, in the order of time."""
    notes = [note(index, "") for index in range(3 * NOTES_MAX)]
    shown = [each.index for each in shown_of(notes, [notes[culprit], notes[7]])]
    assert shown == sorted(set(shown))
    assert {7, culprit, max(0, culprit - 100), min(len(notes) - 1, culprit + 100)} <= set(shown)
    assert len(shown) <= NOTES_MAX + 1
