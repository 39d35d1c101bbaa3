"""What a stream log keeps of one of its segment files."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from tnats.records import define
from tnats.runtime.api import File
from tnats.storage import hot, record
from tnats.storage.segment import DATA_START

if TYPE_CHECKING:
    from tnats.storage.cipher import FileCipher
    from tnats.storage.packing import Packer


@define(eq=False)
class Segment:
    number: int
    path: str
    seed: int
    end: int
    file: File | None = None
    live: int = 0
    live_bytes: int = 0
    lowest: int = 1 << 63
    highest: int = 0
    is_dirty: bool = False
    is_new: bool = False
    is_damaged: bool = False
    cipher: FileCipher | None = None
    is_stale: bool = False
    """To be rewritten: it is not encrypted as new files are, or its dictionary has what was to be erased."""
    is_packed: bool = False
    dictionaries: list[int] = attrs.field(factory=list)
    """Offsets of the copies of a packed segment's dictionary."""
    sampled: tuple[int, int] = (1, 0)
    """First and last sequence that the dictionary is made of."""
    packer: Packer | None = None
    """Of a packed segment that is open."""
    unpacked_bytes: int = 0
    """What the records of a packed segment would take in one that is not."""
    erasures: deque[tuple[int, int]] = attrs.field(factory=deque)
    """(offset, sequence) of removed messages whose content is to be overwritten."""

    @property
    def used_bytes(self) -> int:
        """What its records would take, packed or not: the measure for what is live of it."""
        return self.unpacked_bytes or self.end - DATA_START

    def hold(self, sequence: int, size: int) -> None:
        """A live message stands here."""
        self.live += 1
        self.live_bytes += size
        if sequence > self.highest:
            self.highest = sequence
        if sequence < self.lowest:
            self.lowest = sequence

    def hold_run(self, first: int, count: int, size: int) -> None:
        """Consecutive live messages stand here; `size` of all."""
        self.live += count
        self.live_bytes += size
        self.note(first, first + count - 1)

    def note(self, first: int, last: int) -> None:
        """Something about these stands here."""
        self.lowest = min(self.lowest, first)
        self.highest = max(self.highest, last)

    def close(self) -> None:
        """Let go of the open file, if there is one."""
        if self.file is not None:
            self.file.close()
            self.file = self.packer = None

    def find_packed(self, found: list[hot.Found]) -> list[hot.Found]:
        """Take note of how the segment is packed; its records as they would have been found in one that is not."""
        self.unpacked_bytes = 0
        records: list[hot.Found] = []
        for each in found:
            if each[2] == record.DICTIONARY:
                self.dictionaries.append(each[0])
                self.sampled = each[4], each[5]
                continue
            if each[2] == record.PAD:
                continue  # it stands between the copies of the dictionary
            if each[2] == record.PACKED:
                position, _, _, size, sequence, stamp, key_size, _, durable = each
                plain = hot.HEADER_SIZE + key_size + (size & ~record.PACKED_HEAD)
                has_head = int(size > record.PACKED_HEAD)
                each = (position, plain, record.MESSAGE, 0, sequence, stamp, key_size, has_head, durable)
            records.append(each)
            self.unpacked_bytes += record.aligned(each[1])
        first, last = self.sampled
        self.is_stale |= any(each[2] == hot.ERASED and first <= each[4] <= last for each in records)
        return records
