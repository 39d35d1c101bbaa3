"""What the hot loop of storage does with bytes, as the interpreter does it; `hot.pxd` has each again as C."""

from __future__ import annotations

import struct
from zlib import crc32

from crc32c import crc32c

_FRONT = struct.Struct("<IIIIQQ")


def pin(buffer: bytearray) -> memoryview:
    """`buffer`, which must neither go nor change its size, in the form that the other primitives take."""
    return memoryview(buffer)


def address(view: memoryview) -> memoryview:
    """The same for what a view shows."""
    return view


def checksum(data: memoryview, start: int, end: int, seed: int) -> int:
    """crc32c (Castagnoli) of data[start:end], started from `seed`."""
    return crc32c(data[start:end], seed)


def spare_checksum(data: memoryview, start: int, end: int, seed: int) -> int:
    """crc32 (the polynomial of zlib) of data[start:end], started from `seed`."""
    return crc32(data[start:end], seed)


def put(data: memoryview, at: int, piece: bytes | bytearray | memoryview) -> None:
    """Copy `piece` into `data` from `at` on."""
    data[at : at + len(piece)] = piece


def put_word(data: memoryview, at: int, value: int) -> None:
    """Write `value` into the four bytes from `at` on."""
    data[at : at + 4] = value.to_bytes(4, "little")


def put_front(data: memoryview, at: int, size: int, sizes: int, kind: int, group: int, index: int, stamp: int) -> None:
    """Write the front of the record at `at`, all but its checksums."""
    _FRONT.pack_into(data, at + 8, size, sizes, kind, group, index, stamp)
