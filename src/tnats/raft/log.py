"""The log as the machine sees it: terms of every entry, a cache of the newest entries, and four marks.

    base              last, newest
    |  first ..       |
    [snapshot]----applied---commit---stable---last
                 ^cache_first

* Terms are kept for every index from `base` (the last released one) to `last`; None where damage hid them.
* Entries are kept from `cache_first` on. Older ones are on the host's disk and come back by a `Load`.
* `stable`: durable here. `commit`: a quorum holds it. `applying`: handed to the host. `applied`: the host is done.
  applied <= applying <= min(commit, stable). A committed entry is never truncated.
* `faulty`: ranges the host cannot read. They keep their place: damage is not absence.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from tnats.errors import ensure
from tnats.raft.messages import Entry, SnapshotMeta
from tnats.records import define

ENTRY_OVERHEAD_BYTES = 48
"""What an entry counts on top of its data against every bound in bytes: the Python objects that hold it."""


@define
class FaultyRange:
    """Entries `first..last` cannot be read here; `last_term` is the term of the last one, which names them all:
    who has an entry (last, last_term) has the same entries before it (log matching, paper 5.3).
    """

    first: int
    last: int
    last_term: int


def entry_bytes(entry: Entry) -> int:
    return len(entry.data) + ENTRY_OVERHEAD_BYTES


class Log:
    """Bounds and lookups are O(1) or O(log n); appending a batch is O(batch)."""

    __slots__ = (
        "applied",
        "applying",
        "base",
        "cache",
        "cache_first",
        "commit",
        "faulty",
        "last_index",
        "snapshot",
        "stable",
        "sums",
        "terms",
        "unstable_from",
    )

    def __init__(
        self,
        snapshot: SnapshotMeta,
        terms: list[int | None],
        *,
        base: int,
        commit: int,
        applied: int,
        faulty: list[FaultyRange],
    ) -> None:
        """`terms` of the entries from `base` on, the first one being the base's own."""
        ensure(base <= snapshot.index, "a log must begin at its snapshot or before")
        self.snapshot = snapshot
        self.base = base
        self.terms = terms
        self.last_index = base + len(terms) - 1
        self.cache: list[Entry] = []
        self.sums: list[int] = [0]  # sums[k]: bytes of cache[:k], plus an arbitrary constant
        self.cache_first = self.last_index + 1
        self.stable = self.last_index
        self.unstable_from = self.last_index + 1
        self.applied = self.applying = applied
        self.commit = max(commit, applied, snapshot.index)
        self.faulty = faulty
        ensure(self.commit <= self.last_index, "committed entries are missing from the log and not reported faulty")

    # Looking up

    def term(self, index: int) -> int | None:
        """Term of the entry at `index`; None if it is released, not there yet, or hidden by damage."""
        if self.base <= index <= self.last_index:
            return self.terms[index - self.base]
        return None

    @property
    def last_term(self) -> int:
        term = self.terms[-1]
        ensure(term is not None, "the identity of the last entry is always known")
        return term or 0

    def is_fresh(self, last_index: int, last_term: int) -> bool:
        """Whether a log that ends so is at least as up to date as this one (paper 5.4.1)."""
        own = self.last_term
        return last_term > own or (last_term == own and last_index >= self.last_index)

    def slice(self, first: int, bytes_max: int) -> tuple[list[Entry], int]:
        """Cached entries from `first` on within `bytes_max` but at least one, and their bytes."""
        at = first - self.cache_first
        start = self.sums[at]
        if self.sums[-1] - start <= bytes_max:
            return self.cache[at:], self.sums[-1] - start
        end = max(bisect_right(self.sums, start + bytes_max) - 1, at + 1)
        return self.cache[at:end], self.sums[end] - start

    def slice_to(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Cached entries `first..last` within `bytes_max` but at least one."""
        at = first - self.cache_first
        end = last - self.cache_first + 1
        if self.sums[end] - self.sums[at] > bytes_max:
            end = max(bisect_right(self.sums, self.sums[at] + bytes_max) - 1, at + 1)
        return self.cache[at:end]

    def bytes_after(self, index: int) -> int:
        """Bytes of the cached entries after `index`."""
        at = max(index + 1 - self.cache_first, 0)
        return self.sums[-1] - self.sums[at]

    def hint(self, index: int, term: int) -> tuple[int, int]:
        """The highest (index, term) at or below `index` whose term is at most `term`: where logs may meet."""
        at = min(index, self.last_index)
        while at > self.base:
            own = self.terms[at - self.base]
            if own is not None and own <= term:
                return at, own
            at -= 1
        return self.base, self.terms[0] or 0

    # Growing and shrinking

    def append(self, entries: list[Entry]) -> None:
        """Add entries right after the last one."""
        self.terms += [entry.term for entry in entries]
        self.cache += entries
        sizes = [len(entry.data) + ENTRY_OVERHEAD_BYTES for entry in entries]
        sizes[0] += self.sums[-1]
        self.sums += accumulate(sizes)
        self.last_index += len(entries)

    def truncate(self, index: int) -> None:
        """Drop the entries from `index` on. Committed ones never go."""
        ensure(index > self.commit, f"truncation at {index} of a log committed up to {self.commit}")
        ensure(index > self.base, "truncation into what was released")
        del self.terms[index - self.base :]
        at = max(index - self.cache_first, 0)
        del self.cache[at:]
        del self.sums[at + 1 :]
        self.cache_first = min(self.cache_first, index)
        self.last_index = index - 1
        self.stable = min(self.stable, self.last_index)
        self.unstable_from = min(self.unstable_from, index)
        kept = [fault for fault in self.faulty if fault.first < index]
        for fault in kept:
            if fault.last >= index:
                term = self.terms[-1]
                fault.last, fault.last_term = self.last_index, term if term is not None else 0
        self.faulty = kept

    def take_unstable(self) -> list[Entry]:
        """The entries to persist: everything from the first change on. Empty if nothing changed."""
        if self.unstable_from > self.last_index:
            return []
        entries = self.cache[self.unstable_from - self.cache_first :]
        self.unstable_from = self.last_index + 1
        return entries

    def persisted(self, index: int, term: int) -> bool:
        """Entries up to (`index`, `term`) became durable. Whether that is news of the log as it is now."""
        if index > self.stable and self.term(index) == term and index < self.unstable_from:
            self.stable = index
            return True
        return False

    def release(self, index: int) -> None:
        """Forget the entries up to `index`: the snapshot covers them."""
        ensure(index <= self.snapshot.index, f"release up to {index} beyond the snapshot at {self.snapshot.index}")
        if index <= self.base:
            return
        if self.term(index) is None:  # damage hides it: go on to where the term is known
            index = self.snapshot.index
            self.terms[index - self.base] = self.snapshot.term
        del self.terms[: index - self.base]
        self.base = index
        self.evict_to(index)
        self.faulty = [fault for fault in self.faulty if fault.last > index]
        for fault in self.faulty:
            fault.first = max(fault.first, index + 1)

    def evict_to(self, index: int) -> None:
        """Drop cached entries up to `index`; the host's disk has them."""
        count = index + 1 - self.cache_first
        if count > 0:
            count = min(count, len(self.cache))
            del self.cache[:count]
            del self.sums[:count]
            self.cache_first += count

    def restore(self, meta: SnapshotMeta) -> bool:
        """Begin at a received snapshot. The suffix stays if it continues the snapshot. Whether it stayed."""
        ensure(meta.index > self.snapshot.index, "an older snapshot would undo a newer one")
        own = self.term(meta.index)
        matches = own == meta.term or (own is None and self.base < meta.index <= min(self.commit, self.last_index))
        self.snapshot = meta
        self.commit = max(self.commit, meta.index)
        self.applied = max(self.applied, meta.index)
        self.applying = max(self.applying, meta.index)
        if matches:
            self.release(meta.index)
            self.terms[0] = meta.term
            self.stable = max(self.stable, meta.index)
            return True
        self.base = self.last_index = self.stable = meta.index
        self.terms = [meta.term]
        self.cache = []
        self.sums = [0]
        self.cache_first = self.unstable_from = meta.index + 1
        self.faulty = []
        return False

    # Damage

    def readable_to(self, first: int) -> int:
        """The last index of the readable run that begins at `first`; `first - 1` if that one is faulty."""
        last = self.last_index
        for fault in self.faulty:
            if fault.first <= first <= fault.last:
                return first - 1
            if fault.first > first:
                last = min(last, fault.first - 1)
        return last

    def mark_faulty(self, first: int, last: int) -> None:
        """The host cannot read `first..last` any more. Their terms are still known here."""
        first, last = max(first, self.base + 1), min(last, self.stable)
        if first > last:
            return
        for fault in self.faulty:
            if fault.first <= last + 1 and first <= fault.last + 1:
                first, last = min(first, fault.first), max(last, fault.last)
        rest = [fault for fault in self.faulty if fault.last < first or fault.first > last]
        term = self.term(last)
        ensure(term is not None, "the last entry of a faulty range has a known term")
        self.faulty = sorted([*rest, FaultyRange(first, last, term or 0)], key=lambda fault: fault.first)

    def fill(self, fault: FaultyRange, entries: list[Entry]) -> None:
        """The entries at the head of a faulty range were found again."""
        ensure(entries[0].index == fault.first, "repair begins at the head of a faulty range")
        for entry in entries:
            self.terms[entry.index - self.base] = entry.term
        fault.first = entries[-1].index + 1
        if fault.first > fault.last:
            self.faulty.remove(fault)
