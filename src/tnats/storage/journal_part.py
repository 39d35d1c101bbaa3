"""The part of the journal that is being written: records behind records, syncs, promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.runtime.api import DiskError, File, Syncing
from tnats.storage import hot, record, segment
from tnats.storage.errors import NO_SPACE
from tnats.storage.recover import PartSummary
from tnats.storage.segment import SegmentHeader

if TYPE_CHECKING:
    from tnats.storage.cipher import FileCipher


LEFT_BY_GAPS = 0
"""How many 256ths of a part a write leaves to what is more urgent. A checkpoint makes of removals that there is room;
where it finds none, dead files go as soon as the journal tells what they told.
"""
LEFT_BY_CHECKPOINTS = 1
LEFT_BY_REMOVALS = 4
LEFT_BY_OTHERS = 16


class JournalPart:
    """See the module. Everything before `durable` is durable, records stand before `end`, and `size` is the bound."""

    def __init__(
        self, summary: PartSummary, header: SegmentHeader, file: File, cipher: FileCipher | None, size: int, end: int
    ) -> None:
        self.summary = summary
        self.file = file
        self.size = size
        self.end = self.durable = end
        self._header = header
        self._cipher = cipher
        self._slot = 0
        self.is_in_doubt = False
        """A sync has failed: another may answer well and mean nothing, so none is made."""
        self._syncing: tuple[int, Syncing] | None = None
        """The sync under way, and what will be durable then."""

    @property
    def is_dirty(self) -> bool:
        return self.durable < self.end

    def room(self, left: int) -> int:
        """Bytes that a batch may take which leaves so many 256ths of the part, with a footer still to come."""
        return self.size - self.end - hot.HEADER_SIZE - self.size * left // 256

    def write(self, records: list[hot.Record]) -> list[int]:
        """Put records behind the others; their file offsets. Raises DiskError.

        When the disk is full, a prefix may stand there. Nothing is written over it: the part has no room any more.
        """
        packed, offsets = segment.pack(records, self.end, self._header.seed, self.durable, self._cipher)
        try:
            self.file.pwrite([packed], self.end)
        except DiskError as exc:
            if exc.errno in NO_SPACE:
                self.close_up()
            raise
        self.end += len(packed)
        return offsets

    def close_up(self) -> None:
        """There is no room here any more, not even for what frees space."""
        self.size = self.end

    def begin_sync(self) -> None:
        """Begin to make durable what stands here; `wait_synced` must follow. Raises DiskError."""
        try:
            self._syncing = (self.end, self.file.begin_sync())
        except DiskError:
            self.is_in_doubt = True
            raise

    async def wait_synced(self) -> None:
        """Await the end of the sync and promise what is durable then. Raises DiskError."""
        assert self._syncing is not None
        durable, syncing = self._syncing
        offset = segment.SLOT_OFFSETS[self._slot]
        promise = self._header.slot(offset, durable)
        try:
            await syncing.wait()
        except DiskError:
            self.is_in_doubt = True
            raise
        self.durable = durable
        self._promise(promise, offset)

    def _promise(self, promise: bytearray, offset: int) -> None:
        """Write how far the part is durable into its next slot: what is acknowledged now must be missed if it is gone.

        Raises DiskError.
        """
        try:
            self.file.pwrite([promise], offset)
        except DiskError as exc:
            if exc.errno not in NO_SPACE:  # without it the next batch makes the promise
                raise
        self._slot ^= 1

    async def seal(self, following: int) -> None:
        """Say that the part `following` comes behind this one, durably. Raises DiskError."""
        footer = record.pack_one(record.FOOTER, offset=self.end, seed=self._header.seed, index=following)
        self.file.pwrite([footer], self.end)
        await self.file.sync()
