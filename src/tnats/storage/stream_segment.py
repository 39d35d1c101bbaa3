"""What a stream log keeps of one of its segment files."""

from __future__ import annotations

from collections import deque

import attrs

from tnats.runtime.api import File


@attrs.define(eq=False)
class Segment:
    number: int
    path: str
    seed: int
    end: int
    file: File | None = None
    live: int = 0
    live_bytes: int = 0
    lowest: int = 1 << 63
    highest: int = 0
    is_dirty: bool = False
    is_new: bool = False
    is_damaged: bool = False
    erasures: deque[tuple[int, int]] = attrs.field(factory=deque)
    """(offset, sequence) of removed messages whose content is to be overwritten."""

    def hold(self, sequence: int, size: int) -> None:
        """A live message stands here."""
        self.live += 1
        self.live_bytes += size
        if sequence > self.highest:
            self.highest = sequence
        if sequence < self.lowest:
            self.lowest = sequence

    def note(self, first: int, last: int) -> None:
        self.lowest = min(self.lowest, first)
        self.highest = max(self.highest, last)


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted and joined ranges."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result
