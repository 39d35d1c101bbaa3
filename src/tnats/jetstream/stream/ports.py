"""What the stream machine needs from outside: a store's index and write side, and the consumers' interest.

The store answers from its index, never from message contents, so that no call waits for the disk. Its writes are
bookkeeping in memory plus lazily written segments: what makes a message durable is the log entry that carries it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class StreamStore(Protocol):
    """The messages of one stream, by sequence and by subject. Sequences begin at 1; 0 means "none"."""

    @property
    def first_seq(self) -> int:
        """Sequence of the oldest message; `last_seq + 1` while empty."""

    @property
    def last_seq(self) -> int:
        """The highest sequence ever given, whether its message is still there or not."""

    @property
    def last_ts_ns(self) -> int | None:
        """The time of `last_seq`, None if no sequence was ever given."""

    @property
    def messages(self) -> int:
        """How many messages there are."""

    @property
    def total_bytes(self) -> int:
        """Their size in bytes, as `message_bytes` counts."""

    def message_bytes(self, subject: bytes, headers: bytes, payload: bytes) -> int:
        """What a message counts against `max_bytes`."""

    def append(self, seq: int, ts_ns: int, subject: bytes, headers: bytes, payload: bytes) -> None:
        """Add the message of sequence `last_seq + 1`."""

    def append_run(self, ts_ns: int, messages: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        """Add messages, (subject, header block, payload) each, at least one, behind `last_seq`, all of one time."""

    def skip(self, seq: int, ts_ns: int) -> None:
        """Use up the sequence `last_seq + 1` without a message."""

    def skip_to(self, next_seq: int, ts_ns: int) -> None:
        """Use up the sequences from `last_seq + 1` to `next_seq - 1` without messages."""

    def remove(self, seq: int, *, erase: bool = False) -> bool:
        """Take the message away, overwriting its bytes with `erase`; False if there is none."""

    def remove_before(self, seq: int) -> int:
        """Take away every message below `seq`, and make it the first sequence; the number of messages removed."""

    def subject_of(self, seq: int) -> bytes | None:
        """The message's subject, None if there is no such message."""

    def time_of(self, seq: int) -> int | None:
        """The message's time in ns, None if there is no such message."""

    def size_of(self, seq: int) -> int:
        """What the message counts against `max_bytes`, 0 if there is none."""

    def next_seq(self, seq: int) -> int:
        """The first message at or after `seq`, 0 if there is none."""

    def last_seq_of(self, pattern: bytes) -> int:
        """The newest message on the subject, or on any subject of the pattern."""

    def first_seq_of(self, subject: bytes) -> int:
        """The oldest message on the literal subject."""

    def count_of(self, subject: bytes) -> int:
        """How many messages the literal subject has."""

    def seqs_of(self, pattern: bytes) -> Iterator[int]:
        """All messages on the pattern, oldest first; the store may change once the iterator is exhausted."""


class Inbound(Protocol):
    """A published message as the broker hands it over."""

    @property
    def subject(self) -> bytes:
        """Where it was published."""

    @property
    def reply(self) -> bytes:
        """Where the answer goes; empty: nowhere."""

    @property
    def header_size(self) -> int:
        """Bytes at the front of `data` that are headers."""

    @property
    def data(self) -> bytes:
        """Header block and payload."""


class ConsumerView(Protocol):
    """What the retention by interest asks of a consumer."""

    @property
    def filters(self) -> tuple[bytes, ...]:
        """The patterns of the subjects that it wants; none: all."""

    def needs(self, seq: int) -> bool:
        """Whether a message on a wanted subject is not done with: ahead of it, or unacknowledged."""
