"""The files of a journal: the part that is being written, those before it, and how they come and go.

Each part starts with a table of all groups (twice, in different blocks) and with where the part before it ends, so
that recovery needs no part but the ones whose entries are still wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import trio

from tnats.limits import JOURNAL_BATCH_BYTES_MAX
from tnats.records import frozen
from tnats.runtime.api import Buffer, Clock, Disk, DiskError, File
from tnats.storage import hot, record, segment
from tnats.storage.errors import NO_SPACE, DataDamaged, StoreFull
from tnats.storage.group_table import GroupTable
from tnats.storage.journal_part import LEFT_BY_GAPS, JournalPart
from tnats.storage.recover import GroupState, PartSummary, Recovery
from tnats.storage.segment import BLOCK_SIZE, DATA_START, SegmentHeader

if TYPE_CHECKING:
    from tnats.storage.cipher import FileCipher, KeyRing

READ_RUN_BYTES = 4 * 1024 * 1024
"""What is read at a time when a group's entries are replayed."""


@frozen
class OpenPart:
    """A part as it is open for reading."""

    file: File
    seed: int
    cipher: FileCipher | None
    is_current: bool = True
    """Whether it is encrypted as new files are."""


class JournalParts:
    """See the module."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Callable[[int], bytes],
        directory: str,
        store_id: bytes,
        part_bytes: int,
        recovery: Recovery,
        files: dict[int, OpenPart],
        keys: KeyRing | None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self.directory = directory
        self._store_id = store_id
        self._part_bytes = part_bytes
        self._keys = keys
        self.current: JournalPart | None = None
        self.old = list(recovery.parts)
        """Parts before the current one, oldest first."""
        self._files = files
        """By part number, for reading."""
        self._next_number = recovery.next_part
        self._before = (recovery.seal, recovery.carried)
        """What the first part of this run has to say of the part before it."""
        self._images = recovery.images
        """Parts as they were read, until everybody has replayed what is theirs."""
        self._releasing = trio.Lock()
        self.findings = recovery.findings

    @property
    def stale_paths(self) -> list[str]:
        """Parts that are not encrypted as new ones are."""
        return [part.file.path for part in self._files.values() if not part.is_current]

    def close(self) -> None:
        """Close every file; nothing else may be called afterwards."""
        for part in self._files.values():
            part.file.close()
        self._files.clear()

    # -------------------------------------------------------------- coming

    async def roll(self, size: int, groups: GroupTable) -> JournalPart:
        """Begin a new part with room for `size` bytes; what the one before holds is durable. It is `current` then.

        Raises StoreFull, DiskError.
        """
        old = self.current
        seal, carried = self._before
        if old is not None:
            seal, carried = (old.summary.number, old.end), []
        part = await self._create(size, seal, carried, groups)
        if old is not None:
            try:
                await old.seal(part.summary.number)
            except DiskError as exc:
                if exc.errno not in NO_SPACE:
                    raise
            self.old.append(old.summary)
        self.current = part
        return part

    async def _create(
        self, size: int, seal: tuple[int, int] | None, carried: list[hot.Record], groups: GroupTable
    ) -> JournalPart:
        number = self._next_number
        path = f"{self.directory}/{number:016d}.part"
        seed = int.from_bytes(self._entropy(4), "little")
        table = groups.states()
        if seal is not None:
            table.insert(0, (record.SEAL, 0, seal[0], seal[1], b"", b"", b""))
        table_size = sum(record.record_size(*each[4:]) for each in table)
        filler = bytes(max(0, BLOCK_SIZE - table_size))
        first = [*table, (record.PAD, 0, 0, 0, b"", b"", filler), *table, *carried]
        header = SegmentHeader(
            segment.JOURNAL, number, "journal", self._store_id, seed, self._clock.wall_ns()
        )  # fmt: skip
        header, cipher = segment.new_header(header, self._keys)
        packed, offsets = _pack(first, seed, cipher)
        end = DATA_START + len(packed)
        needed = _size_with_room(end, size)
        ample = max(self._part_bytes, needed)
        if table_size > self._part_bytes // 8:  # else checkpoints would fill parts, and full parts ask for checkpoints
            ample = max(ample, _size_with_room(end, max(size, table_size + self._part_bytes // 2)))
        # On a disk that is nearly full a small part is better than none; where nothing else takes what frees space, a
        # tiny one.
        can_wait = self.current is not None and self.current.room(LEFT_BY_GAPS) > 0
        for share in (1, 16) if can_wait else (1, 16, 1024):
            file_size = ample if share == 1 else max(self._part_bytes // share, needed)
            header = attrs.evolve(header, size=file_size)
            try:
                await segment.write_temporary(self._disk, path, header.area(end), packed, size=file_size)
                break
            except DiskError as exc:
                if exc.errno not in NO_SPACE:
                    raise
                reason = exc
        else:
            raise self._no_room(reason) from reason
        try:
            file = await segment.name_durably(self._disk, path)
        except DiskError as exc:
            if self.current is not None:
                self.current.close_up()  # a part may stand there by now that says where this one ends
            if exc.errno not in NO_SPACE:
                raise
            raise self._no_room(exc) from exc
        self._next_number += 1
        self._files[number] = OpenPart(file, seed, cipher)
        part = JournalPart(PartSummary(number, path), header, file, cipher, file_size, end)
        groups.note(part.summary, first, offsets)
        return part

    def _no_room(self, reason: DiskError) -> StoreFull:
        return StoreFull(f"journal {self.directory} has no room for a new part: {reason}")

    # -------------------------------------------------------------- going

    async def trim(self) -> None:
        """Give back the room that parts before this run had set aside and did not use: a server that dies again and
        again must not fill the disk. Raises DiskError.
        """
        is_carrying = self.current is None and bool(self._before[1])  # entries behind the end of the last part
        for part in self.old[: len(self.old) - is_carrying]:
            opened = self._files.get(part.number)
            if opened is not None and not part.damaged and 0 < part.end < opened.file.size():
                await opened.file.truncate(part.end)

    async def release(self, number: int) -> int:
        """Remove the parts up to `number`, which nobody needs; returns how many. A damaged part is kept aside.

        Raises DiskError.
        """
        count = 0
        async with self._releasing:  # in order: a missing number is taken for a lost part
            while self.current is not None and self.old and self.old[0].number <= number:
                part = self.old[0]
                opened = self._files.pop(part.number, None)
                if opened is not None:
                    opened.file.close()
                if part.damaged:
                    await segment.set_aside(self._disk, part.path)
                else:
                    await self._disk.unlink(part.path)
                await self._disk.sync_dir(self.directory)
                del self.old[0]
                count += 1
        return count

    # -------------------------------------------------------------- reading

    def end_recovery(self) -> None:
        """Everything is replayed: let go of what was read."""
        self._images = {}

    async def read(self, state: GroupState, index: int) -> record.Record:
        """One entry of a group. Raises DataDamaged, DiskError, KeyError (gone, or not written yet)."""
        place = state.place(index)
        if place == 0:
            if state.floor < index <= state.last:
                raise DataDamaged(f"entry {index} of {state.name} in {self.directory} is damaged")
            raise KeyError(index)
        number, offset = place >> 32, place & 0xFFFFFFFF
        part = self._files[number]
        said: list[record.Finding] = []
        found = await segment.read_at(part.file, offset, part.seed, said, part.cipher)
        if found is None or (found.kind, found.group, found.index) != (record.ENTRY, state.number, index):
            end = offset + hot.HEADER_SIZE
            said.append(record.Finding("damaged", part.file.path, offset, end, group=state.name, text=f"entry {index}"))
            found = None
        self.findings += [finding for finding in said if finding not in self.findings]
        if found is None:
            raise DataDamaged(f"entry {index} of {state.name} in {part.file.path} at {offset} cannot be read")
        return found

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


def _pack(records: list[hot.Record], seed: int, cipher: FileCipher | None) -> tuple[bytearray, list[int]]:
    """The first records of a part, which are durable before it has a name, and their offsets."""
    packed, offsets = bytearray(), list[int]()
    at = 0
    while at < len(records):
        stop, size = at, 0
        while stop < len(records) and size < JOURNAL_BATCH_BYTES_MAX:  # how far back something is durable has a bound
            size += record.record_size(*records[stop][4:])
            stop += 1
        base = DATA_START + len(packed)
        run, places = segment.pack(records[at:stop], base, seed, base, cipher)
        packed += run
        offsets += places
        at = stop
    return packed, offsets


def _size_with_room(end: int, size: int) -> int:
    """Bytes of a part with room for `size` behind `end`, whatever is appended."""
    return (end + size + 2 * hot.HEADER_SIZE) * 16 // 15 + 16


async def _read(file: File, count: int, offset: int) -> bytes:
    cached = file.pread_cached(count, offset)
    return await file.pread(count, offset) if cached is None else cached
