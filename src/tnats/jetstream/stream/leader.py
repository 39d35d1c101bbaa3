"""The stream's leader: judges what is published, and turns it into log entries.

Purpose. `admit` takes a batch from the broker, decides for each message, and gives back one `Append` entry for those
that will be stored, and the answers for those that will not. Decisions are against the applied state plus what is
in flight (admitted, not yet applied): sequences, ids, subjects and limits are those that will hold when the entry
applies, since entries apply in the order of admission.

Theory. An entry in flight commits, or this server's leadership ends and nothing after it commits either; so an
answer that rests on in-flight entries waits in `Append.after` for the last of them. `reset` drops everything that
only a leader has: in-flight entries, open batches, counter totals.

The common path, a message without headers on a stream without special rules, is one short loop.

The host's duties: subscribe to the stream's subjects; give `admit` what arrives, with the wall clock; propose the
entry; once it is committed, apply it to the machine, call `applied`, send `answers`; fetch the contents that
`wanted_totals` names before admitting to a counter stream; call `expire` when `next_deadline_ns` has come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import attrs

from tnats.errors import ensure
from tnats.jetstream.api import errors
from tnats.jetstream.api.advisories import Advisory, batch_abandoned
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.levels import REQUIRED_LEVEL_HEADER, supports
from tnats.jetstream.api.messages import JSApiMsgDeleteRequest, JSApiStreamPurgeRequest
from tnats.jetstream.stream import counters, schedules
from tnats.jetstream.stream import headers as header
from tnats.jetstream.stream.batches import AtomicBatches, BatchBudget
from tnats.jetstream.stream.config import Discard, Retention, StreamConfig
from tnats.jetstream.stream.counters import CounterTotals
from tnats.jetstream.stream.cron import find_zone
from tnats.jetstream.stream.entries import Append, Entry, Expire, Message, Purge, Remove, Reply, Skip
from tnats.jetstream.stream.fast_batches import SUFFIX, Control, FastBatches, parse_control
from tnats.jetstream.stream.interest import InterestTable
from tnats.jetstream.stream.machine import StreamMachine
from tnats.jetstream.stream.ports import Inbound
from tnats.jetstream.stream.ttl import NEVER, TTL_HEADER, marker_headers, parse_ttl, ttl_text
from tnats.limits import MESSAGE_HEADERS_BYTES_MAX, SECOND_NS
from tnats.subjects.draw import Draw
from tnats.subjects.tokens import subject_matches, to_bytes, to_text
from tnats.subjects.transforms import Transform
from tnats.wire.documents import encode_document
from tnats.wire.headers import set_header

SCHEDULE_REST_NS = SECOND_NS

NO_BLOCK: Mapping[bytes, bytes] = {}


@attrs.define
class Admission:
    """What became of a batch: the entry to propose (None: nothing to store), and what to send at once."""

    entry: Append | None = None
    replies: list[Reply] = attrs.field(factory=list)
    advisories: list[Advisory] = attrs.field(factory=list)


class _Refused(Exception):
    """A message is not stored. Never leaves this module."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error)
        self.error = error


