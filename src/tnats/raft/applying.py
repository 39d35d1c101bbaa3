"""Handing committed entries to the state machine: in order, once, within a bound of bytes.

What is handed out is committed, durable here, and readable. What is not in memory any more is read back from disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tnats.errors import ensure
from tnats.raft.core import Core
from tnats.raft.effects import Load, Purpose
from tnats.raft.log import entry_bytes
from tnats.raft.messages import Entry


class Applying:
    """Owns what is handed out and not yet applied, and the one read from disk that may be under way."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.loading = False
        self.read: list[Entry] | None = None
        self.outstanding_bytes = 0
        self.batches: deque[tuple[int, int]] = deque()  # (last index, bytes) of each batch handed out

    def take(self) -> Sequence[Entry]:
        """What may be applied next."""
        log = self.core.log
        first, last = log.applying + 1, min(log.commit, log.stable)
        if self.read is not None:
            entries = [entry for entry in self.read if first <= entry.index <= last]
            self.read = None
            if entries and entries[0].index == first:
                return self._hand_out(entries)
        if first > last or self.loading:
            return ()
        room = self.core.options.apply_bytes_max - self.outstanding_bytes
        if room <= 0:
            return ()
        if log.faulty:
            last = min(last, log.readable_to(first))
            if first > last:
                return ()
        if first < log.cache_first:
            self.loading = True
            self.core.loads.append(Load(Purpose.APPLY, self.core.node, first, min(last, log.cache_first - 1), room))
            return ()
        return self._hand_out(log.slice_to(first, last, room))

    def _hand_out(self, entries: list[Entry]) -> list[Entry]:
        size = sum(map(entry_bytes, entries))
        last = entries[-1].index
        self.core.log.applying = last
        self.batches.append((last, size))
        self.outstanding_bytes += size
        return entries

    def loaded(self, entries: list[Entry]) -> None:
        self.loading = False
        self.read = entries

    def load_failed(self) -> None:
        """The host reported damage instead: ask again when it is repaired."""
        self.loading = False

    def applied(self, index: int) -> None:
        log = self.core.log
        ensure(index <= log.applying, f"applied {index} was never handed out")
        log.applied = max(log.applied, index)
        self.settle()
        if log.sums[-1] - log.sums[0] > self.core.options.cache_bytes_max:
            self._evict()

    def settle(self) -> None:
        """Forget the batches that are applied, one by one or by a snapshot."""
        while self.batches and self.batches[0][0] <= self.core.log.applied:
            self.outstanding_bytes -= self.batches.popleft()[1]

    def _evict(self) -> None:
        """Let the older half of the cache go, as far as nobody here will ask for it soon."""
        log = self.core.log
        needed = min(log.applied, log.stable)
        for progress in self.core.progress.values():
            if progress.next > log.cache_first and progress.active:
                needed = min(needed, progress.next - 1)
        log.evict_to(min(needed, log.cache_first + len(log.cache) // 2))
