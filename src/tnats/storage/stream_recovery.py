"""What a stream log knows while the journal is replayed into it: what its files hold, and what they should hold.

What the files have of sequences that the journal is still to bring up is kept apart (`beyond`): the replay takes its
places from there instead of writing the messages again, and where the journal turns out to be damaged, it is a second
copy. At the end, sequences of which no file knows anything are lost, and what in the files could not be read is to
blame; if nothing is lost, it was an unfinished write.
"""

from __future__ import annotations

from array import array

from tnats.storage.index import MessageIndex
from tnats.storage.index_columns import LOST, PLACE_MIN, REMOVED
from tnats.storage.record import Finding
from tnats.storage.stream_files import StreamFiles


class StreamRecovery:
    """See the module. Nothing of it matters any more after `end`."""

    def __init__(self, files: StreamFiles, index: MessageIndex, last_sequence: int | None) -> None:
        """`last_sequence`: behind it everything that the files hold is kept apart; None: nothing is."""
        self.beyond = None if last_sequence is None else MessageIndex(last_sequence + 1, beside=index)
        self.used = (0, 0)
        """Sequence that is known to have been used, and how many behind all that is known may have been used too."""
        self.noted = (0, 0)
        """Last sequence and number of messages at the last checkpoint."""
        self.holes: list[tuple[str, int, int]] = []
        """(path, start, end) of what was neither record nor empty when the log was opened."""
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

    def end(self) -> None:
        """The journal is replayed: what is still lost is lost, and the files' holes are to blame."""
        files, index, name = self._files, self._index, self._files.name
        self.take_back(self.highest + 1)
        if self.beyond is not None:
            self.beyond = None
            index.end_sharing()
        used, unknown = self.used
        index.extend(max(used, index.last) + unknown)
        lost = index.absent(index.start, index.last, LOST)
        kind = "damaged" if lost else "torn"
        files.findings += [Finding(kind, path, start, end, group=name) for path, start, end in self.holes]
        for each in files.segments.values():
            if each.path in self.foreign:
                kind = "foreign" if lost else "torn"
                files.findings.append(Finding(kind, each.path, group=name, text="belongs to another store or place"))
            elif not lost:
                each.is_damaged = False
        files.findings += [
            Finding("lost", files.directory, first, last + 1, group=name, text="messages") for first, last in lost
        ]
        self.holes.clear()
        self.compare_with_note()

    def compare_with_note(self) -> None:
        """Since the last checkpoint, messages up to its last sequence can only have become fewer."""
        last, messages = self.noted
        surplus = self._index.messages - self._index.count(None, last + 1) - messages
        if surplus > 0:
            text = f"{surplus} removed messages stand here again: an old state of a file"
            self._files.findings.append(Finding("damaged", self._files.directory, group=self._files.name, text=text))
