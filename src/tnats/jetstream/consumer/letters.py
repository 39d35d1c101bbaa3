"""Dead letters: messages that a consumer will not deliver again, on their way to the stream that keeps them.

A letter is made with the operation that ends its message, and stands in the consumer's log and state, its outbox,
until a stream has stored it. Its message id is made of where and when the message ended, so a letter that is sent
again, after a crash in between, is known to that stream as a duplicate.

Layout, little-endian: u64 sequence, u32 deliveries, i64 time, u16 sizes of subject and reason, subject, reason.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tnats.limits import CONSUMER_LETTER_REASON_BYTES_MAX
from tnats.records import frozen
from tnats.wire.headers import remove_headers_with_prefix, set_header

_LETTER = struct.Struct("<QIqHH")
_ORIGINS_OWN = (
    b"Nats-Msg-Id:",
    b"Nats-Expected-",
    b"Nats-Batch-",
    b"Nats-Schedule",
    b"Nats-Rollup:",
    b"Nats-TTL:",
    b"Nats-Incr:",
    b"Nats-Stream-Source:",
)
"""Headers that told the message's stream what to do; the letter's stream would obey or refuse them."""


@frozen
class Letter:
    """Message `seq` of the stream is to go to the subject `target`. `died_ns`: wall-clock time of its end."""

    seq: int
    target: str
    reason: str
    deliveries: int
    died_ns: int


def encode_letters(letters: Iterable[Letter]) -> bytes:
    """Their bytes, one after another."""
    parts = []
    for letter in letters:
        target, reason = letter.target.encode(), letter.reason.encode()[:CONSUMER_LETTER_REASON_BYTES_MAX]
        parts.append(_LETTER.pack(letter.seq, letter.deliveries, letter.died_ns, len(target), len(reason)))
        parts += [target, reason]
    return b"".join(parts)


def decode_letters(data: bytes, at: int, count: int) -> tuple[list[Letter], int]:
    """`count` letters from an offset on, and the offset behind them."""
    letters = []
    for _ in range(count):
        seq, deliveries, died_ns, target_size, reason_size = _LETTER.unpack_from(data, at)
        at += _LETTER.size
        target = data[at : at + target_size].decode()
        at += target_size
        reason = data[at : at + reason_size].decode("utf-8", "replace")
        at += reason_size
        letters.append(Letter(seq, target, reason, deliveries, died_ns))
    return letters, at


def letter_block(letter: Letter, block: bytes, stream: str, consumer: str, subject: bytes) -> bytes:
    """The header block of a letter: the message's own headers, its id, where it comes from and why."""
    place = f"{stream}.{consumer}.{letter.seq}".encode()
    for prefix in _ORIGINS_OWN:
        block = remove_headers_with_prefix(block, prefix)
    for key, value in (
        (b"Nats-Msg-Id", b"dead-letter.%b.%d" % (place, letter.died_ns)),
        (b"Nats-Dead-Letter-Stream", stream.encode()),
        (b"Nats-Dead-Letter-Consumer", consumer.encode()),
        (b"Nats-Dead-Letter-Subject", subject),
        (b"Nats-Dead-Letter-Sequence", b"%d" % letter.seq),
        (b"Nats-Dead-Letter-Deliveries", b"%d" % letter.deliveries),
        (b"Nats-Dead-Letter-Reason", " ".join(letter.reason.split()).encode()),
    ):
        block = set_header(block, key, value)
    return block
