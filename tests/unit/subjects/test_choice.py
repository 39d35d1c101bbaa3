"""The integer generator and queue choice."""

from __future__ import annotations

from collections import Counter

from tnats.subjects.draw import Draw
from tnats.subjects.queues import choose_member


def test_draw_is_a_fixed_sequence() -> None:
    """The same seed gives the same numbers in every build and version."""
    draw = Draw(1)
    assert [draw.below(1000) for _ in range(6)] == [447, 822, 278, 920, 210, 316]
    assert Draw(0).state
    assert [Draw(seed).below(1 << 32) for seed in range(3)] == [1717642766, 1920230795, 4085313252]


def test_draw_is_uniform() -> None:
    """Chi-square over ten bins stays below the 0.1 % bound (27.9 at 9 degrees)."""
    draw = Draw(3)
    counts = Counter(draw.below(10) for _ in range(20_000))
    assert sum((counts[bin_index] - 2000) ** 2 / 2000 for bin_index in range(10)) < 27.9


def test_members_share_evenly() -> None:
    """With every member willing each of five gets its share within a few percent."""
    draw = Draw(11)
    counts = Counter(choose_member("abcde", draw, lambda _member: True) for _ in range(20_000))
    assert all(abs(counts[member] - 4000) < 250 for member in "abcde")


def test_unwilling_members_are_passed_over() -> None:
    """One willing member gets everything; none at all gives None; so does an empty group."""
    draw = Draw(1)
    assert {choose_member("abc", draw, lambda member: member == "b") for _ in range(50)} == {"b"}
    assert choose_member("abc", draw, lambda _member: False) is None
    assert choose_member("", draw, lambda _member: True) is None
