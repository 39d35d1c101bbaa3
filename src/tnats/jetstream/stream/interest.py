"""Who still needs a message, in streams with interest or work-queue retention.

The leader keeps this table of the stream's consumers. A message on a subject that no consumer wants is dropped at
admission in an interest stream (it uses a sequence); a work queue keeps it for a consumer to come. When a consumer
is done with a message, `removable` says whether it may go.
"""

from __future__ import annotations

from tnats.jetstream.stream.config import Retention
from tnats.jetstream.stream.ports import ConsumerView, StreamStore
from tnats.limits import MATCH_CACHE_ENTRIES_MAX
from tnats.records import define
from tnats.subjects.cache import MatchCache
from tnats.subjects.sublist import Sublist

SWEEP_MSGS = 2_000
"""Messages looked at in one `sweep`, so that it stays short, and so does taking away what it finds: 30 ms."""


@define(eq=False)
class _Wish:
    """One filter of a consumer, as a subscription."""

    subject: bytes
    name: str
    view: ConsumerView
    queue: None = None


class InterestTable:
    """The consumers of one stream by name."""

    def __init__(self, retention: Retention) -> None:
        self.retention = retention
        self._wishes: dict[str, list[_Wish]] = {}
        self._sublist: Sublist[_Wish] = Sublist()
        self._known: MatchCache[list[_Wish]] = MatchCache(MATCH_CACHE_ENTRIES_MAX)
        """Who wants messages on a subject, for subjects in steady use."""

    def put(self, name: str, view: ConsumerView) -> None:
        """A consumer was made, or changed its filters."""
        self.discard(name)
        self._wishes[name] = [_Wish(pattern, name, view) for pattern in view.filters or (b">",)]
        for wish in self._wishes[name]:
            self._sublist.insert(wish)
        self._known.clear()

    def discard(self, name: str) -> None:
        """A consumer is gone."""
        for wish in self._wishes.pop(name, ()):
            self._sublist.remove(wish)
        self._known.clear()

    def _wanting(self, subject: bytes) -> list[_Wish]:
        found = self._known.get(subject)
        if found is None:
            found = self._sublist.match(subject).plain
            self._known.offer(subject, found)
        return found

    def names(self, subject: bytes) -> list[str]:
        """The consumers that want messages on a subject; one whose filters overlap there, more than once."""
        return [wish.name for wish in self._wanting(subject)]

    def drops(self, subject: bytes) -> bool:
        """Whether a message on this subject is not to be stored."""
        return self.retention == Retention.INTEREST and not self._wanting(subject)

    def removable(self, store: StreamStore, seqs: list[int], *, is_copied: bool = False) -> list[int]:
        """Of messages that a consumer is done with, those that nobody needs any more.

        `is_copied`: it was a mirror or a source, beside which a work queue may have a consumer.
        """
        if self.retention == Retention.LIMITS:
            return []
        takes_all = self.retention == Retention.WORKQUEUE and not is_copied
        found = []
        for seq in seqs:
            subject = store.subject_of(seq)
            if subject is None:
                continue
            if takes_all or not self._is_needed(seq, subject):
                found.append(seq)
        return found

    def sweep(self, store: StreamStore, from_seq: int) -> tuple[list[int], int]:
        """(messages that nobody needs, where to go on; 0: done): after a consumer went or narrowed its filters.

        A work queue keeps what has not been acknowledged, wanted or not.
        """
        found: list[int] = []
        seq = from_seq
        if self.retention != Retention.INTEREST:
            return found, 0
        for _ in range(SWEEP_MSGS):
            seq = store.next_seq(seq)
            if not seq:
                return found, 0
            subject = store.subject_of(seq)
            if subject is not None and not self._is_needed(seq, subject):
                found.append(seq)
            seq += 1
        return found, seq

    def _is_needed(self, seq: int, subject: bytes) -> bool:
        return any(wish.view.needs(seq) for wish in self._wanting(subject))
