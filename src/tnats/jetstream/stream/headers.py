"""The headers of a publish that concern JetStream, in one pass over the block."""

from __future__ import annotations

from tnats.wire.headers import EMPTY_BLOCK, VERSION_LINE, remove_header

MSG_ID = b"Nats-Msg-Id"
EXPECTED_STREAM = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQ = b"Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQ_SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MSG_ID = b"Nats-Expected-Last-Msg-Id"
ROLLUP = b"Nats-Rollup"
STREAM_SOURCE = b"Nats-Stream-Source"
STREAM_IDENTITY = b"Nats-Stream-Identity"
"""Of the requests and answers of those who source: which of the streams that have had a name it is."""
REQUEST_INFO = b"Nats-Request-Info"
BATCH_ID = b"Nats-Batch-Id"
BATCH_SEQUENCE = b"Nats-Batch-Sequence"
BATCH_COMMIT = b"Nats-Batch-Commit"

ROLLUP_SUBJECT = b"sub"
ROLLUP_ALL = b"all"

SOURCE_START = VERSION_LINE + b"\r\n" + STREAM_SOURCE + b": "
"""How the header block of a message begins that had none where it was sourced from: there is nothing else in it."""

_NONE: dict[bytes, bytes] = {}


def source_alone(block: bytes) -> bytes:
    """The value of Nats-Stream-Source, if that is the only header; empty otherwise."""
    if block.startswith(SOURCE_START) and block.find(b"\r\n", len(SOURCE_START)) == len(block) - 4:
        return block[len(SOURCE_START) : -4].lstrip(b" ")
    return b""


def nats_headers(block: bytes) -> dict[bytes, bytes]:
    """The first of each `Nats-` header by key. Not to be changed by the caller."""
    source = source_alone(block)
    if source:
        return {STREAM_SOURCE: source}
    at = block.find(b"\r\nNats-")
    if at < 0:
        return _NONE
    found: dict[bytes, bytes] = {}
    while at >= 0:
        end = block.find(b"\r\n", at + 2)
        line = block[at + 2 : end] if end >= 0 else block[at + 2 :]
        key, colon, value = line.partition(b":")
        if colon and key not in found:
            found[key] = value.lstrip(b" ")
        at = block.find(b"\r\nNats-", end) if end >= 0 else -1
    return found


Place = tuple[int, bytes]
"""A sequence, and the identity of the stream that it belongs to, empty if that is not known."""


def parse_place(value: bytes) -> tuple[bytes, Place] | None:
    """(what is followed: origin, filters, targets; the place there) of a Nats-Stream-Source header, None if bad."""
    words = value.split(b" ")
    if len(words) < 4 or not words[1].isdigit():
        return None
    return b" ".join((words[0], words[2], words[3])), (int(words[1]), words[5] if len(words) > 5 else b"")


def storable(block: bytes) -> bytes:
    """The block as it is stored: without status and without Nats-Request-Info; empty if nothing is left."""
    if not block.startswith(b"NATS/1.0\r\n"):
        _, _, rest = block.partition(b"\r\n")
        block = VERSION_LINE + b"\r\n" + rest
    if block in (EMPTY_BLOCK, b"NATS/1.0\r\n"):
        return b""
    return remove_header(block, REQUEST_INFO) if REQUEST_INFO in block else block


def parse_seq(value: bytes) -> int | None:
    """An unsigned 64-bit number, None if it is none."""
    if not value.isascii() or not value.isdigit():
        return None
    number = int(value) if len(value) <= 20 else 2**64
    return number if number < 2**64 else None
