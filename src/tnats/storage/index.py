"""What a message log knows without reading: where each message stands, its subject and size, and the state by subject.

Arrays in chunks of 1024 sequences (28 bytes a message), and four numbers and a name for each subject. Never
authoritative: built by scanning the segments, and checked against the record whenever one is read.

Each sequence from `start` to `last` is *live* (its place), *removed*, or *lost*: used, not removed, and nowhere to be
found. Below `start` everything is removed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from tnats.errors import InvariantBroken, ensure
from tnats.records import define
from tnats.storage import hot

CHUNK_BITS = 10
CHUNK_SIZE = 1 << CHUNK_BITS
LOST = 0
REMOVED = 1
MAX = 1 << 64
LINK_MAX = 1 << 32
PLACE_MIN = 2
"""Places from here on mean a message; the owner chooses them."""

SubjectFilter = bytes | Callable[[bytes], bool] | None
"""One subject, a predicate on subjects, or all."""


@define
class SubjectState:
    """One subject's messages: how many, and the sequences of the first and last."""

    messages: int
    first: int
    last: int


class _Chunk:
    __slots__ = ("links", "live", "places", "sizes", "subjects", "times")

    def __init__(self) -> None:
        self.places = array("Q", bytes(8 * CHUNK_SIZE))
        self.subjects = array("I", bytes(4 * CHUNK_SIZE))
        self.sizes = array("I", bytes(4 * CHUNK_SIZE))
        self.times = array("Q", bytes(8 * CHUNK_SIZE))
        self.links = array("I", bytes(4 * CHUNK_SIZE))
        """Distance to the next message of the same subject, through removed ones too; 0 when none is known."""
        self.live = 0


