"""Integers of variable length, as archives hold them: seven bits a byte, the lowest first; signed ones in zigzag."""

from __future__ import annotations

BYTES_MAX = 10
"""Of a number of 64 bits."""


def encode(value: int) -> bytes:
    """An unsigned number."""
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def decode(data: bytes | bytearray, at: int) -> tuple[int, int, bool]:
    """(the unsigned number at an offset, the offset behind it, whether it is whole).

    It is not if it has no end within the data or within BYTES_MAX.
    """
    end = min(at + BYTES_MAX, len(data))
    value = shift = 0
    for place in range(at, end):
        byte = data[place]
        if byte < 0x80:
            return value | byte << shift, place + 1, True
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, end, False


def to_unsigned(value: int) -> int:
    """A signed number of 64 bits in zigzag."""
    return value << 1 ^ value >> 63


def to_signed(value: int) -> int:
    """What `to_unsigned` made."""
    return value >> 1 ^ -(value & 1)
