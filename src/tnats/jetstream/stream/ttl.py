"""When messages end by their own TTL (Nats-TTL, ADR-43): parsing, and the deadlines of what is stored.

`never` exempts a message from `max_age` as well. Delete markers (ADR-43 and ADR-48) and purges of keys are
remembered here too: their end leaves no further marker.
"""

from __future__ import annotations

import heapq

from tnats.jetstream.stream.headers import ROLLUP, ROLLUP_SUBJECT
from tnats.limits import SECOND_NS
from tnats.notation import DURATION_NS_MAX, format_duration, parse_duration
from tnats.wire.headers import build_headers, get_header

NEVER = -1
MARKER_HEADER = b"Nats-Marker-Reason"
KV_OPERATION = b"KV-Operation"
KV_PURGE = b"PURGE"
MARKER_REASON_AGE = b"MaxAge"
TTL_HEADER = b"Nats-TTL"


def parse_ttl(value: bytes) -> int | None:
    """Nanoseconds of a TTL header: a Go duration or whole seconds, at least 1 s; NEVER; 0 if empty; None if invalid."""
    text = value.decode("utf-8", "replace")
    if not text:
        return 0
    if text.lower() == "never":
        return NEVER
    if text.isascii() and text.isdigit():
        ttl_ns = int(text) * SECOND_NS if len(text) <= 20 else None
    else:
        ttl_ns = parse_duration(text)
    return ttl_ns if ttl_ns is not None and SECOND_NS <= ttl_ns <= DURATION_NS_MAX else None


def is_removal(block: bytes) -> bool:
    """Whether a header block says that the subject is gone: a delete marker, or the purge of a key (ADR-48)."""
    return (MARKER_HEADER in block and get_header(block, MARKER_HEADER) is not None) or (
        KV_OPERATION in block and get_header(block, KV_OPERATION) == KV_PURGE
    )


def ttl_text(ttl_ns: int) -> bytes:
    """A TTL as a header value: whole seconds where possible."""
    seconds, rest_ns = divmod(ttl_ns, SECOND_NS)
    return b"%d" % seconds if not rest_ns else format_duration(ttl_ns).encode()


def marker_headers(ttl_ns: int) -> bytes:
    """The header block of a delete marker that itself lives for `ttl_ns`."""
    return build_headers(
        [
            (MARKER_HEADER, MARKER_REASON_AGE),
            (TTL_HEADER, format_duration(ttl_ns).encode()),
            (ROLLUP, ROLLUP_SUBJECT),
        ]
    )


class Deadlines:
    """Deadlines by sequence. The heap holds `deadline << 64 | seq`; entries of forgotten messages are passed over.

    Not `Moments`, which take half as much again: every message of a stream may have one, 180 bytes each.
    """

    def __init__(self) -> None:
        self._by_seq: dict[int, int] = {}
        self._heap: list[int] = []
        self._never: dict[int, None] = {}
        self._markers: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._by_seq)

    def add(self, seq: int, ts_ns: int, ttl_ns: int) -> None:
        """A message of time `ts_ns` is stored with this TTL."""
        if ttl_ns == NEVER:
            self._never[seq] = None
        else:
            self._by_seq[seq] = deadline_ns = ts_ns + ttl_ns
            heapq.heappush(self._heap, deadline_ns << 64 | seq)

    def add_marker(self, seq: int) -> None:
        """The message is a delete marker."""
        self._markers[seq] = None

    def forget(self, seq: int) -> None:
        """The message is gone."""
        if self._by_seq.pop(seq, None) is not None and len(self._heap) > 2 * len(self._by_seq) + 64:
            self._heap = [deadline_ns << 64 | seq for seq, deadline_ns in self._by_seq.items()]
            heapq.heapify(self._heap)
        self._never.pop(seq, None)
        self._markers.pop(seq, None)

    def forget_below(self, seq: int) -> None:
        """Every message below `seq` is gone."""
        for kept in (self._by_seq, self._never, self._markers):
            for gone in [one for one in kept if one < seq]:
                self.forget(gone)

    def is_never(self, seq: int) -> bool:
        """Whether the message is exempt from age."""
        return seq in self._never

    def is_marker(self, seq: int) -> bool:
        """Whether the message is a delete marker."""
        return seq in self._markers

    def next_deadline_ns(self) -> int | None:
        """The earliest deadline."""
        heap = self._heap
        while heap:
            deadline_ns, seq = heap[0] >> 64, heap[0] & 0xFFFF_FFFF_FFFF_FFFF
            if self._by_seq.get(seq) == deadline_ns:
                return deadline_ns
            heapq.heappop(heap)
        return None

    def due(self, now_ns: int, count_max: int) -> list[int]:
        """Messages whose time is over, earliest first; they stay until `forget`."""
        found: list[int] = []
        kept: list[int] = []
        heap = self._heap
        while heap and heap[0] >> 64 <= now_ns and len(found) < count_max:
            packed = heapq.heappop(heap)
            seq = packed & 0xFFFF_FFFF_FFFF_FFFF
            if self._by_seq.get(seq) == packed >> 64:
                found.append(seq)
                kept.append(packed)
        for packed in kept:
            heapq.heappush(heap, packed)
        return found

    def snapshot(self) -> tuple[list[tuple[int, int]], list[int], list[int]]:
        """(sequence and deadline of each, sequences that never end, markers)."""
        return list(self._by_seq.items()), list(self._never), list(self._markers)

    def restore(self, deadlines: list[tuple[int, int]], never: list[int], markers: list[int]) -> None:
        """Take over what `snapshot` gave."""
        self._by_seq = dict(deadlines)
        self._heap = [deadline_ns << 64 | seq for seq, deadline_ns in deadlines]
        heapq.heapify(self._heap)
        self._never = dict.fromkeys(never)
        self._markers = dict.fromkeys(markers)
