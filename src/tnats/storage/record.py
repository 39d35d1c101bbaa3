"""Records: the unit that is whole or absent. Kinds, limits, and the correction of a single flipped bit.

The layout stands in `hot.py`, which packs and scans. The first checksum (crc32c) covers everything after itself,
the length too, and starts from the segment's seed plus the file offset: stale bytes of a reused place, a
misdirected write or a swapped file fail the check. The second (crc32) is independent of it and confirms a correction.

Correction. A crc is linear: the difference between the stored and the computed crc32c (the syndrome) depends only
on which bits are wrong. If one is, the syndrome names it; the second checksum must then agree. A wrong length makes
the checksum run over the wrong bytes, so the 32 one-bit neighbours of the length are tried too. A wider damage passes
by chance with a probability below 2**-40 per record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from tnats.records import frozen
from tnats.storage import hot
from tnats.storage.hot import ERASED, HEADER_SIZE, Buffer

PLAIN_VERSION = 1
"""Format of files in the clear, whose messages stand as they are."""
FORMAT_VERSION = 2
"""The newest: encrypted, or with packed messages."""

HEADER = 1
"""Segment header. Key: group name; head: store identity; body: see `segment.py`."""
SLOT = 2
"""Sync promise in a segment's header area. Index: the file offset up to which all is durable."""
FOOTER = 3
"""End of a sealed segment. Index: the number of the segment that follows; stamp: how many records stand before."""
ENTRY = 4
"""Journal: one log entry. Group, index, stamp: term; body: the entry."""
GROUP = 5
"""Journal: state of a group. Key: name; index: floor (entries up to it are gone); stamp: last index; body: a note;
head: its lease, if it has one (8 bytes, little endian)."""
MESSAGE = 6
"""Stream: one message. Index: sequence; stamp: time in ns; key: subject; head: header block; body: payload."""
# 7 is hot.ERASED: a message that was removed. Index: sequence.
GAP = 8
"""Stream: sequences removed, or never used. Index: the first; stamp: how many. Journal: the same of a group's stream,
while its files may not tell of it; body: further ranges, first and last (8 bytes each, little endian)."""
# 9 was never written.
DROP = 10
"""Journal: the group is gone."""
CHUNK = 11
"""Snapshot: a piece. Index: its number; body: the bytes."""

PAD = 12
"""Nothing; keeps two copies of something in different blocks."""

SEAL = 13
"""Journal: the part of number index ends at file offset stamp; what stands behind is an unfinished write."""

MARKER = 14
"""Run marker of a store. Index: incarnation; stamp: 1 after a clean end; key: boot id."""

USED = 15
"""Spare copy of which sequences a stream has used. Group; index: the highest; stamp: the first; key: name."""

PACKED = 16
"""Stream: one message, its content compressed. As MESSAGE, but the body is the deflated head and body; group: their
size, with the highest bit set if there is a head, which then begins with its size in two bytes."""

PACKED_HEAD = 1 << 31

LEASE = 18
"""Journal: the sequences up to index of a group's stream may have been used."""

DICTIONARY = 17
"""Stream: what the packed messages of this segment are compressed against. Index and stamp: the first and last sequence
that it is made of."""

KINDS = frozenset(range(HEADER, LEASE + 1)) - {9}
SEALED_BYTES_MAX = 32
"""A record takes at most so much more when it is encrypted, padding included."""
RECORD_SIZE_MAX = 128 * 1024 * 1024
CORRECTION_SIZE_MAX = 16 * 1024 * 1024
"""Longer records are not searched for their flipped bit: a wrong length could make that take minutes."""


def aligned(size: int) -> int:
    """`size` rounded up to the next multiple of 8."""
    return (size + 7) & -8


def record_size(key: Buffer, head: Buffer, body: Buffer) -> int:
    """Bytes that a record takes in a segment, padding included."""
    return aligned(HEADER_SIZE + len(key) + len(head) + len(body))


@frozen
class Record:
    """One record taken apart. `offset` is its place in the file, `size` without padding."""

    offset: int
    size: int
    kind: int
    group: int
    index: int
    stamp: int
    key: bytes
    head: bytes
    body: bytes
    durable: int
    """The promise it carries: everything before this file offset was durable when it was written."""


def pack_one(
    kind: int,
    *,
    offset: int,
    seed: int,
    group: int = 0,
    index: int = 0,
    stamp: int = 0,
    key: Buffer = b"",
    head: Buffer = b"",
    body: Buffer = b"",
) -> bytearray:
    """One record for the file offset `offset`."""
    return hot.pack([(kind, group, index, stamp, key, head, body)], offset, seed, offset)[0]


def unpack(data: Buffer, position: int, base: int, seed: int) -> Record | None:
    """The record that stands at `position` of `data` (file offset `base + position`), or None if it is not valid."""
    size = int.from_bytes(data[position + 8 : position + 12], "little")
    if size < HEADER_SIZE or position + size > len(data):
        return None
    piece = bytes(data[position : position + aligned(size)]).ljust(aligned(size), b"\0")
    found, _ = hot.scan(piece, 0, base + position, seed)
    return take_apart(piece, found[0], base + position) if found else None


