"""Subjects by how they begin: a pattern is compared with those only that it can match.

Theory of operation
-------------------
Names stand in order, so those with one beginning stand together. Most streams are never asked for a pattern: the order
is made when the first is asked for. From then on new names stand apart; when there are enough they are sorted and are a
run of their own, and runs of like lengths are merged, so that a name is moved as often as their number has binary
digits, at the most. A name that has gone is left out of what is found, and when there are as many of those as of
others, the order is made anew.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from itertools import chain

NEW_NAMES_MAX = 1000
"""That stand apart, and are all looked at."""


class NamesInOrder:
    """Of the subjects in `ids`, which it does not change."""

    def __init__(self, ids: dict[bytes, int]) -> None:
        self._ids = ids
        self._runs: list[list[bytes]] = []
        """Each in order, and longer than the next; none before the first question."""
        self._new: list[bytes] = []

    def add(self, names: list[bytes]) -> None:
        """These have come."""
        if self._runs:
            self._new += names
            if len(self._new) > NEW_NAMES_MAX:
                self._settle()

    def candidates(self, beginnings: Collection[bytes], count_max: int) -> Iterator[int] | None:
        """Identities of the subjects that begin with one of these, a few others among them, some twice; None if there
        may be more than `count_max`.
        """
        if b"" in beginnings or len(beginnings) > len(self._ids):
            return iter(self._ids.values()) if len(self._ids) <= count_max else None
        if not self._runs or sum(map(len, self._runs)) > 2 * len(self._ids) + NEW_NAMES_MAX:
            self._runs = [sorted(self._ids)]
            self._new.clear()
        found = [(run, *_range(run, beginning)) for run in self._runs for beginning in beginnings]
        if sum(high - low for _, low, high in found) + len(self._new) > count_max:
            return None
        return self._identities(found)

    def _identities(self, found: list[tuple[list[bytes], int, int]]) -> Iterator[int]:
        names = chain.from_iterable(run[low:high] for run, low, high in found)
        for name in chain(names, self._new):
            if (identity := self._ids.get(name)) is not None:
                yield identity

    def _settle(self) -> None:
        run = sorted(self._new)
        self._new.clear()
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = sorted(self._runs.pop() + run)
        self._runs.append(run)


def _range(run: list[bytes], beginning: bytes) -> tuple[int, int]:
    """Where the names that begin so stand."""
    low = bisect_left(run, beginning)
    return low, bisect_right(run, beginning, low, key=lambda name: name[: len(beginning)])
