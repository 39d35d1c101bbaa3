"""Segment files: a header area, then records.

The header stands twice, at 0 and at 4096, each a record of its own. Journal parts keep two more records in the header
area, the *promise slots*: how far the file is durable, written in turn so that one is always whole. Data starts at
8192.

A file gets its final name only when its header is written, and a journal part's, which nothing else vouches for, when
it is durable: a named part without a readable header is damaged.

`scan` walks a segment's bytes: valid records, single flipped bits undone, ranges that are neither valid nor empty. It
decides nothing; who owns the segment says what a hole in it means.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from tnats.records import define, frozen
from tnats.runtime.api import Disk, DiskError, File
from tnats.storage import hot, record
from tnats.storage.errors import StoreRefused
from tnats.storage.record import Finding

if TYPE_CHECKING:
    from tnats.storage.cipher import FileCipher, KeyRing

BLOCK_SIZE = 4096
DATA_START = 2 * BLOCK_SIZE
HEADER_OFFSETS = (0, BLOCK_SIZE)
SLOT_OFFSETS = (1024, BLOCK_SIZE + 1024)
HEADER_SEED = 0x544E4154
TEMPORARY = ".tmp"
QUARANTINE = "quarantine"
"""Directory for files that are damaged and no longer needed: nothing of theirs is destroyed."""

JOURNAL = 1
STREAM = 2
SNAPSHOT = 3
USED = 5
"""4 is the store's identity."""

_BODY = struct.Struct("<HB?IQ")
_KEY = struct.Struct("<8s16s")
"""In a header's body, behind the rest, if the file is encrypted."""
_NOT_ZERO = re.compile(rb"[^\0]")
_ZEROS = bytes(64 * 1024)


