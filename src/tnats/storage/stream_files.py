"""The segment files of one stream log: made, appended to, opened for reading, and what went wrong with them.

One segment is the *current* one: what is written goes behind its end. The next one is prepared in time, so that whoever
writes goes on in it without waiting. Nothing is written behind a write that failed: then a new segment is begun. A
failed write freezes the log, since what stands on the disk is not known any more; no space is *trouble* that passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from tnats.limits import STREAM_OPEN_SEGMENTS_MAX
from tnats.runtime.api import Clock, Disk, DiskError, File
from tnats.storage import record, segment
from tnats.storage.errors import NO_SPACE, LogRemoved, StorageError, StoreFrozen, StoreFull
from tnats.storage.packing import Packer
from tnats.storage.record import Finding
from tnats.storage.segment import DATA_START, SegmentHeader
from tnats.storage.stream_segment import Segment

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing

PREPARE_AT = 8
"""The next segment is made when this part of the current one is full: small streams need none."""

STRETCH_MAX = 4
"""So many times its measure a segment may hold, where the next one is not ready in time."""


class StreamFiles:
    """See the module."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Callable[[int], bytes],
        directory: str,
        name: str,
        store_id: bytes,
        segment_bytes: int,
        keys: KeyRing | None,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.name = name
        self.keys = keys
        self.segment_bytes = segment_bytes
        self.stretched_bytes = DATA_START + STRETCH_MAX * (segment_bytes - DATA_START)
        self.segments: dict[int, Segment] = {}
        """By number, ascending."""
        self.current: Segment | None = None
        self.next_number = 1
        self.trouble: StorageError | None = None
        """Why nothing is written: StoreFull, until the next attempt, or StoreFrozen."""
        self.findings: list[Finding] = []
        self.on_finding: Callable[[Finding], None] = lambda _: None
        """Called with what reading brings to light."""
        self.is_closed = False
        self._clock = clock
        self._entropy = entropy
        self._store_id = store_id
        self._spare: Segment | None = None
        """The next segment: its file is there, and no record in it."""
        self._preparing = trio.Lock()

    # -------------------------------------------------------------- trouble

    def failure(self, exc: DiskError) -> StorageError:
        """What a failed write or name operation means for the log."""
        if exc.errno in NO_SPACE:
            return StoreFull(f"stream {self.name}: {exc}")
        return self.freeze(exc)

    def freeze(self, exc: DiskError) -> StoreFrozen:
        """Take no more writes: what stands on the disk is not known any more."""
        self.trouble = StoreFrozen(f"stream {self.name} takes no more writes until the server is restarted: {exc}")
        return self.trouble

    def report(self, findings: list[Finding]) -> None:
        """Once each, however often the place is read."""
        for finding in findings:
            if finding not in self.findings:
                self.findings.append(finding)
                self.on_finding(finding)

    def check_open(self) -> None:
        """Raises LogRemoved when the files are closed."""
        if self.is_closed:
            raise LogRemoved(f"the messages of {self.name} are closed: their log is removed, or the store is")

    # -------------------------------------------------------------- appending

    def has_room(self, size: int, full_at: int) -> bool:
        """Whether a record of `size` fits into the current segment, which ends at `full_at`; any into an empty one."""
        current = self.current
        return current is not None and (current.end == DATA_START or current.end + size <= full_at)

    async def make_room(self, size: int) -> int:
        """Bytes left in the current segment for a record of `size`, after beginning a new one if it does not fit.

        Raises StoreFull, StoreFrozen, LogRemoved.
        """
        while not self.has_room(size, self.segment_bytes):
            if not self.roll_nowait():
                await self.prepare()
        assert self.current is not None
        return self.segment_bytes - self.current.end

    def put(self, packed: bytearray) -> Segment:
        """Write packed records behind the end of the current segment; returns it.

        Raises StoreFull, StoreFrozen, LogRemoved.
        """
        self.check_open()
        current = self.current
        assert current is not None
        assert current.file is not None
        current.is_dirty = True
        try:
            current.file.pwrite([packed], current.end)
        except DiskError as exc:
            self.current = None
            raise self.failure(exc) from exc
        current.end += len(packed)
        return current

    def roll_nowait(self) -> bool:
        """Begin the next segment, if it is prepared; whether it is. Raises StoreFull, StoreFrozen, LogRemoved."""
        self.check_open()
        spare, current = self._spare, self.current
        if spare is None:
            return False
        if current is not None:
            self.put(record.pack_one(record.FOOTER, offset=current.end, seed=current.seed, index=spare.number))
        self.segments[spare.number] = self.current = spare
        self._spare = None
        return True

    @property
    def wants_spare(self) -> bool:
        """Whether the next segment should be made: in time for nobody to wait for it when the current one is full."""
        current = self.current
        if self._spare is not None or current is None:
            return False
        return (current.end - DATA_START) * PREPARE_AT > self.segment_bytes - DATA_START

    async def prepare(self) -> None:
        """Have the next segment ready. Raises StoreFull, StoreFrozen, LogRemoved."""
        async with self._preparing:
            if self._spare is None:
                self.check_open()
                number = self.next_number
                header, cipher = segment.new_header(self.header(number), self.keys)
                path = f"{self.directory}/{number:016d}.seg"
                try:
                    file = await self.disk.create_file(path, [header.area()])
                except DiskError as exc:
                    raise self.failure(exc) from exc
                self.next_number += 1
                self._spare = Segment(
                    number, path, header.seed, DATA_START, file, is_dirty=True, is_new=True, cipher=cipher
                )

    def header(self, number: int, *, is_packed: bool = False) -> SegmentHeader:
        """The header of a file that is to be made, without its encryption."""
        seed = int.from_bytes(self._entropy(4), "little")
        version = record.FORMAT_VERSION if is_packed else record.PLAIN_VERSION
        return SegmentHeader(
            segment.STREAM, number, self.name, self._store_id, seed, self._clock.wall_ns(),
            version=version, is_packed=is_packed,
        )  # fmt: skip

    def is_ours(self, header: SegmentHeader, number: int) -> bool:
        """Whether a file with this header is the segment of this number."""
        owner = (header.role, header.number, header.group, header.store_id)
        return owner == (segment.STREAM, number, self.name, self._store_id)

    # -------------------------------------------------------------- places

    def holder(self, place: int) -> Segment:
        """The segment that a message's place is in."""
        return self.segments[place >> 32]

    def let_go(self, place: int, size: int) -> Segment:
        """The record at `place` is not the live one of its message any more; the segment that it is in."""
        holder = self.segments[place >> 32]
        holder.live -= 1
        holder.live_bytes -= size
        return holder

    # -------------------------------------------------------------- open files

    async def open(self, holder: Segment) -> File:
        """The file of a segment, with what expands its messages. Raises DiskError."""
        if holder.file is None:
            file = await self.disk.open(holder.path)
            packer = await self._packer(holder, file) if holder.is_packed else None
            if holder.file is None:
                holder.file, holder.packer = file, packer
                self.close_surplus(holder)
            else:
                file.close()
        return holder.file

    async def _packer(self, holder: Segment, file: File) -> Packer:
        """What expands the messages of a packed segment. Without its dictionary they cannot be read."""
        said: list[Finding] = []
        for offset in holder.dictionaries:
            found = await segment.read_at(file, offset, holder.seed, said, holder.cipher)
            if found is not None and found.kind == record.DICTIONARY:
                self.report(said)
                return Packer(found.body)
        return Packer(b"")

    def close_surplus(self, keep: Segment) -> None:
        """Close what is open beyond STREAM_OPEN_SEGMENTS_MAX, but for `keep` and what is still to be synced."""
        idle = [
            each
            for each in self.segments.values()
            if each.file is not None and not each.is_dirty and each not in (self.current, keep)
        ]
        for each in idle[: max(0, len(idle) - STREAM_OPEN_SEGMENTS_MAX)]:
            each.close()

    async def close(self) -> None:
        """Close everything. A segment that was prepared and not needed goes."""
        async with self._preparing:  # what is under way comes to its end
            for each in self.segments.values():
                each.close()
            if self._spare is not None:
                self._spare.close()
                await segment.remove_quietly(self.disk, self._spare.path)
