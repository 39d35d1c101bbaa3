"""Messages that await their acknowledgement, by stream sequence: 32 bytes each.

Sequences are mostly added in rising order and mostly removed from the front, so this is four parallel arrays, a
head that moves up, and holes in between; they are packed anew when holes outnumber messages.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

_HOLES_MIN = 64


class PendingWindow:
    """Per message: stream sequence, consumer sequence of its first delivery, when it was last sent, when it is due.

    `sent` is wall-clock time and is persisted; `due` is the leader's affair (monotonic clock, 0: none set).
    """

    __slots__ = ("_consumer_seqs", "_count", "_due", "_head", "_sent", "_seqs")

    def __init__(self) -> None:
        self._seqs = array("Q")
        self._consumer_seqs = array("Q")  # 0: a hole
        self._sent = array("q")
        self._due = array("q")
        self._head = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, seq: int) -> bool:
        return self.find(seq) >= 0

    def add(self, seq: int, consumer_seq: int, sent_ns: int, due_ns: int = 0) -> None:
        """A message was sent for the first time. `consumer_seq` is at least 1."""
        seqs = self._seqs
        if not seqs or seq > seqs[-1]:
            seqs.append(seq)
            self._consumer_seqs.append(consumer_seq)
            self._sent.append(sent_ns)
            self._due.append(due_ns)
        else:
            at = bisect_left(seqs, seq)
            if seqs[at] == seq:
                self._consumer_seqs[at], self._sent[at], self._due[at] = consumer_seq, sent_ns, due_ns
            else:
                seqs.insert(at, seq)
                self._consumer_seqs.insert(at, consumer_seq)
                self._sent.insert(at, sent_ns)
                self._due.insert(at, due_ns)
            self._head = min(self._head, at)
        self._count += 1

    def find(self, seq: int) -> int:
        """Where the message stands, for the methods below (until the next change); -1 if it is not pending."""
        seqs = self._seqs
        if seqs and seqs[-1] == seq:
            at = len(seqs) - 1
        else:
            at = bisect_left(seqs, seq, self._head)
        return at if at < len(seqs) and seqs[at] == seq and self._consumer_seqs[at] else -1

    def consumer_seq_at(self, at: int) -> int:
        """The consumer sequence of the message's first delivery."""
        return self._consumer_seqs[at]

    def sent_at(self, at: int) -> int:
        """When it was last sent, wall clock."""
        return self._sent[at]

    def due_at(self, at: int) -> int:
        """When it is due again, monotonic clock."""
        return self._due[at]

    def touch(self, at: int, sent_ns: int, due_ns: int = 0) -> None:
        """It was sent again."""
        self._sent[at] = sent_ns
        self._due[at] = due_ns

    def set_due(self, at: int, due_ns: int) -> None:
        """It is due at another time."""
        self._due[at] = due_ns

    def remove_at(self, at: int) -> None:
        """It is pending no more."""
        self._consumer_seqs[at] = 0
        self._count -= 1
        if at == self._head:
            consumer_seqs, end = self._consumer_seqs, len(self._consumer_seqs)
            while at < end and not consumer_seqs[at]:
                at += 1
            self._head = at
        if len(self._seqs) - self._count > max(self._count, _HOLES_MIN):
            self._pack()

    def _pack(self) -> None:
        kept = [at for at in range(self._head, len(self._seqs)) if self._consumer_seqs[at]]
        self._seqs = array("Q", [self._seqs[at] for at in kept])
        self._consumer_seqs = array("Q", [self._consumer_seqs[at] for at in kept])
        self._sent = array("q", [self._sent[at] for at in kept])
        self._due = array("q", [self._due[at] for at in kept])
        self._head = 0

    def first(self) -> tuple[int, int] | None:
        """(stream sequence, consumer sequence) of the oldest message."""
        return (self._seqs[self._head], self._consumer_seqs[self._head]) if self._count else None

    def seqs(self) -> Iterator[int]:
        """The stream sequences, rising."""
        for at in range(self._head, len(self._seqs)):
            if self._consumer_seqs[at]:
                yield self._seqs[at]

    def items(self) -> Iterator[tuple[int, int, int]]:
        """(stream sequence, consumer sequence, sent) of each, rising."""
        for at in range(self._head, len(self._seqs)):
            if self._consumer_seqs[at]:
                yield self._seqs[at], self._consumer_seqs[at], self._sent[at]
