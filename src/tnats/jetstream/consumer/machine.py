"""The consumer machine: what to deliver to whom and when, and what acknowledgements mean. The leader runs it.

Purpose. Between a stream's index, a consumer's persistent state (`ConsumerState`) and its clients' requests it
decides deliveries, redeliveries, status messages, and log operations. Whoever hosts it reads the messages and sends.

Theory. A message is new (at or above the scan position), held (its subject has enough unacknowledged ones), pending
(sent, waiting for its ack), ready (its time is over or it was given back: to be sent again before anything new), or
done. Timers of pending messages live in a heap of `due << 64 | sequence`, one entry each, put back if the due time
moved on meanwhile. Each method returns `Effects`; the state has already changed when it returns, so effects must
be carried out in order. An ack's confirmation waits until its operation is durable; deliveries do not.

Clocks. `now_ns` is the monotonic clock; `wall_offset_ns` added to it gives wall time, for what is persisted or
compared with configured times.

The host's duties: one machine per leadership over the applied state; call `stream_advanced` when messages were
stored, `stream_removed` or `stream_purged` when some went, `pull`, `ack`, `flow_answered` for what clients send,
`tick` at `next_deadline_ns`; call `resume` while it says that more could be done at once.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable

import attrs

from tnats.jetstream.api import advisories, errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.messages import ConsumerInfo, PriorityGroupState, SequenceInfo
from tnats.jetstream.consumer import extensions, requests, state
from tnats.jetstream.consumer.acks import Ack, Place, Word, parse_body, parse_subject, reply_prefix
from tnats.jetstream.consumer.ahead import Ahead
from tnats.jetstream.consumer.config import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy
from tnats.jetstream.consumer.effects import Delivery, Effects, Status, status_block
from tnats.jetstream.consumer.letters import Letter
from tnats.jetstream.consumer.ports import StreamIndex
from tnats.jetstream.consumer.priority import PriorityGroups
from tnats.jetstream.consumer.push import FlowControl, Pace
from tnats.jetstream.consumer.requests import PullRequest, WaitQueue
from tnats.jetstream.consumer.state import ConsumerState
from tnats.limits import CONSUMER_DELIVERIES_PER_PASS_MAX, CONSUMER_HELD_MSGS_MAX, CONSUMER_LETTERS_MAX
from tnats.subjects.tokens import subject_matches, to_bytes

CONSUMER_DELETED = "409 Consumer Deleted"
_SEQ_MASK = 0xFFFF_FFFF_FFFF_FFFF


@attrs.frozen
class Identity:
    """Whose consumer it is; stands in subjects and advisories."""

    account: str
    stream: str
    consumer: str
    created_ns: int = 0
    domain: str | None = None


def start_state(config: ConsumerConfig, index: StreamIndex) -> ConsumerState:
    """The state of a new consumer: where its deliver policy begins."""
    filters = tuple(to_bytes(subject) for subject in config.filters())
    policy = config.deliver_policy
    if policy == DeliverPolicy.NEW:
        return ConsumerState(index.last_seq + 1)
    if policy == DeliverPolicy.LAST:
        return ConsumerState(index.last_matching(filters) or index.last_seq + 1)
    if policy == DeliverPolicy.BY_START_SEQUENCE:
        return ConsumerState(max(config.opt_start_seq, index.first_seq))
    if policy == DeliverPolicy.BY_START_TIME:
        assert config.opt_start_time_ns is not None
        return ConsumerState(index.seq_at_time(config.opt_start_time_ns))
    if policy == DeliverPolicy.LAST_PER_SUBJECT:
        first_seq = next(index.last_per_subject(filters), index.last_seq + 1)
        return ConsumerState(first_seq, per_subject_until=index.last_seq)
    return ConsumerState(index.first_seq)


class ConsumerMachine:
    """One consumer, as its leader runs it."""

    def __init__(
        self,
        identity: Identity,
        config: ConsumerConfig,
        applied: ConsumerState,
        index: StreamIndex,
        *,
        now_ns: int,
        wall_offset_ns: int,
        has_interest: Callable[[bytes], bool],
        new_id: Callable[[], str],
    ) -> None:
        """`applied` becomes this machine's own. `has_interest`: whether anybody subscribes to a subject now."""
        self.identity = identity
        self.state = applied
        self.wall_offset_ns = wall_offset_ns
        self._index = index
        self._has_interest = has_interest
        self._new_id = new_id
        self._ack_prefix = reply_prefix(identity.stream, identity.consumer)
        self._flow_prefix = f"$JS.FC.{identity.stream}.{identity.consumer}.".encode()
        self._effects = Effects()
        self._waiting = WaitQueue()
        self._ready: dict[int, None] = {}
        self._released: dict[int, bytes] = {}
        self._due: list[int] = []
        self._ahead = Ahead(index, applied, tuple(to_bytes(subject) for subject in config.filters()))
        self._ack_pending_of: dict[bytes, int] = {}
        self._subject_of_pending: dict[int, bytes] = {}
        self._held_of: dict[bytes, deque[int]] = {}
        self._sample_credit = 0
        self._last_activity_ns = now_ns
        self._last_delivered_ns: int | None = None
        self._last_acked_ns: int | None = None
        self._heartbeat_due_ns = now_ns + config.idle_heartbeat_ns
        self._next_send_ns = 0
        self._is_paused = False
        self._is_bound = False
        self._flow = FlowControl()
        self._groups = PriorityGroups(config, new_id)
        self._use(config, now_ns)
        self._schedule_pending(now_ns)

    # ------------------------------------------------------------------ configuration and start

    def _use(self, config: ConsumerConfig, now_ns: int) -> None:
        self.config = config
        self._filters = tuple(to_bytes(subject) for subject in config.filters())
        self._tracks_acks = config.ack_policy != AckPolicy.NONE
        self._ack_pending_max = config.max_ack_pending if self._tracks_acks and config.max_ack_pending > 0 else 0
        self._per_subject_max = extensions.ack_pending_per_subject_max(config)
        self._target = to_bytes(config.deliver_subject)
        self._pace = Pace(config)
        self._sample_percent = min(int(config.sample_freq.removesuffix("%") or "0"), 100)
        self._heartbeat_due_ns = now_ns + config.idle_heartbeat_ns
        groups = PriorityGroups(config, self._new_id)
        if groups.policy == self._groups.policy:
            groups.pins = {name: pin for name, pin in self._groups.pins.items() if name in config.priority_groups}
        self._groups = groups
        pause_until_ns = config.pause_until_ns
        self._is_paused = pause_until_ns is not None and pause_until_ns > now_ns + self.wall_offset_ns

    def _schedule_pending(self, now_ns: int) -> None:
        """After a start: timers of what was sent before, by the wall-clock time it was sent."""
        pending = self.state.pending
        for seq, _, sent_ns in list(pending.items()):
            subject = self._index.subject_of(seq)
            if subject is None:
                self._op(state.SKIPPED, seq)
                continue
            # The wall clock may have been set back meanwhile: nothing was sent later than now.
            sent_ns = min(sent_ns - self.wall_offset_ns, now_ns)
            self._set_due(seq, sent_ns + self._ack_wait_ns(self.state.deliveries_of(seq)))
        for seq in list(self.state.held):
            subject = self._index.subject_of(seq)
            if subject is None:
                self._op(state.SKIPPED, seq)
            else:
                self._held_of.setdefault(subject, deque()).append(seq)
        self._recount_subjects()

    def _recount_subjects(self) -> None:
        """After a start, or when the bound per subject changed."""
        self._subject_of_pending.clear()
        self._ack_pending_of.clear()
        if self._per_subject_max:
            for seq in self.state.pending.seqs():
                self._count_pending(seq, self._index.subject_of(seq) or b"")
        for subject in list(self._held_of):
            self._release(subject)

    def reconfigure(self, config: ConsumerConfig, now_ns: int) -> Effects:
        """An update of the configuration was committed (pausing and resuming among them)."""
        was_paused, old_filters = self._is_paused, self._filters
        self._use(config, now_ns)
        if self._is_paused != was_paused:
            self._advise_pause()
        if self._filters != old_filters:
            for seq in [seq for seq in self.state.pending.seqs() if not self._wants(seq)]:
                self._op(state.ACKED, seq)
                self._forget_timer(seq)
            self._ahead.begin(self._filters)
        self._recount_subjects()
        return self._done(now_ns)

    def _wants(self, seq: int) -> bool:
        subject = self._index.subject_of(seq)
        return subject is not None and self.wants_subject(subject)

    # ------------------------------------------------------------------ what clients send

    def pull(self, reply: bytes, body: bytes, now_ns: int, *, is_supported: bool = True) -> Effects:
        """A pull request (MSG.NEXT) came. `is_supported`: this server offers the API level it requires."""
        self._last_activity_ns = now_ns
        line = None
        if not is_supported:
            line = "412 Required Api Level"
        elif self.config.is_push:
            line = "409 Consumer is push based"
        if line is None:
            self._request(reply, requests.parse_body(body), now_ns)
        elif reply:
            self._status(reply, line)
        return self._done(now_ns)

    def _request(self, reply: bytes, wanted: requests.PullBody, now_ns: int) -> None:
        if not reply:
            return
        line = requests.refusal(wanted, self.config, self._groups.pinned_ids())
        if line is not None:
            self._status(reply, line)
            return
        if wanted.id:
            self._groups.heard_from(wanted.group, wanted.id, now_ns)
        if len(self._waiting) >= self.config.max_waiting:
            self._expire_requests(now_ns)
        if len(self._waiting) >= self.config.max_waiting:
            # With heartbeats the client notices by itself, and hammering it with errors would make it ask more.
            if wanted.idle_heartbeat_ns <= 0:
                self._status(reply, "409 Exceeded MaxWaiting")
            return
        if wanted.no_wait:
            left = self._num_pending() + len(self._ready)
            if not left and wanted.expires_ns <= 0:
                self._status(reply, "404 No Messages")
                return
            if left and left < self._waiting.messages_wanted():
                self._status(reply, "408 Requests Pending")
                return
        self._waiting.add(requests.make_request(reply, wanted, self.config, now_ns))

    def ack(self, subject: bytes, body: bytes, reply: bytes, now_ns: int) -> Effects:
        """An acknowledgement came on one of this consumer's `$JS.ACK` subjects."""
        self.take_ack(subject, body, reply, now_ns)
        return self._done(now_ns)

    def take_ack(self, subject: bytes, body: bytes, reply: bytes, now_ns: int) -> None:
        """`ack` as one of many: what comes of it is in the effects of the `resume` that ends the batch."""
        place = parse_subject(subject)
        if place is None:
            return
        self._last_activity_ns = now_ns
        ack = parse_body(body)
        if ack.word == Word.NEXT:
            self._acknowledge(place, now_ns)
            self._request(reply, requests.parse_body(ack.rest), now_ns)
            return
        if ack.word == Word.ACK:
            self._acknowledge(place, now_ns)
        elif ack.word == Word.NAK:
            self._give_back(place, ack, now_ns)
        elif ack.word == Word.PROGRESS:
            self._prolong(place, now_ns)
        elif ack.word == Word.TERM:
            self._terminate(place, ack, now_ns)
        if reply and self._was_delivered(place):
            self._effects.acked_replies.append(reply)

    def _was_delivered(self, place: Place) -> bool:
        # Made-up places get no answer: it would say that something was acknowledged.
        return (
            place.stream_seq <= self.state.delivered_stream_seq
            and 0 < place.consumer_seq <= self.state.delivered_consumer_seq
        )

    def _acknowledge(self, place: Place, now_ns: int) -> None:
        if self.config.ack_policy == AckPolicy.EXPLICIT:
            at = self.state.pending.find(place.stream_seq)
            if at < 0:
                return
            self._sample(place, self.state.pending.sent_at(at), now_ns)
            self._finish(place.stream_seq)
            self._last_acked_ns = now_ns + self.wall_offset_ns
        elif self._tracks_acks and self._was_delivered(place):
            self._acknowledge_up_to(place.stream_seq, now_ns)

    def _acknowledge_up_to(self, seq: int, now_ns: int) -> None:
        pending = self.state.pending
        first = pending.first()
        if first is None or first[0] > seq:
            return
        for one in list(pending.seqs()):
            if one > seq:
                break
            self._forget_timer(one)
            self._effects.done.append(one)
        self._op(state.ACKED_ALL, seq)
        self._last_acked_ns = now_ns + self.wall_offset_ns

    def _finish(self, seq: int) -> None:
        self._forget_timer(seq)
        self._op(state.ACKED, seq)
        self._effects.done.append(seq)

    def _sample(self, place: Place, sent_ns: int, now_ns: int) -> None:
        if not self._sample_percent:
            return
        self._sample_credit += self._sample_percent
        if self._sample_credit < 100:
            return
        self._sample_credit -= 100
        self._effects.advisories.append(
            advisories.consumer_ack_metric(
                self.identity.stream,
                self.identity.consumer,
                place.consumer_seq,
                place.stream_seq,
                max(now_ns + self.wall_offset_ns - sent_ns, 1),
                self.state.deliveries_of(place.stream_seq),
            )
        )

    def _give_back(self, place: Place, ack: Ack, now_ns: int) -> None:
        seq = place.stream_seq
        at = self.state.pending.find(seq)
        if at < 0 or not self._tracks_acks:
            return
        self._effects.advisories.append(
            advisories.message_naked(
                self.identity.stream,
                self.identity.consumer,
                place.consumer_seq,
                seq,
                place.deliveries,
                self.identity.domain,
            )
        )
        self._ready.pop(seq, None)
        if ack.delay_ns:
            self._set_due(seq, now_ns + ack.delay_ns)
        elif not self._gives_up(seq, now_ns):
            self.state.pending.set_due(at, 0)
            self._ready[seq] = None

    def _prolong(self, place: Place, now_ns: int) -> None:
        seq = place.stream_seq
        if self.state.pending.find(seq) >= 0:
            self._ready.pop(seq, None)
            self._set_due(seq, now_ns + self._ack_wait_ns(self.state.deliveries_of(seq)))

    def _terminate(self, place: Place, ack: Ack, now_ns: int) -> None:
        seq = place.stream_seq
        if self.state.pending.find(seq) < 0:
            return
        reason = ack.rest.decode("utf-8", "replace")
        deliveries = self.state.deliveries_of(seq)
        self._forget_timer(seq)
        self._op(state.ACKED, seq)
        self._last_acked_ns = now_ns + self.wall_offset_ns
        self._effects.advisories.append(
            advisories.message_terminated(
                self.identity.stream,
                self.identity.consumer,
                place.consumer_seq,
                seq,
                deliveries,
                reason,
                self.identity.domain,
            )
        )
        if not self._write_letter(seq, reason or "terminated", deliveries, now_ns):
            self._effects.done.append(seq)

    def _write_letter(self, seq: int, reason: str, deliveries: int, now_ns: int) -> bool:
        """Whether a message becomes a dead letter; its stream keeps it until `letter_stored`."""
        target = extensions.dead_letter_subject(self.config)
        if target and seq not in self.state.outbox:
            letter = Letter(seq, target, reason, deliveries, now_ns + self.wall_offset_ns)
            self.state.outbox[seq] = letter
            self._effects.letters.append(letter)
        return bool(target)

    def letter_stored(self, seq: int, now_ns: int) -> Effects:
        """A stream has the dead letter of a message, or the message is not there any more."""
        self._op(state.LETTER_STORED, seq)
        self._effects.done.append(seq)
        return self._done(now_ns)

    def flow_answered(self, subject: bytes, now_ns: int) -> Effects:
        """A client answered a flow-control request (it published on its reply subject)."""
        self._last_activity_ns = now_ns
        seq = self._flow.answered(subject)
        if seq and self.config.ack_policy == AckPolicy.FLOW_CONTROL:
            self._acknowledge_up_to(seq, now_ns)
        return self._done(now_ns)

    # ------------------------------------------------------------------ what the stream does

    def stream_advanced(self, now_ns: int) -> Effects:
        """Messages were stored."""
        return self._done(now_ns)

    def stream_removed(self, removed: Iterable[tuple[int, bytes]], now_ns: int) -> Effects:
        """Single messages (sequence, subject) are gone."""
        delivered_seq = self.state.delivered_stream_seq
        for seq, subject in removed:
            if seq <= delivered_seq:
                self._skip(seq)
            elif self.wants_subject(subject):
                self._ahead.removed(seq)
        return self._done(now_ns)

    def stream_purged(self, below_seq: int, now_ns: int) -> Effects:
        """All messages below `below_seq` are gone."""
        pending = self.state.pending
        for seq in [seq for seq in pending.seqs() if seq < below_seq]:
            self._skip(seq)
        for seq in [seq for seq in self.state.held if seq < below_seq]:
            self._drop_held(seq)
        self._ahead.purged(below_seq)
        return self._done(now_ns)

    def _skip(self, seq: int) -> None:
        if seq in self.state.pending:
            self._forget_timer(seq)
            self._op(state.SKIPPED, seq)
        elif seq in self.state.held:
            self._drop_held(seq)

    def _drop_held(self, seq: int) -> None:
        self._op(state.SKIPPED, seq)
        released = self._released.pop(seq, None)
        if released is not None:
            self._release(released)
            return
        for subject, held in list(self._held_of.items()):
            if seq in held:
                held.remove(seq)
                if not held:
                    del self._held_of[subject]

    def wants_subject(self, subject: bytes) -> bool:
        """Whether the filters match (`ConsumerView`)."""
        return not self._filters or any(subject_matches(pattern, subject) for pattern in self._filters)

    def needs(self, seq: int) -> bool:
        """Whether a message on a wanted subject is not done with (`ConsumerView`)."""
        if seq > self.state.delivered_stream_seq:
            return self._ahead.includes(seq)
        return seq in self.state.pending or seq in self.state.held or seq in self.state.outbox

    # ------------------------------------------------------------------ administration

    def reset(self, seq: int, now_ns: int) -> tuple[Effects, int | ApiError]:
        """CONSUMER.RESET: begin again at `seq`, or with 0 behind the ack floor. The sequence, or why not."""
        policy = self.config.deliver_policy
        if seq:
            if policy == DeliverPolicy.BY_START_SEQUENCE:
                if seq < self.config.opt_start_seq:
                    return Effects(), errors.CONSUMER_INVALID_RESET(err="below start seq")
            elif policy == DeliverPolicy.BY_START_TIME:
                assert self.config.opt_start_time_ns is not None
                start_seq = self._index.seq_at_time(self.config.opt_start_time_ns)
                if start_seq <= self._index.last_seq and seq < start_seq:
                    return Effects(), errors.CONSUMER_INVALID_RESET(err="below start time")
            elif policy != DeliverPolicy.ALL:
                return Effects(), errors.CONSUMER_INVALID_RESET(err="not allowed")
        start_seq = seq or self.state.floor_stream_seq + 1
        self._op(state.RESET, start_seq)
        self._ready.clear()
        self._released.clear()
        self._due.clear()
        self._ack_pending_of.clear()
        self._subject_of_pending.clear()
        self._held_of.clear()
        self._ahead.begin(self._filters)
        return self._done(now_ns), start_seq

    def unpin(self, group: str, now_ns: int) -> Effects | ApiError:
        """CONSUMER.UNPIN: let another client of a priority group have its turn."""
        if not group:
            return errors.INVALID_JSON(err="consumer group not specified")
        if group not in self.config.priority_groups:
            return errors.CONSUMER_INVALID_PRIORITY_GROUP()
        if self._groups.pins.pop(group, None) is not None:
            self._advise_unpinned(group, "admin")
        return self._done(now_ns)

    def end_requests(self, line: str) -> Effects:
        """Answer all waiting requests with a status ("409 Consumer Deleted") and forget them."""
        for request in list(self._waiting):
            if line == CONSUMER_DELETED:
                self._waiting.remove(request)
                self._status(request.reply, line)
            else:  # worth asking again: what is missing is told
                self._end_request(request, line)
        taken, self._effects = self._effects, Effects()
        return taken

    def set_bound(self, is_bound: bool, now_ns: int) -> Effects:
        """Somebody began, or nobody continues, to listen on a push consumer's deliver subject."""
        if is_bound != self._is_bound:
            self._is_bound = is_bound
            self._last_activity_ns = now_ns
            self._heartbeat_due_ns = now_ns + self.config.idle_heartbeat_ns
            self._flow = FlowControl()
        return self._done(now_ns)

    @property
    def is_bound(self) -> bool:
        """Whether somebody listens on the deliver subject."""
        return self._is_bound

    def info(self, now_ns: int) -> ConsumerInfo:
        """What CONSUMER.INFO reports, without cluster."""
        wall_ns = now_ns + self.wall_offset_ns
        pause_until_ns = self.config.pause_until_ns
        return ConsumerInfo(
            stream_name=self.identity.stream,
            name=self.identity.consumer,
            created_ns=self.identity.created_ns,
            config=self.config,
            delivered=SequenceInfo(
                self.state.delivered_consumer_seq, self.state.delivered_stream_seq, self._last_delivered_ns
            ),
            ack_floor=SequenceInfo(self.state.floor_consumer_seq, self.state.floor_stream_seq, self._last_acked_ns),
            num_ack_pending=len(self.state.pending),
            num_redelivered=len(self.state.redelivered),
            num_waiting=len(self._waiting),
            num_pending=self._num_pending(),
            push_bound=self._is_bound,
            paused=self._is_paused,
            pause_remaining_ns=pause_until_ns - wall_ns if self._is_paused and pause_until_ns is not None else 0,
            ts_ns=wall_ns,
            priority_groups=[
                PriorityGroupState(
                    group,
                    self._groups.pins[group].client_id if group in self._groups.pins else "",
                    self._groups.pins[group].since_ns if group in self._groups.pins else None,
                )
                for group in self.config.priority_groups
            ],
        )

    # ------------------------------------------------------------------ delivery

    def resume(self, now_ns: int) -> Effects:
        """Go on where a pass stopped at its bound."""
        return self._done(now_ns)

    def _done(self, now_ns: int) -> Effects:
        self._deliver(now_ns)
        taken, self._effects = self._effects, Effects()
        return taken

    def _deliver(self, now_ns: int) -> None:
        if self._is_paused:
            return
        is_push = self.config.is_push
        if not (self._is_bound if is_push else self._waiting):
            return
        for number in range(CONSUMER_DELIVERIES_PER_PASS_MAX):
            seq = self._next_candidate()
            if not seq:
                self._end_no_wait()
                return
            if is_push:
                if not self._push(seq, now_ns):
                    return
                continue
            if not number:
                self._drop_deaf_requests()
            if not self._waiting or not self._serve(seq, now_ns):
                return

    def has_more(self, now_ns: int) -> bool:
        """Whether another pass could deliver at once."""
        if self._is_paused or not (self._is_bound if self.config.is_push else self._waiting):
            return False
        seq = self._next_candidate()
        if not seq:
            return False
        if self._next_send_ns > now_ns:
            return False
        return self._flow_is_open() if self.config.is_push else self._eligible_request() is not None

    def _next_candidate(self) -> int:
        """The next message to send: given back or overdue, then released, then new; 0: none."""
        if len(self.state.outbox) >= CONSUMER_LETTERS_MAX:
            return 0
        for ready in (self._ready, self._released):
            while ready:
                seq = next(iter(ready))
                if self._index.subject_of(seq) is not None:
                    return seq
                self._skip(seq)
                ready.pop(seq, None)
        if self._ack_pending_max and len(self.state.pending) >= self._ack_pending_max:
            return 0
        return self._next_new()

    def _next_new(self) -> int:
        while True:
            seq = self._ahead.peek()
            if not seq or not self._is_held_back(seq):
                return seq
            if seq not in self.state.held:
                return 0

    def _is_held_back(self, seq: int) -> bool:
        """Whether a new message has to wait for its subject; it is put aside, if there is room."""
        if not self._per_subject_max:
            return False
        subject = self._index.subject_of(seq)
        assert subject is not None
        if self._ack_pending_of.get(subject, 0) < self._per_subject_max:
            return False
        if len(self.state.held) < CONSUMER_HELD_MSGS_MAX:
            self._ahead.passed(seq)
            self._op(state.HELD, seq)
            self._held_of.setdefault(subject, deque()).append(seq)
        return True

    def _count_pending(self, seq: int, subject: bytes) -> None:
        """A message is pending, where its subject's are bounded."""
        if self._per_subject_max:
            self._subject_of_pending[seq] = subject
            self._ack_pending_of[subject] = self._ack_pending_of.get(subject, 0) + 1

    def _uncount_pending(self, seq: int) -> None:
        """A message is pending no more. It may be gone from the stream, so its subject is kept here."""
        subject = self._subject_of_pending.pop(seq, None)
        if subject is None:
            return
        count = self._ack_pending_of[subject] - 1
        if count:
            self._ack_pending_of[subject] = count
        else:
            del self._ack_pending_of[subject]
        self._release(subject)

    def _release(self, subject: bytes) -> None:
        """Let held messages of a subject go, as many as it has room for."""
        held = self._held_of.get(subject)
        if not held:
            return
        free_count = len(held)
        if self._per_subject_max:
            free_count = self._per_subject_max - self._ack_pending_of.get(subject, 0)
            free_count -= sum(1 for released in self._released.values() if released == subject)
        while held and free_count > 0:
            self._released[held.popleft()] = subject
            free_count -= 1
        if not held:
            del self._held_of[subject]

    def _drop_deaf_requests(self) -> None:
        for request in list(self._waiting):
            if not self._has_interest(request.reply):
                self._waiting.remove(request)

    def _eligible_request(self) -> PullRequest | None:
        if self._groups.policy in (PriorityPolicy.NONE, PriorityPolicy.PRIORITIZED):
            return self._waiting.first()
        pending_count = self._num_pending() + len(self._ready)
        for request in self._waiting:
            if self._groups.is_eligible(request, pending_count, len(self.state.pending)):
                return request
        return None

    def _serve(self, seq: int, now_ns: int) -> bool:
        """Send a message to a waiting request; False if none may have it now."""
        while True:
            request = self._eligible_request()
            if request is None:
                self._end_no_wait()
                return False
            ts_ns = self._index.time_of(seq) or 0
            if not self._may_send_at(ts_ns, seq, now_ns):
                return False
            subject = self._index.subject_of(seq) or b""
            ack_reply = self._ack_reply(seq, ts_ns)
            size = len(subject) + len(ack_reply) + self._index.content_size(seq)
            if request.bytes_left and size > request.bytes_left:
                self._end_request(request, "409 Message Size Exceeds MaxBytes")
                continue
            break
        pin_id, is_new_pin = self._groups.serve(request, now_ns + self.wall_offset_ns, now_ns)
        if is_new_pin:
            identity = self.identity
            self._effects.advisories.append(
                advisories.group_pinned(identity.account, identity.stream, identity.consumer, request.group, pin_id)
            )
        self._send(seq, subject, Delivery(seq, request.reply, ack_reply, self.config.headers_only, pin_id), now_ns)
        self._pace.sent(ts_ns, size, now_ns)
        request.sent += 1
        request.messages_left -= 1
        request.heartbeat_due_ns = now_ns + request.heartbeat_ns
        if not request.messages_left:
            if request.bytes_left > size:
                request.bytes_left -= size
                self._end_request(request, "409 Batch Completed")
            else:
                self._waiting.remove(request)
            return True
        if request.bytes_left:
            request.bytes_left -= size
            if not request.bytes_left:
                self._end_request(request, "409 Message Size Exceeds MaxBytes")
                return True
        self._waiting.rotate(request)
        return True

    def _push(self, seq: int, now_ns: int) -> bool:
        """Send a message to the deliver subject; False if it has to wait."""
        if not self._flow_is_open():
            return False
        ts_ns = self._index.time_of(seq) or 0
        if not self._may_send_at(ts_ns, seq, now_ns):
            return False
        subject = self._index.subject_of(seq) or b""
        ack_reply = self._ack_reply(seq, ts_ns)
        size = len(subject) + len(ack_reply) + self._index.content_size(seq)
        self._send(seq, subject, Delivery(seq, self._target, ack_reply, self.config.headers_only), now_ns)
        self._pace.sent(ts_ns, size, now_ns)
        self._heartbeat_due_ns = now_ns + self.config.idle_heartbeat_ns
        if self.config.flow_control:
            self._flow.sent(size)
            if self._flow.wants_request():
                flow_subject = self._flow_prefix + self._new_id().encode()
                self._flow.request(flow_subject, seq)
                block = status_block("100 FlowControl Request")
                self._effects.sends.append(Status(self._target, block, flow_subject))
        return True

    def _flow_is_open(self) -> bool:
        return not self.config.flow_control or self._flow.is_open()

    def _may_send_at(self, ts_ns: int, seq: int, now_ns: int) -> bool:
        if seq in self._ready:
            self._next_send_ns = 0
            return True
        self._next_send_ns = self._pace.earliest_ns(ts_ns)
        return self._next_send_ns <= now_ns

    def _ack_reply(self, seq: int, ts_ns: int) -> bytes:
        if seq in self._ready:
            deliveries, pending_count = self.state.deliveries_of(seq) + 1, self._num_pending()
        else:
            deliveries, pending_count = 1, self._num_pending() - 1
        consumer_seq = self.state.delivered_consumer_seq + 1
        return b"%b%d.%d.%d.%d.%d" % (self._ack_prefix, deliveries, seq, consumer_seq, ts_ns, max(pending_count, 0))

    def _send(self, seq: int, subject: bytes, delivery: Delivery, now_ns: int) -> None:
        current = self.state
        is_new = seq not in self._ready
        if is_new:
            if seq not in current.held:
                self._ahead.passed(seq)
            self._released.pop(seq, None)
        else:
            del self._ready[seq]
        wall_ns = now_ns + self.wall_offset_ns
        self._op(state.DELIVERED, seq, current.delivered_consumer_seq + 1, wall_ns)
        if self._tracks_acks:
            if is_new:
                self._count_pending(seq, subject)
            if self.config.ack_policy != AckPolicy.FLOW_CONTROL:
                self._set_due(seq, now_ns + self._ack_wait_ns(current.deliveries_of(seq)))
        else:
            self._effects.done.append(seq)
        self._last_delivered_ns = wall_ns
        self._last_activity_ns = now_ns
        self._effects.sends.append(delivery)

    def _num_pending(self) -> int:
        return self._ahead.count() + len(self.state.held)

    # ------------------------------------------------------------------ time

    def next_deadline_ns(self, now_ns: int) -> int | None:
        """When `tick` (or `resume`) has something to do; None: only when something happens."""
        candidates: list[int | None] = [self._due[0] >> 64 if self._due else None, self._groups.next_deadline_ns()]
        for request in self._waiting:
            candidates.append(request.expires_ns)
            if request.heartbeat_ns:
                candidates.append(request.heartbeat_due_ns)
        if self.config.is_push and self._is_bound and self.config.idle_heartbeat_ns:
            candidates.append(self._heartbeat_due_ns)
        if self._is_paused and self.config.pause_until_ns is not None:
            candidates.append(self.config.pause_until_ns - self.wall_offset_ns)
        if self._next_send_ns > now_ns and not self._is_paused:
            candidates.append(self._next_send_ns)
        if self.has_more(now_ns):
            candidates.append(now_ns)
        candidates.append(self._inactive_from_ns())
        return min((deadline_ns for deadline_ns in candidates if deadline_ns is not None), default=None)

    def tick(self, now_ns: int) -> Effects:
        """Time passed."""
        pause_until_ns = self.config.pause_until_ns
        if self._is_paused and pause_until_ns is not None and pause_until_ns <= now_ns + self.wall_offset_ns:
            self._is_paused = False
            self._advise_pause()
        for group in self._groups.expire(now_ns):
            self._advise_unpinned(group, "timeout")
        self._expire_pending(now_ns)
        self._deliver(now_ns)
        self._expire_requests(now_ns)
        self._send_heartbeats(now_ns)
        inactive_from_ns = self._inactive_from_ns()
        self._effects.is_inactive = inactive_from_ns is not None and inactive_from_ns <= now_ns
        taken, self._effects = self._effects, Effects()
        return taken

    def end_ack_wait(self, seq: int, now_ns: int) -> bool:
        """Await the ack of a message no longer, as `tick` will find; whether it was awaited."""
        at = self.state.pending.find(seq)
        if at < 0 or not self.state.pending.due_at(at):
            return False
        self._set_due(seq, now_ns)
        return True

    def _ack_wait_ns(self, deliveries: int) -> int:
        """How long the ack of a message's n-th delivery is awaited."""
        backoff_ns = self.config.backoff_ns
        if backoff_ns:
            return backoff_ns[min(deliveries, len(backoff_ns)) - 1]
        return self.config.ack_wait_ns

    def _set_due(self, seq: int, due_ns: int) -> None:
        pending = self.state.pending
        at = pending.find(seq)
        old_due_ns = pending.due_at(at)
        pending.set_due(at, due_ns)
        # A timer that is already set for earlier finds out by itself that the message is due later.
        if not 0 < old_due_ns <= due_ns:
            heapq.heappush(self._due, due_ns << 64 | seq)

    def _forget_timer(self, seq: int) -> None:
        self._ready.pop(seq, None)
        self._uncount_pending(seq)

    def _expire_pending(self, now_ns: int) -> None:
        due, pending = self._due, self.state.pending
        while due and due[0] >> 64 <= now_ns:
            packed = heapq.heappop(due)
            seq = packed & _SEQ_MASK
            at = pending.find(seq)
            if at < 0 or not pending.due_at(at):
                continue
            due_ns = pending.due_at(at)
            if due_ns > now_ns:
                heapq.heappush(due, due_ns << 64 | seq)
            elif not self._gives_up(seq, now_ns):
                pending.set_due(at, 0)
                self._ready[seq] = None

    def _gives_up(self, seq: int, now_ns: int) -> bool:
        """Whether a message has used up its deliveries; it is then pending no more, and stays in the stream."""
        deliveries = self.state.deliveries_of(seq)
        if self.config.max_deliver <= 0 or deliveries < self.config.max_deliver:
            return False
        self._forget_timer(seq)
        self._op(state.GIVEN_UP, seq)
        identity = self.identity
        self._effects.advisories.append(
            advisories.max_deliveries(identity.stream, identity.consumer, seq, deliveries, identity.domain)
        )
        self._write_letter(seq, "max deliveries", deliveries, now_ns)
        return True

    def _expire_requests(self, now_ns: int) -> None:
        for request in list(self._waiting):
            if request.expires_ns is not None and request.expires_ns <= now_ns:
                self._end_request(request, "408 Request Timeout")

    def _end_no_wait(self) -> None:
        """Nothing (more) can be had at once."""
        for request in list(self._waiting):
            if request.no_wait and (request.sent or request.expires_ns is None):
                self._waiting.remove(request)
                self._status(request.reply, "404 No Messages")

    def _end_request(self, request: PullRequest, line: str) -> None:
        self._waiting.remove(request)
        self._status(
            request.reply,
            line,
            ("Nats-Pending-Messages", request.messages_left),
            ("Nats-Pending-Bytes", request.bytes_left),
        )

    def _send_heartbeats(self, now_ns: int) -> None:
        last = (
            ("Nats-Last-Consumer", self.state.delivered_consumer_seq),
            ("Nats-Last-Stream", self.state.delivered_stream_seq),
        )
        for request in self._waiting:
            if request.heartbeat_ns and request.heartbeat_due_ns <= now_ns:
                self._status(request.reply, "100 Idle Heartbeat", *last)
                request.heartbeat_due_ns = now_ns + request.heartbeat_ns
        heartbeat_ns = self.config.idle_heartbeat_ns
        if self.config.is_push and self._is_bound and heartbeat_ns and self._heartbeat_due_ns <= now_ns:
            headers: tuple[tuple[str, object], ...] = last
            if self._flow.request_subject and not self._flow.is_open():
                headers = (*last, ("Nats-Consumer-Stalled", self._flow.request_subject.decode()))
            self._status(self._target, "100 Idle Heartbeat", *headers)
            self._heartbeat_due_ns = now_ns + heartbeat_ns

    def _inactive_from_ns(self) -> int | None:
        """When the consumer counts as unused; None: it is in use, or never does."""
        threshold_ns = self.config.inactive_threshold_ns
        if not threshold_ns or self._is_bound or self._waiting or self.state.outbox:
            return None
        # A delivery whose ack is awaited is use, until its time is over.
        if len(self.state.pending) > len(self._ready) and not self.config.is_push:
            return None
        return self._last_activity_ns + threshold_ns

    # ------------------------------------------------------------------ small things

    def _op(self, kind: int, seq: int, consumer_seq: int = 0, sent_ns: int = 0) -> None:
        op = (kind, seq, consumer_seq, sent_ns)
        self.state.apply(op, tracks_acks=self._tracks_acks)
        self._effects.ops.append(op)

    def _status(self, target: bytes, line: str, *headers: tuple[str, object]) -> None:
        self._effects.sends.append(Status(target, status_block(line, *headers)))

    def _advise_pause(self) -> None:
        self._effects.advisories.append(
            advisories.consumer_pause(
                self.identity.stream,
                self.identity.consumer,
                self.config.pause_until_ns if self._is_paused else None,
                self._is_paused,
                self.identity.domain,
            )
        )

    def _advise_unpinned(self, group: str, reason: str) -> None:
        identity = self.identity
        self._effects.advisories.append(
            advisories.group_unpinned(identity.account, identity.stream, identity.consumer, group, reason)
        )
