"""Reads nats-server's message blocks without the server: what a node holds that does not serve.

A block is a row of records, each: its length (4 bytes, the top bit says that there are headers), sequence (8), time
(8), length of the subject (2), subject, with headers their length (4) and they themselves, message, checksum (8); all
little-endian. Records with a mark in the top bits of the sequence stand for what was removed. Checksums are not looked
at, and reading ends at the first record that cannot be one: what is there is told, not whether a server would take it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

HEAD = struct.Struct("<IQQH")
HEADERS_BIT = 1 << 31
MARKS = 3 << 62
CHECKSUM_SIZE = 8


def messages(block: bytes) -> Iterator[tuple[int, bytes]]:
    """(sequence, message) of each record in a block that was not removed."""
    place = 0
    while place + HEAD.size + CHECKSUM_SIZE <= len(block):
        length, sequence, _, subject_size = HEAD.unpack_from(block, place)
        has_headers, length = length & HEADERS_BIT, length & ~HEADERS_BIT
        start, end = place + HEAD.size + subject_size, place + length - CHECKSUM_SIZE
        if not start <= end <= len(block) - CHECKSUM_SIZE:
            return
        if has_headers:
            start += 4 + int.from_bytes(block[start : start + 4], "little")
        if sequence and not sequence & MARKS and start <= end:
            yield sequence, block[start:end]
        place += length
