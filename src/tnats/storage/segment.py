"""Segment files: a header area, then records.

The header stands twice, at 0 and at 4096, each a record of its own. Journal parts keep two more records in the header
area, the *promise slots*: how far the file is durable, written in turn so that one is always whole. Data starts at
8192.

A file gets its final name only when its header is durable, so a named file without a readable header is damaged.

`scan` walks a segment's bytes: valid records, single flipped bits undone, ranges that are neither valid nor empty. It
decides nothing; who owns the segment says what a hole in it means.
"""

from __future__ import annotations

import re
import struct

import attrs

from tnats.runtime.api import Disk, DiskError, File
from tnats.storage import hot, record
from tnats.storage.errors import StoreRefused
from tnats.storage.record import Finding

BLOCK_SIZE = 4096
DATA_START = 2 * BLOCK_SIZE
HEADER_OFFSETS = (0, BLOCK_SIZE)
SLOT_OFFSETS = (1024, BLOCK_SIZE + 1024)
HEADER_SEED = 0x544E4154
QUARANTINE = "quarantine"
"""Directory for files that are damaged and no longer needed: nothing of theirs is destroyed."""

JOURNAL = 1
STREAM = 2
SNAPSHOT = 3
USED = 5
"""4 is the store's identity."""

_BODY = struct.Struct("<HBxIQ")
_NOT_ZERO = re.compile(rb"[^\0]")
_ZEROS = bytes(64 * 1024)


@attrs.frozen
class SegmentHeader:
    """Who a segment belongs to. `seed` is drawn for each file and enters every checksum in it."""

    role: int
    number: int
    group: str
    store_id: bytes
    seed: int
    created_ns: int
    size: int = 0
    """Length that the file was given when it was made; 0 for one that grows."""
    version: int = record.FORMAT_VERSION

    def encode(self, offset: int) -> bytearray:
        """One copy, for the file offset `offset`."""
        return record.pack_one(
            record.HEADER,
            offset=offset,
            seed=HEADER_SEED,
            index=self.number,
            stamp=self.created_ns,
            key=self.group.encode(),
            head=self.store_id,
            body=_BODY.pack(self.version, self.role, self.seed, self.size),
        )

    def area(self, durable: int = DATA_START) -> bytearray:
        """The first DATA_START bytes of a new file; `durable` is the first promise of a journal part."""
        area = bytearray(DATA_START)
        for offset in HEADER_OFFSETS:
            copy = self.encode(offset)
            area[offset : offset + len(copy)] = copy
        if self.role == JOURNAL:
            for offset in SLOT_OFFSETS:
                slot = self.slot(offset, durable)
                area[offset : offset + len(slot)] = slot
        return area

    def slot(self, offset: int, durable: int) -> bytearray:
        """The promise slot for the file offset `offset`: everything before `durable` is durable."""
        return record.pack_one(record.SLOT, offset=offset, seed=self.seed, index=durable)


def read_header(area: bytes | bytearray, path: str) -> tuple[SegmentHeader | None, list[Finding]]:
    """The header of a segment from its first bytes, corrected or from its second copy; None when neither is readable.

    Raises StoreRefused when the file is of a newer format version.
    """
    findings: list[Finding] = []
    headers = []
    for offset in HEADER_OFFSETS:
        found = read_record(area[:DATA_START], offset, HEADER_SEED, path, findings)
        if found is not None and found.kind == record.HEADER and len(found.body) >= _BODY.size:
            version, role, seed, size = _BODY.unpack_from(found.body)
            if version > record.FORMAT_VERSION:
                raise StoreRefused(
                    f"{path} has format version {version}, this server knows up to {record.FORMAT_VERSION}; "
                    "start the newer server"
                )
            headers.append(
                SegmentHeader(role, found.index, found.key.decode(), found.head, seed, found.stamp, size, version)
            )
        else:
            findings.append(Finding("corrected", path, offset, offset + BLOCK_SIZE, text="header copy unreadable"))
    return (headers[0] if headers else None), findings


def read_promise(area: bytes | bytearray, seed: int, path: str) -> tuple[int, bool, list[Finding]]:
    """The larger promise of the two slots, and whether both were readable."""
    findings: list[Finding] = []
    slots = [read_record(area[:DATA_START], offset, seed, path, findings) for offset in SLOT_OFFSETS]
    readable = [slot.index for slot in slots if slot is not None and slot.kind == record.SLOT]
    return max(readable, default=DATA_START), len(readable) == len(slots), findings


