"""Arithmetic of majorities. Leaf module: numbers in, numbers out."""

from __future__ import annotations

from collections.abc import Iterable


def majority(count: int) -> int:
    """Size of the smallest majority of `count` voters."""
    return count // 2 + 1


def committed_index(matches: list[int]) -> int:
    """The highest index that a majority holds, given what each voter holds. 0 without voters."""
    if not matches:
        return 0
    matches.sort()
    return matches[(len(matches) - 1) // 2]


def reached(count: int, voters: Iterable[int], members: Iterable[int]) -> bool:
    """Whether `members` hold a majority of the `count` voters."""
    held = set(voters)
    return sum(1 for node in members if node in held) >= majority(count)
