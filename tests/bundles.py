"""Bundles (`tnats.wire.bundle`) made and taken apart the slow way, to compare the hot loops with."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from tnats.records import frozen
from tnats.wire.bundle import HEAD_SIZE

_HEAD = struct.Struct("<5I")


@frozen
class Bundled:
    """One message. `data` is header block and payload; its first `header_size` bytes are headers."""

    subject: bytes
    reply: bytes = b""
    header_size: int = 0
    data: bytes = b""


def pack(messages: Iterable[Bundled]) -> bytearray:
    """The messages as a bundle."""
    bundle = bytearray()
    for message in messages:
        words = [message.reply] if message.reply else []
        if message.header_size:
            words.append(b"%d" % message.header_size)
        tail = b"%b\r\n%b\r\n" % (b" ".join([*words, b"%d" % len(message.data)]), message.data)
        sizes = (len(message.subject), len(message.reply), message.header_size, len(message.data), len(tail))
        bundle += _HEAD.pack(*sizes) + message.subject + tail
    return bundle


def unpack(bundle: bytes | bytearray) -> Iterator[Bundled]:
    """The messages of a bundle."""
    at = 0
    while at < len(bundle):
        subject_size, reply_size, header_size, size, tail_size = _HEAD.unpack_from(bundle, at)
        tail = at + HEAD_SIZE + subject_size
        at = tail + tail_size
        yield Bundled(
            bytes(bundle[tail - subject_size : tail]),
            bytes(bundle[tail : tail + reply_size]),
            header_size,
            bytes(bundle[at - 2 - size : at - 2]),
        )
