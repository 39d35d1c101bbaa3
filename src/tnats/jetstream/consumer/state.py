"""What a consumer remembers: places, pending messages, redelivery counts; the changes it logs; its snapshot.

Every change is one of a few operations. The leader makes them on its state as it decides and logs their bytes;
followers (and recovery) make the same ones from the log. What an operation does depends on the state alone.

Snapshot layout, little-endian: version byte; five u64 (delivered consumer and stream sequence, ack floor consumer
and stream sequence, `per_subject_until`); four u32 counts; per pending message u64 stream, u64 consumer sequence,
i64 sent; per redelivered message u64 sequence, u32 deliveries; per held message u64 sequence; letters.

Log layout: version byte; u32 count of letters; letters (see `letters`); 29 bytes per operation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from tnats.errors import InvariantBroken
from tnats.jetstream.consumer.hot import PendingWindow
from tnats.jetstream.consumer.letters import Letter, decode_letters, encode_letters

FORMAT_VERSION = 3

DELIVERED, ACKED, ACKED_ALL, GIVEN_UP, HELD, RESET, SKIPPED, LETTER_STORED, PURGED = range(1, 10)
"""Kinds of operations: sent (again); acknowledged; acknowledged with all below; no further deliveries; passed over
for now; begin again at a sequence; gone from the stream; its dead letter is stored; all below a sequence are gone."""

Op = tuple[int, int, int, int, int]
"""(kind, stream sequence, count, consumer sequence, sent ns); what a kind does not need is 0.

