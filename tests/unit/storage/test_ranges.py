"""Ranges of numbers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tnats.storage.ranges import merged, without

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)).map(lambda pair: (pair[0], sum(pair))))


def members(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(RANGES, RANGES)
def test_ranges_are_sets(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    """Merged they hold the same numbers, in order and apart; without others, those that the others do not hold."""
    joined = merged(some)
    assert members(joined) == members(some)
    assert all(before[1] + 1 < behind[0] for before, behind in pairwise(joined))
    left = without(joined, merged(others))
    assert members(left) == members(some) - members(others)
    assert left == sorted(left)
