"""Moments that somebody waits for, one for each key, the earliest first.

Setting another moment replaces the one before: most are set far ahead, and replaced with the next message. The heap
holds moments and numbers, not keys, so that who is gone is not kept by what it once waited for. Moments that no longer
count are passed over when they come up, and dropped when they are the majority.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Key = TypeVar("Key")

HEAP_COUNT_MIN = 64
"""A heap this small is not cleared of moments that no longer count."""


class Moments(Generic[Key]):
    """See the module's text. Moments are in nanoseconds, of any clock."""

    __slots__ = ("_count", "_entries", "_heap", "_keys")

    def __init__(self) -> None:
        self._count = 0
        self._heap: list[tuple[int, int]] = []
        """Moments, each with a number of its own."""
        self._entries: dict[Key, tuple[int, int]] = {}
        """The one that counts, by key."""
        self._keys: dict[int, Key] = {}
        """By the numbers of these."""

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, key: Key, moment_ns: int) -> None:
        """Wait for this moment, and no other any more."""
        old = self._entries.get(key)
        if old is not None:
            if old[0] == moment_ns:
                return
            del self._keys[old[1]]
        self._count += 1
        entry = self._entries[key] = (moment_ns, self._count)
        self._keys[self._count] = key
        heapq.heappush(self._heap, entry)
        if len(self._heap) > HEAP_COUNT_MIN + 2 * len(self._entries):
            self._heap[:] = sorted(self._entries.values())

    def forget(self, key: Key) -> None:
        """Wait for nothing; no error if there was nothing to wait for."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            del self._keys[entry[1]]

    def next_ns(self) -> int | None:
        """The earliest moment."""
        heap = self._heap
        while heap and heap[0][1] not in self._keys:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ns: int) -> Key | None:
        """Who has waited longest for a moment that has come, and waits for nothing now; None: nobody."""
        next_ns = self.next_ns()
        if next_ns is None or next_ns > now_ns:
            return None
        key = self._keys.pop(heapq.heappop(self._heap)[1])
        del self._entries[key]
        return key
