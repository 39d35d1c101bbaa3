"""Ranges of numbers, as (first, last)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted and joined ranges."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def without(ranges: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What of sorted ranges is in none of others that are sorted and do not overlap."""
    result: list[tuple[int, int]] = []
    rest = deque(others)
    for first, last in ranges:
        while rest and rest[0][1] < first:
            rest.popleft()
        while rest and rest[0][0] <= last:
            if first < rest[0][0]:
                result.append((first, rest[0][0] - 1))
            first = rest[0][1] + 1
            if first > last:
                break
            rest.popleft()
        if first <= last:
            result.append((first, last))
    return result
