"""What a stream log knows while the journal is replayed into it: what its files hold, and what they should hold.

What the files have of sequences that the journal is still to bring up is kept apart (`beyond`): the replay takes its
places from there instead of writing the messages again, and where the journal turns out to be damaged, it is a second
copy.

At the end, sequences of which no file knows anything are lost, and what in the files could not be read is to blame. If
nothing is lost, that was an unfinished write, but not where the checkpoint's note says that all was durable: records of
removals may have stood there, without which what was removed is served again. There only a message that is removed by
now can be unfinished: its erasure was under way.

A removal that is forgotten shows in another way too: more messages are there, or lost, than the note has counted.
"""

from __future__ import annotations

from array import array

from tnats.records import frozen
from tnats.storage.index import MessageIndex
from tnats.storage.index_columns import LOST, PLACE_MIN, REMOVED
from tnats.storage.record import Finding
from tnats.storage.stream_files import StreamFiles
from tnats.storage.stream_segment import Segment


@frozen
class Hole:
    """What was neither record nor empty in a segment: bytes `start` to `end` of its file."""

    segment: Segment
    start: int
    end: int
    messages: list[tuple[int, int]]
    """(offset, sequence) of the messages that stood there, if what is left tells that nothing else did; else empty."""


class StreamRecovery:
    """See the module. Nothing of it matters any more after `end`."""

    def __init__(self, files: StreamFiles, index: MessageIndex, last_sequence: int | None) -> None:
        """`last_sequence`: behind it everything that the files hold is kept apart; None: nothing is."""
        self.beyond = None if last_sequence is None else MessageIndex(last_sequence + 1, beside=index)
        self.used = (0, 0)
        """Sequence that is known to have been used, and how many behind all that is known may have been used too."""
        self.noted = (0, 0)
        """Last sequence and number of messages at the last checkpoint, lost ones counted."""
        self.durable = (0, 0)
        """Number and end of the segment up to which all was durable then."""
        self.holes: list[Hole] = []
        self.foreign: list[str] = []
        """Files whose header names another place: kept aside whatever they turn out to be."""
        self._files = files
        self._index = index

    @property
    def highest(self) -> int:
        """The highest sequence that is known to have been used."""
        return self._index.last if self.beyond is None else max(self._index.last, self.beyond.last)

    def place(self, sequence: int) -> int:
        """Where the files have the message that is replayed now; LOST if they do not, or its removal is to come."""
        place = LOST if self.beyond is None else self.beyond.place(sequence)
        return place if place >= PLACE_MIN else LOST

    def places_of(self, sequences: range) -> array[int] | None:
        """`place` of each; None if all are LOST."""
        if self.beyond is None or sequences.start > self.beyond.last:
            return None
        places = self.beyond.places_of(sequences)
        if REMOVED in places:
            places = array("Q", [LOST if place == REMOVED else place for place in places])
        return places if places.count(LOST) < len(places) else None

    def take_back(self, next_sequence: int) -> list[int]:
        """The journal says nothing of the sequences up to `next_sequence`: what the files have of them counts.

        Returns the sequences of the messages among them.
        """
        index, beyond = self._index, self.beyond
        found: list[int] = []
        if beyond is None:
            return found
        first = max(index.last + 1, beyond.start)
        sequence = beyond.next_live(first)
        while sequence and sequence < next_sequence:
            subject, size, time_ns = beyond.subject(sequence), beyond.size(sequence), beyond.time_ns(sequence)
            index.put(sequence, subject, size, beyond.place(sequence), time_ns)
            found.append(sequence)
            sequence = beyond.next_live(sequence + 1)
        for start, end in beyond.absent(first, next_sequence - 1, REMOVED):
            index.skip(start, end)
        return found

    def end(self) -> int:
        """The journal is replayed: what is still lost is lost, and the files' holes are to blame. How many are lost."""
        files, index, name = self._files, self._index, self._files.name
        self.take_back(self.highest + 1)
        if self.beyond is not None:
            self.beyond = None
            index.end_sharing()
        used, unknown = self.used
        index.extend(max(used, index.last) + unknown)
        lost = index.absent(index.start, index.last, LOST)
        for hole in self.holes:
            hole.segment.is_damaged = False
        for hole in self.holes:
            holder = hole.segment
            if hole.messages and all(index.place(sequence) == REMOVED for _, sequence in hole.messages):
                kind = "torn"
                holder.erasures += hole.messages
            elif lost or (holder.number == self.durable[0] and hole.start < self.durable[1]):
                kind = "damaged"
                holder.is_damaged = True
            else:
                kind = "torn"
            files.findings.append(Finding(kind, holder.path, hole.start, hole.end, group=name))
            if holder.path in self.foreign:
                kind = "foreign" if kind == "damaged" else "torn"
                files.findings.append(Finding(kind, holder.path, group=name, text="belongs to another store or place"))
                holder.is_damaged = True
        files.findings += [
            Finding("lost", files.directory, first, last + 1, group=name, text="messages") for first, last in lost
        ]
        self.holes.clear()
        self._compare_with_note(lost)
        return sum(last - first + 1 for first, last in lost)

    def begin(self) -> None:
        """The files are read, and nothing is replayed yet."""
        self._compare_with_note(self._index.absent(self._index.start, self.noted[0], LOST))

    def _compare_with_note(self, lost: list[tuple[int, int]]) -> None:
        """Since the last checkpoint, messages up to its last sequence can only have become fewer."""
        last, messages = self.noted
        index, files = self._index, self._files
        count = index.messages - index.count(None, last + 1)
        count += sum(max(0, min(last, end) - start + 1) for start, end in lost)
        if count > messages:
            text = "removed messages stand here again, or are not known to be removed: old or damaged files"
            files.report([Finding("damaged", files.directory, group=files.name, text=text)])
