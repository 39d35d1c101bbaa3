"""Byte primitives of the hot loop as the interpreter does them; `hot.pxd` has each again as a few lines of C.

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


def decimal(data: bytes, start: int, end: int) -> int:
    """The number that the digits data[start:end] spell, -1 if they are none, or more than nine."""
    digits = data[start:end]
    return int(digits) if digits.isdigit() and len(digits) < 10 else -1


def new_stage(size: int) -> bytearray:
    """Room for `size` bytes, to be filled by `append`."""
    return bytearray()


def clear_stage(stage: bytearray) -> None:
    """Make `stage`, of which no view is left, empty again."""
    stage.clear()


def append(stage: bytearray, used: int, data: bytes | bytearray, start: int, end: int) -> None:
    """Put data[start:end] behind the `used` bytes of `stage`; the caller has made sure that it fits."""
    stage += data[start:end]


def allocate(size: int) -> bytearray:
    """A buffer of `size` bytes of any content."""
    return bytearray(size)
