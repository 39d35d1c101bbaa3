"""Packed messages: compressed one by one, against a dictionary that their segment begins with.

Each message keeps a record of its own, so that reading, erasing and the correction of bits work as for any other; the
dictionary is what makes small messages that resemble each other small. It is the content of the segment's first
messages, and stands in the segment twice: damage to one record does not take others with it.

Only sealed segments are packed (`stream_rewrite`): what is written on the way of a publish is never compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tnats.storage import hot, record
from tnats.storage.message_log import Message

LEVEL = 3
DICTIONARY_BYTES_MAX = 8 * 1024
DICTIONARY_SHARE = 16
"""A dictionary is at most this part of what it is for: it is stored, twice."""
_HEAD_SIZE = struct.Struct("<H")


def dictionary_of(contents: Iterable[bytes], total: int) -> tuple[bytes, int]:
    """A dictionary made of the first of these contents, `total` bytes in all, and of how many."""
    bytes_max = min(DICTIONARY_BYTES_MAX, total // DICTIONARY_SHARE)
    parts: list[bytes] = []
    size = 0
    for content in contents:
        if size >= bytes_max:
            break
        parts.append(content[: bytes_max - size])
        size += len(parts[-1])
    return b"".join(parts), len(parts)


class Packer:
    """Compresses and expands the messages of one segment."""

    __slots__ = ("_compressor", "_expander", "_garbage")

    def __init__(self, dictionary: bytes) -> None:
        import zstandard  # takes memory and time, which servers without packed streams can do without

        self._garbage = zstandard.ZstdError
        known = None
        if dictionary:
            known = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        self._expander = zstandard.ZstdDecompressor(dict_data=known, format=zstandard.FORMAT_ZSTD1_MAGICLESS)
        parameters = zstandard.ZstdCompressionParameters.from_level(
            LEVEL,
            format=zstandard.FORMAT_ZSTD1_MAGICLESS,  # the record says what it is, and has a checksum
            write_checksum=False,
            write_content_size=False,
            write_dict_id=False,
        )
        self._compressor = zstandard.ZstdCompressor(dict_data=known, compression_params=parameters)

    def pack(self, message: hot.Record) -> hot.Record | None:
        """The packed record of a message's record; None when it would not be smaller."""
        _, _, sequence, time_ns, subject, head, body = message
        content, flag = (
            (_HEAD_SIZE.pack(len(head)) + bytes(head) + bytes(body), record.PACKED_HEAD) if head else (body, 0)
        )
        packed = self._compressor.compress(content)
        if len(packed) >= len(head) + len(body):
            return None
        return (record.PACKED, len(head) + len(body) | flag, sequence, time_ns, subject, b"", packed)

    def expand(self, found: record.Record) -> Message | None:
        """The message of a packed record; None when it does not expand to what it says."""
        size = found.group & ~record.PACKED_HEAD
        has_head = found.group & record.PACKED_HEAD
        try:
            content = self._expander.decompress(found.body, size + (_HEAD_SIZE.size if has_head else 0))
        except self._garbage:
            return None
        head = b""
        if has_head:
            (head_size,) = _HEAD_SIZE.unpack_from(content)
            head = content[_HEAD_SIZE.size : _HEAD_SIZE.size + head_size]
            content = content[_HEAD_SIZE.size + head_size :]
        if len(head) + len(content) != size:
            return None
        return Message(found.index, found.stamp, found.key, head, content)
