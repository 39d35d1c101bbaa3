"""The journal of a node: the entries of all groups, interleaved, and one sync at a time for everything in it.

A *group* is one log: a stream's, a consumer's, a Raft group's. Its owner appends entries and gets a `Ticket`; the
ticket is done when the entries are durable (with a sync interval: when they are in the page cache). Everything that
arrives while a sync is under way goes into the next one.

Theory of operation
-------------------
* The journal is a row of preallocated *parts*. Each starts with a table of all groups (twice, in different blocks) and
  with where the part before it ends, so that recovery needs no part but the ones whose entries are still wanted.
* A batch is written, synced, then promised: at once in a slot of the part's header area, and by the next batch, whose
  every record carries the durable offset. `recover.py` tells torn tails from damage by that promise.
* A part is released when every group's floor is above the entries it holds. An owner raises its floor once it has put
  the entries' effects elsewhere, durably (a checkpoint). Entries of a lagging group can be written forward.
* After every start a new part is begun: nothing is ever written behind bytes of an unfinished write.

Errors
------
* A failed write or sync is sticky: the journal is frozen, all open tickets fail, so does everything later. Whether
  the entries survive is unknown until the next start.
* No space for a new part refuses the waiting entries and their successors in the queue, and nothing else: the next
  append tries again. The end of each part is reserved for what frees space: checkpoints, removals.

The host runs `run` in its nursery, ends it with `close`, and calls `release` after checkpoints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import trio

from tnats.limits import (
    JOURNAL_BATCH_BYTES_MAX,
    JOURNAL_PART_BYTES_MAX,
    JOURNAL_QUEUE_BYTES_MAX,
    JOURNAL_RESERVE_BYTES,
    JOURNAL_UNSYNCED_BYTES_MAX,
)
from tnats.runtime.api import Buffer, Clock, Disk, DiskError, File
from tnats.storage import hot, record, segment
from tnats.storage.errors import NO_SPACE, DataDamaged, LogRemoved, StorageError, StoreBusy, StoreFrozen, StoreFull
from tnats.storage.group import Group, Ticket
from tnats.storage.recover import GroupState, PartSummary, Recovery
from tnats.storage.segment import BLOCK_SIZE, DATA_START, SegmentHeader

if TYPE_CHECKING:
    from tnats.storage.cipher import FileCipher, KeyRing

READ_RUN_BYTES = 4 * 1024 * 1024
"""What is read at a time when a group's entries are replayed."""

ENTRY_BYTES_MORE_MAX = hot.HEADER_SIZE + 8 + record.SEALED_BYTES_MAX
"""An entry takes at most so much more than its body."""


@attrs.define
class JournalOptions:
    part_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=attrs.validators.le(JOURNAL_PART_BYTES_MAX))
    sync_interval_ns: int = 0
    """0: entries are acknowledged when durable. Otherwise at once, and power loss may take the last interval."""


@attrs.define(eq=False)
class _Waiting:
    group: Group
    records: list[hot.Record]
    size: int
    ticket: Ticket
    frees_space: bool


@attrs.define(eq=False)
class _Part:
    summary: PartSummary
    header: SegmentHeader
    file: File
    cipher: FileCipher | None
    size: int
    end: int
    durable: int
    slot: int = 0


@attrs.frozen
class OpenPart:
    """A part as it is open for reading."""

    file: File
    seed: int
    cipher: FileCipher | None
    is_current: bool = True
    """Whether it is encrypted as new files are."""