DELIVERED and ACKED are about `count` consecutive sequences, those of first deliveries in the order of the consumer
sequences that begin with the given one; the others are about one. RESET has the consumer sequence to count on behind.
"""

_OP = struct.Struct("<BQIQq")
_HEAD = struct.Struct("<BQQQQQIIII")
_LOG_HEAD = struct.Struct("<BI")
_PENDING = struct.Struct("<QQq")
_REDELIVERED = struct.Struct("<QI")


class ConsumerState:
    """The persistent state of one consumer."""

    def __init__(self, start_seq: int = 1, per_subject_until: int = 0) -> None:
        """`start_seq`: where delivery begins. `per_subject_until`: up to here only each subject's last is delivered."""
        self.delivered_consumer_seq = 0
        self.delivered_stream_seq = start_seq - 1
        self.floor_consumer_seq = 0
        self.floor_stream_seq = start_seq - 1
        self.per_subject_until = per_subject_until
        self.pending = PendingWindow()
        self.redelivered: dict[int, int] = {}
        """Deliveries of messages that were sent more than once."""
        self.held: dict[int, None] = {}
        """Messages passed over because their subject has enough pending ones."""
        self.outbox: dict[int, Letter] = {}
        """Dead letters that no stream has stored yet, by the sequence of their message."""

    def deliveries_of(self, seq: int) -> int:
        """How often a delivered message was sent."""
        return self.redelivered.get(seq, 1)

    # ------------------------------------------------------------------ operations

    def replay(self, data: bytes, *, tracks_acks: bool) -> list[int]:
        """Make the changes of a log entry (`encode_ops`) again; the messages that they were done with.

        Raises InvariantBroken for another format.
        """
        letters, ops = decode_ops(data)
        for letter in letters:
            self.outbox.setdefault(letter.seq, letter)
        done: list[int] = []
        for op in ops:
            if op[0] == ACKED:
                done += range(op[1], op[1] + op[2])
            elif op[0] == ACKED_ALL:
                done += self.pending.seqs_up_to(op[1])
            elif op[0] == LETTER_STORED:
                done.append(op[1])
            self.apply(op, tracks_acks=tracks_acks)
        return done

    def apply(self, op: Op, *, tracks_acks: bool) -> None:
        """Make one change. `tracks_acks`: the ack policy is not "none"."""
        kind, seq, count, consumer_seq, sent_ns = op
        if kind == DELIVERED:
            self.deliver(seq, count, consumer_seq, sent_ns, tracks_acks=tracks_acks)
        elif kind == ACKED:
            self.ack(seq, count)
        elif kind == ACKED_ALL:
            self.ack_all(seq)
        elif kind == GIVEN_UP:
            self.give_up(seq)
        elif kind == HELD:
            self.hold(seq)
        elif kind == RESET:
            self.reset(seq, consumer_seq)
        elif kind == SKIPPED:
            self.skip(seq)
        elif kind == LETTER_STORED:
            self.outbox.pop(seq, None)
        elif kind == PURGED:
            self.purge(seq)
        else:
            raise InvariantBroken(f"consumer operation of unknown kind {kind}")

    def deliver(self, seq: int, count: int, consumer_seq: int, sent_ns: int, *, tracks_acks: bool) -> None:
        """Messages were sent: several for the first time, or one, which may have been held or be pending."""
        self.delivered_consumer_seq = max(self.delivered_consumer_seq, consumer_seq + count - 1)
        if seq > self.delivered_stream_seq:
            self.delivered_stream_seq = seq + count - 1
            if tracks_acks:
                self.pending.add_run(seq, count, consumer_seq, sent_ns)
        else:
            at = self.pending.find(seq)
            if at >= 0:
                self.pending.touch(at, sent_ns)
                self.redelivered[seq] = self.redelivered.get(seq, 1) + 1
                return
            self.held.pop(seq, None)
            if tracks_acks:
                self.pending.add(seq, consumer_seq, sent_ns)
        if not tracks_acks:
            self._settle_floor()

    def ack(self, seq: int, count: int = 1) -> bool:
        """The pending ones of `count` consecutive messages are acknowledged; False if there are none."""
        if not self.pending.remove_run(seq, count):
            return False
        if self.redelivered:
            for one in range(seq, seq + count):
                self.redelivered.pop(one, None)
        self._settle_floor()
        return True

    def ack_all(self, seq: int) -> list[int]:
        """All pending messages up to `seq` are acknowledged; which they were."""
        acked = self.pending.seqs_up_to(seq)
        if acked:
            self.pending.remove_run(acked[0], seq - acked[0] + 1)
            for one in acked:
                self.redelivered.pop(one, None)
            self._settle_floor()
        return acked

    def give_up(self, seq: int) -> None:
        """No further deliveries of a pending message. The floor moves on with the next acknowledgement."""
        self.pending.remove_run(seq, 1)

    def await_again(self, seqs: Sequence[int], consumer_seq: int) -> None:
        """Nothing is known of these messages but that they may have been delivered, from `consumer_seq` on."""
        for seq in seqs:
            self.pending.add(seq, max(consumer_seq, 1), 0)
        self.floor_stream_seq = min(self.floor_stream_seq, seqs[0] - 1)
        self.floor_consumer_seq = min(self.floor_consumer_seq, max(consumer_seq - 1, 0))

    def skip(self, seq: int) -> None:
        """A pending or held message is gone from the stream."""
        self.held.pop(seq, None)
        if not self.ack(seq):
            self.redelivered.pop(seq, None)

    def purge(self, begin_seq: int) -> None:
        """All below `begin_seq` are gone from the stream: the consumer goes on there, wherever it was before that."""
        gone = self.pending.seqs_up_to(begin_seq - 1)
        if gone:
            self.pending.remove_run(gone[0], begin_seq - gone[0])
        for seq in [seq for seq in self.redelivered if seq < begin_seq]:
            del self.redelivered[seq]
        for seq in [seq for seq in self.held if seq < begin_seq]:
            del self.held[seq]
        self.delivered_stream_seq = max(self.delivered_stream_seq, begin_seq - 1)
        self._settle_floor()

    def hold(self, seq: int) -> None:
        """A message was passed over."""
        self.held[seq] = None
        self.delivered_stream_seq = max(self.delivered_stream_seq, seq)

    def reset(self, seq: int, consumer_seq: int) -> None:
        """Begin again at `seq`, as a new consumer would, with deliveries that count on behind `consumer_seq`."""
        self.delivered_stream_seq = self.floor_stream_seq = seq - 1
        self.delivered_consumer_seq = self.floor_consumer_seq = consumer_seq
        self.pending = PendingWindow()
        self.redelivered.clear()
        self.held.clear()

    def _settle_floor(self) -> None:
        first = self.pending.first()
        if first is None:
            stream_seq, consumer_seq = self.delivered_stream_seq, self.delivered_consumer_seq
        else:
            stream_seq, consumer_seq = first[0] - 1, first[1] - 1
        if self.held:
            stream_seq = min(stream_seq, min(self.held) - 1)
        self.floor_stream_seq = max(self.floor_stream_seq, stream_seq)
        self.floor_consumer_seq = max(self.floor_consumer_seq, consumer_seq)

    # ------------------------------------------------------------------ bytes

    def encode(self) -> bytes:
        """The snapshot."""
        parts = [
            _HEAD.pack(
                FORMAT_VERSION,
                self.delivered_consumer_seq,
                self.delivered_stream_seq,
                self.floor_consumer_seq,
                self.floor_stream_seq,
                self.per_subject_until,
                len(self.pending),
                len(self.redelivered),
                len(self.held),
                len(self.outbox),
            )
        ]
        parts.extend(_PENDING.pack(*item) for item in self.pending.items())
        parts.extend(_REDELIVERED.pack(*item) for item in self.redelivered.items())
        parts.append(struct.pack(f"<{len(self.held)}Q", *self.held))
        parts.append(encode_letters(self.outbox.values()))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> ConsumerState:
        """The state of a snapshot. Raises InvariantBroken for another format: snapshots are checksummed elsewhere."""
        if data[0] != FORMAT_VERSION:
            raise InvariantBroken(f"consumer snapshot of format {data[0]}; this release reads format {FORMAT_VERSION}")
        state = cls()
        (
            _,
            state.delivered_consumer_seq,
            state.delivered_stream_seq,
            state.floor_consumer_seq,
            state.floor_stream_seq,
            state.per_subject_until,
            pending_count,
            redelivered_count,
            held_count,
            letter_count,
        ) = _HEAD.unpack_from(data)
        at = _HEAD.size
        for _ in range(pending_count):
            state.pending.add(*_PENDING.unpack_from(data, at))
            at += _PENDING.size
        for _ in range(redelivered_count):
            seq, count = _REDELIVERED.unpack_from(data, at)
            state.redelivered[seq] = count
            at += _REDELIVERED.size
        state.held = dict.fromkeys(struct.unpack_from(f"<{held_count}Q", data, at))
        letters, _ = decode_letters(data, at + 8 * held_count, letter_count)
        state.outbox = {letter.seq: letter for letter in letters}
        return state


def encode_ops(ops: Iterable[Op], letters: Sequence[Letter] = ()) -> bytes:
    """The bytes of operations, and of the letters that they make, as one log entry."""
    head = _LOG_HEAD.pack(FORMAT_VERSION, len(letters))
    return head + encode_letters(letters) + b"".join([_OP.pack(*op) for op in ops])


def decode_ops(data: bytes) -> tuple[list[Letter], list[Op]]:
    """The letters and operations that `encode_ops` wrote."""
    version, letter_count = _LOG_HEAD.unpack_from(data)
    if version != FORMAT_VERSION:
        raise InvariantBroken(f"consumer log of format {version}; this release reads format {FORMAT_VERSION}")
    letters, at = decode_letters(data, _LOG_HEAD.size, letter_count)
    return letters, [_OP.unpack_from(data, at) for at in range(at, len(data), _OP.size)]


def stretches(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Rising sequences as (first, count) of each stretch of consecutive ones."""
    first, last = seqs[0], seqs[-1]
    if last - first == len(seqs) - 1:
        return [(first, len(seqs))]
    found = []
    count = 0
    for seq in seqs:
        if seq != first + count:
            found.append((first, count))
            first, count = seq, 0
        count += 1
    found.append((first, count))
    return found
