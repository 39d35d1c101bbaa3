"""What a message log knows without reading: where each message stands, its subject and size, and the state by subject.

`Columns` has what is known of each sequence, `SubjectBooks` what is known of each subject; here are the totals, the
range that is used, and the gaps. Never authoritative: built by scanning the segments, and checked against the record
whenever one is read.

Each sequence from `start` to `last` is *live* (its place), *removed*, or *lost*: used, not removed, and nowhere to be
found. Below `start` everything is removed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from tnats.errors import InvariantBroken, ensure
from tnats.storage.index_columns import CHUNK_BITS, CHUNK_SIZE, LOST, PLACE_MIN, REMOVED, Columns
from tnats.storage.index_subjects import SubjectBooks, SubjectFilter, SubjectPattern, SubjectState

MAX = 1 << 64
"""Above every sequence."""


class MessageIndex:
    """See the module."""

    def __init__(self, start: int = 1, *, beside: MessageIndex | None = None) -> None:
        """`beside`: an index whose names of subjects this one shares, and is never asked about them, until that one's
        `end_sharing`.
        """
        self.start = start
        self.last = start - 1
        self.messages = 0
        self.bytes = 0
        self._first = start
        """No live message stands below."""
        self._columns = Columns()
        self._chunks = self._columns.chunks
        self._books: SubjectBooks = (
            SubjectBooks(self._columns) if beside is None else beside._books.share(self._columns)
        )
        self._gaps: list[tuple[int, int]] = []
        """Removed ranges (first, last) outside the chunks, in order."""

    # -------------------------------------------------------------- one sequence

    def place(self, sequence: int) -> int:
        """Where a message stands, or REMOVED, or LOST (also for a sequence that was never used)."""
        if sequence < self.start:
            return REMOVED
        chunk = self._chunks.get(sequence >> CHUNK_BITS)
        place: int = chunk.places[sequence & CHUNK_SIZE - 1] if chunk is not None else LOST
        if place == LOST and self._gaps and self._in_gap(sequence):
            return REMOVED
        return place

    def size(self, sequence: int) -> int:
        """Size of a live message."""
        return self._chunks[sequence >> CHUNK_BITS].sizes[sequence & CHUNK_SIZE - 1]

    def subject(self, sequence: int) -> bytes:
        """Subject of a live message."""
        return self._books.names[self._chunks[sequence >> CHUNK_BITS].subjects[sequence & CHUNK_SIZE - 1]]

    def time_ns(self, sequence: int) -> int:
        """Time of a live message."""
        return self._chunks[sequence >> CHUNK_BITS].times[sequence & CHUNK_SIZE - 1]

    def _in_gap(self, sequence: int) -> bool:
        at = bisect_right(self._gaps, (sequence, MAX))
        return at > 0 and self._gaps[at - 1][1] >= sequence

    # -------------------------------------------------------------- many sequences

    def places_of(self, sequences: Sequence[int]) -> array[int]:
        """`place` of each, LOST where that is REMOVED for want of anything else."""
        return self._columns.read("places", sequences)

    def times_of(self, sequences: Sequence[int]) -> array[int]:
        """`time_ns` of each, 0 where there is none."""
        return self._columns.read("times", sequences)

    def sizes_of(self, sequences: Sequence[int]) -> array[int]:
        """`size` of each, 0 where there is none."""
        return self._columns.read("sizes", sequences, "I")

    def subjects_at(self, live: range) -> list[bytes]:
        """`subject` of each of these live messages."""
        names = self._books.names
        return [names[identity] for identity in self._columns.read("subjects", live, "I")]

    def live_run(self, sequence: int, count_max: int) -> range:
        """The next live sequences from `sequence` on, up to the first gap behind them."""
        if sequence == self.last:  # whoever follows a stream asks for its newest message
            return range(sequence, sequence + (self.place(sequence) >= PLACE_MIN))
        first = self.next_live(sequence)
        return self._columns.live_run(first, min(count_max, self.last + 1 - first)) if first else range(0)

    def standing(self, number: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """See `Columns`."""
        return self._columns.standing(number, first, last)

    # -------------------------------------------------------------- messages that come

    def put(self, sequence: int, subject: bytes, size: int, place: int, time_ns: int = 0) -> None:
        """A message, new or found again; its sequence must not be live or removed."""
        number = sequence >> CHUNK_BITS
        chunk = self._chunks.get(number) or self._columns.make(number)
        slot = sequence & CHUNK_SIZE - 1
        if chunk.places[slot] != LOST or sequence < self.start:
            raise InvariantBroken(f"sequence {sequence} is put twice")
        chunk.places[slot] = place
        chunk.sizes[slot] = size
        chunk.times[slot] = time_ns
        chunk.links[slot] = 0
        chunk.live += 1
        chunk.subjects[slot] = self._books.enter(subject, sequence)
        self.messages += 1
        self.bytes += size
        if sequence > self.last:
            if self.messages == 1:
                self._first = sequence
            self.last = sequence
        elif sequence < self._first:
            self._first = sequence

    def put_next(self, subject: bytes, size: int, place: int, time_ns: int) -> None:
        """`put` for the sequence behind the last."""
        sequence = self.last = self.last + 1
        number = sequence >> CHUNK_BITS
        chunk = self._chunks.get(number) or self._columns.make(number)
        slot = sequence & CHUNK_SIZE - 1
        chunk.places[slot] = place
        chunk.sizes[slot] = size
        chunk.times[slot] = time_ns
        chunk.links[slot] = 0
        chunk.live += 1
        chunk.subjects[slot] = self._books.enter(subject, sequence)
        self.bytes += size
        self.messages += 1
        if self.messages == 1:
            self._first = sequence

    def put_run(self, subjects: list[bytes], sizes: Sequence[int], places: array[int], times_ns: array[int]) -> None:
        """New messages behind the last sequence: `put_next` for each, with the work shared."""
        first, count = self.last + 1, len(subjects)
        identities, links = self._books.enter_behind(subjects, first)
        sizes = array("I", sizes)
        self._columns.write(first, identities, sizes, places, times_ns, links)
        if not self.messages:
            self._first = first
        self.messages += count
        self.bytes += sum(sizes)
        self.last = first + count - 1

    def put_found(
        self, first: int, subjects: list[bytes], sizes: array[int], places: array[int], times_ns: array[int]
    ) -> None:
        """Messages of consecutive sequences of which nothing is known yet: `put` for each, with the work shared."""
        ensure(first >= self.start, f"sequence {first} is put below the start")
        identities, links = self._books.enter_found(subjects, first)
        count = len(identities)
        self._columns.write(first, identities, sizes, places, times_ns, links)
        self._first = first if not self.messages else min(self._first, first)
        self.messages += count
        self.bytes += sum(sizes)
        self.last = max(self.last, first + count - 1)

    def move(self, sequence: int, place: int) -> tuple[int, int]:
        """A live message stands elsewhere now; returns where it stood, and its size."""
        return self._columns.move(sequence, place)

    def move_run(self, first: int, places: array[int]) -> None:
        """`move` for consecutive live messages."""
        self._columns.move_run(first, places)

    def end_sharing(self) -> None:
        """No other index has messages `beside` this one's any more."""
        self._books.end_sharing()

    def settle(self) -> None:
        """Put what was made out of order in order: searches are faster afterwards."""
        self._columns.settle()
        self._books.relink()

    # -------------------------------------------------------------- messages that go

    def remove(self, sequence: int) -> bool:
        """Count a live or lost sequence as removed; whether it was live."""
        place = self.place(sequence)
        if place == REMOVED or sequence > self.last:
            return False
        number = sequence >> CHUNK_BITS
        chunk = self._chunks.get(number)
        if chunk is None:
            self.add_gap(sequence, sequence)
            return False
        slot = sequence & CHUNK_SIZE - 1
        chunk.places[slot] = REMOVED
        if place == LOST:
            return False
        identity = chunk.subjects[slot]
        chunk.subjects[slot] = 0
        chunk.live -= 1
        self.messages -= 1
        self.bytes -= chunk.sizes[slot]
        self._books.leave(identity, sequence)
        if sequence == self._first:
            self._first = self.next_live(sequence + 1) or self.last + 1
        if chunk.live == 0 and LOST not in chunk.places:
            del self._chunks[number]
            self.add_gap(number << CHUNK_BITS, (number + 1 << CHUNK_BITS) - 1)
        return True

    def add_gap(self, first: int, last: int) -> None:
        """Count every sequence of the range that is not live as removed; `last` may lie ahead and is used then."""
        self.extend(last)
        at = bisect_right(self._gaps, (first - 1, MAX))
        if at and self._gaps[at - 1][1] >= first - 1:
            at -= 1
            first = min(first, self._gaps[at][0])
        end = at
        while end < len(self._gaps) and self._gaps[end][0] <= last + 1:
            last = max(last, self._gaps[end][1])
            end += 1
        self._gaps[at:end] = [(first, last)]

    def skip(self, first: int, last: int) -> None:
        """Count the sequences of the range as used, and the lost among them as removed."""
        for start, end in self.absent(first, last, LOST):
            self.add_gap(start, end)
        if last > self.last:
            self.add_gap(max(first, self.last + 1, self.start), last)

    def extend(self, last: int) -> None:
        """Count the sequences up to `last` as used; those of which nothing is known are lost."""
        self.last = max(self.last, last)
        if self.messages == 0:
            self._first = self.last + 1

    def raise_start(self, start: int) -> list[tuple[int, int, int]]:
        """Remove everything below `start`; returns (sequence, place, size) of the live among it, oldest first."""
        places = []
        sequence = self.next_live(self.start)
        while sequence and sequence < start:
            places.append((sequence, self.place(sequence), self.size(sequence)))
            self.remove(sequence)
            sequence = self._first if self.messages else 0
        if start <= self.start:
            return places
        self.start = start
        self.last = max(self.last, start - 1)
        for number in [number for number in self._chunks if (number + 1) << CHUNK_BITS <= start]:
            del self._chunks[number]
        self._gaps = [(max(first, start), last) for first, last in self._gaps if last >= start]
        return places

    # -------------------------------------------------------------- the whole

    @property
    def first(self) -> int:
        """The first live sequence; last + 1 when there is none."""
        return self._first if self.messages else self.last + 1

    @property
    def subject_count(self) -> int:
        return len(self._books)

    def removed_count(self) -> int:
        """How many sequences between the first and the last message are not live."""
        return self.last - self.first + 1 - self.messages

    def absent(self, first: int, last: int, place: int) -> list[tuple[int, int]]:
        """Ranges within first to last that are REMOVED, or LOST, as `place` says."""
        ranges: list[tuple[int, int]] = []
        sequence = max(first, self.start)
        last = min(last, self.last)
        while sequence <= last:
            found, stop = self._stretch(sequence, last)
            if found == place:
                if ranges and ranges[-1][1] == sequence - 1:
                    ranges[-1] = (ranges[-1][0], stop)
                else:
                    ranges.append((sequence, stop))
            sequence = stop + 1
        return ranges

    def _stretch(self, sequence: int, last: int) -> tuple[int, int]:
        """The kind of `sequence`, and a later sequence up to which all are of this kind."""
        at = bisect_right(self._gaps, (sequence, MAX))
        chunk = self._chunks.get(sequence >> CHUNK_BITS)
        in_gap = at > 0 and self._gaps[at - 1][1] >= sequence
        if chunk is not None:
            if chunk.live == CHUNK_SIZE:
                return PLACE_MIN, min(last, sequence | CHUNK_SIZE - 1)
            place = chunk.places[sequence & CHUNK_SIZE - 1]
            if place == LOST and in_gap:
                place = REMOVED
            return place, sequence
        following = next(self._columns.numbers_from((sequence >> CHUNK_BITS) + 1), None)
        end = last if following is None else min(last, (following << CHUNK_BITS) - 1)
        if in_gap:
            return REMOVED, min(end, self._gaps[at - 1][1])
        if at < len(self._gaps):
            end = min(end, self._gaps[at][0] - 1)
        return LOST, end

    # -------------------------------------------------------------- search

    def next_live(self, sequence: int) -> int:
        """The first live sequence from `sequence` on; 0 when there is none."""
        if not self.messages or sequence > self.last:
            return 0
        return self._columns.next_live(max(sequence, self.start))

    def previous_live(self, sequence: int) -> int:
        """The last live sequence up to `sequence`; 0 when there is none."""
        return self._columns.previous_live(min(sequence, self.last))

    def next(self, subject: bytes, sequence: int) -> int:
        """The first live sequence from `sequence` on with this subject; 0 when there is none."""
        return self._books.next(subject, max(sequence, self.start))

    def few_from(self, wanted: SubjectPattern, sequence: int) -> list[int] | None:
        """The live sequences from `sequence` on whose subject is wanted, ascending; None if they are not found by a
        look at few.
        """
        return self._books.few_from(wanted, max(sequence, self.start))

    def last_of(self, wanted: SubjectFilter, until: int = 0) -> int:
        """The last live sequence (up to `until`, if given) whose subject is wanted; 0 when there is none."""
        bound = min(until, self.last) if until else self.last
        return self.previous_live(bound) if wanted is None else self._books.last_of(wanted, bound)

    def lasts(self, wanted: SubjectFilter, until: int = 0) -> list[int]:
        """The last sequence (up to `until`, if given) of each wanted subject, ascending."""
        return self._books.lasts(wanted, min(until, self.last) if until else self.last)

    def count(self, wanted: SubjectFilter, sequence: int) -> int:
        """How many live messages from `sequence` on have a wanted subject."""
        sequence = max(sequence, self.start)
        if wanted is not None:
            return self._books.count(wanted, sequence)
        return self.messages if sequence <= self.first else self._columns.count_live(sequence)

    def subjects(self, wanted: SubjectFilter = None) -> dict[bytes, SubjectState]:
        """State of each wanted subject that has messages."""
        return self._books.states(wanted)