class StreamLeader:
    """The leader's side of one stream."""

    def __init__(
        self,
        machine: StreamMachine,
        interest: InterestTable,
        budget: BatchBudget,
        draw: Draw,
        *,
        account: str,
        domain: str,
    ) -> None:
        """`budget` is shared by all streams of the server; `draw` serves random subject transforms."""
        self.machine = machine
        self.interest = interest
        self._account = account
        self._domain = domain
        self._draw = draw
        self._in_flight: deque[Append] = deque()
        self._in_flight_bytes = 0
        self._in_flight_count = 0
        self._next_seq = machine.store.last_seq + 1
        self._ids: dict[bytes, int] = {}
        self._last_id = machine.duplicates.last
        self._rolled_up_below = 0
        """What lies below is gone, or will be when what is in flight applies: the newest roll-up of everything."""
        self._totals = CounterTotals()
        self._undo: list[tuple[bytes, counters.Total | None, bool]] | None = None
        self._batches = AtomicBatches(budget)
        self._fast = FastBatches(machine.config.name, budget)
        self._expiries_in_flight = 0
        self._markers: Append | None = None
        self._firing: dict[bytes, Append] = {}
        self._handed_out: dict[bytes, None] = {}
        """Schedules that the host is about to fire."""
        self._schedules_from_ns = 0
        self.reconfigure()

    @property
    def config(self) -> StreamConfig:
        """The configuration in force."""
        return self.machine.config

    def reconfigure(self) -> None:
        """The machine's configuration changed: derive anew what depends on it."""
        config = self.config
        self.interest.retention = config.retention
        name = encode_document(config.name)
        domain = b', "domain":%b, ' % encode_document(self._domain) if self._domain else b","
        self._ack_head = b'{"stream":%b%b"seq":' % (name, domain)
        self._refusal_tail = b',"stream":%b,"seq":0}' % name
        self._size_max = config.max_msg_size if config.max_msg_size > 0 else 2**62
        transform = config.subject_transform
        self._transform = Transform(transform.src, transform.dest) if transform is not None and transform.dest else None
        if not config.allow_atomic:
            self._batches.clear()
        if not config.allow_batched:
            self._fast.clear()
        self._is_plain = not (
            config.sealed
            or config.allow_msg_counter
            or config.discard == Discard.NEW
            or config.retention == Retention.INTEREST
            or self._transform is not None
        )

    # ------------------------------------------------------------------ admission

    def admit(self, batch: Sequence[Inbound], now_ns: int) -> Admission:
        """Judge published messages. `now_ns`: wall clock, the time of all that is stored of them."""
        admission = Admission()
        messages: list[Message] = []
        entry = Append(self._next_seq, self._stamp(now_ns), messages, [])
        add, add_reply = messages.append, entry.replies.append
        is_plain, size_max = self._is_plain, self._size_max
        for message in batch:
            data, reply = message.data, message.reply
            if is_plain and not message.header_size and len(data) <= size_max and reply[-4:] != SUFFIX:
                add((message.subject, b"", data))
                add_reply(reply)
            else:
                size = message.header_size
                self._admit_one((message.subject, data[:size], data[size:]), reply, entry, admission)
        return self._finish(entry, admission)

    def _stamp(self, now_ns: int) -> int:
        # Times rise with sequences, although wall clocks step back.
        last_ns = self._in_flight[-1].ts_ns if self._in_flight else self.machine.store.last_ts_ns or 0
        return max(now_ns, last_ns)

    def _finish(self, entry: Append, admission: Admission) -> Admission:
        if self._batches.abandoned:
            for gone in self._batches.take_abandoned():
                admission.advisories.append(
                    batch_abandoned(self._account, self.config.name, to_text(gone.batch_id), gone.reason)
                )
        if entry.messages:
            self._next_seq = entry.next_seq
            self._in_flight.append(entry)
            self._in_flight_bytes += entry.size_bytes
            self._in_flight_count += entry.added_count
            admission.entry = entry
        elif entry.after:
            # Nothing of its own to wait for, but what is in flight before it.
            answers = [answer for _, answer in entry.after]
            if self._in_flight:
                last = self._in_flight[-1]
                last.after.extend((len(last.messages), answer) for answer in answers)
            else:
                admission.replies.extend(answers)
        return admission

    def _admit_one(self, message: Message, reply: bytes, entry: Append, admission: Admission) -> None:
        headers = header.nats_headers(message[1]) if message[1] else NO_BLOCK
        if reply.endswith(SUFFIX):
            self._admit_fast(message, reply, headers, entry)
        elif headers.get(header.BATCH_ID):
            self._admit_staged(message, reply, headers, entry, admission)
        else:
            try:
                self._judge(message, headers, reply, entry)
            except _Refused as refused:
                self._send_refusal(refused.error, reply, admission)

    def _send_refusal(self, error: ApiError, reply: bytes, admission: Admission) -> None:
        if reply and not self.config.no_ack:
            admission.replies.append((reply, self.refusal(error)))

    def refusal(self, error: ApiError) -> bytes:
        """The answer to a publish that is not stored."""
        return b'{"error":' + encode_document(error.to_json()) + self._refusal_tail

    def _admit_staged(
        self, message: Message, reply: bytes, headers: Mapping[bytes, bytes], entry: Append, admission: Admission
    ) -> None:
        error: ApiError | None = None
        if not self.config.allow_atomic:
            error = errors.ATOMIC_PUBLISH_DISABLED()
        elif self.config.sealed:
            error = errors.STREAM_SEALED()
        elif not supports(headers.get(REQUIRED_LEVEL_HEADER) or None):
            error = errors.REQUIRED_API_LEVEL()
        elif len(message[1]) + len(message[2]) > self._size_max:
            error = errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()
        committed = None
        if self.config.allow_atomic:
            outcome = self._batches.add(message, headers, entry.ts_ns, error)
            error, committed = outcome.error, outcome.committed
        if error is not None:
            self._send_refusal(error, reply, admission)
        elif committed is None:
            if reply and not self.config.no_ack:
                admission.replies.append((reply, b""))
        else:
            self._commit_batch(to_text(headers[header.BATCH_ID]), committed, reply, entry, admission)

    def _commit_batch(
        self, batch_id: str, messages: list[Message], reply: bytes, entry: Append, admission: Admission
    ) -> None:
        """Judge a whole batch; one refusal takes all of it back."""
        count, size_bytes, added_count = len(entry.messages), entry.size_bytes, entry.added_count
        last_id, ids, rolled_up_below = self._last_id, list(self._ids), self._rolled_up_below
        self._undo = []
        first_seq = entry.next_seq
        try:
            for message in messages:
                self._judge(message, header.nats_headers(message[1]), b"", entry, batch_first_seq=first_seq)
        except _Refused as refused:
            entry.truncate(count)
            entry.size_bytes, entry.added_count, self._last_id = size_bytes, added_count, last_id
            self._ids = {msg_id: self._ids[msg_id] for msg_id in ids}
            self._rolled_up_below = rolled_up_below
            for subject, total, was_known in reversed(self._undo):
                if was_known:
                    self._totals.learn(subject, total)
            self._send_refusal(refused.error, reply, admission)
            return
        finally:
            self._undo = None
        for offset in range(count, len(entry.messages)):
            entry.acks[offset] = None
        last = len(entry.messages) - 1
        entry.replies[last] = reply
        entry.acks[last] = b'%b%d,"batch":%b,"count":%d}' % (
            self._ack_head,
            entry.first_seq + last,
            encode_document(batch_id),
            len(messages),
        )

    def _admit_fast(self, message: Message, reply: bytes, headers: Mapping[bytes, bytes], entry: Append) -> None:
        control: Control | ApiError
        if not self.config.allow_batched:
            control = errors.BATCH_PUBLISH_DISABLED()
        elif not supports(headers.get(REQUIRED_LEVEL_HEADER) or None):
            control = errors.REQUIRED_API_LEVEL()
        else:
            control = parse_control(reply)
        if isinstance(control, ApiError):
            entry.answer_after(reply, [self.refusal(control)])
            return
        answers, is_stored = self._fast.begin(control, entry.ts_ns)
        entry.answer_after(reply, answers)
        if is_stored:
            self._store_fast(control, message, reply, headers, entry)

    def _store_fast(
        self, control: Control, message: Message, reply: bytes, headers: Mapping[bytes, bytes], entry: Append
    ) -> None:
        offset, answers_count = len(entry.messages), len(entry.after)
        try:
            self._judge(message, headers, reply, entry)
        except _Refused as refused:
            entry.answer_after(reply, self._fast.refused(control, refused.error))
            return
        if len(entry.messages) == offset:
            # A duplicate: stored before, and answered in the batch's own way.
            del entry.after[answers_count:]
            seq = self._stored_seq(headers[header.MSG_ID], entry)
            answer = self._fast.stored(control, seq, is_duplicate=True)
            if answer is not None:
                entry.answer_after(reply, [answer])
        else:
            entry.acks[offset] = self._fast.stored(control, entry.first_seq + offset)

    # ------------------------------------------------------------------ judging one message

    def _judge(
        self, message: Message, headers: Mapping[bytes, bytes], reply: bytes, entry: Append, *, batch_first_seq: int = 0
    ) -> None:
        """Add a message to the entry, or raise _Refused; a duplicate is answered and not added.

        `batch_first_seq`: the sequence at which the message's atomic batch begins, 0 outside of one.
        """
        config = self.config
        subject, block, payload = message
        if self._transform is not None and self._transform.matches(subject):
            subject = self._transform.apply(subject, self._draw)
        if config.sealed:
            raise _Refused(errors.STREAM_SEALED())
        ack: bytes | None = None
        msg_id = headers.get(header.MSG_ID)
        has_rules = len(headers) > (msg_id is not None)
        if has_rules:
            self._check_allowed(headers)
            self._check_expectations(subject, headers, entry, batch_first_seq)
            block = self._check_schedule(subject, headers, block, entry)
            block = self._with_ttl_floor(headers, block)
        if block:
            block = header.storable(block)
        if msg_id and self._answer_duplicate(msg_id, reply, entry, batch_first_seq):
            return
        if has_rules:
            self._check_last_id(headers, entry.next_seq - 1)
            self._check_rollup(subject, headers, entry, batch_first_seq)
        if config.allow_msg_counter:
            block, payload, total = self._count(subject, headers, block, payload)
            ack = b'%b%d,"val":"%d"}' % (self._ack_head, entry.next_seq, total)
        if len(block) > MESSAGE_HEADERS_BYTES_MAX:
            raise _Refused(errors.STREAM_HEADER_EXCEEDS_MAXIMUM())
        if len(block) + len(payload) > self._size_max:
            raise _Refused(errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM())
        is_dropped = self.interest.drops(subject)
        if config.discard == Discard.NEW and not is_dropped:
            self._check_limits((subject, block, payload), headers, entry)
        self._store((subject, block, payload), reply, ack, is_dropped, msg_id, entry)
        if has_rules and headers.get(header.ROLLUP, b"").lower() == header.ROLLUP_ALL:
            self._rolled_up_below = entry.next_seq - 1

    def _store(
        self, message: Message, reply: bytes, ack: bytes | None, is_dropped: bool, msg_id: bytes | None, entry: Append
    ) -> None:
        offset = len(entry.messages)
        if msg_id:
            self._ids[msg_id] = offset + entry.first_seq
            self._last_id = (msg_id, offset + entry.first_seq)
        assert isinstance(entry.messages, list)
        entry.messages.append(message)
        entry.replies.append(reply)
        if ack is not None:
            entry.acks[offset] = ack
        if is_dropped:
            entry.dropped[offset] = None

    def _check_allowed(self, headers: Mapping[bytes, bytes]) -> None:
        """Headers that need a feature of the stream, or are not for clients."""
        config = self.config
        increment = headers.get(counters.INCREMENT_HEADER)
        if increment and config.allow_msg_counter:
            if any(headers.get(key) for key in counters.FORBIDDEN_HEADERS):
                raise _Refused(errors.MESSAGE_INCR_INVALID())
        elif increment:
            is_valid = counters.parse_increment(increment) is not None
            raise _Refused(errors.MESSAGE_INCR_DISABLED() if is_valid else errors.MESSAGE_INCR_INVALID())
        expected_stream = headers.get(header.EXPECTED_STREAM)
        if expected_stream and to_text(expected_stream) != config.name:
            raise _Refused(errors.STREAM_NOT_MATCH())
        ttl = headers.get(TTL_HEADER)
        if ttl:
            if parse_ttl(ttl) is None:
                raise _Refused(errors.MESSAGE_TTL_INVALID())
            if not config.allow_msg_ttl:
                raise _Refused(errors.MESSAGE_TTL_DISABLED())
        if headers.get(header.STREAM_SOURCE):
            raise _Refused(errors.MESSAGE_SOURCE_HDR_NOT_ALLOWED())

    def _check_expectations(
        self, subject: bytes, headers: Mapping[bytes, bytes], entry: Append, batch_first_seq: int
    ) -> None:
        wanted = headers.get(header.EXPECTED_LAST_SUBJECT_SEQ)
        pattern = headers.get(header.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT)
        if wanted:
            pattern = pattern or subject
            if batch_first_seq and entry.last_seq_of(pattern) >= batch_first_seq:
                raise _Refused(errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT())
            last_seq = self._last_seq_of(pattern, entry)
            if header.parse_seq(wanted) != last_seq:
                raise _Refused(errors.STREAM_WRONG_LAST_SEQUENCE(seq=last_seq))
        elif pattern:
            raise _Refused(errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID())
        wanted = headers.get(header.EXPECTED_LAST_SEQ)
        if wanted:
            if header.parse_seq(wanted) != entry.next_seq - 1:
                raise _Refused(errors.STREAM_WRONG_LAST_SEQUENCE(seq=entry.next_seq - 1))
            if batch_first_seq and entry.next_seq > batch_first_seq:
                # Only its first message can know what came before the batch.
                raise _Refused(errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT())

    def _last_seq_of(self, pattern: bytes, entry: Append) -> int:
        """The last sequence on a subject or pattern when the next message of `entry` applies."""
        found = entry.last_seq_of(pattern)
        for pending in reversed(self._in_flight):
            found = found or pending.last_seq_of(pattern)
        found = found or self.machine.store.last_seq_of(pattern)
        return found if found >= self._rolled_up_below else 0

    def _check_schedule(self, subject: bytes, headers: Mapping[bytes, bytes], block: bytes, entry: Append) -> bytes:
        """The block of a schedule, which rolls up its subject; other blocks unchanged."""
        is_schedule = bool(headers.get(schedules.SCHEDULE))
        if is_schedule and not self.config.allow_msg_schedules:
            raise _Refused(errors.MESSAGE_SCHEDULES_DISABLED())
        zone = headers.get(schedules.ZONE)
        if zone is not None and find_zone(to_text(zone)) is None:
            allowed = self.config.allow_msg_schedules
            raise _Refused(
                errors.MESSAGE_SCHEDULES_TIME_ZONE_INVALID() if allowed else errors.MESSAGE_SCHEDULES_DISABLED()
            )
        error = None
        if headers.get(schedules.SCHEDULER) or headers.get(schedules.NEXT):
            error = schedules.check_scheduler(subject, headers)
            if error is None and not self.config.allow_msg_schedules:
                error = errors.MESSAGE_SCHEDULES_DISABLED()
            if error is None and not self._is_cancellable(headers[schedules.SCHEDULER], entry):
                error = errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
        if error is None and is_schedule:
            error = schedules.check(subject, headers, self.config.allow_msg_ttl, self.captures)
        if error is not None:
            raise _Refused(error)
        return set_header(block, header.ROLLUP, header.ROLLUP_SUBJECT) if is_schedule else block

    def _is_cancellable(self, subject: bytes, entry: Append) -> bool:
        """Whether the last message of a subject is a schedule, or there is none: who cancels may not delete others."""
        seq = self._last_seq_of(subject, entry)
        if not seq or self.machine.schedules.seq_of(subject) == seq:
            return True
        for pending in (entry, *self._in_flight):
            if pending.first_seq <= seq < pending.next_seq:
                block = pending.messages[seq - pending.first_seq][1]
                return bool(header.nats_headers(block).get(schedules.SCHEDULE))
        return False

    def captures(self, subject: bytes) -> bool:
        """Whether the stream's subjects take this one in."""
        return any(subject_matches(captured, subject) for captured in self.config.subjects)

    def _with_ttl_floor(self, headers: Mapping[bytes, bytes], block: bytes) -> bytes:
        # A message may not end before the marker of the one it replaced: a reader could miss both.
        floor_ns = self.config.subject_delete_marker_ttl_ns
        if not floor_ns or self.config.max_msgs_per_subject == 1 or TTL_HEADER not in headers:
            return block
        ttl_ns = parse_ttl(headers[TTL_HEADER])
        if not ttl_ns or ttl_ns == NEVER or ttl_ns >= floor_ns:
            return block
        return set_header(block, TTL_HEADER, ttl_text(floor_ns))

    def _answer_duplicate(self, msg_id: bytes, reply: bytes, entry: Append, batch_first_seq: int) -> bool:
        seq = self._stored_seq(msg_id, entry)
        if not seq:
            return False
        if batch_first_seq:
            raise _Refused(errors.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE())
        if reply and not self.config.no_ack:
            entry.answer_after(reply, [b'%b%d,"duplicate": true}' % (self._ack_head, seq)])
        return True

    def _stored_seq(self, msg_id: bytes, entry: Append) -> int:
        """Under which sequence a message with this id is stored or about to be, 0 if none is."""
        return self._ids.get(msg_id) or self.machine.duplicates.find(msg_id, entry.ts_ns)

    def _check_last_id(self, headers: Mapping[bytes, bytes], last_seq: int) -> None:
        wanted = headers.get(header.EXPECTED_LAST_MSG_ID)
        if not wanted:
            return
        # The id of the last message, which may have none.
        last_id = self._last_id[0] if self._last_id[1] == last_seq else b""
        if wanted != last_id:
            raise _Refused(errors.STREAM_WRONG_LAST_MSG_ID(id=to_text(last_id)))

    def _check_rollup(
        self, subject: bytes, headers: Mapping[bytes, bytes], entry: Append, batch_first_seq: int
    ) -> None:
        rollup = headers.get(header.ROLLUP)
        if not rollup:
            return
        if not self.config.allow_rollup_hdrs or self.config.deny_purge:
            raise _Refused(errors.STREAM_ROLLUP_FAILED(err="rollup not permitted"))
        value = rollup.lower()
        if value not in (header.ROLLUP_SUBJECT, header.ROLLUP_ALL):
            raise _Refused(errors.STREAM_ROLLUP_FAILED(err=f'rollup value invalid: "{to_text(rollup)}"'))
        if batch_first_seq:
            # A roll-up inside a batch would take away what the same batch stores.
            if value == header.ROLLUP_ALL and entry.next_seq > batch_first_seq:
                raise _Refused(errors.STREAM_ROLLUP_FAILED(err="batch rollup all invalid"))
            if value == header.ROLLUP_SUBJECT and entry.last_seq_of(subject) >= batch_first_seq:
                raise _Refused(errors.STREAM_ROLLUP_FAILED(err="batch rollup sub invalid"))

    def _count(
        self, subject: bytes, headers: Mapping[bytes, bytes], block: bytes, payload: bytes
    ) -> tuple[bytes, bytes, int]:
        """(block, body, new total) of a counter's message."""
        text = headers.get(counters.INCREMENT_HEADER)
        if not text:
            raise _Refused(errors.MESSAGE_INCR_MISSING())
        if payload:
            raise _Refused(errors.MESSAGE_INCR_PAYLOAD())
        increment = counters.parse_increment(text)
        if increment is None:
            raise _Refused(errors.MESSAGE_INCR_INVALID())
        old = self._total_of(subject)
        if old is None:
            raise _Refused(errors.MESSAGE_COUNTER_BROKEN())
        new = attrs.evolve(old, value=old.value + increment)
        if self._undo is not None:
            self._undo.append((subject, old, True))
        self._totals.learn(subject, new)
        return *counters.counted_message(block, new), new.value

    def _total_of(self, subject: bytes) -> counters.Total | None:
        if self._totals.is_known(subject):
            return self._totals.get(subject)
        ensure(
            not self.machine.store.last_seq_of(subject),
            f"stream {self.config.name}: the total of {to_text(subject)} was not fetched before admission",
        )
        return counters.Total()

    def _check_limits(self, message: Message, headers: Mapping[bytes, bytes], entry: Append) -> None:
        """Discard policy "new": refuse what would exceed a limit when it applies; keep account of what does not."""
        config, store, subject = self.config, self.machine.store, message[0]
        replaces, replaced_bytes = False, 0
        rolls_up = bool(headers.get(header.ROLLUP))
        if config.max_msgs_per_subject > 0 or rolls_up:
            ahead = entry.count_of(subject) + sum(pending.count_of(subject) for pending in self._in_flight)
            count = store.count_of(subject) + ahead
            replaces = count > 0 if rolls_up else count >= config.max_msgs_per_subject
            if replaces and not rolls_up and config.discard_new_per_subject:
                raise _Refused(errors.STREAM_STORE_FAILED(err="maximum messages per subject exceeded"))
            if replaces and not ahead:
                replaced_bytes = store.size_of(store.first_seq_of(subject))
        count = store.messages + self._in_flight_count + entry.added_count
        if 0 < config.max_msgs <= count and not replaces:
            raise _Refused(errors.STREAM_STORE_FAILED(err="maximum messages exceeded"))
        added_bytes = store.message_bytes(*message) - replaced_bytes
        size = store.total_bytes + self._in_flight_bytes + entry.size_bytes + added_bytes
        if 0 < config.max_bytes < size:
            raise _Refused(errors.STREAM_STORE_FAILED(err="maximum bytes exceeded"))
        entry.size_bytes += added_bytes
        entry.added_count += not replaces

    # ------------------------------------------------------------------ commitment

    def applied(self, entry: Entry) -> None:
        """The machine applied an entry of this leader's (or of the one before it)."""
        if isinstance(entry, Append):
            if self._in_flight and self._in_flight[0] is entry:
                self._in_flight.popleft()
                self._in_flight_bytes -= entry.size_bytes
                self._in_flight_count -= entry.added_count
                self._forget_in_flight(entry)
            else:
                ensure(not self._in_flight, f"stream {self.config.name}: entries applied out of order")
                self._next_seq = entry.next_seq
        elif isinstance(entry, Expire):
            self._expiries_in_flight -= 1
        elif isinstance(entry, Remove | Purge):
            # A counter starts anew once its subject is empty; increments in flight go on from where they were.
            self._totals.retain(lambda subject: any(pending.last_seq_of(subject) for pending in self._in_flight))
        elif isinstance(entry, Skip):
            ensure(not self._in_flight, f"stream {self.config.name}: a mirror that takes publishes")
            self._next_seq = self.machine.store.last_seq + 1
        else:
            self.reconfigure()

    def _forget_in_flight(self, entry: Append) -> None:
        if entry is self._markers:
            self._markers = None
            self._expiries_in_flight -= 1
        if self._firing:
            for scheduler in [scheduler for scheduler, firing in self._firing.items() if firing is entry]:
                del self._firing[scheduler]
        if not self._ids:
            return
        gone = []
        for msg_id, seq in self._ids.items():
            if seq >= entry.next_seq:
                break
            gone.append(msg_id)
        for msg_id in gone:
            del self._ids[msg_id]

    def answers(self, entry: Append) -> list[Reply]:
        """What to send now that the entry is committed."""
        replies, acks, head = entry.replies, entry.acks, self._ack_head
        if self.config.no_ack or not replies:
            return [answer for _, answer in entry.after]
        seq = entry.first_seq
        if not acks and not entry.after:
            return [(reply, b"%b%d}" % (head, seq + offset)) for offset, reply in enumerate(replies) if reply]
        answers: list[Reply] = []
        after, sent = entry.after, 0
        for offset, reply in enumerate(replies):
            while sent < len(after) and after[sent][0] <= offset:
                answers.append(after[sent][1])
                sent += 1
            if reply:
                answer = acks.get(offset, head)
                if answer is head:
                    answer = b"%b%d}" % (head, seq + offset)
                if answer is not None:
                    answers.append((reply, answer))
        answers.extend(answer for _, answer in after[sent:])
        return answers

    def admit_sourced(self, messages: list[Message], now_ns: int) -> tuple[Admission, int]:
        """Store messages of other streams, which have judged them, and how many were taken before there was no room.

        An id that the window knows is passed over. A counter grows by what its origin's total has grown by.
        """
        config = self.config
        entry = Append(self._next_seq, now_ns, [], [])
        for count, sourced in enumerate(messages):
            headers = header.nats_headers(sourced[1])
            msg_id = headers.get(header.MSG_ID)
            message = self._count_sourced(sourced, headers) if config.allow_msg_counter else sourced
            if message is None or (msg_id and self._stored_seq(msg_id, entry)):
                continue
            is_dropped = self.interest.drops(message[0])
            if config.discard == Discard.NEW and not is_dropped:
                try:
                    self._check_limits(message, headers, entry)
                except _Refused:
                    return self._finish(entry, Admission()), count
            self._store(message, b"", None, is_dropped, msg_id, entry)
        return self._finish(entry, Admission()), len(messages)

    def _count_sourced(self, message: Message, headers: Mapping[bytes, bytes]) -> Message | None:
        """A counter's message of another stream as it is stored here; None if it is none."""
        subject, block, payload = message
        if not headers.get(counters.INCREMENT_HEADER):
            return None
        old = self._total_of(subject)
        counted = counters.merge_sourced(block, payload, headers.get(header.STREAM_SOURCE, b""), old)
        if counted is None:
            return None
        block, payload, new = counted
        self._totals.learn(subject, new)
        return subject, block, payload

    def reset(self) -> list[Advisory]:
        """Leadership began or ended: drop what only a leader has. The advisories of abandoned batches."""
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self._in_flight_count = 0
        self._next_seq = self.machine.store.last_seq + 1
        self._ids.clear()
        self._last_id = self.machine.duplicates.last
        self._rolled_up_below = 0
        self._totals.clear()
        self._batches.clear()
        self._fast.clear()
        self._expiries_in_flight = 0
        self._markers = None
        self._firing.clear()
        self._handed_out.clear()
        return self._finish(Append(self._next_seq, 0, [], []), Admission()).advisories

    # ------------------------------------------------------------------ counters

    def wanted_totals(self, batch: Sequence[Inbound]) -> list[int]:
        """Sequences whose contents must be given to `learn_total` before `admit(batch)` (counter streams only)."""
        if not self.config.allow_msg_counter:
            return []
        wanted: dict[int, None] = {}
        for message in batch:
            subject = message.subject
            if self._transform is not None and self._transform.matches(subject):
                subject = self._transform.apply(subject, self._draw)
            if not self._totals.is_known(subject):
                seq = self.machine.store.last_seq_of(subject)
                if seq:
                    wanted[seq] = None
        return list(wanted)

    def learn_total(self, message: Message) -> None:
        """The content of a message that `wanted_totals` or `wanted_total` named."""
        if not self._totals.is_known(message[0]):
            self._totals.learn(message[0], counters.parse_total(message[1], message[2]))

    def wanted_total(self, subject: bytes) -> int:
        """The sequence whose content must be given to `learn_total` before `admit_sourced`; 0: none."""
        return 0 if self._totals.is_known(subject) else self.machine.store.last_seq_of(subject)

    # ------------------------------------------------------------------ time

    def next_deadline_ns(self) -> int | None:
        """When `expire` has something to do, by the wall clock; None: nothing is waiting."""
        candidates = [self._batches.next_deadline_ns(), self._fast.next_deadline_ns()]
        if not self._expiries_in_flight:
            candidates.append(self.machine.next_expiry_ns())
        if not self._firing and not self._handed_out:
            due_ns = self.machine.schedules.next_deadline_ns()
            candidates.append(due_ns and max(due_ns, self._schedules_from_ns))
        return min((deadline_ns for deadline_ns in candidates if deadline_ns is not None), default=None)

    def expire(self, now_ns: int) -> tuple[Expire | None, Admission]:
        """End what is over: (an entry that removes messages, delete markers to store); propose them in this order."""
        self._batches.expire(now_ns)
        self._fast.expire(now_ns)
        admission = Admission()
        markers = Append(self._next_seq, self._stamp(now_ns), [], [])
        entry = None
        if not self._expiries_in_flight:
            removed, marked = self.machine.expired(now_ns)
            if removed:
                entry = Expire(now_ns)
            marker_ttl_ns = self.config.subject_delete_marker_ttl_ns
            for seq in marked:
                subject = self.machine.store.subject_of(seq)
                if subject is not None and self._last_seq_of(subject, markers) == seq:
                    self._store((subject, marker_headers(marker_ttl_ns), b""), b"", None, False, None, markers)
            if markers.messages:
                self._markers = markers
            self._expiries_in_flight = (entry is not None) + bool(markers.messages)
        return entry, self._finish(markers, admission)

    def due_schedules(self, now_ns: int) -> list[schedules.Due]:
        """The schedules whose time has come, each once: the host owes each a `fire` or a `put_off`."""
        due = [
            one
            for one in self.machine.schedules.due(now_ns)
            if one.subject not in self._firing and one.subject not in self._handed_out
        ]
        self._handed_out.update((one.subject, None) for one in due)
        return due

    def put_off(self, due: schedules.Due, now_ns: int) -> None:
        """A schedule could not be read: it stays due, and is tried again in a while."""
        self._handed_out.pop(due.subject, None)
        self._schedules_from_ns = now_ns + SCHEDULE_REST_NS

    def fire(self, due: schedules.Due, schedule: Message, content: tuple[bytes, bytes], now_ns: int) -> Admission:
        """Store one firing of a schedule, unless it was cancelled or replaced meanwhile.

        `schedule`: its message; `content`: header block and payload of the sampled message, or of the schedule.
        """
        self._handed_out.pop(due.subject, None)
        if self.machine.schedules.seq_of(due.subject) != due.seq:
            return Admission()
        headers = header.nats_headers(schedule[1])
        next_value = self.machine.schedules.next_of(due.subject, now_ns)
        message = schedules.fired_message(due.subject, headers, content, next_value)
        entry = Append(self._next_seq, self._stamp(now_ns), [], [])
        self._store(message, b"", None, self.interest.drops(message[0]), None, entry)
        self._firing[due.subject] = entry
        return self._finish(entry, Admission())

    # ------------------------------------------------------------------ requests of the API

    def delete_message(self, request: JSApiMsgDeleteRequest) -> Remove | ApiError:
        """The entry of STREAM.MSG.DELETE, or its refusal."""
        if self.config.sealed:
            return errors.STREAM_SEALED()
        if self.config.deny_delete:
            return errors.STREAM_MSG_DELETE_FAILED(err="message delete not permitted")
        store = self.machine.store
        if request.seq > store.last_seq > 0:
            return errors.STREAM_MSG_DELETE_FAILED(err="stream store EOF")
        if request.seq < store.first_seq:
            return errors.STREAM_MSG_DELETE_FAILED(err="no message found")
        if store.subject_of(request.seq) is None:
            return errors.SEQUENCE_NOT_FOUND(seq=request.seq)
        return Remove((request.seq,), not request.no_erase)

    def purge(self, request: JSApiStreamPurgeRequest) -> Purge | ApiError:
        """The entry of STREAM.PURGE, or its refusal."""
        if self.config.sealed:
            return errors.STREAM_SEALED()
        if self.config.deny_purge:
            return errors.STREAM_PURGE_FAILED(err="stream purge not permitted")
        if request.seq and request.keep:
            return errors.BAD_REQUEST()
        pattern = b"" if request.filter == ">" else to_bytes(request.filter)
        return Purge(pattern, request.seq, request.keep)
