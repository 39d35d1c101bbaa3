"""The integer generator."""

from __future__ import annotations

from collections import Counter

from tnats.subjects.draw import Draw


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
