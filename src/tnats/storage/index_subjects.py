"""What a message index knows by subject: four numbers and a name for each, and the search for messages by subject.

A subject has an identity, a small number that stands in the columns of its messages; without a message it has none, and
the identity goes to another. (During a recovery two indexes share identities, and none is given up.) The messages of a
subject are linked from the first to the last, so that the next one is found without a look at those between; where a
message was put between others, links lead past it until `relink`, and the columns are searched instead.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator
from itertools import compress
from typing import Protocol

from tnats.records import define
from tnats.storage import hot
from tnats.storage.index_columns import CHUNK_BITS, CHUNK_SIZE, Columns
from tnats.storage.index_names import NamesInOrder

LINK_MAX = 1 << 32

FEW_MESSAGES_MAX = 4096
FEW_BEGINNINGS_MAX = 16
"""So many messages at the most, of subjects with so many beginnings, are found by their subjects' links."""


FEW_OF_ALL = 4
"""More than one subject of so many are not put in order to find those that are wanted: a look at all is as fast."""


class SubjectPattern(Protocol):
    """Whether a subject is wanted, and what those that are begin with (`b""` is the beginning of any)."""

    @property
    def beginnings(self) -> Collection[bytes]: ...

    def __call__(self, subject: bytes) -> bool: ...

    def verdicts(self, subjects: Iterable[bytes]) -> Iterator[object]:
        """For each of many subjects, something true if it is wanted."""


SubjectFilter = bytes | SubjectPattern | None
"""One subject, some, or all."""


@define
class SubjectState:
    """One subject's messages: how many, and the sequences of the first and last."""

    messages: int
    first: int
    last: int


