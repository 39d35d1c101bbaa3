"""Bodies of the messages that drills write. Each tells its own length: one that was cut does not count as whole."""

from __future__ import annotations

from tnats.harness.workloads.jetstream import decode


def payload(value: str, size: int) -> bytes:
    """A message's body: its value, and filler with its length before it."""
    return f"{value} {size} ".encode() + b"#" * size


def value_of(data: bytes) -> str:
    """The value in a body; for bytes that are none, a text that nobody ever wrote."""
    if data.startswith(b'"'):
        return decode(data)
    value, _, rest = bytes(data).partition(b" ")
    size, space, filler = rest.partition(b" ")
    if data and not (space and size.isdigit() and int(size) == len(filler) and not filler.strip(b"#")):
        return f"{bytes(data)[:40]!r} and on, {len(data)} bytes"
    return value.decode("utf-8", "backslashreplace")
