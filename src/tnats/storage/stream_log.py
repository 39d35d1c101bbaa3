"""A stream's messages in segment files.

Theory of operation
-------------------
* The journal has every entry first. What is appended here goes to the page cache at once and to the medium at the
  next `checkpoint`; until then a crash is repaired by replaying the journal. So nothing here is ever waited for
  by a publisher, and a thousand streams cost no syncs but at checkpoints.
* Records carry their sequence, and of several about one sequence the last (by segment number and offset) counts. So a
  hole is filled by writing the message into the current segment, and compaction is appending live messages again.
* At the next checkpoint a removed message gets a `record.GAP`, and if it is to be erased, its content is overwritten
  (`hot.ERASED`). Not before, so that no content goes before its removal is durable. Gaps are merged when a segment is
  given up. So a sequence of which no file knows anything is *lost*, never silently skipped.
* The checkpoint's note (kept by the journal) says what the files must hold at least.
* What the last durable checkpoint does not cover is written again when the log is opened. It was read from the page
  cache, and after a failed sync that may show what the medium does not have, and a later sync would not write it.
* A segment with damaged bytes is never compacted, and set aside instead of removed.

Errors: see `MessageLog.append`. A failed write or sync freezes the log; no space keeps messages in memory until the
next checkpoint.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from tnats.limits import STREAM_OPEN_SEGMENTS_MAX, STREAM_REWRITE_BYTES_MAX
from tnats.records import define
from tnats.runtime.api import Clock, Disk, DiskError, File
from tnats.storage import hot, record, segment
from tnats.storage.errors import NO_SPACE, DataDamaged, LogRemoved, StorageError, StoreFrozen, StoreFull
from tnats.storage.held import HeldMessages
from tnats.storage.index import LOST, PLACE_MIN, REMOVED, MessageIndex
from tnats.storage.message_log import Content, Message, Stored, sequence_at
from tnats.storage.message_run import MessageRun, subjects_of
from tnats.storage.packing import Packer
from tnats.storage.record import Finding
from tnats.storage.segment import DATA_START, SegmentHeader
from tnats.storage.stream_rewrite import Rewrite
from tnats.storage.stream_segment import Segment, merged

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing

SIZE_SLACK = 48
"""A record takes at most this much more than the size that NATS counts for its message, encrypted or not."""

IN_MEMORY = PLACE_MIN
"""Place of a message that is not written yet."""

WRITE_BATCH_MAX = 500
"""Records of one write: a few milliseconds."""

WRITE_TURN_MAX = 4000
"""Messages written before others get their turn, where nothing is sealed: as many milliseconds as thousands."""

PREPARE_AT = 8
"""The next segment is made when this part of the current one is full: small streams need none."""

STRETCH_MAX = 4
"""So many times its measure a segment may hold, where the next one is not ready in time."""

RUN_MIN = 4
"""Fewer messages are put into the index one by one."""

READ_RUN_BYTES_MAX = 256 * 1024
READ_GAP_BYTES_MAX = 32 * 1024
"""Messages that stand so close to each other are read in one piece."""

NOTE = struct.Struct("<QQQQQQ")
"""A checkpoint's note: first and last sequence, messages, bytes; number and end of the segment up to which all that
was ever written is durable."""


@define
class StreamLogOptions:
    segment_bytes: int = 8 * 1024 * 1024
    compact_below: float = 0.5
    """A sealed segment is rewritten when less than this part of it is live."""


class StreamLog:
    """A `MessageLog` in files. Made by `open_stream_log`."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Callable[[int], bytes],
        directory: str,
        name: str,
        store_id: bytes,
        options: StreamLogOptions,
        keys: KeyRing | None = None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self.directory = directory
        self.name = name
        self._store_id = store_id
        self._options = options
        self.keys = keys
        self.index = MessageIndex()
        self.last_time_ns = 0
        self.trouble: StorageError | None = None
        self.findings: list[Finding] = []
        self.on_finding: Callable[[Finding], None] = lambda _: None
        """Called with what reading brings to light."""
        self.unreadable: dict[int, None] = {}
        """Live messages that a read could not read."""
        self.segments: dict[int, Segment] = {}
        self.current: Segment | None = None
        self.next_number = 1
        self._held = HeldMessages()
        self._new_gaps: list[tuple[int, int]] = []
        self._doomed: list[Segment] = []
        """Dead segments that the last checkpoint made superfluous."""
        self._spare: Segment | None = None
        """The next segment, prepared: its file is there, and no record in it."""
        self._preparing = trio.Lock()
        self._turn_max = WRITE_TURN_MAX if keys is None else WRITE_BATCH_MAX
        self._maintaining = trio.Lock()
        """Held by what moves messages and replaces files: checkpoints, releases, rewriting."""
        self._is_closed = False
        self.is_packing = False
        """Whether sealed segments are to be packed."""
        self._durable_start = self._noted_start = 1
        """First sequence as the last checkpoint had it."""
        self.holes: list[tuple[str, int, int]] = []
        """(path, start, end) of what was neither record nor empty when the log was opened."""
        self.noted = (0, 0)
        """Last sequence and number of messages at the last checkpoint."""
        self.beyond: MessageIndex | None = None
        """During recovery: what the files hold of sequences that the journal is still to bring up."""
        self.used = (0, 0)
        """Sequence that is known to have been used, and how many behind all that is known may have been used too."""
        self.foreign: list[str] = []
        """Files whose header names another place: kept aside whatever they turn out to be."""

    def begin_at(self, start: int) -> None:
        """The first sequence as the last durable checkpoint has it."""
        self._durable_start = self._noted_start = start

    @property
    def highest(self) -> int:
        """The highest sequence that is known to have been used."""
        return self.index.last if self.beyond is None else max(self.index.last, self.beyond.last)

    @property
    def is_recovering(self) -> bool:
        return self.beyond is not None

    def take_back(self, next_sequence: int) -> list[int]:
        """The journal says nothing of the sequences up to `next_sequence`: what the files have of them counts.

        Returns the sequences of the messages among them.
        """
        index, beyond = self.index, self.beyond
        found: list[int] = []
        if beyond is None:
            return found
        first = max(index.last + 1, beyond.start)
        sequence = beyond.next_live(first)
        while sequence and sequence < next_sequence:
            index.put(
                sequence,
                beyond.subject(sequence),
                beyond.size(sequence),
                beyond.place(sequence),
                beyond.time_ns(sequence),
            )
            found.append(sequence)
            sequence = beyond.next_live(sequence + 1)
        for start, end in beyond.absent(first, next_sequence - 1, REMOVED):
            index.skip(start, end)
        return found

    def end_recovery(self) -> None:
        """The journal is replayed: what is still lost is lost, and the files' holes are to blame."""
        self.take_back(self.highest + 1)
        self.beyond = None
        used, unknown = self.used
        self.index.extend(max(used, self.index.last) + unknown)
        lost = self.index.absent(self.index.start, self.index.last, LOST)
        found = [
            Finding("damaged" if lost else "torn", path, start, end, group=self.name) for path, start, end in self.holes
        ]
        for each in self.segments.values():
            if each.path in self.foreign:
                kind = "foreign" if lost else "torn"
                found.append(Finding(kind, each.path, group=self.name, text="belongs to another store or place"))
            elif not lost:
                each.is_damaged = False
        found += [
            Finding("lost", self.directory, first, last + 1, group=self.name, text="messages") for first, last in lost
        ]
        self.findings += found
        self.holes.clear()
        self.compare_with_note()

    def compare_with_note(self) -> None:
        """Since the last checkpoint, messages up to its last sequence can only have become fewer."""
        last, messages = self.noted
        surplus = self.index.messages - self.index.count(None, last + 1) - messages
        if surplus > 0:
            text = f"{surplus} removed messages stand here again: an old state of a file"
            self.findings.append(Finding("damaged", self.directory, group=self.name, text=text))

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
            if self.beyond is not None:
                place = self.beyond.place(sequence)
                if place >= PLACE_MIN:
                    index.put(sequence, message.subject, size, place, message.time_ns)
                    continue
            index.put(sequence, message.subject, size, IN_MEMORY, message.time_ns)
            self._held.put(sequence, (message.subject, message.headers, message.payload), size)

    def hold_run(self, time_ns: int, messages: Sequence[Content]) -> None:
        if len(messages) >= RUN_MIN:
            self.hold_replayed(array("Q", [time_ns]) * len(messages), messages)
            return
        index = self.index
        if self.beyond is not None and index.last < self.beyond.last:
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
        places = None if self.beyond is None else self.beyond.places_of(range(first, first + count))
        if places is not None and REMOVED in places:  # its removal is still to come
            places = array("Q", [LOST if place == REMOVED else place for place in places])
        missing = count if places is None else places.count(LOST)
        if places is None or missing == count:
            places = array("Q", [IN_MEMORY]) * count
            self._held.put_run(first, messages, sum(sizes), set())
        elif missing:
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
        if self.trouble is not None or self._is_closed:
            return False
        try:
            stretched = DATA_START + STRETCH_MAX * (self._options.segment_bytes - DATA_START)
            return self._write_some(stretched) and not self._wants_spare
        except StorageError as exc:
            self.trouble = exc
            return False

    async def write(self) -> None:
        if self.trouble is not None or self._is_closed:
            return
        await self._write_messages()
        if self.trouble is None and self._wants_spare:
            try:
                await self._prepare()
            except (StoreFull, LogRemoved):
                pass  # there is room in the current one still; or nobody needs any
            except StorageError as exc:
                self.trouble = exc

    async def _write_messages(self) -> None:
        """Write what stands in memory only. Sets `trouble` when that fails."""
        try:
            while not self._write_some(self._options.segment_bytes):
                await self._make_room(self._next_size())
                await trio.lowlevel.checkpoint()  # others get their turn between batches
        except StorageError as exc:
            self.trouble = exc

    def _write_some(self, full_at: int) -> bool:
        """Write one turn's worth of what stands in memory, as far as segments are ready to take it; whether nothing is
        left. `full_at`: where the current segment ends if the next one is not ready. Raises StoreFull, StoreFrozen.
        """
        count_max = self._turn_max
        while (size := self._next_size()) and count_max > 0:
            end = self._options.segment_bytes
            if not self._has_room(size, end) and not self._roll_nowait():
                end = full_at
                if not self._has_room(size, end):
                    return False
            count_max -= self._write_front(count_max, end)
        return size == 0

    def _next_size(self) -> int:
        """Room that the next message in memory takes at most; 0 when there is none."""
        first = self._held.first
        return self.index.size(first) + SIZE_SLACK if first else 0

    def _write_front(self, count_max: int, full_at: int) -> int:
        """Write the first consecutive messages in memory, as many as fit, at least one; returns how many."""
        current = self.current
        assert current is not None
        first, contents = self._held.first, self._held.front(count_max)
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
        self._put(current, packed)
        current.hold_run(first, count, sum(sizes))
        self.index.move_run(first, places)
        self._held.take(count, sum(sizes))
        return count

    async def _write(self, records: list[hot.Record], places: list[int]) -> None:
        """Append records to the current segment, rolling as needed.

        A message is written only if its place is still the one in `places`. Raises StoreFull, StoreFrozen.
        """
        position = 0
        extra = 0 if self.keys is None else record.SEALED_BYTES_MAX
        while position < len(records):
            room = await self._make_room(record.record_size(*records[position][4:]) + extra)
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
                self._write_batch(batch)
            await trio.lowlevel.checkpoint()  # others get their turn between batches

    def _write_batch(self, batch: list[hot.Record]) -> None:
        current = self.current
        assert current is not None
        packed, offsets = segment.pack(batch, current.end, current.seed, current.end, current.cipher)
        self._put(current, packed)
        move, base = self.index.move, current.number << 32
        for each, offset in zip(batch, offsets, strict=True):
            kind, _, sequence, stamp = each[:4]
            if kind == record.GAP:
                current.note(sequence, sequence + stamp - 1)
                continue
            place, size = move(sequence, base | offset)
            self._let_go(place, size)
            current.hold(sequence, size)

    def _put(self, current: Segment, packed: bytearray) -> None:
        """Write behind the end of the current segment. Nothing is written behind a write that failed."""
        assert current.file is not None
        current.is_dirty = True
        try:
            current.file.pwrite([packed], current.end)
        except DiskError as exc:
            self.current = None
            raise self._failure(exc) from exc
        current.end += len(packed)

    def _failure(self, exc: DiskError) -> StorageError:
        if exc.errno in NO_SPACE:
            return StoreFull(f"stream {self.name}: {exc}")
        return self.freeze(exc)

    def freeze(self, exc: DiskError) -> StoreFrozen:
        """Take no more writes: what stands on the disk is not known any more."""
        self.trouble = StoreFrozen(f"stream {self.name} takes no more writes until the server is restarted: {exc}")
        return self.trouble

    def _has_room(self, size: int, full_at: int) -> bool:
        """Whether a record of `size` fits into the current segment; any does into an empty one."""
        current = self.current
        return current is not None and (current.end == DATA_START or current.end + size <= full_at)

    async def _make_room(self, size: int) -> int:
        """Bytes left in the current segment for a record of `size`, after beginning a new one if it does not fit."""
        full_at = self._options.segment_bytes
        while not self._has_room(size, full_at):
            if not self._roll_nowait():
                await self._prepare()
        assert self.current is not None
        return full_at - self.current.end

    def _roll_nowait(self) -> bool:
        """Begin the next segment, if it is prepared; whether it is. Raises StoreFull, StoreFrozen."""
        spare = self._spare
        if spare is None:
            return False
        current = self.current
        if current is not None:
            self._put(
                current, record.pack_one(record.FOOTER, offset=current.end, seed=current.seed, index=spare.number)
            )
        self.segments[spare.number] = self.current = spare
        self._spare = None
        return True

    @property
    def _wants_spare(self) -> bool:
        """Whether the next segment should be made: in time for nobody to wait for it when the current one is full."""
        current = self.current
        if self._spare is not None or current is None:
            return False
        return (current.end - DATA_START) * PREPARE_AT > self._options.segment_bytes - DATA_START

    async def _prepare(self) -> None:
        """Have the next segment ready. Raises StoreFull, StoreFrozen, LogRemoved."""
        async with self._preparing:
            if self._spare is None:
                self._check_open()
                self._spare = await self._create_segment()

    async def _create_segment(self) -> Segment:
        number = self.next_number
        path = f"{self.directory}/{number:016d}.seg"
        seed = int.from_bytes(self._entropy(4), "little")
        header = SegmentHeader(segment.STREAM, number, self.name, self._store_id, seed, self._clock.wall_ns())
        header, cipher = segment.new_header(header, self.keys)
        try:
            file = await self._disk.create_file(path, [header.area()])
        except DiskError as exc:
            raise self._failure(exc) from exc
        self.next_number += 1
        return Segment(number, path, seed, DATA_START, file, is_dirty=True, is_new=True, cipher=cipher)

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
                    holder = self._let_go(place, size)
                    if erase:
                        holder.erasures.append((place & 0xFFFFFFFF, sequence))
            elif place != LOST or index.place(sequence) != REMOVED:
                continue  # it was removed before, or never used
            self._new_gaps.append((sequence, sequence))
        return count

    def _let_go(self, place: int, size: int) -> Segment:
        """The record at `place` is not the live one of its message any more."""
        holder = self.segments[place >> 32]
        holder.live -= 1
        holder.live_bytes -= size
        return holder

    def raise_start(self, start: int) -> int:
        removed = self.index.raise_start(start)
        for sequence, place, size in removed:
            if place == IN_MEMORY:
                self._held.drop(sequence, size)
            else:
                self._let_go(place, size)
        return len(removed)

    def skip(self, first: int, last: int) -> None:
        self.index.skip(first, last)
        self._new_gaps += self.index.absent(first, last, REMOVED)

    # -------------------------------------------------------------- reading

    def load_nowait(self, sequence: int) -> Message | None:
        place = self._live_place(sequence)
        if place == IN_MEMORY:
            return Message(sequence, self.index.time_ns(sequence), *self._held.content(sequence))
        holder = self.segments[place >> 32]
        if holder.file is None:
            return None
        offset = place & 0xFFFFFFFF
        data = holder.file.pread_cached(self.index.size(sequence) + SIZE_SLACK, offset)
        if data is None:
            return None
        found = record.unpack(data, 0, offset, holder.seed)
        if found is not None and holder.cipher is not None:
            found = holder.cipher.open_record(found)
        return _message(found, holder, sequence)

    def load_run_nowait(self, sequences: Sequence[int]) -> list[Stored | None]:
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
        holder = self.segments[places[at] >> 32]
        if holder.file is None:
            return []
        if holder.cipher is not None or holder.is_packed:
            found = self.load_nowait(sequences[at])
            return [attrs.astuple(found)] if found is not None else []
        stop = at + hot.reach(places, at, READ_RUN_BYTES_MAX, READ_GAP_BYTES_MAX)
        start = places[at] & 0xFFFFFFFF
        end = (places[stop - 1] & 0xFFFFFFFF) + self.index.size(sequences[stop - 1]) + SIZE_SLACK
        data = holder.file.pread_cached(end - start, start)
        if data is None:
            return []
        return hot.take_messages(data, start, holder.seed, record.MESSAGE, sequences[at:stop], places[at:stop])

    async def load(self, sequence: int) -> Message:
        message = self.load_nowait(sequence)
        if message is not None:
            return message
        place = self._live_place(sequence)
        holder = self.segments[place >> 32]
        try:
            file = await self._open(holder)
            said: list[Finding] = []
            found = await segment.read_at(file, place & 0xFFFFFFFF, holder.seed, said, holder.cipher)
            message = _message(found, holder, sequence)
            self._report(said)
        except DiskError:
            if self.index.place(sequence) == place:
                raise
        if message is None:
            if self.index.place(sequence) != place:  # moved or removed meanwhile
                return await self.load(sequence)
            holder.is_damaged = True
            self.unreadable[sequence] = None
            start = place & 0xFFFFFFFF
            end = start + self.index.size(sequence)
            self._report([Finding("damaged", holder.path, start, end, group=self.name, text=f"message {sequence}")])
            raise DataDamaged(f"message {sequence} of stream {self.name} cannot be read ({holder.path})")
        return message

    def _report(self, findings: list[Finding]) -> None:
        """Once each, however often the place is read."""
        for finding in findings:
            if finding not in self.findings:
                self.findings.append(finding)
                self.on_finding(finding)

    def _live_place(self, sequence: int) -> int:
        place = self.index.place(sequence)
        if place >= PLACE_MIN:
            return place
        if place == LOST and sequence <= self.index.last:
            raise DataDamaged(f"message {sequence} of stream {self.name} is lost")
        raise KeyError(sequence)

    async def _open(self, holder: Segment) -> File:
        if holder.file is None:
            file = await self._disk.open(holder.path)
            packer = await self._packer(holder, file) if holder.is_packed else None
            if holder.file is None:
                holder.file, holder.packer = file, packer
                self._close_surplus(holder)
            else:
                file.close()
        return holder.file

    async def _packer(self, holder: Segment, file: File) -> Packer:
        """What expands the messages of a packed segment. Without its dictionary they cannot be read."""
        said: list[Finding] = []
        for offset in holder.dictionaries:
            found = await segment.read_at(file, offset, holder.seed, said, holder.cipher)
            if found is not None and found.kind == record.DICTIONARY:
                self._report(said)
                return Packer(found.body)
        return Packer(b"")

    def _close_surplus(self, keep: Segment) -> None:
        idle = [
            each
            for each in self.segments.values()
            if each.file is not None and not each.is_dirty and each not in (self.current, keep)
        ]
        for each in idle[: max(0, len(idle) - STREAM_OPEN_SEGMENTS_MAX)]:
            each.close()

    async def sequence_at(self, time_ns: int) -> int:
        return await sequence_at(self, time_ns)

    # -------------------------------------------------------------- checkpoints

    async def checkpoint(self) -> bytes:
        """See `MessageLog`. What the entries applied so far did must be durable in the journal (`Journal.flush`)."""
        if isinstance(self.trouble, StoreFrozen):
            raise self.trouble
        async with self._maintaining:
            self._check_open()
            try:
                return await self._checkpoint()
            except StoreFull:
                if not await self._give_up_dead():
                    raise
                return await self._checkpoint()

    async def _checkpoint(self) -> bytes:
        self.trouble = None
        await self._write_messages()
        if self.trouble is not None:
            raise self.trouble
        state = (self.index.start, self.index.last, self.index.messages, self.index.bytes)
        self._noted_start = self.index.start
        try:
            await self._compact()
            doomed = await self._write_removals()
        except DiskError as exc:
            self.trouble = self._failure(exc)
            raise self.trouble from exc
        current = self.current
        durable = (max(self.segments, default=0) + 1, 0) if current is None else (current.number, current.end)
        await self._sync_segments(doomed)
        self._doomed += [each for each in doomed if each not in self._doomed]
        return NOTE.pack(*state, *durable)

    async def _sync_segments(self, doomed: list[Segment]) -> None:
        try:
            for each in list(self.segments.values()):
                if each.is_dirty and each not in doomed:
                    file = await self._open_to_sync(each)
                    each.is_dirty = False
                    await file.sync()
                    self._close_surplus(each)
            new = [each for each in self.segments.values() if each.is_new]
            if new:
                await self._disk.sync_dir(self.directory)
            for each in new:
                each.is_new = False
        except DiskError as exc:  # whatever the reason: what a failed sync left behind is unknown
            raise self.freeze(exc) from exc

    async def _open_to_sync(self, holder: Segment) -> File:
        try:
            return await self._open(holder)
        except DiskError as exc:
            self.trouble = self._failure(exc)
            raise self.trouble from exc

    async def _give_up_dead(self) -> bool:
        """With the disk full, free the dead segments before their gaps are written; whether there were any.

        Should the node die now, the journal still has the removals, since no checkpoint is past them.
        """
        for each in self.segments.values():
            if each.live == 0 and each is not self.current and each not in self._doomed:
                self._new_gaps += self.index.absent(each.lowest, each.highest, REMOVED)
                self._doomed.append(each)
        found = bool(self._doomed)
        await self._release()
        return found

    async def _write_removals(self) -> list[Segment]:
        """Erase removed messages in place and write the gaps; returns the segments that nothing needs any more."""
        doomed = []
        for each in list(self.segments.values()):
            if each.live == 0 and each is not self.current:
                if each not in self._doomed:
                    self._new_gaps += self.index.absent(each.lowest, each.highest, REMOVED)
                doomed.append(each)
            elif each.erasures:
                await self._erase(each)
        gaps, self._new_gaps = self._new_gaps, []
        records: list[hot.Record] = [
            (record.GAP, 0, max(first, self.index.start), last - max(first, self.index.start) + 1, b"", b"", b"")
            for first, last in merged(gaps)
            if last >= self.index.start
        ]
        try:
            await self._write(records, [0] * len(records))
        except StorageError:
            self._new_gaps += gaps
            raise
        return doomed

    async def _erase(self, holder: Segment) -> None:
        file = await self._open(holder)
        holder.is_dirty = True
        while holder.erasures:
            offset, sequence = holder.erasures[0]
            front = await file.pread(hot.HEADER_SIZE, offset)
            size = int.from_bytes(front[8:12], "little") if len(front) == hot.HEADER_SIZE else 0
            if hot.HEADER_SIZE <= size <= holder.end - offset:
                body = bytes(size - hot.HEADER_SIZE)
                packed = hot.pack([(hot.ERASED, 0, sequence, 0, b"", b"", body)], offset, holder.seed, offset)[0]
                file.pwrite([packed], offset)
            else:
                holder.is_damaged = True
            first, last = holder.sampled
            holder.is_stale |= first <= sequence <= last
            holder.erasures.popleft()

    async def _compact(self) -> None:
        """Write the live messages of sparse sealed segments again."""
        for each in list(self.segments.values()):
            if each is self.current or each.is_damaged or not each.live:
                continue
            if each.live_bytes >= self._options.compact_below * each.used_bytes:
                continue
            records: list[hot.Record] = []
            places = []
            sequence = self.index.next_live(each.lowest)
            while sequence and sequence <= each.highest:
                place = self.index.place(sequence)
                if place >> 32 == each.number:
                    try:
                        message = await self.load(sequence)
                    except DataDamaged:
                        break
                    records.append(
                        (
                            record.MESSAGE,
                            0,
                            sequence,
                            message.time_ns,
                            message.subject,
                            message.headers,
                            message.payload,
                        )
                    )
                    places.append(place)
                sequence = self.index.next_live(sequence + 1)
            else:
                await self._write(records, places)

    async def release(self) -> None:
        async with self._maintaining:
            self._check_open()
            await self._release()
            self._durable_start = self._noted_start
            await self._rewrite_stale(STREAM_REWRITE_BYTES_MAX)

    async def rewrite(self) -> bool:
        """Write some of the segments anew that are not as they should be; whether there are more. Raises StoreFrozen.

        They should be under the present key, and packed if `is_packing` says so. On a disk that is full, and where
        there is damage, they stay as they are.
        """
        async with self._maintaining:
            self._check_open()
            if isinstance(self.trouble, StoreFrozen):
                raise self.trouble
            await self._sync_segments(self._doomed)
            return await self._rewrite_stale(STREAM_REWRITE_BYTES_MAX)

    @property
    def stale_segments(self) -> list[Segment]:
        """Sealed segments that are to be written anew, under a new key also those that have no message any more."""
        return [
            each
            for each in self.segments.values()
            if (each.is_stale or (each.live and each.is_packed != self.is_packing))
            and each is not self.current
            and not each.is_damaged
            and each not in self._doomed
        ]

    async def _rewrite_stale(self, bytes_max: int) -> bool:
        for each in self.stale_segments:
            if bytes_max <= 0:
                return True
            bytes_max -= each.end
            seed = int.from_bytes(self._entropy(4), "little")
            version = record.FORMAT_VERSION if self.is_packing else record.PLAIN_VERSION
            header = SegmentHeader(
                segment.STREAM, each.number, self.name, self._store_id, seed, self._clock.wall_ns(),
                version=version, is_packed=self.is_packing,
            )  # fmt: skip
            pending = [*self._new_gaps, (self._durable_start, self.index.start - 1)]
            try:
                found = await Rewrite(self._disk, self.index, each, self.keys, pending).run(header)
            except DiskError as exc:
                if exc.errno in NO_SPACE:
                    return False
                raise self.freeze(exc) from exc
            each.is_damaged |= bool(found)
            self._report([attrs.evolve(finding, group=self.name) for finding in found])
        return False

    async def _release(self) -> None:
        for each in self._doomed:
            try:
                each.close()
                if each.is_damaged:
                    await segment.set_aside(self._disk, each.path)
                else:
                    await self._disk.unlink(each.path)
            except DiskError as exc:
                raise self._failure(exc) from exc
            self.segments.pop(each.number, None)
        self._doomed.clear()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogRemoved(f"the messages of {self.name} are closed: their log is removed, or the store is")

    async def close(self) -> None:
        self._is_closed = True
        async with self._maintaining, self._preparing:  # what is under way comes to its end
            for each in self.segments.values():
                each.close()
            if self._spare is not None:
                self._spare.close()
                await segment.remove_quietly(self._disk, self._spare.path)


def _sizes_of(messages: Sequence[Content]) -> Sequence[int]:
    """`size_of` each."""
    if type(messages) is MessageRun:
        return messages.sizes(30, 4)
    return [
        30 + len(subject) + len(payload) + (4 + len(headers) if headers else 0)
        for subject, headers, payload in messages
    ]


def _message(found: record.Record | None, holder: Segment, sequence: int) -> Message | None:
    """The message of a record, if it is the one that is looked for."""
    if found is None or found.index != sequence:
        return None
    if found.kind == record.PACKED and holder.packer is not None:
        return holder.packer.expand(found)
    if found.kind != record.MESSAGE:
        return None
    return Message(sequence, found.stamp, found.key, found.head, found.body)