class SubjectBooks:
    """See the module."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._ids: dict[bytes, int] = {}
        self._ordered = NamesInOrder(self._ids)
        self.names: list[bytes] = [b""]
        """By identity; 0 is no subject."""
        self._counts = array("Q", [0])
        self._firsts = array("Q", [0])
        self._lasts = array("Q", [0])
        self._free_ids: list[int] = []
        self._unlinked = False
        """Whether a message was put between others of its subject, so that links lead past it."""
        self._is_shared = False
        """Whether identities stand in the columns of another index too (`SubjectNames`): none is given up."""

    def __len__(self) -> int:
        """Subjects that have messages."""
        return sum(map(bool, self._counts)) if self._is_shared else len(self._ids)

    # -------------------------------------------------------------- coming and going

    def enter(self, subject: bytes, sequence: int) -> int:
        """Take a message into its subject's books; the subject's identity."""
        identity = self._ids.get(subject)
        if identity is None:
            return self._enter_new(subject, sequence)
        self._counts[identity] += 1
        if self._counts[identity] == 1:
            self._firsts[identity] = self._lasts[identity] = sequence
            return identity
        last = self._lasts[identity]
        if sequence > last:
            self._link(last, sequence)
            self._lasts[identity] = sequence
        elif sequence < self._firsts[identity]:
            self._link(sequence, self._firsts[identity])
            self._firsts[identity] = sequence
        else:
            self._unlinked = True
        return identity

    def _enter_new(self, subject: bytes, sequence: int) -> int:
        if self._free_ids:
            identity = self._free_ids.pop()
            self.names[identity] = subject
            self._counts[identity] = 1
            self._firsts[identity] = self._lasts[identity] = sequence
        else:
            identity = len(self.names)
            self.names.append(subject)
            self._counts.append(1)
            self._firsts.append(sequence)
            self._lasts.append(sequence)
        self._ids[subject] = identity
        self._ordered.add([subject])
        return identity

    def enter_behind(self, subjects: list[bytes], first: int) -> tuple[array[int], array[int]]:
        """`enter` for consecutive messages behind all others; their identities and links."""
        identities, is_uniform = self.identify(subjects)
        count = len(subjects)
        links = array("I", [is_uniform]) * count
        if is_uniform:
            links[-1] = self._join(identities[0], first, first + count - 1, count)
        else:
            outside = hot.link_forward(identities, first, self._counts, self._firsts, self._lasts, links)
            for sequence, following in outside:
                self._link(sequence, following)
        return identities, links

    def enter_found(self, subjects: list[bytes], first: int) -> tuple[array[int], array[int]]:
        """`enter` for consecutive messages that may stand in front of others; their identities and links."""
        identities, is_uniform = self.identify(subjects)
        count = len(subjects)
        links = array("I", [is_uniform]) * count
        if is_uniform:
            links[-1] = self._join(identities[0], first, first + count - 1, count)
        elif not hot.link_backward(identities, first, self._counts, self._firsts, self._lasts, links):
            self._unlinked = True
        return identities, links

    def leave(self, identity: int, sequence: int) -> None:
        """A message of this subject is removed; its subject column is empty already."""
        self._counts[identity] -= 1
        if self._counts[identity] == 0:
            self._firsts[identity] = self._lasts[identity] = 0
            if not self._is_shared:
                self._give_up(identity)
        elif sequence == self._firsts[identity]:
            self._firsts[identity] = self._next_of(identity, sequence)
        elif sequence == self._lasts[identity]:
            self._lasts[identity] = self._seek_back(identity, sequence - 1)

    def _give_up(self, identity: int) -> None:
        del self._ids[self.names[identity]]
        self.names[identity] = b""
        self._free_ids.append(identity)

    def share(self, columns: Columns) -> SubjectNames:
        """What an index with these columns has for subjects while it shares the identities, until `end_sharing`."""
        self._is_shared = True
        return SubjectNames(columns, self)

    def end_sharing(self) -> None:
        """The other index is gone: so are subjects that had messages only there."""
        self._is_shared = False
        if self._counts.count(0) > len(self._free_ids) + 1:
            for identity in [identity for identity in self._ids.values() if not self._counts[identity]]:
                self._give_up(identity)

    def identify(self, subjects: list[bytes]) -> tuple[array[int], bool]:
        """The identities of subjects, made where they are new (without books yet), and whether all are one."""
        ids, subject = self._ids, subjects[0]
        if subjects.count(subject) == len(subjects):
            if subject not in ids:
                self._make_ids([subject])
            return array("I", [ids[subject]]) * len(subjects), True
        found = list(map(ids.get, subjects))
        if None in found:
            missing = [subject for subject, identity in zip(subjects, found, strict=True) if identity is None]
            new = list(dict.fromkeys(missing))
            start = len(self.names)
            self._make_ids(new)
            if len(new) == len(subjects) == len(self.names) - start:
                return array("I", range(start, start + len(new))), False
            found = list(map(ids.get, subjects))
        return array("I", found), False  # type: ignore[arg-type]  # none of them is None any more

    def _make_ids(self, names: list[bytes]) -> None:
        """Identities for new subjects; first and last are set with the first message."""
        reused = min(len(names), len(self._free_ids))
        for name in names[:reused]:
            identity = self._ids[name] = self._free_ids.pop()
            self.names[identity] = name
        fresh = names[reused:] if reused else names
        start = len(self.names)
        self._ids.update(zip(fresh, range(start, start + len(fresh)), strict=True))
        self._ordered.add(names)
        self.names += fresh
        for numbers in (self._counts, self._firsts, self._lasts):
            numbers.frombytes(bytes(8 * len(fresh)))

    # -------------------------------------------------------------- links

    def _join(self, identity: int, first: int, last: int, count: int) -> int:
        """Take `count` messages of one subject, one behind the other, into its books; the link of the last."""
        link = 0
        self._counts[identity] += count
        if self._counts[identity] == count:
            self._firsts[identity], self._lasts[identity] = first, last
        elif first > self._lasts[identity]:
            self._link(self._lasts[identity], first)
            self._lasts[identity] = last
        elif last < self._firsts[identity]:
            link = self._firsts[identity] - last
            self._firsts[identity] = first
        else:
            self._unlinked = True
        return link if link < LINK_MAX else 0

    def _link(self, sequence: int, following: int) -> None:
        chunk = self._columns.chunks.get(sequence >> CHUNK_BITS)
        if chunk is not None and following - sequence < LINK_MAX:
            chunk.links[sequence & CHUNK_SIZE - 1] = following - sequence

    def relink(self) -> None:
        """Let no link lead past a message any more. The columns are in order."""
        if not self._unlinked:
            return
        self._unlinked = False
        latest: dict[int, int] = {}
        for number, chunk in self._columns.chunks.items():
            for slot, identity in enumerate(chunk.subjects):
                if identity:
                    sequence = number << CHUNK_BITS | slot
                    if identity in latest:
                        self._link(latest[identity], sequence)
                    latest[identity] = sequence

    # -------------------------------------------------------------- search in the columns

    def _next_of(self, identity: int, sequence: int) -> int:
        """The message of a subject that follows `sequence`, itself one of it (or removed just now); 0 at the last."""
        if sequence >= self._lasts[identity]:
            return 0
        chunks = self._columns.chunks
        at = sequence
        while not self._unlinked:
            chunk = chunks.get(at >> CHUNK_BITS)
            step = chunk.links[at & CHUNK_SIZE - 1] if chunk is not None else 0
            if step == 0:
                break
            at += step
            chunk = chunks.get(at >> CHUNK_BITS)
            if chunk is not None and chunk.subjects[at & CHUNK_SIZE - 1] == identity:
                return at
        return self._seek(identity, sequence + 1)

    def _seek(self, identity: int, sequence: int) -> int:
        for number in self._columns.numbers_from(sequence >> CHUNK_BITS):
            base = number << CHUNK_BITS
            try:
                return base + int(self._columns.chunks[number].subjects.index(identity, max(0, sequence - base)))
            except ValueError:
                continue
        return 0

    def _seek_back(self, identity: int, sequence: int) -> int:
        for number in reversed(self._columns.numbers()):
            base = number << CHUNK_BITS
            if base <= sequence:
                subjects = self._columns.chunks[number].subjects
                for slot in range(min(CHUNK_SIZE - 1, sequence - base), -1, -1):
                    if subjects[slot] == identity:
                        return base + slot
        return 0

    # -------------------------------------------------------------- search by subject

    def _identities(self, wanted: bytes | SubjectPattern) -> set[int]:
        if isinstance(wanted, bytes):
            identity = self._ids.get(wanted)
            return set() if identity is None else {identity}
        found = self._few_identities(wanted, len(self._ids) // FEW_OF_ALL)
        if found is None:
            found = set(compress(self._ids.values(), wanted.verdicts(self._ids)))
        return found

    def _few_identities(self, wanted: SubjectPattern, count_max: int) -> set[int] | None:
        """Those of the wanted subjects; None if finding them takes a look at more than `count_max`."""
        candidates = self._ordered.candidates(wanted.beginnings, count_max)
        return None if candidates is None else {each for each in candidates if wanted(self.names[each])}

    def few_from(self, wanted: SubjectPattern, sequence: int) -> list[int] | None:
        """The messages from `sequence` on whose subject is wanted, ascending; None unless the wanted subjects have few
        messages in all, and can be told from others by a look at few.
        """
        if self._unlinked or len(wanted.beginnings) > FEW_BEGINNINGS_MAX:
            return None
        identities = self._few_identities(wanted, FEW_MESSAGES_MAX)
        if identities is None or sum(self._counts[each] for each in identities) > FEW_MESSAGES_MAX:
            return None
        found = []
        for identity in identities:
            at = self._firsts[identity] if self._lasts[identity] >= sequence else 0
            while at:
                if at >= sequence:
                    found.append(at)
                at = self._next_of(identity, at)
        return sorted(found)

    def next(self, subject: bytes, sequence: int) -> int:
        """The first message from `sequence` on with this subject; 0 when there is none."""
        identity = self._ids.get(subject)
        if identity is None or sequence > self._lasts[identity]:
            return 0
        return self._next_from(identity, sequence)

    def _next_from(self, identity: int, sequence: int) -> int:
        if sequence <= self._firsts[identity]:
            return self._firsts[identity]
        chunk = self._columns.chunks.get(sequence - 1 >> CHUNK_BITS)
        if chunk is not None and chunk.subjects[sequence - 1 & CHUNK_SIZE - 1] == identity:
            return self._next_of(identity, sequence - 1)
        return self._seek(identity, sequence)

    def last_of(self, wanted: bytes | SubjectPattern, bound: int) -> int:
        """The last message up to `bound` whose subject is wanted; 0 when there is none."""
        return max((self._last_up_to(identity, bound) for identity in self._identities(wanted)), default=0)

    def _last_up_to(self, identity: int, bound: int) -> int:
        if self._lasts[identity] <= bound:
            return self._lasts[identity]
        return self._seek_back(identity, bound) if self._firsts[identity] <= bound else 0

    def lasts(self, wanted: SubjectFilter, bound: int) -> list[int]:
        """The last message up to `bound` of each wanted subject, ascending."""
        identities = self._identities(wanted) if wanted is not None else self._ids.values()
        lasts = list(map(self._lasts.__getitem__, identities))
        if max(lasts, default=0) > bound:
            lasts = [self._last_up_to(identity, bound) for identity in identities]
        return sorted(filter(None, lasts))

    def count(self, wanted: bytes | SubjectPattern, sequence: int) -> int:
        """How many messages from `sequence` on have a wanted subject."""
        identities, firsts, lasts = self._identities(wanted), self._firsts, self._lasts
        older = {identity for identity in identities if firsts[identity] < sequence}
        total = sum(map(self._counts.__getitem__, identities - older if older else identities))
        scattered = {identity for identity in older if lasts[identity] >= sequence}
        if scattered:
            for number in self._columns.numbers_from(sequence >> CHUNK_BITS):
                subjects = self._columns.chunks[number].subjects
                start = max(0, sequence - (number << CHUNK_BITS))
                piece = subjects[start:] if start else subjects
                if len(scattered) == 1:
                    total += piece.count(next(iter(scattered)))
                else:
                    total += sum(identity in scattered for identity in piece)
        return total

    def states(self, wanted: SubjectFilter) -> dict[bytes, SubjectState]:
        """State of each wanted subject that has messages."""
        return {
            self.names[identity]: SubjectState(self._counts[identity], self._firsts[identity], self._lasts[identity])
            for identity in (self._ids.values() if wanted is None else self._identities(wanted))
            if self._counts[identity]
        }


class SubjectNames(SubjectBooks):
    """Subjects of an index that nobody asks about them: their names, by the identities of another one's books."""

    def __init__(self, columns: Columns, books: SubjectBooks) -> None:
        super().__init__(columns)
        self.names = books.names
        self._books = books

    def enter(self, subject: bytes, sequence: int) -> int:
        return self._books.identify([subject])[0][0]

    def enter_found(self, subjects: list[bytes], first: int) -> tuple[array[int], array[int]]:
        return self._books.identify(subjects)[0], array("I", bytes(4 * len(subjects)))
