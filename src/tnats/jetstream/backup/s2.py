"""S2 streams, which hold backups: reading all of them, writing the part of them that is Snappy's block format.

The framing is Snappy's (google/snappy, framing_format.txt) with the identifier `S2sTwO` and blocks of up to 4 MiB.
Blocks are Snappy blocks that may also repeat the last offset (klauspost/compress, s2 README, "Block format"). Blocks
without repeats are left to a Snappy library; the others are decoded here.
"""

from __future__ import annotations

from collections.abc import Iterator

import cramjam

from tnats.jetstream.backup import varint
from tnats.storage import hot

IDENTIFIER = b"S2sTwO"
SNAPPY_IDENTIFIER = b"sNaPpY"
BLOCK_BYTES_MAX = 4 << 20
BLOCK_BYTES = 256 << 10
"""Size of the blocks that are written."""

_COMPRESSED, _PLAIN, _SKIPPABLE, _IDENTIFIER = 0x00, 0x01, 0x80, 0xFF
_CHUNK_HEAD_SIZE = 4
_CHECKSUM_SIZE = 4
_CHUNK_BYTES_MAX = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX // 4
"""What a block can grow to when it cannot be compressed, and more."""


class CorruptInput(Exception):
    """Bytes that are no S2 stream, or not the one that was written."""


def _masked(checksum: int) -> bytes:
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


class Reader:
    """Decompresses a stream that comes in pieces. Holds at most one chunk: a small one may become a large block."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._is_begun = False

    @property
    def is_complete(self) -> bool:
        """Whether the stream may end here."""
        return self._is_begun and not self._held

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The blocks that are complete with `data`, to be taken before it is called again. Raises CorruptInput."""
        held = self._held
        held += data
        at = 0
        while len(held) - at >= _CHUNK_HEAD_SIZE:
            kind = held[at]
            size = int.from_bytes(held[at + 1 : at + 4], "little")
            if size > _CHUNK_BYTES_MAX and kind < _SKIPPABLE:
                raise CorruptInput(f"a chunk of {size} bytes")
            if not self._is_begun and kind != _IDENTIFIER:
                raise CorruptInput("no stream identifier")
            end = at + _CHUNK_HEAD_SIZE + size
            if len(held) < end:
                break
            yield self._chunk(kind, bytes(held[at + _CHUNK_HEAD_SIZE : end]))
            at = end
        del held[:at]

    def _chunk(self, kind: int, body: bytes) -> bytes:
        if kind == _IDENTIFIER:
            if body not in (IDENTIFIER, SNAPPY_IDENTIFIER):
                raise CorruptInput("an unknown stream identifier")
            self._is_begun = True
            return b""
        if kind >= _SKIPPABLE:
            return b""
        if kind not in (_COMPRESSED, _PLAIN) or len(body) < _CHECKSUM_SIZE:
            raise CorruptInput(f"a chunk of kind {kind}")
        block = body[_CHECKSUM_SIZE:]
        if kind == _COMPRESSED:
            block = decode_block(block)
        if _masked(hot.checksum_of(block, 0)) != body[:_CHECKSUM_SIZE]:
            raise CorruptInput("a checksum does not match")
        return block


class Writer:
    """Compresses what comes in pieces. Holds less than one block."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._is_begun = False

    def write(self, data: bytes) -> bytes:
        """What of the stream is ready."""
        self._held += data
        return self._take(BLOCK_BYTES)

    def finish(self) -> bytes:
        """The end of the stream."""
        return self._take(1)

    def _take(self, bytes_min: int) -> bytes:
        chunks = []
        if not self._is_begun:
            chunks.append(bytes([_IDENTIFIER]) + len(IDENTIFIER).to_bytes(3, "little") + IDENTIFIER)
            self._is_begun = True
        while len(self._held) >= bytes_min:
            block = bytes(self._held[:BLOCK_BYTES])
            del self._held[:BLOCK_BYTES]
            kind, body = _COMPRESSED, bytes(cramjam.snappy.compress_raw(block))
            if len(body) >= len(block):
                kind, body = _PLAIN, block
            size = (_CHECKSUM_SIZE + len(body)).to_bytes(3, "little")
            chunks.append(bytes([kind]) + size + _masked(hot.checksum_of(block, 0)) + body)
        return b"".join(chunks)


def decode_block(block: bytes) -> bytes:
    """One decompressed block. Raises CorruptInput."""
    size, at, is_whole = varint.decode(block, 0)
    if not is_whole or size > BLOCK_BYTES_MAX:
        raise CorruptInput(f"a block of {size} bytes")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError:
        return _decode_repeating(block, at, size)


def _decode_repeating(block: bytes, at: int, size: int) -> bytes:
    """Literals and copies, the copies with S2's repeats. One loop: this is where the time of a restore goes."""
    out = bytearray()
    offset = 0
    end = len(block)
    padded = block + bytes(4)  # numbers can be read past the end; `at` is checked after each element
    while at < end:
        tag = block[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(padded[at : at + extra], "little")
                at += extra
            length += 1
            if at + length > end:
                raise CorruptInput("a literal that ends too early")
            out += block[at : at + length]
            at += length
        else:
            if kind == 1:
                length = tag >> 2 & 7
                distance = (tag & 0xE0) << 3 | padded[at]
                at += 1
                if distance:
                    offset = distance
                elif length >= 5:
                    extra = length - 4
                    length = int.from_bytes(padded[at : at + extra], "little") + (4, 1 << 8, 1 << 16)[extra - 1]
                    at += extra
                length += 4
            else:
                extra = 2 if kind == 2 else 4
                offset = int.from_bytes(padded[at : at + extra], "little")
                at += extra
                length = (tag >> 2) + 1
            start = len(out) - offset
            if offset == 0 or start < 0 or at > end:
                raise CorruptInput("a copy of what was not there")
            if offset >= length:
                out += out[start : start + length]
            else:
                out += (out[start:] * (length // offset + 1))[:length]
        if len(out) > size:
            raise CorruptInput("a block that is longer than it says")
    if len(out) != size:
        raise CorruptInput("a block that is shorter than it says")
    return bytes(out)
