"""Go's notations, held to their rules by any value and any text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tnats.notation import duration_fault, format_duration, parse_duration


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_durations_survive_being_written(duration_ns: int) -> None:
    """What is printed in a message can be put into a file."""
    assert parse_duration(format_duration(duration_ns)) == duration_ns


@given(st.text(max_size=12) | st.text("0123456789.smhunµ-+", max_size=8))
def test_any_text_may_be_read_as_a_duration(text: str) -> None:
    """It is one, or the fault says what it lacks."""
    duration_ns = parse_duration(text)
    assert (duration_ns is None) is duration_fault(text).startswith("time: ")
    assert text[:1] != "-" or duration_ns is None or duration_ns <= 0
