"""Acknowledgements: the subjects they are sent to, and what their bodies say.

A delivered message's reply subject is `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time
ns>.<pending>` (v1), or with `<domain or _>.<account hash>` after `$JS.ACK` and perhaps more tokens at the end (v2).
Both are understood, v1 is written (JetStream documentation, "Ack reply subject"; ADR-15).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import attrs
import orjson

from tnats.notation import parse_duration
from tnats.records import define, frozen

if TYPE_CHECKING:
    from tnats.jetstream.consumer.effects import Delivery

PREFIX = b"$JS.ACK."
_V1_TOKENS = 9
_V2_TOKENS_MIN = 11
_SIZE_MAX = 4096
NUMBER_DIGITS_MAX = 18
NUMBERS_BYTES_MAX = 160
"""What the numbers and separators of a delivery take at most."""


class Word(enum.Enum):
    """What an acknowledgement says."""

    ACK = "+ACK"
    NAK = "-NAK"
    PROGRESS = "+WPI"
    NEXT = "+NXT"
    TERM = "+TERM"
    UNKNOWN = ""


@define
class Place:
    """The message an acknowledgement is about."""

    stream: bytes
    consumer: bytes
    deliveries: int
    stream_seq: int
    consumer_seq: int


@define
class Ack:
    """A parsed body. `delay_ns`: of a NAK; `rest`: the reason of a TERM, the pull request of a NXT."""

    word: Word
    delay_ns: int = 0
    rest: bytes = b""


@define
class AckRun:
    """Plain acknowledgements of messages of one consumer, in the order in which they came.

    `consumer` is the beginning of their subjects ("$JS.ACK.<stream>.<consumer>"); `replies` has (stream sequence,
    consumer sequence, reply) of those that want a confirmation.
    """

    consumer: bytes
    seqs: list[int] = attrs.field(factory=list)
    consumer_seqs: list[int] = attrs.field(factory=list)
    replies: list[tuple[int, int, bytes]] = attrs.field(factory=list)

    def wanted_replies(self) -> list[bytes]:
        """Where answers are expected."""
        return [reply for _, _, reply in self.replies]


@frozen
class Said:
    """Anything else that was sent to an acknowledgement subject."""

    subject: bytes
    reply: bytes
    body: bytes

    def wanted_replies(self) -> list[bytes]:
        """Where answers are expected."""
        return [self.reply] if self.reply else []


def parse_subject(subject: bytes) -> Place | None:
    """The place that a reply subject names, None if it is none."""
    tokens = subject.split(b".")
    if tokens[:2] != [b"$JS", b"ACK"]:
        return None
    at = place_at(tokens)
    if at is None:
        return None
    stream, consumer, deliveries, stream_seq, consumer_seq = tokens[at : at + 5]
    numbers = (deliveries, stream_seq, consumer_seq)
    if not all(number.isdigit() and len(number) <= NUMBER_DIGITS_MAX for number in numbers):
        return None
    if len(subject) > _SIZE_MAX:
        return None
    return Place(stream, consumer, *map(int, numbers))


def place_at(tokens: list[bytes]) -> int | None:
    """Where in the tokens of a reply subject the stream stands, before the rest; None if there are too few or many."""
    if len(tokens) == _V1_TOKENS:
        return 2
    return 4 if len(tokens) >= _V2_TOKENS_MIN else None


def subject_prefix(stream: bytes, consumer: bytes) -> bytes:
    """What the acknowledgement subjects of a consumer begin with, up to the dot."""
    return b"%b%b.%b" % (PREFIX, stream, consumer)


def reply_prefix(stream: str, consumer: str) -> bytes:
    """The constant part of a consumer's reply subjects, with the dot at its end."""
    return subject_prefix(stream.encode(), consumer.encode()) + b"."


def reply_size_max(prefix: bytes) -> int:
    """What a delivery takes at most beside its message: the reply subject, and the numbers of its control line."""
    return len(prefix) + NUMBERS_BYTES_MAX


def ack_reply(prefix: bytes, delivery: Delivery, ts_ns: int) -> bytes:
    """The reply subject of the first message of a delivery; `ts_ns`: its time."""
    seq, pending = delivery.seqs[0], max(delivery.pending, 0)
    return b"%b%d.%d.%d.%d.%d" % (prefix, delivery.deliveries, seq, delivery.consumer_seq, ts_ns, pending)


def parse_body(body: bytes) -> Ack:
    """What an acknowledgement's body says."""
    if not body or body in (b"+ACK", b"+OK"):
        return Ack(Word.ACK)
    if body.startswith(b"-NAK"):
        return Ack(Word.NAK, delay_ns=_parse_delay(body[4:].strip()))
    if body == b"+WPI":
        return Ack(Word.PROGRESS)
    if body.startswith(b"+NXT"):
        return Ack(Word.NEXT, rest=body[4:].strip())
    if body.startswith(b"+TERM"):
        return Ack(Word.TERM, rest=body[5:].strip())
    return Ack(Word.UNKNOWN)


def _parse_delay(text: bytes) -> int:
    """Nanoseconds of a NAK's delay; 0, at once, for none and for what cannot be read."""
    if not text:
        return 0
    if text.startswith(b"{"):
        try:
            delay = orjson.loads(text).get("delay")
        except orjson.JSONDecodeError:
            return 0
        return max(delay, 0) if type(delay) is int else 0
    delay_ns = parse_duration(text.decode("utf-8", "replace"))
    return max(delay_ns or 0, 0)
