"""What the hot loop of storage does with bytes, as the interpreter does it; `hot.pxd` has each again as C."""

from __future__ import annotations

import struct
from zlib import crc32

from crc32c import crc32c

_SIZES = struct.Struct("<HII")
_FRONT = struct.Struct("<IIIIQQ")


def pin(buffer: bytearray) -> memoryview:
    """`buffer`, which must neither go nor change its size, in the form that the other primitives take."""
    return memoryview(buffer)


def pin_bytes(data: bytes) -> bytes:
    """The same for bytes."""
    return data


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


def put_sizes(data: memoryview, at: int, subject_size: int, headers_size: int, payload_size: int) -> None:
    """Write the front of a message."""
    _SIZES.pack_into(data, at, subject_size, headers_size, payload_size)


def subject_size_at(data: bytes, at: int) -> int:
    """Size of the subject of the message at `at`."""
    return int.from_bytes(data[at : at + 2], "little")


def headers_size_at(data: bytes, at: int) -> int:
    """Size of its header block."""
    return int.from_bytes(data[at + 2 : at + 6], "little")


def payload_size_at(data: bytes, at: int) -> int:
    """Size of its payload."""
    return int.from_bytes(data[at + 6 : at + 10], "little")


def has_same_subject(data: bytes, at: int, other: int) -> bool:
    """Whether the messages at `at` and `other` have one subject."""
    size = subject_size_at(data, at)
    return size == subject_size_at(data, other) and data.startswith(data[at + 10 : at + 10 + size], other + 10)


def is_same(data: memoryview, at: int, size: int, other: int, other_size: int) -> bool:
    """Whether `size` bytes at `at` are the `other_size` bytes at `other`."""
    return data[at : at + size] == data[other : other + other_size]
