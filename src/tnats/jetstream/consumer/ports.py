"""What the consumer machine asks of its stream: index look-ups only, never message contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class StreamIndex(Protocol):
    """The stream as a consumer sees it. Sequences begin at 1; 0 means "none". No filters: the whole stream."""

    @property
    def first_seq(self) -> int:
        """Sequence of the oldest message; `last_seq + 1` while empty."""

    @property
    def last_seq(self) -> int:
        """The highest sequence ever given."""

    def next_matching(self, filters: tuple[bytes, ...], seq: int) -> int:
        """The first message at or after `seq` on a subject that one of the filters matches."""

    def next_run(self, filters: tuple[bytes, ...], seq: int, count_max: int) -> Sequence[int]:
        """The next such messages from `seq` on, rising: at least one if there is one, at most `count_max`."""

    def count_matching(self, filters: tuple[bytes, ...], from_seq: int, to_seq: int) -> int:
        """How many such messages there are, both ends included."""

    def last_matching(self, filters: tuple[bytes, ...]) -> int:
        """The newest such message."""

    def last_per_subject(self, filters: tuple[bytes, ...]) -> Iterator[int]:
        """The newest message of each matching subject, in sequence order."""

    def wants(self, filters: tuple[bytes, ...], subject: bytes) -> bool:
        """Whether one of the filters, of which there may be thousands, matches the subject."""

    def seq_at_time(self, ts_ns: int) -> int:
        """The first sequence of a message at or after a time; `last_seq + 1` if there is none."""

    def subject_of(self, seq: int) -> bytes | None:
        """The message's subject, None if there is no such message."""

    def time_of(self, seq: int) -> int | None:
        """The message's time in ns, None if there is no such message."""

    def headers_size_of(self, seq: int) -> int | None:
        """Bytes of the message's header block, None if it would have to be read first or is not there."""

    def sizes_of(self, seqs: Sequence[int]) -> Sequence[int]:
        """Bytes of subject, header block and payload of each of these messages, which are there."""
