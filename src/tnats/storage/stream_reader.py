"""Reading messages of a stream log: from memory, from the page cache, or from the disk.

Every record is checked when it is read. What cannot be read is an error that names it, and its segment counts as
damaged from then on.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from tnats.runtime.api import DiskError
from tnats.storage import hot, record, segment
from tnats.storage.errors import DataDamaged
from tnats.storage.held import HeldMessages
from tnats.storage.index import MessageIndex
from tnats.storage.index_columns import LOST, PLACE_MIN
from tnats.storage.message_log import Message, Stored
from tnats.storage.record import Finding
from tnats.storage.stream_files import StreamFiles
from tnats.storage.stream_segment import Segment
from tnats.storage.stream_writer import IN_MEMORY, SIZE_SLACK

READ_RUN_BYTES_MAX = 256 * 1024
READ_GAP_BYTES_MAX = 32 * 1024
"""Messages that stand so close to each other are read in one piece."""

OFFSET_MASK = 0xFFFFFFFF
"""A place's part that is the file offset."""


class StreamReader:
    """See the module."""

    def __init__(self, files: StreamFiles, index: MessageIndex, held: HeldMessages) -> None:
        self.index = index
        self.unreadable: dict[int, None] = {}
        """Live messages that a read could not read."""
        self._files = files
        self._held = held

    def load_nowait(self, sequence: int) -> Message | None:
        """See `MessageLog`."""
        place = self._live_place(sequence)
        if place == IN_MEMORY:
            return Message(sequence, self.index.time_ns(sequence), *self._held.content(sequence))
        holder = self._files.holder(place)
        if holder.file is None:
            return None
        offset = place & OFFSET_MASK
        data = holder.file.pread_cached(self.index.size(sequence) + SIZE_SLACK, offset)
        return None if data is None else _message_in(data, 0, offset, holder, sequence)

    def load_run_nowait(self, sequences: Sequence[int]) -> list[Stored | None]:
        """See `MessageLog`."""
        places, times_ns = self.index.places_of(sequences), self.index.times_of(sequences)
        found: list[Stored | None] = []
        at = 0
        while at < len(sequences):
            place = places[at]
            if place == IN_MEMORY:
                sequence = sequences[at]
                found.append((sequence, times_ns[at], *self._held.content(sequence)))
                at += 1
            elif place < PLACE_MIN:
                found.append(None)
                at += 1
            else:
                part = self._read_run(sequences, places, at)
                if not part:
                    break
                found += part
                at += len(part)
        return found

    def _read_run(self, sequences: Sequence[int], places: array[int], at: int) -> list[Stored]:
        """The messages from `at` on that one look at their file gives, none if it must be waited for."""
        holder = self._files.holder(places[at])
        if holder.file is None:
            return []
        stop = at + hot.reach(places, at, READ_RUN_BYTES_MAX, READ_GAP_BYTES_MAX)
        start = places[at] & OFFSET_MASK
        end = (places[stop - 1] & OFFSET_MASK) + self.index.size(sequences[stop - 1]) + SIZE_SLACK
        data = holder.file.pread_cached(end - start, start)
        if data is None:
            return []
        if holder.cipher is None and not holder.is_packed:
            return hot.take_messages(data, start, holder.seed, record.MESSAGE, sequences[at:stop], places[at:stop])
        found: list[Stored] = []
        for sequence, place in zip(sequences[at:stop], places[at:stop], strict=True):
            message = _message_in(data, (place & OFFSET_MASK) - start, start, holder, sequence)
            if message is None:
                break
            found.append((sequence, message.time_ns, message.subject, message.headers, message.payload))
        return found

    async def load(self, sequence: int) -> Message:
        """See `MessageLog`."""
        message = self.load_nowait(sequence)
        if message is not None:
            return message
        place = self._live_place(sequence)
        holder = self._files.holder(place)
        try:
            file = await self._files.open(holder)
            said: list[Finding] = []
            found = await segment.read_at(file, place & OFFSET_MASK, holder.seed, said, holder.cipher)
            message = _message(found, holder, sequence)
            self._files.report(said)
        except DiskError:
            if self.index.place(sequence) == place:
                raise
        if message is None:
            if self.index.place(sequence) != place:  # moved or removed meanwhile
                return await self.load(sequence)
            raise self._damage(sequence, place)
        return message

    def _damage(self, sequence: int, place: int) -> DataDamaged:
        """A live message cannot be read."""
        holder, name = self._files.holder(place), self._files.name
        holder.is_damaged = True
        self.unreadable[sequence] = None
        start = place & OFFSET_MASK
        end = start + self.index.size(sequence)
        self._files.report([Finding("damaged", holder.path, start, end, group=name, text=f"message {sequence}")])
        return DataDamaged(f"message {sequence} of stream {name} cannot be read ({holder.path})")

    def _live_place(self, sequence: int) -> int:
        place = self.index.place(sequence)
        if place >= PLACE_MIN:
            return place
        if place == LOST and sequence <= self.index.last:
            raise DataDamaged(f"message {sequence} of stream {self._files.name} is lost")
        raise KeyError(sequence)


def _message_in(data: bytes, position: int, base: int, holder: Segment, sequence: int) -> Message | None:
    """The message of the record at `position` of `data` (the file from offset `base` on), if it can be read there."""
    found = record.unpack(data, position, base, holder.seed)
    if found is not None and holder.cipher is not None:
        found = holder.cipher.open_record(found)
    return _message(found, holder, sequence)


def _message(found: record.Record | None, holder: Segment, sequence: int) -> Message | None:
    """The message of a record, if it is the one that is looked for."""
    if found is None or found.index != sequence:
        return None
    if found.kind == record.PACKED and holder.packer is not None:
        return holder.packer.expand(found)
    if found.kind != record.MESSAGE:
        return None
    return Message(sequence, found.stamp, found.key, found.head, found.body)
