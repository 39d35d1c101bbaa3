"""The hot loops of a consumer: pending messages, deliveries into bundles, acknowledgements out of bundles.

Purpose. What happens once per message and nothing else; what it means is decided in `machine`. One source, two
builds, as `tnats.broker.hot`: compiled with the types of `hot.pxd`, or the ordinary Python that it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from tnats.errors import InvariantBroken
from tnats.jetstream.consumer.acks import NUMBER_DIGITS_MAX, NUMBERS_BYTES_MAX, AckRun, Said
from tnats.storage.message_log import Stored
from tnats.wire.bundle import HEAD_SIZE

try:
    import cython
except ImportError:  # interpreted, where nobody compiles
    from tnats import speedups as cython

if not cython.compiled:
    from tnats.memory import append, append_decimal, begins, decimal, find, new_stage, pin, set_word, word

CAPACITY_MIN = 8
CAPACITY_KEPT = 128
"""So much room is kept, however few messages are pending: 4 KB of a consumer."""
PREFIX_BYTES = 8
"""Of "$JS.ACK."."""
EMPTY_HEAD = bytes(HEAD_SIZE)
DOT = 46
ACK = b"+ACK"
OK = b"+OK"
SPACE = b" "
DOT_TEXT = b"."
LINE_END = b"\r\n"


class PendingWindow:
    """Messages that await their acknowledgement, by stream sequence: 32 bytes each.

    Per message: stream sequence, consumer sequence of its first delivery, when it was last sent, when it is due.
    `sent` is wall-clock time and is persisted; `due` is the leader's affair (monotonic clock, 0: none set).

    Sequences are mostly added in rising order and mostly removed from the front, so this is four parallel arrays of
    which the places from `_head` to `_end` are in use, with holes between. They are packed when they are full, or four
    times as large as what is pending: of many consumers most have nothing in hand.
    """

    __slots__ = ("_capacity", "_consumer_seqs", "_count", "_due", "_end", "_head", "_hint", "_sent", "_seqs")

    def __init__(self) -> None:
        self._head = 0
        self._end = 0
        self._count = 0
        self._hint = 0
        """Where the next one looked for stands, if they are looked for in order."""
        self._capacity = CAPACITY_MIN
        self._seqs = array("q", bytes(8 * CAPACITY_MIN))
        self._consumer_seqs = array("q", bytes(8 * CAPACITY_MIN))  # 0: a hole
        self._sent = array("q", bytes(8 * CAPACITY_MIN))
        self._due = array("q", bytes(8 * CAPACITY_MIN))

    def __len__(self) -> int:
        return self._count

    def __contains__(self, seq: int) -> bool:
        return self.find(seq) >= 0

    # ------------------------------------------------------------------ one message

    def add(self, seq: int, consumer_seq: int, sent_ns: int, due_ns: int = 0) -> None:
        """A message was sent for the first time. `consumer_seq` is at least 1."""
        if self._end == self._capacity:
            self.make_room(1)
        at = self._end
        if at > self._head and seq <= self._seqs[at - 1]:
            at = self.lower(seq)
        if at < self._end and self._seqs[at] == seq:
            self._count += not self._consumer_seqs[at]
        else:
            index = self._end
            while index > at:
                self._seqs[index] = self._seqs[index - 1]
                self._consumer_seqs[index] = self._consumer_seqs[index - 1]
                self._sent[index] = self._sent[index - 1]
                self._due[index] = self._due[index - 1]
                index -= 1
            self._end += 1
            self._count += 1
        self._seqs[at] = seq
        self._consumer_seqs[at] = consumer_seq
        self._sent[at] = sent_ns
        self._due[at] = due_ns

    def find(self, seq: int) -> int:
        """Where the message stands, for the methods below (until the next change); -1 if it is not pending."""
        at = self._hint
        if at < self._head or at >= self._end or self._seqs[at] != seq:
            at = self.lower(seq)
        if at < self._end and self._seqs[at] == seq and self._consumer_seqs[at]:
            self._hint = at + 1
            return at
        return -1

    def lower(self, seq: int) -> int:
        """The first place, a hole or not, whose sequence is not below `seq`."""
        low = self._head
        high = self._end
        while low < high:
            middle = (low + high) // 2
            if self._seqs[middle] < seq:
                low = middle + 1
            else:
                high = middle
        return low

    def consumer_seq_at(self, at: int) -> int:
        """The consumer sequence of its first delivery."""
        self.check(at)
        return self._consumer_seqs[at]

    def sent_at(self, at: int) -> int:
        """When it was last sent, wall clock."""
        self.check(at)
        return self._sent[at]

    def due_at(self, at: int) -> int:
        """When it is due again, monotonic clock."""
        self.check(at)
        return self._due[at]

    def touch(self, at: int, sent_ns: int) -> None:
        """It was sent again; nothing is set yet for when it is due."""
        self.check(at)
        self._sent[at] = sent_ns
        self._due[at] = 0

    def set_due(self, at: int, due_ns: int) -> None:
        """It is due at another time."""
        self.check(at)
        self._due[at] = due_ns

    def check(self, at: int) -> None:
        """Compiled, a place that is none would be somebody else's memory."""
        if at < self._head or at >= self._end:
            raise InvariantBroken(f"place {at} of a window from {self._head} to {self._end}")

    # ------------------------------------------------------------------ runs

    def add_run(self, first: int, count: int, consumer_seq: int, sent_ns: int) -> None:
        """`add` for `count` messages of consecutive sequences, above all that were ever pending."""
        self.make_room(count)
        at = self._end
        for offset in range(count):
            self._seqs[at + offset] = first + offset
            self._consumer_seqs[at + offset] = consumer_seq + offset
            self._sent[at + offset] = sent_ns
            self._due[at + offset] = 0
        self._end = at + count
        self._count += count

    def remove_run(self, first: int, count: int) -> int:
        """Those of `count` consecutive sequences that are pending are so no more; how many it were."""
        at = self._hint - 1
        if at < self._head or at >= self._end or self._seqs[at] != first:
            at = self.lower(first)
        stop = first + count
        removed = 0
        while at < self._end and self._seqs[at] < stop:
            if self._consumer_seqs[at]:
                self._consumer_seqs[at] = 0
                removed += 1
            at += 1
        self._count -= removed
        at = self._head
        while at < self._end and not self._consumer_seqs[at]:
            at += 1
        self._head = at
        if self._capacity > CAPACITY_KEPT and self._capacity > 4 * self._count:
            self.pack(0)
        return removed

    def set_due_run(self, first: int, last: int, due_ns: int) -> None:
        """The pending messages from `first` to `last` are due at `due_ns`."""
        at = self.lower(first)
        while at < self._end and self._seqs[at] <= last:
            self._due[at] = due_ns
            at += 1

    def among(self, seqs: list[int], consumer_seqs: list[int]) -> list[int]:
        """Which of `seqs`, each with the consumer sequence of a delivery, are pending since then: rising, each once."""
        found = []
        last = -1
        for place in range(len(seqs)):
            seq = seqs[place]
            if seq <= last:
                latest: dict[int, int] = {}
                for seq, consumer_seq in sorted(zip(seqs, consumer_seqs, strict=True)):
                    latest[seq] = consumer_seq
                return self.among(list(latest), list(latest.values()))
            last = seq
            at = self.find(seq)
            if at >= 0 and self._consumer_seqs[at] <= consumer_seqs[place]:
                found.append(seq)
        return found

    def due_until(self, first: int, last: int, now_ns: int) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Of the pending messages from `first` to `last`: those that are due, and when the others will be.

        The latter as (due, first, last) of each stretch that is due at one time.
        """
        due = []
        later = []
        at = self.lower(first)
        stretch_due_ns = 0
        stretch_first = 0
        stretch_last = 0
        while at < self._end and self._seqs[at] <= last:
            due_ns = self._due[at]
            if due_ns and self._consumer_seqs[at]:
                seq = self._seqs[at]
                if due_ns <= now_ns:
                    due.append(seq)
                else:
                    if due_ns != stretch_due_ns:
                        if stretch_due_ns:
                            later.append((stretch_due_ns, stretch_first, stretch_last))
                        stretch_due_ns = due_ns
                        stretch_first = seq
                    stretch_last = seq
            at += 1
        if stretch_due_ns:
            later.append((stretch_due_ns, stretch_first, stretch_last))
        return due, later

    # ------------------------------------------------------------------ room

    def make_room(self, count: int) -> None:
        """Have room for `count` more behind the last."""
        if self._end + count > self._capacity:
            self.pack(count)

    def pack(self, count: int) -> None:
        """Leave the holes out, in arrays of a size that fits what is pending and `count` more."""
        capacity = CAPACITY_MIN
        while capacity < 2 * (self._count + count):
            capacity *= 2
        seqs = array("q", bytes(8 * capacity))
        consumer_seqs = array("q", bytes(8 * capacity))
        sent = array("q", bytes(8 * capacity))
        due = array("q", bytes(8 * capacity))
        to = 0
        for at in range(self._head, self._end):
            if self._consumer_seqs[at]:
                seqs[to] = self._seqs[at]
                consumer_seqs[to] = self._consumer_seqs[at]
                sent[to] = self._sent[at]
                due[to] = self._due[at]
                to += 1
        self._seqs = seqs
        self._consumer_seqs = consumer_seqs
        self._sent = sent
        self._due = due
        self._capacity = capacity
        self._head = 0
        self._hint = 0
        self._end = to

    # ------------------------------------------------------------------ all

    def first(self) -> tuple[int, int] | None:
        """(stream sequence, consumer sequence) of the oldest message."""
        return (self._seqs[self._head], self._consumer_seqs[self._head]) if self._count else None

    def seqs(self) -> list[int]:
        """The stream sequences, rising."""
        return [seq for seq, _, _ in self.items()]

    def seqs_up_to(self, last: int) -> list[int]:
        """The stream sequences up to `last`, rising."""
        found = []
        at = self._head
        while at < self._end and self._seqs[at] <= last:
            if self._consumer_seqs[at]:
                found.append(self._seqs[at])
            at += 1
        return found

    def items(self) -> Iterator[tuple[int, int, int]]:
        """(stream sequence, consumer sequence, sent) of each, rising; nothing may change meanwhile."""
        for at in range(self._head, self._end):
            if self._consumer_seqs[at]:
                yield self._seqs[at], self._consumer_seqs[at], self._sent[at]


def bundle_of(
    prefix: bytes, deliveries: int, consumer_seq: int, pending: int, step: int, messages: list[Stored | None]
) -> bytearray:
    """Messages of the stream as a bundle of deliveries.

    `prefix` begins their reply subjects; the first one has `consumer_seq` and leaves `pending` messages behind it,
    each further one `step` more and less. None is a message that is gone.
    """
    prefix_size = len(prefix)
    capacity = 0
    for message in messages:
        if message is not None:
            _, _, subject, headers, payload = message
            capacity += HEAD_SIZE + len(subject) + prefix_size + NUMBERS_BYTES_MAX + len(headers) + len(payload)
    bundle = new_stage(capacity)
    used = 0
    for message in messages:
        if message is not None:
            seq, time_ns, subject, headers, payload = message
            head = used
            start = used + HEAD_SIZE + len(subject)
            append(bundle, used, EMPTY_HEAD, 0, HEAD_SIZE)
            append(bundle, used + HEAD_SIZE, subject, 0, len(subject))
            append(bundle, start, prefix, 0, prefix_size)
            used = append_decimal(bundle, start + prefix_size, deliveries)
            append(bundle, used, DOT_TEXT, 0, 1)
            used = append_decimal(bundle, used + 1, seq)
            append(bundle, used, DOT_TEXT, 0, 1)
            used = append_decimal(bundle, used + 1, consumer_seq)
            append(bundle, used, DOT_TEXT, 0, 1)
            used = append_decimal(bundle, used + 1, time_ns)
            append(bundle, used, DOT_TEXT, 0, 1)
            used = append_decimal(bundle, used + 1, pending if pending > 0 else 0)
            reply_size = used - start
            size = len(headers) + len(payload)
            append(bundle, used, SPACE, 0, 1)
            used += 1
            if len(headers):
                used = append_decimal(bundle, used, len(headers))
                append(bundle, used, SPACE, 0, 1)
                used += 1
            used = append_decimal(bundle, used, size)
            append(bundle, used, LINE_END, 0, 2)
            append(bundle, used + 2, headers, 0, len(headers))
            append(bundle, used + 2 + len(headers), payload, 0, len(payload))
            used += 2 + size
            append(bundle, used, LINE_END, 0, 2)
            used += 2
            set_word(bundle, head, len(subject))
            set_word(bundle, head + 4, reply_size)
            set_word(bundle, head + 8, len(headers))
            set_word(bundle, head + 12, size)
            set_word(bundle, head + 16, used - start)
        consumer_seq += step
        pending -= step
    del bundle[used:]
    return bundle


def read_acks(bundle: bytearray) -> list[AckRun | Said]:
    """What a bundle of messages under "$JS.ACK." says, consumer by consumer in the order in which it was said."""
    items: list[AckRun | Said] = []
    runs: dict[bytes, AckRun] = {}
    run = None
    prefix = b""
    prefix_size = 0
    seqs: list[int] = []
    consumer_seqs: list[int] = []
    end = len(bundle)
    data = pin(bundle, end)
    at = 0
    while at < end:
        start = at + HEAD_SIZE
        tail = start + word(data, at)
        reply_size = word(data, at + 4)
        header_size = word(data, at + 8)
        size = word(data, at + 12)
        at = tail + word(data, at + 16)
        body = at - 2 - size
        is_plain = not header_size and (
            not size or (size == 4 and begins(data, body, at, ACK, 4)) or (size == 3 and begins(data, body, at, OK, 3))
        )
        if is_plain:
            is_known = prefix_size > 0 and begins(data, start, tail, prefix, prefix_size)
            if is_known:
                numbers = start + prefix_size
            else:
                numbers = find(data, DOT, start + PREFIX_BYTES, tail) + 1
                if numbers:
                    numbers = find(data, DOT, numbers, tail) + 1
            # <deliveries>.<stream seq>.<consumer seq>.<time>.<pending>, and nothing behind it
            first = find(data, DOT, numbers, tail) if numbers else -1
            second = find(data, DOT, first + 1, tail) if first >= 0 else -1
            third = find(data, DOT, second + 1, tail) if second >= 0 else -1
            fourth = find(data, DOT, third + 1, tail) if third >= 0 else -1
            is_plain = fourth >= 0 and find(data, DOT, fourth + 1, tail) < 0
            if is_plain:
                seq = decimal(data, first + 1, second, NUMBER_DIGITS_MAX)
                consumer_seq = decimal(data, second + 1, third, NUMBER_DIGITS_MAX)
                is_plain = seq >= 0 and consumer_seq >= 0 and decimal(data, numbers, first, NUMBER_DIGITS_MAX) >= 0
        if not is_plain:
            runs.clear()
            prefix_size = 0
            items.append(Said(data[start:tail], data[tail : tail + reply_size], data[body + header_size : at - 2]))
            continue
        if not is_known:
            prefix = data[start:numbers]
            prefix_size = numbers - start
            run = runs.get(prefix)
            if run is None:
                run = runs[prefix] = AckRun(prefix[: prefix_size - 1])
                items.append(run)
            seqs = run.seqs
            consumer_seqs = run.consumer_seqs
        seqs.append(seq)
        consumer_seqs.append(consumer_seq)
        if reply_size:
            assert run is not None
            run.replies.append((seq, consumer_seq, data[tail : tail + reply_size]))
    return items
