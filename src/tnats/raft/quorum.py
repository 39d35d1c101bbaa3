"""Arithmetic of majorities. Leaf module: numbers in, numbers out."""

from __future__ import annotations


def majority(count: int) -> int:
    """Size of the smallest majority of `count` voters."""
    return count // 2 + 1


def committed_index(matches: list[int]) -> int:
    """The highest index that a majority holds, given what each voter holds. 0 without voters."""
    if not matches:
        return 0
    matches.sort()
    return matches[(len(matches) - 1) // 2]
