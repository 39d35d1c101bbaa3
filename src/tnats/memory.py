"""Byte primitives of the hot loops as the interpreter does them; `memory.pxd` has each again as a few lines of C.

`data` is what `pin` returned: here a bytes copy of what was received, compiled a pointer into the read buffer.
"""

from __future__ import annotations


def pin(buffer: bytearray, end: int) -> bytes:
    """The first `end` bytes of `buffer` in the form that the other primitives read."""
    return bytes(memoryview(buffer)[:end])


def find(data: bytes, byte: int, start: int, end: int) -> int:
    """Index of the first `byte` in data[start:end], or -1."""
    return data.find(byte, start, end)


def find_last(data: bytes, byte: int, start: int, end: int) -> int:
    """Index of the last `byte` in data[start:end], or -1."""
    return data.rfind(byte, start, end)


def begins(data: bytes, start: int, end: int, prefix: bytes, prefix_size: int) -> bool:
    """Whether data[start:end] begins with `prefix`, which is `prefix_size` long."""
    return data.startswith(prefix, start, end)


def equal(data: bytes, start: int, end: int, other: bytes) -> bool:
    """Whether data[start:end] is `other`."""
    return data[start:end] == other


def decimal(data: bytes, start: int, end: int, digits_max: int) -> int:
    """The number that the digits data[start:end] spell, -1 if they are none, or more than `digits_max` (up to 18)."""
    digits = data[start:end]
    return int(digits) if digits.isdigit() and len(digits) <= digits_max else -1


def new_stage(size: int) -> bytearray:
    """Room for `size` bytes, to be filled by `append`."""
    return bytearray()


def clear_stage(stage: bytearray) -> None:
    """Make `stage`, of which no view is left, empty again."""
    stage.clear()


def append(stage: bytearray, used: int, data: bytes | bytearray, start: int, end: int) -> None:
    """Put data[start:end] behind the `used` bytes of `stage`; the caller has made sure that it fits."""
    stage += data[start:end]


def append_decimal(stage: bytearray, used: int, number: int) -> int:
    """Put the digits of `number`, at most 20, behind the `used` bytes of `stage`; how many bytes are used then."""
    digits = b"%d" % number
    stage += digits
    return used + len(digits)


def append_word(stage: bytearray, used: int, number: int) -> int:
    """Put `number` as four bytes, little-endian, behind the `used` bytes of `stage`; how many are used then."""
    stage += number.to_bytes(4, "little")
    return used + 4


def set_word(stage: bytearray, at: int, number: int) -> None:
    """Write `number` as four bytes, little-endian, over those at `at`."""
    stage[at : at + 4] = number.to_bytes(4, "little")


def word(data: bytes, at: int) -> int:
    """The number that the four bytes at `at` hold, little-endian."""
    return int.from_bytes(data[at : at + 4], "little")


def allocate(size: int) -> bytearray:
    """A buffer of `size` bytes of any content."""
    return bytearray(size)
