"""What a consumer has not delivered yet: where it scans on in the stream, and how many messages that is.

The count is kept, not taken anew: it goes on from where the last count ended when messages were stored, and falls
with each message that is passed or removed. With the deliver policy "last per subject" the stream up to the
consumer's creation is a list, the last message of each subject; behind it everything counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from tnats.jetstream.consumer.ports import StreamIndex
from tnats.jetstream.consumer.state import ConsumerState


class Ahead:
    """The messages behind a consumer's place."""

    def __init__(self, index: StreamIndex, state: ConsumerState, filters: tuple[bytes, ...]) -> None:
        self._index = index
        self._state = state
        self._filters = filters
        self._scan_seq = 1
        self._listed: list[int] | None = None
        self._listed_at = 0
        self._count = 0
        self._counted_to_seq = 0
        self.begin(filters)

    def begin(self, filters: tuple[bytes, ...]) -> None:
        """Begin behind the last delivered message: at the start, after a reset, or with other filters."""
        self._filters = filters
        self._scan_seq = self._state.delivered_stream_seq + 1
        self._listed, self._listed_at = None, 0
        until_seq = self._state.per_subject_until
        if self._state.delivered_stream_seq < until_seq:
            self._listed = [seq for seq in self._index.last_per_subject(filters) if self._scan_seq <= seq <= until_seq]
        self._recount()

    def _recount(self) -> None:
        from_seq = self._scan_seq
        self._count = 0
        if self._listed is not None:
            from_seq = self._state.per_subject_until + 1
            self._count = len(self._listed) - self._listed_at
        # A start that lies ahead counts nothing of what comes before it.
        self._counted_to_seq = max(self._index.last_seq, from_seq - 1)
        self._count += self._index.count_matching(self._filters, from_seq, self._counted_to_seq)

    def peek(self) -> int:
        """The next message, 0 if there is none; it stays the next until it is `passed` or gone."""
        if self._listed is not None:
            while self._listed_at < len(self._listed):
                seq = self._listed[self._listed_at]
                if self._index.subject_of(seq) is not None:
                    return seq
                self._listed_at += 1
            self._listed = None
            self._scan_seq = max(self._scan_seq, self._state.per_subject_until + 1)
        if self._scan_seq > self._index.last_seq:
            return 0
        seq = self._index.next_matching(self._filters, self._scan_seq)
        self._scan_seq = seq or self._index.last_seq + 1
        return seq

    def peek_run(self, count_max: int) -> Sequence[int]:
        """The next messages, some of them at least if there are any; they stay the next until they are `passed`."""
        if self._listed is not None:
            self.peek()  # which ends the list, when it is through
        if self._listed is not None:
            listed = self._listed[self._listed_at : self._listed_at + count_max]
            return [seq for seq in listed if self._index.subject_of(seq) is not None]
        last_seq = self._index.last_seq
        if self._scan_seq > last_seq:
            return ()
        seqs = self._index.next_run(self._filters, self._scan_seq, count_max)
        self._scan_seq = seqs[0] if seqs else last_seq + 1
        if not seqs or seqs[-1] == last_seq:  # that is all there is
            self._count, self._counted_to_seq = len(seqs), last_seq
        return seqs

    def passed(self, seqs: Sequence[int]) -> None:
        """These messages, the first of what `peek` or `peek_run` gave, were sent or put aside."""
        self._count = self.count() - len(seqs)
        last = seqs[-1]
        if self._listed is None:
            self._scan_seq = last + 1
        else:
            self._listed_at = bisect_left(self._listed, last, self._listed_at) + 1

    def removed(self, seq: int) -> None:
        """A message that the filters match, behind the last delivered one, is gone from the stream."""
        if seq <= self._counted_to_seq and self.includes(seq):
            self._count -= 1

    def purged(self, begin_seq: int, *, is_counted: bool) -> None:
        """All below `begin_seq` that the filters match are gone. `is_counted`: each was told of as `removed`."""
        self._scan_seq = max(self._scan_seq, begin_seq)
        if not is_counted:
            if self._listed is not None:
                left = self._listed[self._listed_at :]
                self._listed = [seq for seq in left if self._index.subject_of(seq) is not None]
                self._listed_at = 0
            self._recount()

    def includes(self, seq: int) -> bool:
        """Whether a message behind the last delivered one, on a matching subject, will be delivered."""
        if self._listed is None or seq > self._state.per_subject_until:
            return True
        at = bisect_left(self._listed, seq, self._listed_at)
        return at < len(self._listed) and self._listed[at] == seq

    def undelivered(self) -> int:
        """How many messages were never sent: those ahead, and those that were put aside."""
        return self.count() + len(self._state.held)

    def count(self) -> int:
        """How many messages are ahead."""
        last_seq = self._index.last_seq
        if last_seq > self._counted_to_seq:
            self._count += self._index.count_matching(self._filters, self._counted_to_seq + 1, last_seq)
            self._counted_to_seq = last_seq
        return self._count
