"""A stream's messages in segment files.

Theory of operation
-------------------
* The journal has every entry first. What is stored here goes to the page cache soon and to the medium at the next
  checkpoint; until then a crash is repaired by replaying the journal. So nothing here is ever waited for by a
  publisher, and a thousand streams cost no syncs but at checkpoints.
* Records carry their sequence, and of several about one sequence the last (by segment number and offset) counts. So a
  hole is filled by writing the message into the current segment, and compaction is appending live messages again.
* The checkpoint's note (kept by the journal) says what the files must hold at least.
* What the last durable checkpoint does not cover is written again when the log is opened. It was read from the page
  cache, and after a failed sync that may show what the medium does not have, and a later sync would not write it.

`StreamFiles` has the segments and their trouble, `StreamWriter` what is not written yet, `StreamReader` what could not
be read, `StreamCheckpoints` what was removed and is to go, `StreamRecovery` what a start still has to find out. Here
they come together around the index, and the messages come in.

Errors: see `MessageLog.append`. A failed write or sync freezes the log; no space keeps messages in memory until the
next checkpoint.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from tnats.records import define
from tnats.storage.errors import StorageError
from tnats.storage.group import Group
from tnats.storage.index import MessageIndex
from tnats.storage.index_columns import LOST, PLACE_MIN, REMOVED
from tnats.storage.message_log import Content, Message, Stored
from tnats.storage.message_run import MessageRun, subjects_of
from tnats.storage.record import Finding
from tnats.storage.stream_checkpoint import StreamCheckpoints
from tnats.storage.stream_files import StreamFiles
from tnats.storage.stream_reader import StreamReader
from tnats.storage.stream_recovery import StreamRecovery
from tnats.storage.stream_segment import Segment
from tnats.storage.stream_writer import IN_MEMORY, StreamWriter

RUN_MIN = 4
"""Fewer messages are put into the index one by one."""


@define
class StreamLogOptions:
    segment_bytes: int = 8 * 1024 * 1024
    compact_below: float = 0.5
    """A sealed segment is rewritten when less than this part of it is live."""


class StreamLog:
    """A `MessageLog` in files. Made by `open_stream_log`."""

    def __init__(
        self,
        files: StreamFiles,
        index: MessageIndex,
        last_sequence: int | None,
        options: StreamLogOptions,
        gaps: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`last_sequence`: see `StreamRecovery`; `gaps`: see `open_stream_log`."""
        self.files = files
        self.index = index
        self.last_time_ns = 0
        self.recovery = StreamRecovery(files, index, last_sequence)
        self._writer = StreamWriter(files, index)
        self._held = self._writer.held
        self._reader = StreamReader(files, index, self._held)
        self._checkpoints = StreamCheckpoints(files, index, self._writer, self._reader, options.compact_below)
        self._checkpoints.gaps += gaps

    @property
    def trouble(self) -> StorageError | None:
        return self.files.trouble

    @property
    def findings(self) -> list[Finding]:
        return self.files.findings

    @property
    def unreadable(self) -> dict[int, None]:
        return self._reader.unreadable

    @property
    def is_packing(self) -> bool:
        return self._checkpoints.is_packing

    @is_packing.setter
    def is_packing(self, value: bool) -> None:
        self._checkpoints.is_packing = value

    @property
    def is_recovering(self) -> bool:
        return self.recovery.beyond is not None

    def end_recovery(self) -> None:
        """The journal is replayed."""
        self._checkpoints.lost = self.recovery.end()

    # -------------------------------------------------------------- storing

    def size_of(self, subject: bytes, headers: bytes, payload: bytes) -> int:
        return 30 + len(subject) + len(payload) + (4 + len(headers) if headers else 0)

    async def append(self, messages: Sequence[Message]) -> None:
        self.hold(messages)
        await self.write()

    def hold(self, messages: Iterable[Message]) -> None:
        index = self.index
        for message in messages:
            sequence = message.sequence
            if index.place(sequence) != LOST:
                continue
            if sequence > index.last:
                self.last_time_ns = message.time_ns
            size = self.size_of(message.subject, message.headers, message.payload)
            place = self.recovery.place(sequence)
            index.put(sequence, message.subject, size, place or IN_MEMORY, message.time_ns)
            if place == LOST:
                self._held.put(sequence, (message.subject, message.headers, message.payload), size)

    def hold_run(self, time_ns: int, messages: Sequence[Content]) -> None:
        if len(messages) >= RUN_MIN:
            self.hold_replayed(array("Q", [time_ns]) * len(messages), messages)
            return
        index, beyond = self.index, self.recovery.beyond
        if beyond is not None and index.last < beyond.last:
            self.hold(Message(n, time_ns, *content) for n, content in enumerate(messages, index.last + 1))
            return
        for content in messages:
            subject, headers, payload = content
            size = 30 + len(subject) + len(payload) + (4 + len(headers) if headers else 0)
            index.put_next(subject, size, IN_MEMORY, time_ns)
            self._held.put(index.last, content, size)
        self.last_time_ns = time_ns

    def hold_replayed(self, times_ns: array[int], messages: Sequence[Content]) -> None:
        first, count = self.index.last + 1, len(messages)
        sizes = _sizes_of(messages)
        places = self.recovery.places_of(range(first, first + count))
        if places is None:
            places = array("Q", [IN_MEMORY]) * count
            self._held.put_run(first, messages, sum(sizes), set())
        elif LOST in places:
            gone = {first + offset for offset, place in enumerate(places) if place != LOST}
            size = sum(sizes[offset] for offset, place in enumerate(places) if place == LOST)
            places = array("Q", [place or IN_MEMORY for place in places])
            self._held.put_run(first, messages, size, gone)
        self.last_time_ns = times_ns[-1]
        self.index.put_run(subjects_of(messages), sizes, places, times_ns)

    @property
    def unwritten_bytes(self) -> int:
        return self._held.bytes

    def write_nowait(self) -> bool:
        return self._writer.write_nowait()

    async def write(self) -> None:
        await self._writer.write()

    # -------------------------------------------------------------- removing

    def remove(self, sequences: Iterable[int], *, erase: bool = True) -> int:
        index = self.index
        count = 0
        for sequence in sequences:
            place = index.place(sequence)
            size = index.size(sequence) if place >= PLACE_MIN else 0
            if index.remove(sequence):
                count += 1
                if place == IN_MEMORY:
                    self._held.drop(sequence, size)
                else:
                    holder = self.files.let_go(place, size)
                    if erase:
                        holder.erasures.append((place & 0xFFFFFFFF, sequence))
            elif place != LOST or index.place(sequence) != REMOVED:
                continue  # it was removed before, or never used
            self._checkpoints.note_gap(sequence)
        return count

    def raise_start(self, start: int) -> int:
        removed = self.index.raise_start(start)
        for sequence, place, size in removed:
            if place == IN_MEMORY:
                self._held.drop(sequence, size)
            else:
                self.files.let_go(place, size)
        return len(removed)

    def skip(self, first: int, last: int) -> None:
        self.index.skip(first, last)
        self._checkpoints.gaps += self.index.absent(first, last, REMOVED)

    # -------------------------------------------------------------- reading

    def load_nowait(self, sequence: int) -> Message | None:
        return self._reader.load_nowait(sequence)

    def load_run_nowait(self, sequences: Sequence[int]) -> list[Stored | None]:
        return self._reader.load_run_nowait(sequences)

    async def load(self, sequence: int) -> Message:
        return await self._reader.load(sequence)

    # -------------------------------------------------------------- files

    async def checkpoint(self, group: Group) -> bytes:
        return await self._checkpoints.run(group)

    async def release(self) -> None:
        await self._checkpoints.release()

    async def free(self, group: Group) -> None:
        """With the disk full: give up what nothing needs any more, as far as `group`, where all was committed, has room
        for what it tells of removals. Raises StorageError.
        """
        await self._checkpoints.free(group)

    async def rewrite(self) -> bool:
        """See `StreamCheckpoints`."""
        return await self._checkpoints.rewrite()

    @property
    def stale_segments(self) -> list[Segment]:
        """See `StreamCheckpoints`."""
        return self._checkpoints.stale_segments

    async def close(self) -> None:
        await self._checkpoints.close()


def _sizes_of(messages: Sequence[Content]) -> Sequence[int]:
    """`size_of` each."""
    if type(messages) is MessageRun:
        return messages.sizes(30, 4)
    return [
        30 + len(subject) + len(payload) + (4 + len(headers) if headers else 0)
        for subject, headers, payload in messages
    ]
