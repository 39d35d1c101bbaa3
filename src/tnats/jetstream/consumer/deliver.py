"""Deliveries: which messages go out next, to whom, and what is kept of that.

Messages go out in runs: the next ones of the stream, as many as the requests and bounds allow, in one effect and one
logged operation. Where each message has to be looked at (bytes bounds, pace, flow control, groups, the bound per
subject, a redelivery) a run is of one; there is one way to send. A reader that is behind gets nothing until it has
caught up, and messages that others may have go to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tnats.jetstream.consumer import state
from tnats.jetstream.consumer.ack_timers import AckTimers
from tnats.jetstream.consumer.acknowledge import Acknowledgements
from tnats.jetstream.consumer.acks import ack_reply, reply_prefix, reply_size_max
from tnats.jetstream.consumer.ahead import Ahead
from tnats.jetstream.consumer.config import AckPolicy, ConsumerConfig
from tnats.jetstream.consumer.core import Core
from tnats.jetstream.consumer.effects import Delivery, Status, status_block
from tnats.jetstream.consumer.push import FlowControl, Pace
from tnats.jetstream.consumer.state import stretches
from tnats.jetstream.consumer.subject_bound import SubjectBound
from tnats.jetstream.consumer.waiting import WaitingRequests
from tnats.jetstream.room import begin_within
from tnats.limits import (
    CONSUMER_BYTES_PER_PASS_MAX,
    CONSUMER_DELIVERIES_PER_PASS_MAX,
    CONSUMER_LETTERS_MAX,
    MESSAGE_HEADERS_BYTES_MAX,
)
from tnats.subjects.tokens import to_bytes
from tnats.wire.headers import EMPTY_BLOCK


class Deliveries:
    """See the module's text."""

    def __init__(
        self,
        core: Core,
        ahead: Ahead,
        timers: AckTimers,
        bound: SubjectBound,
        acks: Acknowledgements,
        waiting: WaitingRequests,
        room: Callable[[bytes], int | None],
        is_sending: Callable[[], bool],
        new_id: Callable[[], str],
    ) -> None:
        self._core = core
        self._ahead = ahead
        self._timers = timers
        self._bound = bound
        self._acks = acks
        self._waiting = waiting
        self._room = room
        self._is_sending = is_sending
        self._new_id = new_id
        self._ack_prefix = reply_prefix(core.identity.stream, core.identity.consumer)
        self._reply_size_max = reply_size_max(self._ack_prefix)
        self._flow_prefix = f"$JS.FC.{core.identity.stream}.{core.identity.consumer}.".encode()
        self.is_paused = False
        self.is_bound = False
        """Somebody listens on the deliver subject."""
        self.heartbeat_due_ns = 0
        """Of a push consumer."""
        self.flow = FlowControl()
        self.again_ns: int | None = None
        """When another pass could deliver, if nothing else happens before; None: none could."""
        self._bytes_left = 0
        """Of this pass."""
        self._is_held_up = False
        """The reader of a push consumer is behind."""

    def use(self, config: ConsumerConfig, now_ns: int) -> None:
        """Take over a configuration."""
        self._target = to_bytes(config.deliver_subject)
        self._pace = Pace(config)
        self._is_held_up = False
        self.heartbeat_due_ns = now_ns + config.idle_heartbeat_ns

    def bind(self, is_bound: bool, now_ns: int) -> None:
        """Somebody began, or nobody continues, to listen."""
        self.is_bound = is_bound
        self.heartbeat_due_ns = now_ns + self._core.config.idle_heartbeat_ns
        self.flow = FlowControl()

    # ------------------------------------------------------------------ a pass

    def run(self, now_ns: int) -> None:
        """Send what may be sent, up to the bounds of a pass."""
        waiting, is_push = self._waiting, self._core.is_push
        self.again_ns = None
        if self.is_paused:
            waiting.end_no_wait(held_up=True)
        if self._is_sending():
            return
        left, self._bytes_left = CONSUMER_DELIVERIES_PER_PASS_MAX, CONSUMER_BYTES_PER_PASS_MAX
        while self._is_wanted():
            if left <= 0 or self._bytes_left <= 0:
                self.again_ns = now_ns
                break
            count_max = left if is_push else min(left, waiting.wanted_count())
            seqs = self._next_run(count_max if self._pace.is_free else 1)
            if not seqs:
                waiting.end_no_wait(held_up=True)
                break
            sent_count = self._push(seqs, now_ns) if is_push else self._serve(seqs, now_ns)
            if not sent_count:
                break
            left -= sent_count

    def caught_up(self, subject: bytes) -> None:
        """There may be room again for what is sent to `subject`, and there was none."""
        if subject == self._target:
            self._is_held_up = False
        self._waiting.release(subject)

    def _fitting(self, seqs: Sequence[int], room: int) -> Sequence[int]:
        """As many of a run as begin within what readers may be sent and the pass has left: at least one. They count."""
        sizes, beside = self._core.index.sizes_of(seqs), self._reply_size_max
        room = min(self._bytes_left, room)
        count = begin_within(sizes, room, beside=beside)
        self._bytes_left = room - sum(sizes[:count]) - beside * count
        return seqs[:count]

    def _is_wanted(self) -> bool:
        return not self.is_paused and bool(self.is_bound if self._core.is_push else self._waiting)

    # ------------------------------------------------------------------ which messages

    def _next_run(self, count_max: int) -> Sequence[int]:
        """The next messages to send: one given back or overdue, then one released, then new ones; empty: none."""
        core = self._core
        if len(core.state.outbox) >= CONSUMER_LETTERS_MAX:
            return ()
        for ready in (self._timers.ready, self._bound.released):
            while ready:
                seq = next(iter(ready))
                if core.index.subject_of(seq) is not None:
                    return (seq,)
                self._acks.gone(seq)
                ready.pop(seq, None)
        if core.tracks_acks and core.config.max_ack_pending > 0:
            count_max = min(count_max, core.config.max_ack_pending - len(core.state.pending))
            if count_max <= 0:
                return ()
        if not self._bound.max_pending:
            return self._ahead.peek_run(count_max)
        seq = self._ahead.peek()
        while seq and self._bound.holds_back(seq):
            if seq not in core.state.held:
                return ()
            seq = self._ahead.peek()
        return (seq,) if seq else ()

    # ------------------------------------------------------------------ to whom

    def _serve(self, seqs: Sequence[int], now_ns: int) -> int:
        """Send to waiting requests; how many messages were sent, 0 if none may be now."""
        waiting = self._waiting
        if not self._pace.is_free or not waiting.are_in_turns:
            return self._serve_one(seqs[0], now_ns)
        turns, room = waiting.turns(len(seqs))
        if not turns:
            return 0
        seqs = self._fitting(seqs, room)
        turns = turns[: len(seqs)]
        count = len(seqs)
        for place, request in enumerate(turns):
            count = min(count, place + len(turns) * request.messages_left)
        targets = tuple(request.reply for request in turns)
        if len(set(targets)) == 1:
            targets = targets[:1]
        self._send(self._delivery(targets, seqs[:count]), now_ns)
        waiting.served_in_turns(turns, count, now_ns)
        return count

    def _serve_one(self, seq: int, now_ns: int) -> int:
        """Send to the request that may have the message; 1, or 0 if none may."""
        core, waiting = self._core, self._waiting
        while True:
            request, room = waiting.next_request()
            if request is None:
                waiting.end_no_wait(held_up=False)
                return 0
            ts_ns = core.index.time_of(seq) or 0
            if not self._may_send_at(ts_ns, seq, now_ns):
                return 0
            delivery = self._delivery((request.reply,), (seq,))
            size = self._size_of(delivery)
            if request.bytes_left and size > request.bytes_left:
                waiting.end(request, "409 Message Size Exceeds MaxBytes")
                continue
            break
        self._fitting((seq,), room)
        delivery.pin_id = waiting.pin(request, now_ns)
        self._send(delivery, now_ns)
        self._pace.sent(ts_ns, size, now_ns)
        waiting.served(request, size, now_ns)
        return 1

    def _push(self, seqs: Sequence[int], now_ns: int) -> int:
        """Send to the deliver subject; how many messages were sent, 0 if they have to wait."""
        core = self._core
        if self._is_held_up or not self._flow_is_open():
            return 0
        room = self._room(self._target)
        if not room:
            self._is_held_up = room == 0
            if self._is_held_up:
                core.effects.behind.append(self._target)
            return 0
        if not self._pace.is_free:
            ts_ns = core.index.time_of(seqs[0]) or 0
            if not self._may_send_at(ts_ns, seqs[0], now_ns):
                return 0
            self._pace.sent(ts_ns, self._size_of(self._delivery((self._target,), seqs)), now_ns)
        wants_answer = False
        seqs = self._fitting(seqs, room)
        if core.config.flow_control:
            seqs, wants_answer = self._flowing(seqs)
        self._send(self._delivery((self._target,), seqs), now_ns)
        self.heartbeat_due_ns = now_ns + core.config.idle_heartbeat_ns
        if wants_answer or (core.config.ack_policy == AckPolicy.FLOW_CONTROL and self._has_all_pending()):
            self.ask_for_answer()
        return len(seqs)

    def _has_all_pending(self) -> bool:
        return len(self._core.state.pending) >= self._core.config.max_ack_pending

    def ask_for_answer(self) -> None:
        """Request a sign of life, unless one is awaited."""
        if not self.flow.request_subject:
            subject = self._flow_prefix + self._new_id().encode()
            self.flow.request(subject)
            self._core.effects.sends.append(Status(self._target, status_block("100 FlowControl Request"), subject))

    def _flowing(self, seqs: Sequence[int]) -> tuple[Sequence[int], bool]:
        """Those that fit the window, which is open, and whether the last of them is to be answered."""
        flow, delivery = self.flow, self._delivery((self._target,), seqs)
        reply_size = len(ack_reply(self._ack_prefix, delivery, self._core.index.time_of(seqs[0]) or 0))
        for count, size in enumerate(self._core.index.sizes_of(seqs), start=1):
            flow.sent(size + reply_size)
            if flow.wants_request() or not flow.is_open():
                return seqs[:count], flow.wants_request()
        return seqs, False

    def _flow_is_open(self) -> bool:
        return not self._core.config.flow_control or self.flow.is_open()

    def _may_send_at(self, ts_ns: int, seq: int, now_ns: int) -> bool:
        if seq in self._timers.ready:
            return True
        earliest_ns = self._pace.earliest_ns(ts_ns)
        if earliest_ns <= now_ns:
            return True
        self.again_ns = earliest_ns
        return False

    # ------------------------------------------------------------------ sending

    def _delivery(self, targets: tuple[bytes, ...], seqs: Sequence[int]) -> Delivery:
        """The next messages."""
        current, seq = self._core.state, seqs[0]
        is_again = seq in self._timers.ready
        return Delivery(
            targets,
            seqs,
            current.deliveries_of(seq) + 1 if is_again else 1,
            current.delivered_consumer_seq + 1,
            self._ahead.undelivered() - (not is_again),
            self._core.config.headers_only,
        )

    def _size_of(self, delivery: Delivery) -> int:
        """Bytes that a delivery of one message counts: subject, reply, headers and, if it is sent, payload."""
        index, seq = self._core.index, delivery.seqs[0]
        size = index.sizes_of((seq,))[0]
        if delivery.headers_only:
            size = self._bare_size(seq, size)
        return size + len(ack_reply(self._ack_prefix, delivery, index.time_of(seq) or 0))

    def _bare_size(self, seq: int, size: int) -> int:
        """Bytes of subject and headers of a message of `size` bytes that is sent without its payload."""
        index = self._core.index
        subject_size, headers_size = len(index.subject_of(seq) or b""), index.headers_size_of(seq)
        if headers_size is None:  # not worth a wait: the most that they may be
            return min(size, subject_size + MESSAGE_HEADERS_BYTES_MAX)
        payload_size = size - subject_size - headers_size
        return subject_size + (headers_size or len(EMPTY_BLOCK)) + len(b"Nats-Msg-Size: %d\r\n" % payload_size)

    def _send(self, delivery: Delivery, now_ns: int) -> None:
        """Have messages sent, and note it: in the place where we are, the log, and the timers."""
        core, seqs = self._core, delivery.seqs
        first = seqs[0]
        is_again = first in self._timers.ready
        if is_again:
            del self._timers.ready[first]
        else:
            if first not in core.state.held:
                self._ahead.passed(seqs)
            self._bound.released.pop(first, None)
        wall_ns = now_ns + core.wall_offset_ns
        consumer_seq = core.state.delivered_consumer_seq + 1
        for start, count in stretches(seqs):
            core.op(state.DELIVERED, start, count, consumer_seq, wall_ns)
            consumer_seq += count
        if core.tracks_acks:
            if not is_again:
                self._bound.count(first)
            if core.config.ack_policy != AckPolicy.FLOW_CONTROL:
                wait_ns = core.ack_wait_ns(core.state.deliveries_of(first))
                self._timers.set_run(first, seqs[-1], now_ns, wait_ns)
        else:
            core.effects.done += seqs
        core.last_delivered_ns = wall_ns
        core.last_activity_ns = now_ns
        core.effects.sends.append(delivery)