def read_record(
    area: bytes | bytearray, offset: int, seed: int, path: str, findings: list[Finding]
) -> record.Record | None:
    """The record at a known offset, corrected if one bit is wrong."""
    found = record.unpack(area, offset, 0, seed)
    if found is None:
        corrected = record.correct(area, offset, 0, seed)
        if corrected is not None:
            data, bit = corrected
            findings.append(Finding("corrected", path, offset + bit // 8, offset + bit // 8 + 1, text=f"bit {bit % 8}"))
            found = record.unpack(data, 0, offset, seed)
    return found


async def create_segment(
    disk: Disk, path: str, area: bytearray, first: bytes | bytearray, *, size: int, durable: bool
) -> File:
    """Make a segment file of a header area and its first records. `durable`: content and name are, on return.

    Raises DiskError; then no file of that name is left behind if that could be helped.
    """
    temporary = path + ".tmp"
    file = await disk.open(temporary, create=True)
    try:
        if file.size():
            await file.truncate(0)
        if size:
            await file.preallocate(size)
        file.pwrite([area, first], 0)
        if durable:
            await file.sync()
        await disk.rename(temporary, path)
        if durable:
            await disk.sync_dir(path.rpartition("/")[0])
    except DiskError:
        file.close()
        try:
            await disk.unlink(temporary)
        except DiskError:
            pass  # it goes with the next start
        raise
    file.close()
    return await disk.open(path)


async def read_at(file: File, offset: int, seed: int, findings: list[Finding]) -> record.Record | None:
    """The record at `offset`, corrected (and reported) if one bit is wrong; None when it cannot be read as a record."""
    data = file.pread_cached(READ_SIZE, offset)
    if data is None:
        data = await file.pread(READ_SIZE, offset)
    size = int.from_bytes(data[8:12], "little") if len(data) >= hot.HEADER_SIZE else 0
    if len(data) < size <= record.RECORD_SIZE_MAX:
        data = await file.pread(size, offset)
    found = record.unpack(data, 0, offset, seed)
    if found is None:
        if len(data) < CORRECTION_SIZE:
            data = await file.pread(CORRECTION_SIZE, offset)
        corrected = record.correct(data, 0, offset, seed)
        if corrected is not None:
            whole, bit = corrected
            place = offset + bit // 8
            findings.append(Finding("corrected", file.path, place, place + 1, text=f"bit {bit % 8}"))
            found = record.unpack(whole, 0, offset, seed)
    return found


READ_SIZE = 1024
CORRECTION_SIZE = 1024 * 1024


@attrs.define
class Scan:
    """What stands in a segment."""

    data: bytearray
    records: list[hot.Found]
    holes: list[tuple[int, int]]
    """Ranges that hold something else than valid records and zeros, and zeros with records behind them."""
    end: int
    """Where the last valid record ends."""
    clean: bool
    """Whether nothing but zeros follows."""
    corrected: list[tuple[int, int]]
    """(file offset, right byte value) of every correction."""
    findings: list[Finding]


def scan(data: bytearray, seed: int, path: str, start: int = DATA_START) -> Scan:
    """Walk the records of a whole segment file. Corrections are made in `data`."""
    result = Scan(data, [], [], start, True, [], [])
    position = start
    while True:
        found, position = hot.scan(data, position, 0, seed)
        result.records += found
        if found:
            result.end = position
            if found[-1][2] == record.FOOTER:
                return result
        if find_content(data, position) is None:
            return result
        corrected = record.correct(data, position, 0, seed) if position + hot.HEADER_SIZE <= len(data) else None
        if corrected is not None:
            whole, bit = corrected
            data[position : position + len(whole)] = whole
            place = position + bit // 8
            result.corrected.append((place, data[place]))
            result.findings.append(Finding("corrected", path, place, place + 1, text=f"bit {bit % 8}"))
            continue
        following = find_record(data, position + 8, seed)
        if following is None:
            result.holes.append((position, len(data.rstrip(b"\0"))))
            result.clean = False
            return result
        result.holes.append((position, following))
        position = following


def find_content(data: bytearray, position: int) -> int | None:
    """The first byte from `position` on that is not zero. Whole blocks are compared: the end of a part is empty."""
    while position < len(data):
        block = data[position : position + len(_ZEROS)]
        if block != _ZEROS[: len(block)]:
            match = _NOT_ZERO.search(block)
            assert match is not None
            return position + match.start()
        position += len(block)
    return None


def find_record(data: bytearray, position: int, seed: int) -> int | None:
    """The first position from `position` on (a multiple of 8) where a valid record stands."""
    while True:
        content = find_content(data, position)
        if content is None:
            return None
        position = max(position, (content & -8) - 16)
        stop = min(position + BLOCK_SIZE, len(data))
        for candidate in range(position, stop, 8):
            if record.plausible(data, candidate) and record.unpack(data, candidate, 0, seed) is not None:
                return candidate
        position = stop
