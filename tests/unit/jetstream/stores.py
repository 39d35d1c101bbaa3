"""A store and messages for the machines' tests: small, obviously right, in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from tnats.subjects.tokens import subject_matches

SECOND = 1_000_000_000
T0 = 1_700_000_000 * SECOND


@attrs.define
class Stored:
    ts_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


class ListStore:
    """`StreamStore` over a dict; everything by scanning."""

    def __init__(self, first_seq: int = 1) -> None:
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.last_ts_ns: int | None = None
        self.held: dict[int, Stored] = {}

    @property
    def messages(self) -> int:
        return len(self.held)

    @property
    def total_bytes(self) -> int:
        return sum(self.size_of(seq) for seq in self.held)

    def message_bytes(self, subject: bytes, headers: bytes, payload: bytes) -> int:
        return 30 + len(subject) + len(headers) + len(payload) + (4 if headers else 0)

    def append(self, seq: int, ts_ns: int, subject: bytes, headers: bytes, payload: bytes) -> None:
        assert seq == self.last_seq + 1
        self.held[seq] = Stored(ts_ns, subject, headers, payload)
        self.last_seq, self.last_ts_ns = seq, ts_ns
        self._settle()

    def append_run(self, ts_ns: int, messages: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        for message in messages:
            self.append(self.last_seq + 1, ts_ns, *message)

    def skip(self, seq: int, ts_ns: int) -> None:
        assert seq == self.last_seq + 1
        self.last_seq, self.last_ts_ns = seq, ts_ns
        self._settle()

    def skip_to(self, next_seq: int, ts_ns: int) -> None:
        for seq in range(self.last_seq + 1, next_seq):
            self.skip(seq, ts_ns)

    def remove(self, seq: int, *, erase: bool = False) -> bool:
        found = self.held.pop(seq, None)
        self._settle()
        return found is not None

    def remove_before(self, seq: int) -> int:
        gone = [one for one in self.held if one < seq]
        for one in gone:
            del self.held[one]
        self.first_seq = max(self.first_seq, min(seq, self.last_seq + 1))
        self._settle()
        return len(gone)

    def _settle(self) -> None:
        self.first_seq = min(self.held, default=self.last_seq + 1)

    def subject_of(self, seq: int) -> bytes | None:
        return self.held[seq].subject if seq in self.held else None

    def time_of(self, seq: int) -> int | None:
        return self.held[seq].ts_ns if seq in self.held else None

    def size_of(self, seq: int) -> int:
        found = self.held.get(seq)
        return self.message_bytes(found.subject, found.headers, found.payload) if found else 0

    def next_seq(self, seq: int) -> int:
        return min((one for one in self.held if one >= seq), default=0)

    def last_seq_of(self, pattern: bytes) -> int:
        return max(self.seqs_of(pattern), default=0)

    def first_seq_of(self, subject: bytes) -> int:
        return min(self.seqs_of(subject), default=0)

    def count_of(self, subject: bytes) -> int:
        return sum(1 for one in self.held.values() if one.subject == subject)

    def seqs_of(self, pattern: bytes) -> Iterator[int]:
        return iter([seq for seq, one in sorted(self.held.items()) if subject_matches(pattern, one.subject)])


@attrs.define
class Published:
    """A message as the broker hands it over."""

    subject: bytes
    data: bytes = b""
    reply: bytes = b""
    header_size: int = 0


def publish(subject: str, payload: str = "x", reply: str = "R", **headers: str) -> Published:
    """`Nats_Msg_Id="a"` becomes the header `Nats-Msg-Id: a`."""
    block = b""
    if headers:
        lines = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in headers.items())
        block = f"NATS/1.0\r\n{lines}\r\n".encode()
    return Published(subject.encode(), block + payload.encode(), reply.encode(), len(block))
