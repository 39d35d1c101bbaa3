"""A spare copy of which sequences each stream has used: `tnats/used`.

Journal and segments tell it too. This file is for the day when both are damaged in the same place: a sequence that was
acknowledged must not be given to another message, and a stream whose first segment is gone must not begin behind it as
if that had been removed. It is written when the journal is about to give up a part, and at a
clean end; what came after that is in the journal, so no more than its damaged bytes could hold is unknown.

The file is a segment: header area, then one `record.USED` for each stream, and all of them once more in other blocks.
It is a help and never an authority: unreadable, it is written anew.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tnats.records import frozen
from tnats.runtime.api import Clock, Disk, DiskError
from tnats.storage import hot, record, segment
from tnats.storage.record import Finding
from tnats.storage.segment import BLOCK_SIZE, DATA_START, SegmentHeader

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing

USED_BYTES_MAX = 64 * 1024 * 1024


@frozen
class Used:
    """What is noted of a stream: the number of its group, where it began then, and the highest sequence it had used."""

    number: int = 0
    first: int = 0
    last: int = 0


class UsedSequences:
    """What is known to have been used, by the streams' names."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Callable[[int], bytes],
        path: str,
        store_id: bytes,
        keys: KeyRing | None = None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._path = path
        self._store_id = store_id
        self._keys = keys
        self._noted: dict[str, Used] = {}
        self._saved: dict[str, Used] = {}
        """What the file is known to say."""
        self.is_stale = False
        """The file is not encrypted as new ones are."""
        self.findings: list[Finding] = []

    def find(self, name: str, number: int | None) -> Used:
        """What is noted of the stream, zeros if nothing is; whatever the number of its group, if `number` is None."""
        noted = self._noted.get(name, Used())
        return noted if number in (None, noted.number) else Used()

    def forget(self, name: str) -> None:
        """The stream is removed: another one of its name has nothing to do with it."""
        self._noted.pop(name, None)

    def keep(self, numbers: Mapping[str, int]) -> None:
        """These streams are there, in groups of these numbers, and no others."""
        self._noted = {name: each for name, each in self._noted.items() if numbers.get(name) == each.number}

    async def load(self) -> None:
        """Read the file, if it is there. Raises StoreRefused, DiskError."""
        try:
            data = bytearray(await self._disk.read_file(self._path, bytes_max=USED_BYTES_MAX))
        except DiskError as exc:
            if exc.errno != errno.ENOENT:
                raise
            return
        header, findings = segment.read_header(data, self._path, self._keys)
        if header is None or (header.role, header.store_id) != (segment.USED, self._store_id):
            self.findings.append(self._rebuilt(len(data)))
            return
        self.is_stale = not segment.is_current(header, self._keys)
        scan = segment.scan(data, header.seed, self._path, cipher=segment.cipher_of(header, self._keys))
        self.findings += findings + scan.findings
        if scan.holes:
            self.findings.append(self._rebuilt(len(data)))
        for found in scan.records:
            if found[2] == record.USED:
                taken = record.take_apart(scan.data, found, 0)
                self._noted[taken.key.decode()] = Used(taken.group, taken.stamp, taken.index)

    def _rebuilt(self, size: int) -> Finding:
        return Finding("corrected", self._path, 0, max(1, size), text="spare copy unreadable, to be written anew")

    async def save(self, used: Mapping[str, Used]) -> None:
        """Note each stream in `used`, durably, and forget the others.

        A disk that refuses leaves the file behind, which is no reason to stop: the journal has its own say about it.
        """
        if used == self._saved and not self.is_stale:
            return
        seed = int.from_bytes(self._entropy(4), "little")
        header = SegmentHeader(segment.USED, 0, "used", self._store_id, seed, self._clock.wall_ns())
        header, cipher = segment.new_header(header, self._keys)
        records: list[hot.Record] = [
            (record.USED, each.number, each.last, each.first, name.encode(), b"", b"") for name, each in used.items()
        ]
        filler: hot.Record = (record.PAD, 0, 0, 0, b"", b"", bytes(BLOCK_SIZE))
        records = [*records, filler, *records]
        packed, _ = segment.pack(records, DATA_START, seed, DATA_START, cipher)
        try:
            await self._disk.write_file(self._path, bytes(header.area()) + bytes(packed))
        except DiskError:
            return
        self.is_stale = False
        self._saved, self._noted = dict(used), dict(used)
