"""Bringing records to the current segment of a stream log: messages that stand in memory only, and whatever else.

Messages are held in memory until somebody writes them: whoever stored them, as far as that takes no waiting, or a task
that waits for the next segment. Both do it in turns that nothing interrupts, so neither locks the other out, nor a
checkpoint.
"""

from __future__ import annotations

from array import array

import trio

from tnats.storage import hot, record, segment
from tnats.storage.errors import LogRemoved, StorageError, StoreFull
from tnats.storage.held import HeldMessages
from tnats.storage.index import MessageIndex
from tnats.storage.index_columns import PLACE_MIN
from tnats.storage.stream_files import StreamFiles

SIZE_SLACK = 48
"""A record takes at most this much more than the size that NATS counts for its message, encrypted or not."""

IN_MEMORY = PLACE_MIN
"""Place of a message that is not written yet."""

WRITE_BATCH_MAX = 500
"""Records of one write: a few milliseconds."""

WRITE_TURN_MAX = 4000
"""Messages written before others get their turn, where nothing is sealed: as many milliseconds as thousands."""


class StreamWriter:
    """See the module."""

    def __init__(self, files: StreamFiles, index: MessageIndex) -> None:
        self.held = HeldMessages()
        """What stands in memory only; in `index` its place is IN_MEMORY."""
        self.index = index
        self._files = files
        self._turn_max = WRITE_TURN_MAX if files.keys is None else WRITE_BATCH_MAX

    def write_nowait(self) -> bool:
        """See `MessageLog`."""
        files = self._files
        if files.trouble is not None or files.is_closed:
            return False
        try:
            return self._write_some(files.stretched_bytes) and not files.wants_spare
        except StorageError as exc:
            files.trouble = exc
            return False

    async def write(self) -> None:
        """See `MessageLog`."""
        files = self._files
        if files.trouble is not None or files.is_closed:
            return
        await self.write_held()
        if files.trouble is None and files.wants_spare:
            try:
                await files.prepare()
            except (StoreFull, LogRemoved):
                pass  # there is room in the current one still; or nobody needs any
            except StorageError as exc:
                files.trouble = exc

    async def write_held(self) -> None:
        """Write what stands in memory only. Sets the files' `trouble` when that fails."""
        files = self._files
        try:
            while not self._write_some(files.segment_bytes):
                await files.make_room(self._next_size())
                await trio.lowlevel.checkpoint()  # others get their turn between batches
        except StorageError as exc:
            files.trouble = exc

    def _write_some(self, full_at: int) -> bool:
        """Write one turn's worth of what stands in memory, as far as segments are ready to take it; whether nothing is
        left. `full_at`: where the current segment ends if the next one is not ready. Raises StoreFull, StoreFrozen.
        """
        files = self._files
        count_max = self._turn_max
        while (size := self._next_size()) and count_max > 0:
            end = files.segment_bytes
            if not files.has_room(size, end) and not files.roll_nowait():
                end = full_at
                if not files.has_room(size, end):
                    return False
            count_max -= self._write_front(count_max, end)
        return size == 0

    def _next_size(self) -> int:
        """Room that the next message in memory takes at most; 0 when there is none."""
        first = self.held.first
        return self.index.size(first) + SIZE_SLACK if first else 0

    def _write_front(self, count_max: int, full_at: int) -> int:
        """Write the first consecutive messages in memory, as many as fit, at least one; returns how many."""
        current = self._files.current
        assert current is not None
        first, contents = self.held.first, self.held.front(count_max)
        sizes = self.index.sizes_of(range(first, first + len(contents)))
        room = full_at - current.end
        if sum(sizes) + SIZE_SLACK * len(sizes) > room:
            taken = 0
            for count, size in enumerate(sizes):
                taken += size + SIZE_SLACK
                if taken > room and count:
                    sizes, contents = sizes[:count], contents[:count]
                    break
        count = len(contents)
        times_ns = self.index.times_of(range(first, first + count))
        base = current.number << 32
        if current.cipher is None:
            packed, places = hot.pack_messages(contents, first, times_ns, current.end, current.seed, base)
        else:
            records: list[hot.Record] = [
                (record.MESSAGE, 0, sequence, time_ns, *content)
                for sequence, time_ns, content in zip(range(first, first + count), times_ns, contents, strict=True)
            ]
            packed, offsets = segment.pack(records, current.end, current.seed, current.end, current.cipher)
            places = array("Q", [base | offset for offset in offsets])
        self._files.put(packed)
        current.hold_run(first, count, sum(sizes))
        self.index.move_run(first, places)
        self.held.take(count, sum(sizes))
        return count

    async def append(self, records: list[hot.Record], places: list[int]) -> None:
        """Append records to the current segment, rolling as needed.

        A message is written only if its place is still the one in `places`. Raises StoreFull, StoreFrozen, LogRemoved.
        """
        position = 0
        extra = 0 if self._files.keys is None else record.SEALED_BYTES_MAX
        while position < len(records):
            room = await self._files.make_room(record.record_size(*records[position][4:]) + extra)
            batch: list[hot.Record] = []
            while position < len(records):
                each = records[position]
                if each[0] == record.MESSAGE and self.index.place(each[2]) != places[position]:
                    position += 1
                    continue
                size = record.record_size(*each[4:]) + extra
                if batch and (size > room or len(batch) == WRITE_BATCH_MAX):
                    break
                room -= size
                batch.append(each)
                position += 1
            if batch:
                self._append_batch(batch)
            await trio.lowlevel.checkpoint()  # others get their turn between batches

    def _append_batch(self, batch: list[hot.Record]) -> None:
        current = self._files.current
        assert current is not None
        packed, offsets = segment.pack(batch, current.end, current.seed, current.end, current.cipher)
        self._files.put(packed)
        move, base = self.index.move, current.number << 32
        for each, offset in zip(batch, offsets, strict=True):
            kind, _, sequence, stamp = each[:4]
            if kind == record.GAP:
                current.note(sequence, sequence + stamp - 1)
                continue
            place, size = move(sequence, base | offset)
            self._files.let_go(place, size)
            current.hold(sequence, size)