class Journal:
    """See the module. Made by `open_journal`."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Callable[[int], bytes],
        directory: str,
        store_id: bytes,
        options: JournalOptions,
        recovery: Recovery,
        keys: KeyRing | None = None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self.directory = directory
        self._store_id = store_id
        self._options = options
        self._keys = keys
        self.findings = recovery.findings
        self.damaged_bytes = recovery.damaged_bytes
        """How much of the journal could not be read when it was opened."""
        self.was_empty = not recovery.parts
        """No part stood there when the journal was opened."""
        self.frozen: StoreFrozen | None = None
        self.full: StoreFull | None = None
        """Why the last write that may not use the reserve was refused."""
        self._filled = trio.Event()
        self._groups = {number: Group(self, state) for number, state in recovery.groups.items()}
        self._names = {group.name: group for group in self._groups.values() if group.name}
        self._next_group = recovery.next_group
        self._next_part = recovery.next_part
        self._old_parts = list(recovery.parts)
        self._images = recovery.images
        """Parts as they were read, until everybody has replayed what is theirs."""
        self._before = (recovery.seal, recovery.carried)
        """What the first part of this run has to say of the part before it."""
        self._files: dict[int, OpenPart] = {}
        """By part number, for reading."""
        self._current: _Part | None = None
        self._queue: deque[_Waiting] = deque()
        self._queue_bytes = 0
        self._work = trio.Event()
        self._closing = False
        self._flushed: trio.Event | None = None
        """Somebody waits for a flush; set when there is something new to see."""
        self._enqueued_count = 0
        """Of all that was ever put in line."""
        self._batch_count = 0
        """Of what is on its way."""
        self._written_bytes = self._durable_bytes = 0
        """Of all batches so far."""
        self._rolled = trio.Event()
        self._is_writing = False
        """A batch is on its way: nothing may be written before it."""
        self._sync_at_ns = 0
        """When the first unsynced entry must be durable, with a sync interval."""
        self._releasing = trio.Lock()
        self.after_batch: Callable[[], None] = _nothing
        """Called when the tickets of a batch that was waited for are done: what came of them can go out at once."""
        self.sync_count = 0

    # -------------------------------------------------------------- owners' side

    def group(self, name: str) -> Group:
        """The group of this name; made if it is new (durable with its first entry)."""
        found = self._names.get(name)
        if found is None:
            found = Group(self, GroupState(self._next_group, name))
            self._next_group += 1
            self._names[name] = self._groups[found.state.number] = found
        return found

    def knows(self, name: str) -> bool:
        """Whether there is a group of this name."""
        return name in self._names

    def adopt(self, number: int, name: str) -> None:
        """Take up a group that the journal has lost, under the number that its other files carry."""
        group = self._groups.get(number)
        if group is None:
            group = self._groups[number] = Group(self, GroupState(number, name))
        group.state.name = name
        self._names[name] = group
        self._next_group = max(self._next_group, number + 1)

    @property
    def groups(self) -> list[Group]:
        """All groups with a known name, in the order of their making."""
        return list(self._names.values())

    def enqueue(
        self,
        group: Group,
        records: list[hot.Record],
        callback: Callable[[Ticket], None] | None,
        *,
        frees_space: bool = False,
        wake: bool = True,
    ) -> Ticket:
        """Put records in line for the next batch; `run` is told of it with `wake`.

        Raises StoreFrozen, StoreBusy, LogRemoved.
        """
        if self.frozen is not None:
            raise self.frozen
        if group.is_dropped:
            raise LogRemoved(f"log {group.name} in {self.directory} is removed")
        size = sum(record.record_size(key, head, body) for _, _, _, _, key, head, body in records)
        if self._keys is not None:
            size += record.SEALED_BYTES_MAX * len(records)
        if self._queue and self._queue_bytes + size > JOURNAL_QUEUE_BYTES_MAX:
            raise StoreBusy(f"{self._queue_bytes} bytes wait for the journal (limit {JOURNAL_QUEUE_BYTES_MAX})")
        ticket = Ticket(callback)
        self._queue.append(_Waiting(group, records, size, ticket, frees_space))
        self._enqueued_count += 1
        self._queue_bytes += size
        if wake:
            self._work.set()
        return ticket

    async def read(self, state: GroupState, index: int) -> record.Record:
        """One entry of a group."""
        place = state.place(index)
        if place == 0:
            if state.floor < index <= state.last:
                raise DataDamaged(f"entry {index} of {state.name} in {self.directory} is damaged")
            raise KeyError(index)
        number, offset = place >> 32, place & 0xFFFFFFFF
        part = self._files[number]
        said: list[record.Finding] = []
        found = await segment.read_at(part.file, offset, part.seed, said, part.cipher)
        self.findings += [finding for finding in said if finding not in self.findings]
        if found is None or found.kind != record.ENTRY or (found.group, found.index) != (state.number, index):
            raise DataDamaged(f"entry {index} of {state.name} in {part.file.path} at {offset} cannot be read")
        return found

    def end_recovery(self) -> None:
        """Everything is replayed: let go of what was read."""
        self._images = {}

    async def read_run(self, state: GroupState) -> dict[int, tuple[int, Buffer]]:
        """Term and body of every entry of a group that can be read as it stands, by index. Raises DiskError.

        For the others, see `read`.
        """
        entries: dict[int, tuple[int, Buffer]] = {}
        images = self._images
        window: dict[int, hot.Found] = {}
        data, start, part_number = b"", 0, 0
        for first, places in state.runs:
            for index, place in enumerate(places, first):
                number, offset = place >> 32, place & 0xFFFFFFFF
                if place == 0 or index <= state.floor:
                    continue
                if number in images:
                    term, body = hot.content_at(images[number], offset)
                    entries[index] = (term, body)
                    continue
                part = self._files[number]
                if number != part_number or offset not in window:
                    data, start, part_number = await _read(part.file, READ_RUN_BYTES, offset), offset, number
                    window = {start + each[0]: each for each in hot.scan(data, 0, start, part.seed)[0]}
                found = window.get(offset)
                if found is None or found[2:5] != (record.ENTRY, state.number, index):
                    continue
                if part.cipher is not None:
                    opened = part.cipher.open_record(record.take_apart(data, found, start))
                    if opened is not None:
                        entries[index] = (opened.stamp, opened.body)
                    continue
                position, size = found[:2]
                entries[index] = (found[5], data[position + hot.HEADER_SIZE + found[6] + found[7] : position + size])
        return entries

    # -------------------------------------------------------------- the writing task

    async def run(self) -> None:
        """Write batches until `close`."""
        while True:
            if self._queue:
                self._is_writing = True
                await self._write_batch()
                self._is_writing = False
                self._batch_count = 0
            elif self._closing:
                await self._sync_current()
                if self._flushed is not None:
                    self._flushed.set()
                return
            else:
                await self._wait_for_work()
            if self._is_dirty() and (self._flushed is not None or self._is_due()):
                await self._sync_current()
            if self._flushed is not None:
                self._flushed.set()
                self._flushed = None

    async def _wait_for_work(self) -> None:
        if self._is_dirty():
            with self._clock.deadline(self._sync_at_ns):
                await self._work.wait()
        else:
            await self._work.wait()
        self._work = trio.Event()
        if self._closing:
            self._work.set()

    def _is_due(self) -> bool:
        """Whether the interval is over, or so much was written that a start would take long to make sure of it."""
        part = self._current
        assert part is not None
        return self._clock.mono_ns() >= self._sync_at_ns or part.end - part.durable >= JOURNAL_UNSYNCED_BYTES_MAX

    def _is_dirty(self) -> bool:
        part = self._current
        return self.frozen is None and part is not None and part.durable < part.end

    async def flush(self) -> None:
        """Return when everything appended so far is durable, whatever the sync interval. Raises StoreFrozen.

        What is appended meanwhile is not waited for: there may be no end to that.
        """
        enqueued_count = self._enqueued_count
        await self._wait_until(lambda: self._enqueued_count - len(self._queue) - self._batch_count >= enqueued_count)
        written_bytes = self._written_bytes
        await self._wait_until(lambda: self._durable_bytes >= written_bytes or not self._is_dirty())
        if self.frozen is not None:
            raise self.frozen

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition() and self.frozen is None:
            if self._flushed is None:
                self._flushed = trio.Event()
            self._work.set()
            await self._flushed.wait()

    def close(self) -> None:
        """Let `run` write what waits, sync, and end."""
        self._closing = True
        self._work.set()

    def close_files(self) -> None:
        """Close every file; nothing else may be called afterwards."""
        for part in self._files.values():
            part.file.close()
        self._files.clear()

    def _take_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._queue and (not batch or size + self._queue[0].size <= JOURNAL_BATCH_BYTES_MAX):
            waiting = self._queue.popleft()
            size += waiting.size
            batch.append(waiting)
        self._queue_bytes -= size
        return batch

    async def _write_batch(self) -> None:
        """Write, and with no sync interval sync, what waits; resolve its tickets."""
        batch = self._take_batch()
        self._batch_count = len(batch)
        size = sum(waiting.size for waiting in batch)
        may_use_reserve = all(waiting.frees_space for waiting in batch)
        try:
            if self._current is None or size > self._room(self._current, may_use_reserve=may_use_reserve):
                await self._roll(size)
            part = self._current
            assert part is not None
            records = [each for waiting in batch for each in waiting.records]
            offsets = self._write(part, records)
        except StorageError as exc:
            self._fail(batch, exc)
            if not may_use_reserve:
                self._rolled.set()  # a checkpoint may make room
            return
        if self._options.sync_interval_ns:
            await trio.lowlevel.checkpoint()
        elif not await self._sync_current():
            assert self.frozen is not None
            self._fail(batch, self.frozen)
            return
        if not may_use_reserve:
            self.full = None
        self._note_places(part, records, offsets)
        for waiting in batch:
            waiting.ticket.resolve()
        self.after_batch()

    def _room(self, part: _Part, *, may_use_reserve: bool) -> int:
        """Bytes that a batch may take in `part`, with a footer still to come."""
        room = part.size - part.end - hot.HEADER_SIZE
        return room if may_use_reserve else room - min(JOURNAL_RESERVE_BYTES, part.size // 16)

    def write_nowait(self) -> bool:
        """With a sync interval: write what waits in the caller's task, which saves a task switch per batch.

        False if that cannot be done without waiting; then it is done soon by `run`.
        """
        part = self._current
        if (
            not self._options.sync_interval_ns
            or self._is_writing
            or part is None
            or self.frozen is not None
            or self._queue_bytes > min(JOURNAL_BATCH_BYTES_MAX, self._room(part, may_use_reserve=False))
        ):
            self._work.set()
            return False
        if part.durable == part.end:
            self._work.set()  # `run` has to sync after the interval
        batch = self._take_batch()
        records = [each for waiting in batch for each in waiting.records]
        try:
            offsets = self._write(part, records)
        except StorageError as exc:
            self._fail(batch, exc)
            return True
        self._note_places(part, records, offsets)
        for waiting in batch:
            waiting.ticket.resolve()
        return True

    def write_entry_nowait(self, group: Group, body: Buffer) -> bool:
        """`write_nowait` for one entry when nothing is in line, which a lone publisher waits for."""
        part = self._current
        state = group.state
        if (
            part is None
            or self._queue
            or self._is_writing
            or self.frozen is not None
            or not self._options.sync_interval_ns
            or not state.state_at
            or group.is_dropped
            or len(body) + ENTRY_BYTES_MORE_MAX > self._room(part, may_use_reserve=False)
        ):
            return False
        index = group.proposed + 1
        if part.durable == part.end:
            self._work.set()  # `run` has to sync after the interval
        try:
            offsets = self._write(part, [(record.ENTRY, state.number, index, 0, b"", b"", body)])
        except StorageError:
            return False  # whoever is next in line meets it too
        state.add(index, part.summary.number << 32 | offsets[0])
        part.summary.tops[state.number] = index
        group.proposed = index
        return True

    def _write(self, part: _Part, records: list[hot.Record]) -> list[int]:
        """Put records behind the others of a part; their file offsets. Raises StoreFull, StoreFrozen."""
        packed, offsets = segment.pack(records, part.end, part.header.seed, part.durable, part.cipher)
        if part.durable == part.end:
            self._sync_at_ns = self._clock.mono_ns() + self._options.sync_interval_ns
        try:
            part.file.pwrite([packed], part.end)
        except DiskError as exc:
            if exc.errno in NO_SPACE:
                # A prefix may stand there. Nothing is written over it: the next batch begins a new part.
                part.size = part.end
                full = StoreFull(f"journal {self.directory}: {exc}")
                full.may_have_written = True
                raise full from exc
            raise self._freeze(exc) from exc
        part.end += len(packed)
        self._written_bytes += len(packed)
        if part.end - part.durable >= JOURNAL_UNSYNCED_BYTES_MAX:
            self._work.set()
        return offsets

    async def _sync_current(self) -> bool:
        """Make the current part durable and promise it. False when that failed: then the journal is frozen."""
        part = self._current
        if self.frozen is not None:
            return False  # a sync after a failed one answers well and means nothing
        if part is None or part.durable == part.end:
            return True
        end, written_bytes = part.end, self._written_bytes
        try:
            await part.file.sync()
            self.sync_count += 1
        except DiskError as exc:
            self._freeze(exc)
            return False
        part.durable = end
        self._durable_bytes = written_bytes
        return self._promise(part)

    def _promise(self, part: _Part) -> bool:
        """Write how far a part is durable into its next slot: what is acknowledged now must be missed if it is gone.

        False when that failed: then the journal is frozen.
        """
        offset = segment.SLOT_OFFSETS[part.slot]
        try:
            part.file.pwrite([part.header.slot(offset, part.durable)], offset)
        except DiskError as exc:
            if exc.errno not in NO_SPACE:  # without it the next batch makes the promise
                self._freeze(exc)
                return False
        part.slot ^= 1
        return True

    def _freeze(self, exc: DiskError) -> StoreFrozen:
        if self.frozen is None:
            self.frozen = StoreFrozen(
                f"journal {self.directory} takes no more writes until the server is restarted: {exc}"
            )
        return self.frozen

    def _fail(self, batch: list[_Waiting], error: StorageError) -> None:
        """Refuse a batch and everything behind it, whose indexes rest on it."""
        if isinstance(error, StoreFull):
            self.full = error
            self._filled.set()
        failed = [*batch, *self._queue]
        self._queue.clear()
        self._queue_bytes = 0
        for waiting in failed:
            waiting.group.proposed = waiting.group.last
            waiting.group.is_dropped = False
        for waiting in failed:
            waiting.ticket.resolve(error)

    def _note_places(self, part: _Part, records: list[hot.Record], offsets: list[int]) -> None:
        place = part.summary.number << 32
        tops = part.summary.tops
        for each, offset in zip(records, offsets, strict=True):
            kind, number, index = each[:3]
            group = self._groups.get(number)
            if group is None:
                continue
            state = group.state
            if kind == record.ENTRY:
                state.add(index, place | offset)
                tops[number] = max(index, tops.get(number, 0))
            elif kind == record.GROUP:
                state.raise_floor(index)
                state.note = bytes(each[6])
                state.state_at = part.summary.number
            elif kind == record.CUT:
                state.cut(index)
            elif kind == record.DROP:
                del self._groups[number]
                self._names.pop(group.name, None)

    # -------------------------------------------------------------- parts

    async def _roll(self, size: int) -> None:
        """Begin a new part with room for `size` bytes. Raises StoreFull, StoreFrozen."""
        old = self._current
        if old is not None and not await self._sync_current():
            assert self.frozen is not None
            raise self.frozen
        seal, carried = self._before
        if old is not None:
            seal, carried = (old.summary.number, old.end), []
        part = await self._create_part(size, seal, carried)
        if old is not None:
            footer = record.pack_one(record.FOOTER, offset=old.end, seed=old.header.seed, index=part.summary.number)
            try:
                old.file.pwrite([footer], old.end)
                await old.file.sync()
            except DiskError as exc:
                if exc.errno not in NO_SPACE:
                    raise self._freeze(exc) from exc
            self._old_parts.append(old.summary)
            self._rolled.set()
        self._current = part

    async def secure(self, recovery: Recovery, wrong_headers: Mapping[int, list[tuple[int, bytes]]]) -> bool:
        """Make durable what was read and is about to be built on; frozen, and False, when that fails.

        The last run's sync may have failed, and a failed sync can leave pages that count as clean though the medium
        does not have them: another sync would write nothing. So what nothing says was durable is written again. And
        what was corrected, of every part.
        """
        try:
            for part in recovery.parts:
                right = [*wrong_headers[part.number], *((offset, bytes([value])) for offset, value in part.corrected)]
                for offset, correct in right:
                    self._files[part.number].file.pwrite([correct], offset)
                if right:
                    await self._files[part.number].file.sync()
        except DiskError as exc:
            self._freeze(exc)
            return False
        if not recovery.parts or recovery.parts[-1].number not in self._files:
            return True
        file = self._files[recovery.parts[-1].number].file
        try:
            if recovery.unproved is not None:
                offset, data = recovery.unproved
                file.pwrite([data], offset)
            await file.sync()
        except DiskError as exc:
            self._freeze(exc)
        return self.frozen is None

    async def begin(self, recovery: Recovery) -> None:
        """Write the first part of this run: the table, where the last part ends, and what is carried over from it.

        If there is no room for it, reads go on, and the first append tries again. Raises StoreFull for a new journal.
        """
        try:
            await self._roll(0)
        except StoreFull:
            if self.was_empty:
                raise
            return
        for part in recovery.parts:
            # Room that was set aside and not used: a server that dies again and again must not fill the disk.
            opened = self._files.get(part.number)
            if opened is not None and not part.damaged and 0 < part.end < opened.file.size():
                await opened.file.truncate(part.end)

    async def _create_part(self, size: int, seal: tuple[int, int] | None, carried: list[hot.Record]) -> _Part:
        number = self._next_part
        path = f"{self.directory}/{number:016d}.part"
        seed = int.from_bytes(self._entropy(4), "little")
        records = self._table(seal)
        table_size = sum(record.record_size(*each[4:]) for each in records)
        filler = bytes(max(0, BLOCK_SIZE - table_size))
        first = [*records, (record.PAD, 0, 0, 0, b"", b"", filler), *records, *carried]
        header = SegmentHeader(
            segment.JOURNAL, number, "journal", self._store_id, seed, self._clock.wall_ns()
        )  # fmt: skip
        header, cipher = segment.new_header(header, self._keys)
        packed, offsets = segment.pack(first, DATA_START, seed, DATA_START, cipher)
        end = DATA_START + len(packed)
        needed = (end + size + 2 * hot.HEADER_SIZE) * 16 // 15 + 16
        # On a disk that is nearly full a small part is better than none.
        for file_size in (max(self._options.part_bytes, needed), max(self._options.part_bytes // 16, needed)):
            header = attrs.evolve(header, size=file_size)
            try:
                file = await segment.create_segment(
                    self._disk, path, header.area(end), packed, size=file_size, durable=True
                )
                break
            except DiskError as exc:
                if exc.errno not in NO_SPACE:
                    raise self._freeze(exc) from exc
                reason = exc
        else:
            raise StoreFull(f"journal {self.directory} has no room for a new part: {reason}") from reason
        self._next_part += 1
        part = _Part(PartSummary(number, path), header, file, cipher, file_size, end, end)
        self._files[number] = OpenPart(file, seed, cipher)
        self._note_places(part, first, offsets)
        return part

    def _table(self, seal: tuple[int, int] | None) -> list[hot.Record]:
        records: list[hot.Record] = []
        if seal is not None:
            records.append((record.SEAL, 0, seal[0], seal[1], b"", b"", b""))
        for number, group in self._groups.items():
            state = group.state
            records.append((record.GROUP, number, state.floor, state.last, state.name.encode(), b"", state.note))
        return records

    async def wait_filled(self) -> None:
        """Return when there was no room for a write since the last call."""
        await self._filled.wait()
        self._filled = trio.Event()

    async def probe(self) -> None:
        """Find out whether there is room again: write a record that says nothing."""
        group = next((group for group in self._groups.values() if not group.is_dropped), None)
        if group is not None:
            with suppress(StorageError):
                await self.enqueue(group, [(record.PAD, 0, 0, 0, b"", b"", b"")], None).wait()

    async def wait_rolled(self) -> None:
        """Return when a part was filled, or there was no room for one, since the last call."""
        await self._rolled.wait()
        self._rolled = trio.Event()

    async def release(self) -> int:
        """Remove the oldest parts whose entries nobody needs; returns how many. A damaged part is kept aside."""
        count = 0
        async with self._releasing:  # in order: a missing number is taken for a lost part
            while self._current is not None and self._old_parts and not self.needing(self._old_parts[0]):
                part = self._old_parts[0]
                opened = self._files.pop(part.number, None)
                if opened is not None:
                    opened.file.close()
                try:
                    await self._remove_part(part)
                except DiskError as exc:
                    raise self._freeze(exc) from exc
                del self._old_parts[0]
                count += 1
        return count

    async def _remove_part(self, part: PartSummary) -> None:
        if part.damaged:
            await segment.set_aside(self._disk, part.path)
        else:
            await self._disk.unlink(part.path)
        await self._disk.sync_dir(self.directory)

    def needing(self, part: PartSummary) -> list[Group]:
        """The groups that still have entries in `part`."""
        return [
            group
            for number, top in part.tops.items()
            if (group := self._groups.get(number)) is not None and group.floor < top
        ]

    @property
    def stale_paths(self) -> list[str]:
        """Parts that are not encrypted as new ones are."""
        return [part.file.path for part in self._files.values() if not part.is_current]

    @property
    def old_parts(self) -> Sequence[PartSummary]:
        """Parts before the current one, oldest first."""
        return self._old_parts

    async def write_forward(self, group: Group, part: PartSummary) -> Ticket:
        """Write the entries that `group` still has in `part` into the current part, so that `part` can go."""
        records: list[hot.Record] = []
        for index in range(group.floor + 1, min(part.tops.get(group.state.number, 0), group.last) + 1):
            if group.state.place(index) >> 32 == part.number:
                entry = await group.read(index)
                records.append((record.ENTRY, group.state.number, index, entry.stamp, b"", b"", entry.body))
        ticket = self.enqueue(group, records, None)
        await ticket.wait()
        part.tops.pop(group.state.number, None)
        return ticket


async def _read(file: File, count: int, offset: int) -> bytes:
    cached = file.pread_cached(count, offset)
    return await file.pread(count, offset) if cached is None else cached


def _nothing() -> None:
    pass