def take_apart(data: Buffer, found: hot.Found, base: int) -> Record:
    """The Record of what `hot.scan` found in `data`."""
    position, size, kind, group, index, stamp, key_size, head_size, durable = found
    key_end = position + HEADER_SIZE + key_size
    head_end = key_end + head_size
    return Record(
        base + position,
        size,
        kind,
        group,
        index,
        stamp,
        bytes(data[position + HEADER_SIZE : key_end]),
        bytes(data[key_end:head_end]),
        bytes(data[head_end : position + size]),
        durable,
    )


def plausible(data: Buffer, position: int) -> bool:
    """Whether the bytes at `position` look like the front of a record that fits in `data`."""
    if position + HEADER_SIZE > len(data):
        return False
    size = int.from_bytes(data[position + 8 : position + 12], "little")
    key_size = int.from_bytes(data[position + 12 : position + 14], "little")
    head_size = int.from_bytes(data[position + 14 : position + 16], "little")
    return data[position + 16] in KINDS and HEADER_SIZE + key_size + head_size <= size <= len(data) - position


# ------------------------------------------------------------------ correction


def _table() -> array[int]:
    values = array("I")
    for index in range(256):
        value = index
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        values.append(value)
    return values


TABLE = _table()
INVERSE = array("I", [0] * 256)
for _index, _value in enumerate(TABLE):
    INVERSE[_value >> 24] = _index


def correct(data: Buffer, position: int, base: int, seed: int) -> tuple[bytes, int] | None:
    """Undo a single flipped bit in the record at `position` of `data` (file offset `base + position`).

    Returns the corrected record without padding and the number of the bit within it, or None when no single bit
    explains the damage.
    """
    front = bytes(data[position : position + HEADER_SIZE])
    if len(front) < HEADER_SIZE:
        return None
    start = (seed + base + position) & 0xFFFFFFFF
    stated = int.from_bytes(front[8:12], "little")
    room = len(data) - position
    for covered in dict.fromkeys((stated, HEADER_SIZE)):
        if not HEADER_SIZE <= covered <= min(room, CORRECTION_SIZE_MAX):
            continue
        checked = bytearray(data[position : position + covered])
        bit = _flipped(memoryview(checked), start)
        if bit is None:
            continue
        checked[bit // 8] ^= 1 << bit % 8
        size = int.from_bytes(checked[8:12], "little")
        if covered == (HEADER_SIZE if checked[16] == ERASED else size) and size <= room and _agrees(checked, start):
            return bytes(checked) + bytes(data[position + covered : position + size]), bit
    for bit in range(32):
        size = stated ^ 1 << bit
        if HEADER_SIZE <= size <= room:
            checked = bytearray(data[position : position + size])
            checked[8:12] = size.to_bytes(4, "little")
            if _agrees(checked, start):
                return bytes(checked), 64 + bit
    return None


def _flipped(covered: memoryview, start: int) -> int | None:
    syndrome = hot.checksum_of(covered[4:], start) ^ int.from_bytes(covered[:4], "little")
    if syndrome == 0:
        return None
    if syndrome & (syndrome - 1) == 0 and hot.spare_checksum_of(covered[8:], start) == int.from_bytes(
        covered[4:8], "little"
    ):
        return syndrome.bit_length() - 1
    bit = hot.find_flip(syndrome, len(covered) - 4, TABLE, INVERSE)
    return None if bit < 0 else bit + 32


def _agrees(checked: bytearray, start: int) -> bool:
    view = memoryview(checked)
    first, second = int.from_bytes(checked[:4], "little"), int.from_bytes(checked[4:8], "little")
    return hot.checksum_of(view[4:], start) == first and hot.spare_checksum_of(view[8:], start) == second


# ------------------------------------------------------------------ what recovery has to say


@frozen
class Finding:
    """One thing that opening or reading a store brought to light.

    `kind` is "corrected" (a flipped bit, undone), "torn" (an unfinished write that nobody was promised), "damaged"
    (promised bytes that cannot be read: `start` to `end` of the file), "missing" (a file that must be there),
    "foreign" (a file of another store, group or number), "lost" (indexes or sequences `start` to `end` of `group`).
    """

    kind: str
    path: str
    start: int = 0
    end: int = 0
    group: str = ""
    text: str = ""

    def __str__(self) -> str:
        where = self.path
        if self.kind == "lost":
            where = f"{self.start}-{self.end - 1}"
        elif self.end > self.start and self.kind != "missing":
            where = f"{self.path} bytes {self.start}-{self.end - 1}"
        return " ".join(part for part in (self.kind, self.group, where, self.text) if part)


ALARMING = frozenset({"damaged", "missing", "foreign", "lost"})


def alarms(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that must fail the health check."""
    return [finding for finding in findings if finding.kind in ALARMING]
