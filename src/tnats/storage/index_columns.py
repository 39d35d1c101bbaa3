"""What a message index keeps of each sequence: columns in chunks of 1024 sequences, 28 bytes a message.

A chunk is made with its first message. A sequence whose chunk is not there, or that has nothing in it, is LOST as far
as is known here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

CHUNK_BITS = 10
CHUNK_SIZE = 1 << CHUNK_BITS
LOST = 0
REMOVED = 1
PLACE_MIN = 2
"""Places from here on mean a message; the owner chooses them."""


class Chunk:
    """The columns of CHUNK_SIZE consecutive sequences."""

    __slots__ = ("links", "live", "places", "sizes", "subjects", "times")

    def __init__(self) -> None:
        self.places = array("Q", bytes(8 * CHUNK_SIZE))
        self.subjects = array("I", bytes(4 * CHUNK_SIZE))
        self.sizes = array("I", bytes(4 * CHUNK_SIZE))
        self.times = array("Q", bytes(8 * CHUNK_SIZE))
        self.links = array("I", bytes(4 * CHUNK_SIZE))
        """Distance to the next message of the same subject, through removed ones too; 0 when none is known."""
        self.live = 0


class Columns:
    """All chunks of an index."""

    __slots__ = ("_highest", "_is_unordered", "chunks")

    def __init__(self) -> None:
        self.chunks: dict[int, Chunk] = {}
        """By the sequence's upper bits. In order, except when a lost message was found again."""
        self._highest = -1
        """Number of the last chunk that was made, of all that ever were."""
        self._is_unordered = False

    def make(self, number: int) -> Chunk:
        """A chunk that is not there yet."""
        if number > self._highest:
            self._highest = number
        else:
            self._is_unordered = True
        chunk = self.chunks[number] = Chunk()
        return chunk

    def settle(self) -> None:
        """Put what was made out of order in order: searches are faster afterwards."""
        chunks = sorted(self.chunks.items())
        self.chunks.clear()
        self.chunks.update(chunks)
        self._is_unordered = False

    def numbers(self) -> list[int]:
        """Chunk numbers in order."""
        numbers = list(self.chunks)
        if self._is_unordered:
            numbers.sort()
        return numbers

    def numbers_from(self, number: int) -> Iterator[int]:
        """Chunk numbers from `number` on, in order."""
        while number in self.chunks:
            yield number
            number += 1
        for other in self.numbers():
            if other >= number:
                yield other

    # -------------------------------------------------------------- columns

    def read(self, name: str, sequences: Sequence[int], typecode: str = "Q") -> array[int]:
        """One column of each of these sequences, 0 where there is no chunk."""
        found = array(typecode)
        if isinstance(sequences, range) and sequences.step == 1:
            at, stop = sequences.start, sequences.stop
            while at < stop:
                chunk, slot = self.chunks.get(at >> CHUNK_BITS), at & CHUNK_SIZE - 1
                part = min(stop - at, CHUNK_SIZE - slot)
                found += getattr(chunk, name)[slot : slot + part] if chunk is not None else array(typecode, [0]) * part
                at += part
            return found
        for sequence in sequences:
            chunk = self.chunks.get(sequence >> CHUNK_BITS)
            found.append(getattr(chunk, name)[sequence & CHUNK_SIZE - 1] if chunk is not None else 0)
        return found

    def write(
        self,
        first: int,
        identities: array[int],
        sizes: array[int],
        places: array[int],
        times_ns: array[int],
        links: array[int],
    ) -> None:
        """The columns of consecutive sequences of which nothing is there yet."""
        done, count = 0, len(identities)
        while done < count:
            number, slot = first + done >> CHUNK_BITS, first + done & CHUNK_SIZE - 1
            chunk = self.chunks.get(number) or self.make(number)
            part = min(count - done, CHUNK_SIZE - slot)
            slots, taken = slice(slot, slot + part), slice(done, done + part)
            chunk.places[slots] = places[taken]
            chunk.times[slots] = times_ns[taken]
            chunk.sizes[slots] = sizes[taken]
            chunk.subjects[slots] = identities[taken]
            chunk.links[slots] = links[taken]
            chunk.live += part
            done += part

    def move(self, sequence: int, place: int) -> tuple[int, int]:
        """A live message stands elsewhere now; returns where it stood, and its size."""
        chunk, slot = self.chunks[sequence >> CHUNK_BITS], sequence & CHUNK_SIZE - 1
        old: int = chunk.places[slot]
        chunk.places[slot] = place
        return old, chunk.sizes[slot]

    def move_run(self, first: int, places: array[int]) -> None:
        """`move` for consecutive live messages."""
        sequence, end = first, first + len(places)
        while sequence < end:
            base = sequence & -CHUNK_SIZE
            stop = min(end, base + CHUNK_SIZE)
            self.chunks[base >> CHUNK_BITS].places[sequence - base : stop - base] = places[
                sequence - first : stop - first
            ]
            sequence = stop

    # -------------------------------------------------------------- live messages

    def next_live(self, sequence: int) -> int:
        """The first live sequence from `sequence` on; 0 when there is none."""
        found = self.chunks.get(sequence >> CHUNK_BITS)
        if found is not None and found.places[sequence & CHUNK_SIZE - 1] >= PLACE_MIN:
            return sequence
        for number in self.numbers_from(sequence >> CHUNK_BITS):
            chunk = self.chunks[number]
            if chunk.live:
                places = chunk.places
                base = number << CHUNK_BITS
                for slot in range(max(0, sequence - base), CHUNK_SIZE):
                    if places[slot] >= PLACE_MIN:
                        return base + slot
        return 0

    def previous_live(self, sequence: int) -> int:
        """The last live sequence up to `sequence`; 0 when there is none."""
        for number in reversed(self.numbers()):
            base = number << CHUNK_BITS
            if base <= sequence and self.chunks[number].live:
                places = self.chunks[number].places
                for slot in range(min(CHUNK_SIZE - 1, sequence - base), -1, -1):
                    if places[slot] >= PLACE_MIN:
                        return base + slot
        return 0

    def live_run(self, first: int, count_max: int) -> range:
        """The live sequences from `first` on, which is live, up to the first gap behind it."""
        stop, end = first, first + count_max
        while stop < end:
            chunk = self.chunks.get(stop >> CHUNK_BITS)
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

    def count_live(self, sequence: int) -> int:
        """How many live sequences there are from `sequence` on."""
        count = 0
        for number in self.numbers_from(sequence >> CHUNK_BITS):
            chunk, start = self.chunks[number], sequence - (number << CHUNK_BITS)
            count += chunk.live if start <= 0 else sum(place >= PLACE_MIN for place in chunk.places[start:])
        return count

    def standing(self, number: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """(sequence, place) of the messages from `first` to `last` whose place has `number` above its low 32 bits.

        The index may change between one and the next: each chunk is as it is when it is come to.
        """
        for chunk_number in self.numbers_from(first >> CHUNK_BITS):
            base = chunk_number << CHUNK_BITS
            if base > last:
                return
            chunk = self.chunks.get(chunk_number)
            for slot, place in enumerate(chunk.places[:] if chunk is not None else ()):
                if place >> 32 == number and first <= base + slot <= last:
                    yield base + slot, place
