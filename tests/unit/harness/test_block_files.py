"""nats-server's message blocks, read without the server."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from tnats.harness.real.block_files import messages


def record(sequence: int, message: bytes, headers: bytes | None = None) -> bytes:
    """As nats-server writes it; the checksum is not looked at."""
    subject = b"jepsen.0"
    body = subject + (b"" if headers is None else struct.pack("<I", len(headers)) + headers) + message + bytes(8)
    length = 22 + len(body)
    return struct.pack("<IQQH", length | (0 if headers is None else 1 << 31), sequence, 7, len(subject)) + body


def test_messages_are_read_with_and_without_headers() -> None:
    """In order; what stands for a removal is no message."""
    block = (
        record(1, b"one") + record(2, b"two", b"NATS/1.0\r\nA: b\r\n\r\n") + record(3 | 1 << 63, b"") + record(4, b"")
    )
    assert list(messages(block)) == [(1, b"one"), (2, b"two"), (4, b"")]


def test_reading_ends_where_no_record_can_be() -> None:
    """At room that was set aside, at a record that is cut off, and at an absurd length."""
    whole = record(1, b"one")
    for rest in (bytes(100), record(2, b"two")[:-1], struct.pack("<IQQH", 1 << 30, 2, 7, 3) + bytes(40), b"\1"):
        assert list(messages(whole + rest)) == [(1, b"one")]


@given(st.binary(max_size=300))
def test_no_bytes_raise_or_hang(block: bytes) -> None:
    """Whatever a fault has made of a block."""
    assert sum(len(data) for _, data in messages(block)) <= len(block)
