"""The consumer machine: what to deliver to whom and when, and what acknowledgements mean. The leader runs it.

Purpose. Between a stream's index, a consumer's persistent state (`ConsumerState`) and its clients' requests it
decides deliveries, redeliveries, status messages, and log operations. Whoever hosts it reads the messages and sends.

Theory. A message is new (at or above the scan position, `Ahead`), held (its subject has enough unacknowledged ones,
`SubjectBound`), pending (sent, waiting for its ack), ready (its time is over or it was given back: to be sent again
before anything new, `AckTimers`), or done. `Deliveries` sends, `Acknowledgements` ends, `WaitingRequests` are those
who get; all share one `Core`. Each method returns `Effects`; the state has already changed when it returns, so
effects must be carried out in order. An ack's confirmation waits until its operation is durable; deliveries do not.

Clocks. `now_ns` is the monotonic clock; `wall_offset_ns` added to it gives wall time, for what is persisted or
compared with configured times.

The host's duties: one machine per leadership over the applied state; call `stream_advanced` when messages were
stored and when what had to be read first is sent, `stream_removed` or `stream_purged` when some went, `pulls`, `acks`,
`flow_answered` for what clients send, `caught_up` when a reader has, `tick` at `next_deadline_ns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter

from tnats.jetstream.api import advisories, errors
from tnats.jetstream.api.advisories import ConsumerIdentity
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.messages import ConsumerInfo, PriorityGroupState, SequenceInfo
from tnats.jetstream.consumer import state
from tnats.jetstream.consumer.ack_timers import AckTimers
from tnats.jetstream.consumer.acknowledge import Acknowledgements
from tnats.jetstream.consumer.acks import AckRun, Said, Word, parse_body, parse_subject
from tnats.jetstream.consumer.ahead import Ahead
from tnats.jetstream.consumer.config import AckPolicy, ConsumerConfig, DeliverPolicy
from tnats.jetstream.consumer.core import Core, ack_wait_ns
from tnats.jetstream.consumer.deliver import Deliveries
from tnats.jetstream.consumer.effects import Effects
from tnats.jetstream.consumer.ports import StreamIndex
from tnats.jetstream.consumer.priority import PriorityGroups
from tnats.jetstream.consumer.requests import Asked
from tnats.jetstream.consumer.state import ConsumerState
from tnats.jetstream.consumer.subject_bound import SubjectBound
from tnats.jetstream.consumer.waiting import WaitingRequests
from tnats.subjects.tokens import to_bytes
from tnats.wire.headers import get_header


class ConsumerMachine:
    """One consumer, as its leader runs it."""

    def __init__(
        self,
        identity: ConsumerIdentity,
        config: ConsumerConfig,
        applied: ConsumerState,
        index: StreamIndex,
        *,
        now_ns: int,
        wall_offset_ns: int,
        room: Callable[[bytes], int | None],
        is_sending: Callable[[], bool],
        new_id: Callable[[], str],
    ) -> None:
        """`applied` becomes this machine's own. `room`: how many bytes may be sent to a subject now (`Bus.room`).

        While the host `is_sending` what it was told to before, nothing more is delivered.
        """
        self.identity = identity
        self.state = applied
        self._index = index
        self._new_id = new_id
        self._core = core = Core(identity, config, applied, index, wall_offset_ns)
        core.last_activity_ns = now_ns
        self._ahead = Ahead(index, applied, core.filters)
        self._timers = AckTimers(applied)
        self._bound = SubjectBound(core, self._ahead)
        self._acks = Acknowledgements(core, self._timers, self._bound)
        self._waiting = WaitingRequests(core, self._ahead, self._timers, PriorityGroups(config, new_id), room)
        self._deliveries = Deliveries(
            core, self._ahead, self._timers, self._bound, self._acks, self._waiting, room, is_sending, new_id
        )
        self._use(config, now_ns)
        self._restore(now_ns)

    @property
    def config(self) -> ConsumerConfig:
        return self._core.config

    @property
    def wall_offset_ns(self) -> int:
        return self._core.wall_offset_ns

    @wall_offset_ns.setter
    def wall_offset_ns(self, offset_ns: int) -> None:
        self._core.wall_offset_ns = offset_ns

    # ------------------------------------------------------------------ configuration and start

    def _use(self, config: ConsumerConfig, now_ns: int) -> None:
        self._core.use(config)
        self._bound.use(config)
        self._acks.use(config)
        self._waiting.use(PriorityGroups(config, self._new_id))
        self._deliveries.use(config, now_ns)
        pause_until_ns = config.pause_until_ns
        self._deliveries.is_paused = pause_until_ns is not None and pause_until_ns > now_ns + self.wall_offset_ns

    def _restore(self, now_ns: int) -> None:
        """After a start: timers of what was sent before, by the wall-clock time it was sent."""
        core = self._core

        def due_ns(seq: int, sent_ns: int) -> int:
            # The wall clock may have been set back meanwhile: nothing was sent later than now.
            sent_ns = min(sent_ns - core.wall_offset_ns, now_ns)
            return max(sent_ns + core.ack_wait_ns(core.state.deliveries_of(seq)), 1)

        for seq in core.state.pending.seqs():
            if self._index.subject_of(seq) is None:
                core.op(state.SKIPPED, seq)
        self._set_timers(due_ns)
        self._bound.restore()
        self._bound.recount()

    def reconfigure(self, config: ConsumerConfig, now_ns: int) -> Effects:
        """An update of the configuration was committed (pausing and resuming among them)."""
        old, old_pause_ns, old_filters = self.config, self._paused_until_ns(), self._core.filters
        self._use(config, now_ns)
        if (config.ack_wait_ns, config.backoff_ns) != (old.ack_wait_ns, old.backoff_ns):
            self._wait_otherwise_than(old)
        if self._paused_until_ns() != old_pause_ns:
            self._advise_pause()
        if self._core.filters != old_filters:
            # What somebody has in hand awaits its ack as before: it was not done with because nobody wants more of it.
            self._ahead.begin(self._core.filters)
        self._bound.recount()
        return self._done(now_ns)

    def _wait_otherwise_than(self, old: ConsumerConfig) -> None:
        """What is in hand is awaited as long as the configuration says now, from when it was sent or spoken of last."""
        core, pending = self._core, self.state.pending

        def due_ns(seq: int, sent_ns: int) -> int:
            old_due_ns = pending.due_at(pending.find(seq))
            if not old_due_ns:
                return 0  # it is to be sent again already
            count = core.state.deliveries_of(seq)
            return max(old_due_ns + core.ack_wait_ns(count) - ack_wait_ns(old, count), 1)

        self._set_timers(due_ns)

    def _set_timers(self, due_ns: Callable[[int, int], int]) -> None:
        """Have each pending message, sent at a wall-clock time, due when `due_ns` says; 0: as it is."""
        items = [(due_ns(seq, sent_ns), seq) for seq, _, sent_ns in self.state.pending.items()]
        for due, run in groupby(items, itemgetter(0)):
            seqs = [seq for _, seq in run]
            if due:
                self._timers.set_range(seqs[0], seqs[-1], due)

    # ------------------------------------------------------------------ what clients send

    def pulls(self, asked: Iterable[Asked], now_ns: int) -> Effects:
        """Pull requests (MSG.NEXT) came. All are in the queue before one is served: their priorities count."""
        self._core.last_activity_ns = now_ns
        for one in asked:
            if not one.is_supported:
                self._refuse(one.reply, "412 Required Api Level")
            elif self._core.is_push:
                self._refuse(one.reply, "409 Consumer is push based")
            else:
                if len(self._waiting) >= self._core.config.max_waiting:
                    self._deliveries.run(now_ns)  # some may be served and make room
                self._waiting.take(one.reply, one.body, now_ns)
        return self._done(now_ns)

    def _refuse(self, reply: bytes, line: str) -> None:
        if reply:
            self._core.status(reply, line)

    def acks(self, items: Iterable[AckRun | Said], now_ns: int) -> Effects:
        """What came on this consumer's `$JS.ACK` subjects, in order."""
        for item in items:
            if isinstance(item, AckRun):
                self._core.last_activity_ns = now_ns
                self._acks.take_run(item, now_ns)
            else:
                self._take_said(item, now_ns)
        return self._done(now_ns)

    def _take_said(self, said: Said, now_ns: int) -> None:
        place = parse_subject(said.subject)
        if place is None:
            return
        self._core.last_activity_ns = now_ns
        ack = parse_body(said.body)
        self._acks.take(place, ack, now_ns)
        if ack.word == Word.NEXT:
            self._waiting.take(said.reply, ack.rest, now_ns)
        else:
            self._acks.confirm(place.stream_seq, place.consumer_seq, said.reply)

    def flow_answered(self, subject: bytes, headers: bytes, now_ns: int) -> Effects:
        """A client answered a flow-control request: it published on its reply subject, with a header block or none.

        With that ack policy the header Nats-Last-Stream acknowledges everything up to a message.
        """
        self._core.last_activity_ns = now_ns
        is_awaited = self._deliveries.flow.answered(subject)
        last = get_header(headers, b"Nats-Last-Stream") or b"" if headers else b""
        if is_awaited and self.config.ack_policy == AckPolicy.FLOW_CONTROL and last[:20].isdigit():
            self._acks.take_up_to(min(int(last[:20]), self.state.delivered_stream_seq), now_ns)
        return self._done(now_ns)

    def letter_stored(self, seq: int, now_ns: int) -> Effects:
        """A stream has the dead letter of a message, or the message is not there any more."""
        self._core.op(state.LETTER_STORED, seq)
        self._core.effects.done.append(seq)
        return self._done(now_ns)

    # ------------------------------------------------------------------ what the stream does

    def stream_advanced(self, now_ns: int) -> Effects:
        """Messages were stored, or had been when it began to serve, or its host has sent all that it was told to."""
        return self._done(now_ns)

    def stream_removed(self, removed: Iterable[tuple[int, bytes]], now_ns: int) -> Effects:
        """Single messages (sequence, subject) are gone."""
        delivered_seq = self.state.delivered_stream_seq
        for seq, subject in removed:
            if seq <= delivered_seq:
                self._acks.gone(seq)
            elif self._core.wants(subject):
                self._ahead.removed(seq)
        return self._done(now_ns)

    def stream_purged(self, begin_seq: int, now_ns: int, *, is_counted: bool) -> Effects:
        """A purge or a roll-up: all messages below `begin_seq` that it wants are gone. It stands there now.

        `is_counted`: `stream_removed` was told of each.
        """
        for seq in [seq for seq in self.state.held if seq < begin_seq]:
            self._acks.gone(seq)
        if self.state.floor_stream_seq < begin_seq - 1:
            self._acks.purged(begin_seq)
        self._ahead.purged(begin_seq, is_counted=is_counted)
        return self._done(now_ns)

    @property
    def filters(self) -> tuple[bytes, ...]:
        """The patterns of the subjects it delivers; none: all (`ConsumerView`)."""
        return self._core.filters

    def needs(self, seq: int) -> bool:
        """Whether a message on a wanted subject is not done with (`ConsumerView`)."""
        if seq > self.state.delivered_stream_seq:
            return self._ahead.includes(seq)
        return seq in self.state.pending or seq in self.state.held or seq in self.state.outbox

    # ------------------------------------------------------------------ readers

    def caught_up(self, subject: bytes, now_ns: int) -> Effects:
        """There may be room for what is sent to a subject that was `behind`."""
        self._deliveries.caught_up(subject)
        return self._done(now_ns)

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
        # Deliveries are acknowledged by their sequences: those from before and those from now on must not be the same.
        is_acked_each = self.config.ack_policy in (AckPolicy.EXPLICIT, AckPolicy.ALL)
        consumer_seq = self.state.delivered_consumer_seq if is_acked_each else 0
        self._core.op(state.RESET, start_seq, consumer_seq=consumer_seq)
        self._timers.clear()
        self._bound.clear()
        self._ahead.begin(self._core.filters)
        return self._done(now_ns), start_seq

    def unpin(self, group: str, now_ns: int) -> Effects | ApiError:
        """CONSUMER.UNPIN: let another client of a priority group have its turn."""
        if group not in self.config.priority_groups:
            return errors.CONSUMER_INVALID_PRIORITY_GROUP()
        if self._waiting.groups.pins.pop(group, None) is not None:
            self._advise_unpinned(group, "admin")
        return self._done(now_ns)

    def end_requests(self, line: str) -> Effects:
        """Answer all waiting requests with a status ("409 Consumer Deleted") and forget them."""
        self._waiting.end_all(line)
        return self._core.take_effects()

    def set_bound(self, is_bound: bool, now_ns: int) -> Effects:
        """Somebody began, or nobody continues, to listen on a push consumer's deliver subject."""
        if is_bound != self._deliveries.is_bound:
            self._core.last_activity_ns = now_ns
            self._deliveries.bind(is_bound, now_ns)
        return self._done(now_ns)

    @property
    def is_bound(self) -> bool:
        """Whether somebody listens on the deliver subject."""
        return self._deliveries.is_bound

    def end_ack_wait(self, seq: int, now_ns: int) -> bool:
        """Await the ack of a message no longer, as `tick` will find; whether it was awaited."""
        at = self.state.pending.find(seq)
        if at < 0 or not self.state.pending.due_at(at):
            return False
        self._timers.set(seq, now_ns)
        return True

    def info(self, now_ns: int) -> ConsumerInfo:
        """What CONSUMER.INFO reports, without cluster."""
        core, current, pins = self._core, self.state, self._waiting.groups.pins
        is_paused, pause_until_ns = self._deliveries.is_paused, self.config.pause_until_ns
        wall_ns = now_ns + core.wall_offset_ns
        return ConsumerInfo(
            stream_name=self.identity.stream,
            name=self.identity.consumer,
            created_ns=self.identity.created_ns,
            config=self.config,
            delivered=SequenceInfo(
                current.delivered_consumer_seq, current.delivered_stream_seq, core.last_delivered_ns
            ),
            ack_floor=SequenceInfo(current.floor_consumer_seq, current.floor_stream_seq, core.last_acked_ns),
            num_ack_pending=len(current.pending),
            num_redelivered=len(current.redelivered),
            num_waiting=len(self._waiting),
            num_pending=self._ahead.undelivered(),
            push_bound=self._deliveries.is_bound,
            paused=is_paused,
            pause_remaining_ns=pause_until_ns - wall_ns if is_paused and pause_until_ns is not None else 0,
            ts_ns=wall_ns,
            priority_groups=[
                PriorityGroupState(
                    group,
                    pins[group].client_id if group in pins else "",
                    pins[group].since_ns if group in pins else None,
                )
                for group in dict.fromkeys(self.config.priority_groups)
            ],
        )

    def _done(self, now_ns: int) -> Effects:
        """Deliver what may be delivered now; what is to be carried out."""
        self._deliveries.run(now_ns)
        return self._core.take_effects()

    # ------------------------------------------------------------------ time

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do; None: only when something happens."""
        config, deliveries = self.config, self._deliveries
        candidates = [self._timers.next_ns(), *self._waiting.deadlines(), deliveries.again_ns, self._inactive_from_ns()]
        if self._core.is_push and deliveries.is_bound and config.idle_heartbeat_ns:
            candidates.append(deliveries.heartbeat_due_ns)
        if deliveries.is_paused and config.pause_until_ns is not None:
            candidates.append(config.pause_until_ns - self.wall_offset_ns)
        return min([deadline_ns for deadline_ns in candidates if deadline_ns is not None], default=None)

    def tick(self, now_ns: int) -> Effects:
        """Time passed."""
        deliveries, pause_until_ns = self._deliveries, self.config.pause_until_ns
        if deliveries.is_paused and pause_until_ns is not None and pause_until_ns <= now_ns + self.wall_offset_ns:
            deliveries.is_paused = False
            self._advise_pause()
        for group in self._waiting.groups.expire(now_ns):
            self._advise_unpinned(group, "timeout")
        self._acks.expire(now_ns)
        deliveries.run(now_ns)
        self._send_heartbeats(now_ns)
        inactive_from_ns = self._inactive_from_ns()
        self._core.effects.is_inactive = inactive_from_ns is not None and inactive_from_ns <= now_ns
        return self._core.take_effects()

    def _send_heartbeats(self, now_ns: int) -> None:
        deliveries, heartbeat_ns = self._deliveries, self.config.idle_heartbeat_ns
        self._waiting.tick(now_ns)
        if self._core.is_push and deliveries.is_bound and heartbeat_ns and deliveries.heartbeat_due_ns <= now_ns:
            flow = deliveries.flow
            has_flow_acks = self.config.ack_policy == AckPolicy.FLOW_CONTROL
            stalled: tuple[tuple[str, object], ...] = ()
            if flow.request_subject and (has_flow_acks or not flow.is_open()):
                stalled = (("Nats-Consumer-Stalled", flow.request_subject.decode()),)
            self._core.heartbeat(to_bytes(self.config.deliver_subject), *stalled)
            deliveries.heartbeat_due_ns = now_ns + heartbeat_ns
            if has_flow_acks and len(self.state.pending):
                deliveries.ask_for_answer()

    def _inactive_from_ns(self) -> int | None:
        """When the consumer counts as unused; None: it is in use, or never does."""
        threshold_ns = self.config.inactive_threshold_ns
        if not threshold_ns or self._deliveries.is_bound or len(self._waiting) or self.state.outbox:
            return None
        # A delivery whose ack is awaited is use, until its time is over.
        if len(self.state.pending) > len(self._timers.ready) and not self._core.is_push:
            return None
        return self._core.last_activity_ns + threshold_ns

    # ------------------------------------------------------------------ events

    def _paused_until_ns(self) -> int | None:
        return self.config.pause_until_ns if self._deliveries.is_paused else None

    def _advise_pause(self) -> None:
        self._core.advise(advisories.consumer_pause(self.identity, self._paused_until_ns()))

    def _advise_unpinned(self, group: str, reason: str) -> None:
        self._core.advise(advisories.group_unpinned(self.identity, group, reason))
