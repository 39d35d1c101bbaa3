"""Bundles: many messages in one piece of bytes, between the broker and parts of the server that handle them by the
thousand.

Behind each other, for each message: five unsigned 32-bit numbers, little-endian (size of the subject, of the reply, of
the header block, of header block and payload, of the tail), the subject, and the tail, which is how the client protocol
goes on behind the subject: "[reply ][size of header block ]size", CRLF, header block and payload, CRLF.

The hot loops have this layout written out (`HEAD_SIZE` and the order of the numbers); this module is for everybody
else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from tnats.records import frozen

_HEAD = struct.Struct("<5I")
HEAD_SIZE = _HEAD.size


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
