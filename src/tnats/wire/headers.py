"""Header blocks of HPUB and HMSG (client protocol, "Header block"; ADR-4).

A block is `NATS/1.0`, perhaps a status and a description, CRLF, lines `Key: Value` CRLF, and an empty line. The
server does not validate blocks that clients send. So the functions that look up, remove and set work on the raw
bytes and leave what they do not touch byte for byte as it was. A header is found by its whole, exact key: at the
start of a line and directly followed by a colon; of several the first counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from tnats.errors import TnatsError
from tnats.records import define

VERSION_LINE = b"NATS/1.0"
EMPTY_BLOCK = b"NATS/1.0\r\n\r\n"
_CRLF = b"\r\n"


class HeaderError(TnatsError):
    """A header that cannot be written: its key or value would break the block."""


@define
class Headers:
    """A parsed block: status 0 for none; fields in order, keys as sent, values without surrounding blanks."""

    status: int
    description: bytes
    fields: list[tuple[bytes, bytes]]


def build_headers(fields: Iterable[tuple[bytes, bytes]], status: int = 0, description: bytes = b"") -> bytes:
    """A block of `fields`, with a status line if `status` is not 0.

    Raises HeaderError for a key that is empty or holds a colon, a blank or a line end, or for a line end in a
    value.
    """
    first = VERSION_LINE
    if status:
        first += b" %d" % status
        if description:
            first += b" " + description
    lines = [first]
    for key, value in fields:
        _check_field(key, value)
        lines.append(b"%b: %b" % (key, value))
    lines.append(b"\r\n")
    return _CRLF.join(lines)


def parse_headers(block: bytes) -> Headers | None:
    """The block as a record, or None if it is none: wrong first line, a line without colon, or no end."""
    if not block.startswith(VERSION_LINE) or not block.endswith(b"\r\n\r\n"):
        return None
    first, *lines = block[:-4].split(_CRLF)
    status, _, description = first[len(VERSION_LINE) :].strip().partition(b" ")
    if first[len(VERSION_LINE) : len(VERSION_LINE) + 1] not in (b"", b" ", b"\t") or (
        status and not (status.isdigit() and len(status) == 3)
    ):
        return None
    fields = []
    for line in lines:
        key, colon, value = line.partition(b":")
        if not colon or not key:
            return None
        fields.append((key, value.strip(b" \t")))
    return Headers(int(status or b"0"), description.strip(), fields)


def get_header(block: bytes, key: bytes) -> bytes | None:
    """The value of the first header with exactly this key, from after its blanks to the line end, or None."""
    at = block.find(b"\r\n%b:" % key)
    if at < 0:
        return None
    start = at + len(key) + 3
    end = block.find(_CRLF, start)
    return block[start : end if end >= 0 else len(block)].lstrip(b" ")


def remove_header(block: bytes, key: bytes) -> bytes:
    """`block` without any header of this key; empty when no header and no status is left."""
    return _without(block, key + b":")


def remove_headers_with_prefix(block: bytes, prefix: bytes) -> bytes:
    """`block` without the headers whose key begins with `prefix`; empty when no header and no status is left."""
    return _without(block, prefix)


def set_header(block: bytes, key: bytes, value: bytes) -> bytes:
    """`block` (empty for none yet) with exactly one header of this key, in place of the first or at the end."""
    _check_field(key, value)
    line = b"%b: %b" % (key, value)
    if not block:
        return _CRLF.join((VERSION_LINE, line, b"\r\n"))
    at = block.find(b"\r\n%b:" % key)
    if at < 0:
        body = block[:-2] if block.endswith(_CRLF) else block + _CRLF
        return b"%b%b\r\n\r\n" % (body, line)
    end = block.find(_CRLF, at + 2)
    rest = block[end:] if end >= 0 else b""
    # The rest begins with CRLF, like a block after its first line.
    kept = [one for one in rest.split(_CRLF)[1:] if not one.startswith(key + b":")]
    return _CRLF.join((block[:at], line, *kept))


def _without(block: bytes, start: bytes) -> bytes:
    if b"\r\n" + start not in block:
        return block
    first, *lines = block.split(_CRLF)
    kept = _CRLF.join([first, *[line for line in lines if not line.startswith(start)]])
    return b"" if kept == EMPTY_BLOCK else kept


def _check_field(key: bytes, value: bytes) -> None:
    if not key or any(byte in b": \t\r\n" for byte in key):
        raise HeaderError(f"header key {key!r} is empty or holds a colon, blank or line end: rename it")
    if b"\r" in value or b"\n" in value:
        raise HeaderError(f"value of header {key!r} holds a line end: encode it")