class MessageIndex:
    """See the module."""

    def __init__(self, start: int = 1) -> None:
        self.start = start
        self.last = start - 1
        self.messages = 0
        self.bytes = 0
        self._first = start
        """No live message stands below."""
        self._chunks: dict[int, _Chunk] = {}
        self._unordered = False
        """Whether a chunk was made before one of a lower number."""
        self._unlinked = False
        """Whether a message was put between others of its subject, so that links lead past it."""
        self._gaps: list[tuple[int, int]] = []
        """Removed ranges (first, last) outside the chunks, in order."""
        self._ids: dict[bytes, int] = {}
        self._names: list[bytes] = [b""]
        """By subject id; id 0 is no subject."""
        self._counts = array("Q", [0])
        self._firsts = array("Q", [0])
        self._lasts = array("Q", [0])
        self._free_ids: list[int] = []

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
        return self._names[self._chunks[sequence >> CHUNK_BITS].subjects[sequence & CHUNK_SIZE - 1]]

    def time_ns(self, sequence: int) -> int:
        """Time of a live message."""
        return self._chunks[sequence >> CHUNK_BITS].times[sequence & CHUNK_SIZE - 1]

    def places_of(self, sequences: Sequence[int]) -> array[int]:
        """`place` of each, LOST where that is REMOVED for want of anything else."""
        return self._column("places", sequences)

    def times_of(self, sequences: Sequence[int]) -> array[int]:
        """`time_ns` of each, 0 where there is none."""
        return self._column("times", sequences)

    def sizes_of(self, sequences: Sequence[int]) -> array[int]:
        """`size` of each, 0 where there is none."""
        return self._column("sizes", sequences, "I")

    def _column(self, name: str, sequences: Sequence[int], typecode: str = "Q") -> array[int]:
        found = array(typecode)
        if isinstance(sequences, range) and sequences.step == 1:
            at, stop = sequences.start, sequences.stop
            while at < stop:
                chunk, slot = self._chunks.get(at >> CHUNK_BITS), at & CHUNK_SIZE - 1
                part = min(stop - at, CHUNK_SIZE - slot)
                found += getattr(chunk, name)[slot : slot + part] if chunk is not None else array(typecode, [0]) * part
                at += part
            return found
        for sequence in sequences:
            chunk = self._chunks.get(sequence >> CHUNK_BITS)
            found.append(getattr(chunk, name)[sequence & CHUNK_SIZE - 1] if chunk is not None else 0)
        return found

    def live_run(self, sequence: int, count_max: int) -> range:
        """The next live sequences from `sequence` on, up to the first gap behind them."""
        first = stop = self.next_live(sequence)
        if not first:
            return range(0)
        end = first + count_max
        while stop < end:
            chunk = self._chunks.get(stop >> CHUNK_BITS)
            if chunk is None:
                break
            slot = stop & CHUNK_SIZE - 1
            slots_end = min(CHUNK_SIZE, slot + end - stop)
            if chunk.live == CHUNK_SIZE:
                stop += slots_end - slot
                continue
            places = chunk.places[slot:slots_end]
            if min(places) >= PLACE_MIN:
                stop += len(places)
                continue
            stop += next(offset for offset, place in enumerate(places) if place < PLACE_MIN)
            break
        return range(first, stop)

    def subjects_at(self, live: range) -> list[bytes]:
        """`subject` of each of these live messages."""
        names = self._names
        return [names[identity] for identity in self._column("subjects", live, "I")]

    def _in_gap(self, sequence: int) -> bool:
        at = bisect_right(self._gaps, (sequence, MAX))
        return at > 0 and self._gaps[at - 1][1] >= sequence

    def put(self, sequence: int, subject: bytes, size: int, place: int, time_ns: int = 0) -> None:
        """A message, new or found again; its sequence must not be live or removed."""
        number = sequence >> CHUNK_BITS
        chunk = self._chunks.get(number)
        if chunk is None:
            if sequence <= self.last and self._chunks:
                self._unordered = True
            chunk = self._chunks[number] = _Chunk()
        slot = sequence & CHUNK_SIZE - 1
        if chunk.places[slot] != LOST or sequence < self.start:
            raise InvariantBroken(f"sequence {sequence} is put twice")
        identity = self._ids.get(subject)
        if identity is None:
            identity = self._new_id(subject, sequence)
        chunk.places[slot] = place
        chunk.subjects[slot] = identity
        chunk.sizes[slot] = size
        chunk.times[slot] = time_ns
        chunk.links[slot] = 0
        chunk.live += 1
        self._counts[identity] += 1
        if sequence > self._lasts[identity]:
            self._link(self._lasts[identity], sequence)
            self._lasts[identity] = sequence
        elif sequence < self._firsts[identity]:
            self._link(sequence, self._firsts[identity])
            self._firsts[identity] = sequence
        elif self._counts[identity] > 1:
            self._unlinked = True
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
        chunk = self._chunks.get(sequence >> CHUNK_BITS)
        if chunk is None:
            chunk = self._chunks[sequence >> CHUNK_BITS] = _Chunk()
        slot = sequence & CHUNK_SIZE - 1
        identity = self._ids.get(subject)
        if identity is None:
            identity = self._new_id(subject, sequence)
            self._counts[identity] = 1
        else:
            self._counts[identity] += 1
            self._link(self._lasts[identity], sequence)
            self._lasts[identity] = sequence
        chunk.places[slot] = place
        chunk.subjects[slot] = identity
        chunk.sizes[slot] = size
        chunk.times[slot] = time_ns
        chunk.links[slot] = 0
        chunk.live += 1
        self.bytes += size
        self.messages += 1
        if self.messages == 1:
            self._first = sequence

    def put_run(self, subjects: list[bytes], sizes: Sequence[int], places: array[int], times_ns: array[int]) -> None:
        """New messages behind the last sequence: `put_next` for each, with the work shared."""
        first, count = self.last + 1, len(subjects)
        identities, is_uniform = self._identify(subjects)
        links = array("I", [is_uniform]) * count
        if is_uniform:
            links[-1] = self._join(identities[0], first, first + count - 1, count)
        else:
            for sequence, following in hot.link_forward(
                identities, first, self._counts, self._firsts, self._lasts, links
            ):
                self._link(sequence, following)
        sizes = array("I", sizes)
        self._store(first, identities, sizes, places, times_ns, links)
        if not self.messages:
            self._first = first
        self.messages += count
        self.bytes += sum(sizes)
        self.last = first + count - 1

    def put_found(
        self, first: int, subjects: list[bytes], sizes: array[int], places: array[int], times_ns: array[int]
    ) -> None:
        """Messages of consecutive sequences of which nothing is known yet: `put` for each, with the work shared."""
        identities, is_uniform = self._identify(subjects)
        ensure(first >= self.start, f"sequence {first} is put below the start")
        count = len(identities)
        last = first + count - 1
        links = array("I", [is_uniform]) * count
        if is_uniform:
            links[-1] = self._join(identities[0], first, last, count)
        elif not hot.link_backward(identities, first, self._counts, self._firsts, self._lasts, links):
            self._unlinked = True
        self._store(first, identities, sizes, places, times_ns, links)
        self._first = first if not self.messages else min(self._first, first)
        self.messages += count
        self.bytes += sum(sizes)
        self.last = max(self.last, last)

    def _identify(self, subjects: list[bytes]) -> tuple[array[int], bool]:
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
            start = len(self._names)
            self._make_ids(new)
            if len(new) == len(subjects) == len(self._names) - start:
                return array("I", range(start, start + len(new))), False
            found = list(map(ids.get, subjects))
        return array("I", found), False  # type: ignore[arg-type]  # none of them is None any more

    def _make_ids(self, names: list[bytes]) -> None:
        """Identities for new subjects; first and last are set with the first message."""
        reused = min(len(names), len(self._free_ids))
        for name in names[:reused]:
            identity = self._ids[name] = self._free_ids.pop()
            self._names[identity] = name
        fresh = names[reused:] if reused else names
        start = len(self._names)
        self._ids.update(zip(fresh, range(start, start + len(fresh)), strict=True))
        self._names += fresh
        for numbers in (self._counts, self._firsts, self._lasts):
            numbers.frombytes(bytes(8 * len(fresh)))

    def _store(
        self,
        first: int,
        identities: array[int],
        sizes: array[int],
        places: array[int],
        times_ns: array[int],
        links: array[int],
    ) -> None:
        """Write the columns of consecutive sequences into their chunks."""
        done, count = 0, len(identities)
        while done < count:
            number, slot = first + done >> CHUNK_BITS, first + done & CHUNK_SIZE - 1
            chunk = self._chunks.get(number)
            if chunk is None:
                if number << CHUNK_BITS <= self.last and self._chunks:
                    self._unordered = True
                chunk = self._chunks[number] = _Chunk()
            part = min(count - done, CHUNK_SIZE - slot)
            slots, taken = slice(slot, slot + part), slice(done, done + part)
            chunk.places[slots] = places[taken]
            chunk.times[slots] = times_ns[taken]
            chunk.sizes[slots] = sizes[taken]
            chunk.subjects[slots] = identities[taken]
            chunk.links[slots] = links[taken]
            chunk.live += part
            done += part

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
        chunk = self._chunks.get(sequence >> CHUNK_BITS)
        if chunk is not None and following - sequence < LINK_MAX:
            chunk.links[sequence & CHUNK_SIZE - 1] = following - sequence

    def move(self, sequence: int, place: int) -> tuple[int, int]:
        """A live message stands elsewhere now; returns where it stood, and its size."""
        chunk, slot = self._chunks[sequence >> CHUNK_BITS], sequence & CHUNK_SIZE - 1
        old: int = chunk.places[slot]
        chunk.places[slot] = place
        return old, chunk.sizes[slot]

    def move_run(self, first: int, places: array[int]) -> None:
        """`move` for consecutive live messages."""
        sequence, end = first, first + len(places)
        while sequence < end:
            base = sequence & -CHUNK_SIZE
            stop = min(end, base + CHUNK_SIZE)
            self._chunks[base >> CHUNK_BITS].places[sequence - base : stop - base] = places[
                sequence - first : stop - first
            ]
            sequence = stop

    def _new_id(self, subject: bytes, sequence: int) -> int:
        if self._free_ids:
            identity = self._free_ids.pop()
            self._names[identity] = subject
        else:
            identity = len(self._names)
            self._names.append(subject)
            for numbers in (self._counts, self._firsts, self._lasts):
                numbers.append(0)
        self._firsts[identity] = self._lasts[identity] = sequence
        self._ids[subject] = identity
        return identity

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
        self.messages -= 1
        self.bytes -= chunk.sizes[slot]
        chunk.live -= 1
        self._counts[identity] -= 1
        if self._counts[identity] == 0:
            del self._ids[self._names[identity]]
            self._names[identity] = b""
            self._free_ids.append(identity)
        chunk.subjects[slot] = 0
        if self._counts[identity]:
            if sequence == self._firsts[identity]:
                self._firsts[identity] = self._next_of(identity, sequence)
            elif sequence == self._lasts[identity]:
                self._lasts[identity] = self._seek_id_back(identity, sequence - 1)
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

    def settle(self) -> None:
        """Put what was made out of order in order: searches are faster afterwards."""
        self._chunks = dict(sorted(self._chunks.items()))
        self._unordered = False
        if self._unlinked:
            self._unlinked = False
            latest: dict[int, int] = {}
            for number, chunk in self._chunks.items():
                for slot, identity in enumerate(chunk.subjects):
                    if identity:
                        sequence = number << CHUNK_BITS | slot
                        if identity in latest:
                            self._link(latest[identity], sequence)
                        latest[identity] = sequence

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
        return len(self._ids)

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
        following = next(self._numbers_from((sequence >> CHUNK_BITS) + 1), None)
        end = last if following is None else min(last, (following << CHUNK_BITS) - 1)
        if in_gap:
            return REMOVED, min(end, self._gaps[at - 1][1])
        if at < len(self._gaps):
            end = min(end, self._gaps[at][0] - 1)
        return LOST, end

    def standing(self, number: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """(sequence, place) of the messages from `first` to `last` whose place has `number` above its low 32 bits.

        The index may change between one and the next: each chunk is as it is when it is come to.
        """
        for chunk_number in self._numbers_from(first >> CHUNK_BITS):
            base = chunk_number << CHUNK_BITS
            if base > last:
                return
            chunk = self._chunks.get(chunk_number)
            for slot, place in enumerate(chunk.places[:] if chunk is not None else ()):
                if place >> 32 == number and first <= base + slot <= last:
                    yield base + slot, place

    # -------------------------------------------------------------- search

    def next_live(self, sequence: int) -> int:
        """The first live sequence from `sequence` on; 0 when there is none."""
        sequence = max(sequence, self.start)
        if not self.messages:
            return 0
        for number in self._numbers_from(sequence >> CHUNK_BITS):
            chunk = self._chunks[number]
            if chunk.live:
                places = chunk.places
                base = number << CHUNK_BITS
                for slot in range(max(0, sequence - base), CHUNK_SIZE):
                    if places[slot] >= PLACE_MIN:
                        return base + slot
        return 0

    def previous_live(self, sequence: int) -> int:
        """The last live sequence up to `sequence`; 0 when there is none."""
        sequence = min(sequence, self.last)
        for number in reversed(self._numbers()):
            base = number << CHUNK_BITS
            if base <= sequence and self._chunks[number].live:
                places = self._chunks[number].places
                for slot in range(min(CHUNK_SIZE - 1, sequence - base), -1, -1):
                    if places[slot] >= PLACE_MIN:
                        return base + slot
        return 0

    def _numbers(self) -> list[int]:
        """Chunk numbers in order. Chunks are made in order except when a lost message is found again."""
        numbers = list(self._chunks)
        if self._unordered:
            numbers.sort()
        return numbers

    def _numbers_from(self, number: int) -> Iterator[int]:
        """Chunk numbers from `number` on, in order."""
        while number in self._chunks:
            yield number
            number += 1
        for other in self._numbers():
            if other >= number:
                yield other

    def _next_of(self, identity: int, sequence: int) -> int:
        """The message of a subject that follows `sequence`, itself one of it (or removed just now); 0 at the last."""
        if sequence >= self._lasts[identity]:
            return 0
        at = sequence
        while not self._unlinked:
            chunk = self._chunks.get(at >> CHUNK_BITS)
            step = chunk.links[at & CHUNK_SIZE - 1] if chunk is not None else 0
            if step == 0:
                break
            at += step
            chunk = self._chunks.get(at >> CHUNK_BITS)
            if chunk is not None and chunk.subjects[at & CHUNK_SIZE - 1] == identity:
                return at
        return self._seek_id(identity, sequence + 1)

    def _seek_id(self, identity: int, sequence: int) -> int:
        for number in self._numbers_from(sequence >> CHUNK_BITS):
            base = number << CHUNK_BITS
            try:
                return base + int(self._chunks[number].subjects.index(identity, max(0, sequence - base)))
            except ValueError:
                continue
        return 0

    def _seek_id_back(self, identity: int, sequence: int) -> int:
        for number in reversed(self._numbers()):
            base = number << CHUNK_BITS
            if base <= sequence:
                subjects = self._chunks[number].subjects
                for slot in range(min(CHUNK_SIZE - 1, sequence - base), -1, -1):
                    if subjects[slot] == identity:
                        return base + slot
        return 0

    def _identities(self, wanted: SubjectFilter) -> set[int]:
        if isinstance(wanted, bytes):
            identity = self._ids.get(wanted)
            return set() if identity is None else {identity}
        assert wanted is not None
        return {identity for name, identity in self._ids.items() if wanted(name)}

    def next(self, wanted: SubjectFilter, sequence: int) -> int:
        """The first live sequence from `sequence` on whose subject is wanted; 0 when there is none."""
        if wanted is None:
            return self.next_live(sequence)
        identities = self._identities(wanted)
        sequence = max([sequence, self.start, *([min(self._firsts[i] for i in identities)] if identities else [])])
        if not identities or sequence > max(self._lasts[i] for i in identities):
            return 0
        if len(identities) == 1:
            return self._next_from(identities.pop(), sequence)
        for number in self._numbers_from(sequence >> CHUNK_BITS):
            base = number << CHUNK_BITS
            subjects = self._chunks[number].subjects
            for slot in range(max(0, sequence - base), CHUNK_SIZE):
                if subjects[slot] in identities:
                    return base + slot
        return 0

    def _next_from(self, identity: int, sequence: int) -> int:
        if sequence <= self._firsts[identity]:
            return self._firsts[identity]
        chunk = self._chunks.get(sequence - 1 >> CHUNK_BITS)
        if chunk is not None and chunk.subjects[sequence - 1 & CHUNK_SIZE - 1] == identity:
            return self._next_of(identity, sequence - 1)
        return self._seek_id(identity, sequence)

    def last_of(self, wanted: SubjectFilter, until: int = 0) -> int:
        """The last live sequence (up to `until`, if given) whose subject is wanted; 0 when there is none."""
        bound = min(until, self.last) if until else self.last
        if wanted is None:
            return self.previous_live(bound)
        return max((self._last_up_to(identity, bound) for identity in self._identities(wanted)), default=0)

    def _last_up_to(self, identity: int, bound: int) -> int:
        if self._lasts[identity] <= bound:
            return self._lasts[identity]
        return self._seek_id_back(identity, bound) if self._firsts[identity] <= bound else 0

    def lasts(self, wanted: SubjectFilter, until: int = 0) -> list[int]:
        """The last sequence (up to `until`, if given) of each wanted subject, ascending."""
        bound = min(until, self.last) if until else self.last
        identities = self._identities(wanted) if wanted is not None else self._ids.values()
        return sorted(found for identity in identities if (found := self._last_up_to(identity, bound)))

    def count(self, wanted: SubjectFilter, sequence: int) -> int:
        """How many live messages from `sequence` on have a wanted subject."""
        sequence = max(sequence, self.start)
        if wanted is None:
            if sequence <= self.first:
                return self.messages
            return sum(self._count_live(number, sequence) for number in self._numbers_from(sequence >> CHUNK_BITS))
        total = 0
        scattered = set()
        for identity in self._identities(wanted):
            if self._firsts[identity] >= sequence:
                total += self._counts[identity]
            elif self._lasts[identity] >= sequence:
                scattered.add(identity)
        if scattered:
            for number in self._numbers_from(sequence >> CHUNK_BITS):
                subjects = self._chunks[number].subjects
                start = max(0, sequence - (number << CHUNK_BITS))
                piece = subjects[start:] if start else subjects
                if len(scattered) == 1:
                    total += piece.count(next(iter(scattered)))
                else:
                    total += sum(identity in scattered for identity in piece)
        return total

    def _count_live(self, number: int, sequence: int) -> int:
        chunk = self._chunks[number]
        start = sequence - (number << CHUNK_BITS)
        if start <= 0:
            return chunk.live
        return sum(place >= PLACE_MIN for place in chunk.places[start:])

    def subjects(self, wanted: SubjectFilter = None) -> dict[bytes, SubjectState]:
        """State of each wanted subject that has messages, in the order in which they came up."""
        return {
            name: SubjectState(self._counts[identity], self._firsts[identity], self._lasts[identity])
            for name, identity in self._ids.items()
            if wanted is None or (name == wanted if isinstance(wanted, bytes) else wanted(name))
        }