@frozen
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
    version: int = record.PLAIN_VERSION
    key_id: bytes = b""
    """Which key the file is encrypted under; empty when it is in the clear."""
    salt: bytes = b""
    is_packed: bool = False
    """Whether it is the outcome of packing."""
    label: bytes = b""
    """The group's name as an encrypted file has it."""

    def encode(self, offset: int) -> bytearray:
        """One copy, for the file offset `offset`."""
        return record.pack_one(
            record.HEADER,
            offset=offset,
            seed=HEADER_SEED,
            index=self.number,
            stamp=self.created_ns,
            key=self.label or self.group.encode(),
            head=self.store_id,
            body=_BODY.pack(self.version, self.role, self.is_packed, self.seed, self.size)
            + (_KEY.pack(self.key_id, self.salt) if self.key_id else b""),
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


def new_header(header: SegmentHeader, keys: KeyRing | None) -> tuple[SegmentHeader, FileCipher | None]:
    """The header of a new file as it is to be written, and what seals the records behind it."""
    return (header, None) if keys is None else keys.enter(header)


def cipher_of(header: SegmentHeader, keys: KeyRing | None) -> FileCipher | None:
    """What opens the records of a file whose header was read."""
    return keys.cipher_of(header) if keys is not None and header.key_id else None


def pack(
    records: list[hot.Record], base: int, seed: int, durable: int, cipher: FileCipher | None
) -> tuple[bytearray, list[int]]:
    """`hot.pack`, for an encrypted file sealed before."""
    return hot.pack(records if cipher is None else cipher.seal(records, base), base, seed, durable)


def is_current(header: SegmentHeader, keys: KeyRing | None) -> bool:
    """Whether a file is encrypted as new ones are."""
    return header.key_id == (b"" if keys is None else keys.current)


def read_header(
    area: bytes | bytearray, path: str, keys: KeyRing | None = None
) -> tuple[SegmentHeader | None, list[Finding]]:
    """The header of a segment from its first bytes, corrected or from its second copy; None when neither is readable.

    Raises StoreRefused when the file is of a newer format version, or encrypted under none of `keys`.
    """
    findings: list[Finding] = []
    headers = []
    for offset in HEADER_OFFSETS:
        found = read_record(area[:DATA_START], offset, HEADER_SEED, path, findings)
        header = _decode(found, path, keys) if found is not None and found.kind == record.HEADER else None
        if header is not None:
            headers.append(header)
        else:
            findings.append(Finding("corrected", path, offset, offset + BLOCK_SIZE, text="header copy unreadable"))
    return (headers[0] if headers else None), findings


def _decode(found: record.Record, path: str, keys: KeyRing | None) -> SegmentHeader | None:
    if len(found.body) < _BODY.size:
        return None
    version, role, is_packed, seed, size = _BODY.unpack_from(found.body)
    if version > record.FORMAT_VERSION:
        raise StoreRefused(
            f"{path} has format version {version}, this server knows up to {record.FORMAT_VERSION}; "
            "start the newer server"
        )
    if len(found.body) < _BODY.size + _KEY.size:
        group = found.key.decode()
        return SegmentHeader(
            role, found.index, group, found.head, seed, found.stamp, size, version, is_packed=is_packed
        )  # fmt: skip
    key_id, salt = _KEY.unpack_from(found.body, _BODY.size)
    if keys is None:
        raise StoreRefused(f"{path} is encrypted and no key is set; nothing was touched: set the key of this store")
    sealed = SegmentHeader(
        role, found.index, "", found.head, seed, found.stamp, size, version, key_id, salt, is_packed, found.key
    )  # fmt: skip
    if found.head != keys.store_id:
        return sealed  # foreign, under whatever key
    if key_id not in keys:
        raise StoreRefused(
            f"{path} is encrypted under another key; nothing was touched: set the key that it was written with, "
            "as the previous key if it is to be changed"
        )
    opened = keys.group_of(sealed)
    return None if opened is None else attrs.evolve(sealed, group=opened)


def wrong_headers(header: SegmentHeader, area: bytes | bytearray) -> list[tuple[int, bytes]]:
    """Offset and right bytes of the copies of a header that are not as they should be."""
    copies = [(offset, bytes(header.encode(offset))) for offset in HEADER_OFFSETS]
    return [(offset, copy) for offset, copy in copies if area[offset : offset + len(copy)] != copy]


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


async def name_durably(disk: Disk, path: str) -> File:
    """Give what `write_temporary` wrote its name, durably, and open it.

    Raises DiskError; then it may have its name all the same, and after a loss of power have it or not.
    """
    await give_name(disk, path)
    await disk.sync_dir(path.rpartition("/")[0])
    return await disk.open(path)


async def give_name(disk: Disk, path: str) -> None:
    """Give what `write_temporary` wrote its name, in place of the file that has it.

    Raises DiskError; then it is not left behind.
    """
    try:
        await disk.rename(path + TEMPORARY, path)
    except DiskError:
        await remove_quietly(disk, path + TEMPORARY)
        raise


async def write_temporary(disk: Disk, path: str, area: bytearray, first: bytes | bytearray, *, size: int = 0) -> None:
    """Write what is to be the file `path`, durably, under its temporary name.

    Raises DiskError; then it is not left behind.
    """
    file = await disk.open(path + TEMPORARY, create=True)
    try:
        if file.size():
            await file.truncate(0)
        if size:
            await file.preallocate(size)
        file.pwrite([area, first], 0)
        await file.sync()
    except DiskError:
        file.close()
        await remove_quietly(disk, path + TEMPORARY)
        raise
    file.close()


async def set_aside(disk: Disk, path: str) -> None:
    """Put a damaged file where nothing is ever read or removed. Raises DiskError."""
    directory, _, name = path.rpartition("/")
    await disk.mkdir(f"{directory}/{QUARANTINE}")
    await disk.rename(path, f"{directory}/{QUARANTINE}/{name}")


async def remove_quietly(disk: Disk, path: str) -> None:
    """Remove a file that may be there; if it cannot be helped, it goes with the next start."""
    with suppress(DiskError):
        await disk.unlink(path)


async def read_at(
    file: File, offset: int, seed: int, findings: list[Finding], cipher: FileCipher | None = None
) -> record.Record | None:
    """The record at `offset`, in the clear, corrected (and reported) if one bit is wrong; None when it cannot be read
    as a record.
    """
    data = file.pread_cached(READ_SIZE, offset)
    if data is None:
        data = await file.pread(READ_SIZE, offset)
    size = int.from_bytes(data[8:12], "little") if len(data) >= hot.HEADER_SIZE else 0
    if len(data) < size <= record.RECORD_SIZE_MAX:
        whole = file.pread_cached(size, offset)
        data = await file.pread(size, offset) if whole is None else whole
    found = record.unpack(data, 0, offset, seed)
    if found is None:
        if len(data) < CORRECTION_SIZE:
            data = await file.pread(CORRECTION_SIZE, offset)
        corrected = record.correct(data, 0, offset, seed)
        if corrected is not None:
            right, bit = corrected
            place = offset + bit // 8
            findings.append(Finding("corrected", file.path, place, place + 1, text=f"bit {bit % 8}"))
            found = record.unpack(right, 0, offset, seed)
    return found if found is None or cipher is None else cipher.open_record(found)


READ_SIZE = 1024
CORRECTION_SIZE = 1024 * 1024


@define
class Scan:
    """What stands in a segment."""

    raw: bytes | bytearray
    """The file's bytes, corrected."""
    data: bytes | bytearray
    """The same with the content of records in the clear: what `records` tells the places of."""
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


def scan(
    data: bytes | bytearray, seed: int, path: str, start: int = DATA_START, cipher: FileCipher | None = None
) -> Scan:
    """Walk the records of a whole segment file. Corrections are made in `data`, or in a copy of what cannot change.

    What does not open is a hole.
    """
    result = Scan(data, data, [], [], start, True, [], [])
    _walk(result, seed, path, start)
    result.data = result.raw
    if cipher is not None:
        result.data = opened = bytearray(result.raw)
        result.records, broken = cipher.open_all(opened, result.records)
        result.holes = sorted(result.holes + broken)
    return result


def _walk(result: Scan, seed: int, path: str, position: int) -> None:
    data = result.raw
    while True:
        found, position = hot.scan(data, position, 0, seed)
        result.records += found
        if found:
            result.end = position
            if found[-1][2] == record.FOOTER:
                return
        if find_content(data, position) is None:
            return
        corrected = record.correct(data, position, 0, seed) if position + hot.HEADER_SIZE <= len(data) else None
        if corrected is not None:
            whole, bit = corrected
            if isinstance(data, bytes):
                result.raw = data = bytearray(data)
            data[position : position + len(whole)] = whole
            place = position + bit // 8
            result.corrected.append((place, data[place]))
            result.findings.append(Finding("corrected", path, place, place + 1, text=f"bit {bit % 8}"))
            continue
        following = find_record(data, position + 8, seed)
        if following is None:
            result.holes.append((position, len(data.rstrip(b"\0"))))
            result.clean = False
            return
        result.holes.append((position, following))
        position = following


def find_content(data: bytes | bytearray, position: int) -> int | None:
    """The first byte from `position` on that is not zero. Whole blocks are compared: the end of a part is empty."""
    while position < len(data):
        block = data[position : position + len(_ZEROS)]
        if block != _ZEROS[: len(block)]:
            match = _NOT_ZERO.search(block)
            assert match is not None
            return position + match.start()
        position += len(block)
    return None


def find_record(data: bytes | bytearray, position: int, seed: int) -> int | None:
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
