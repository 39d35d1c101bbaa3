"""What is stored of what is published: the checks of one message, in nats-server's order.

A message is judged by the configuration, and by what will hold when it applies (`in_flight`). What passes is added to
the entry being gathered, in the form in which it is stored; what does not raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.stream import counters, schedules
from tnats.jetstream.stream import headers as header
from tnats.jetstream.stream.config import Discard, StreamConfig
from tnats.jetstream.stream.counters import CounterTotals, Total
from tnats.jetstream.stream.cron import find_zone
from tnats.jetstream.stream.entries import Append, Message
from tnats.jetstream.stream.in_flight import InFlight
from tnats.jetstream.stream.interest import InterestTable
from tnats.jetstream.stream.machine import StreamMachine
from tnats.jetstream.stream.pub_acks import PubAcks
from tnats.jetstream.stream.ttl import NEVER, TTL_HEADER, parse_ttl, ttl_text
from tnats.limits import MESSAGE_HEADERS_BYTES_MAX
from tnats.subjects.draw import Draw
from tnats.subjects.tokens import subject_matches, to_text
from tnats.subjects.transforms import Transform
from tnats.wire.headers import set_header

SIZE_UNLIMITED = 2**62


class Refused(Exception):
    """A message is not stored. Never leaves the leader."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error)
        self.error = error


class Judge:
    """See the module's text."""

    def __init__(
        self,
        machine: StreamMachine,
        interest: InterestTable,
        in_flight: InFlight,
        totals: CounterTotals,
        acks: PubAcks,
        draw: Draw,
    ) -> None:
        """`draw` serves random subject transforms."""
        self._machine = machine
        self._interest = interest
        self._in_flight = in_flight
        self._totals = totals
        self._acks = acks
        self._draw = draw
        self._transform: Transform | None = None
        self.size_max = SIZE_UNLIMITED
        self.reconfigure()

    @property
    def _config(self) -> StreamConfig:
        return self._machine.config

    def reconfigure(self) -> None:
        """The configuration changed: derive anew what depends on it."""
        config = self._config
        self.size_max = config.max_msg_size if config.max_msg_size > 0 else SIZE_UNLIMITED
        transform = config.subject_transform
        self._transform = Transform(transform.src, transform.dest) if transform is not None and transform.dest else None

    def stored_subject(self, subject: bytes) -> bytes:
        """What a message published on `subject` is stored under."""
        if self._transform is not None and self._transform.matches(subject):
            return self._transform.apply(subject, self._draw)
        return subject

    def admit(
        self, message: Message, headers: Mapping[bytes, bytes], reply: bytes, entry: Append, *, batch_first_seq: int = 0
    ) -> None:
        """Add a message to the entry, or raise Refused; a duplicate is answered and not added.

        `batch_first_seq`: the sequence at which the message's atomic batch begins, 0 outside of one.
        """
        config = self._config
        published, block, payload = message
        subject = self.stored_subject(published)
        if config.sealed:
            raise Refused(errors.STREAM_SEALED())
        if not batch_first_seq:  # those of a batch were measured when they came
            self._check_size(block, payload)
        msg_id = headers.get(header.MSG_ID)
        has_rules = len(headers) > (msg_id is not None)
        if has_rules:
            self._check_allowed(headers)
            self._check_expectations(subject, headers, entry, batch_first_seq)
            if self._is_schedule(subject, headers, entry):
                block = set_header(block, header.ROLLUP, header.ROLLUP_SUBJECT)
                headers = {**headers, header.ROLLUP: header.ROLLUP_SUBJECT}
            block = self._with_ttl_floor(headers, block)
        if block:
            block = header.storable(block)
        if msg_id and self._answer_duplicate(msg_id, reply, entry, batch_first_seq):
            return
        if has_rules:
            self._check_last_id(headers, entry.next_seq - 1)
            self._check_rollup(subject, headers, entry, batch_first_seq)
            if headers.get(TTL_HEADER) and parse_ttl(headers[TTL_HEADER]) is None:
                raise Refused(errors.MESSAGE_TTL_INVALID())
        ack, total = None, None
        if config.allow_msg_counter:
            counted = self._totals.count(subject, headers, block, payload)
            if isinstance(counted, ApiError):
                raise Refused(counted)
            block, payload, total = counted
            ack = self._acks.counted(entry.next_seq, total.value)
        if len(block) > MESSAGE_HEADERS_BYTES_MAX:
            raise Refused(errors.STREAM_HEADER_EXCEEDS_MAXIMUM())
        self._check_size(block, payload)
        self._put((subject, block, payload), headers, entry, reply=reply, ack=ack, total=total)

    def admit_sourced(self, message: Message, entry: Append) -> None:
        """Add a message of another stream, which has judged it, or raise Refused if there is no room for it.

        An id that the window knows is passed over. A counter grows by what its origin's total has grown by.
        """
        config = self._config
        subject, block, payload = message
        headers = header.nats_headers(block)
        msg_id = headers.get(header.MSG_ID)
        if msg_id and self._in_flight.seq_of_id(msg_id, entry.ts_ns):
            return
        total = None
        if config.allow_msg_counter:
            counted = self._totals.count_sourced(subject, headers, block, payload)
            if counted is None:
                return
            block, payload, total = counted
        self._put((subject, block, payload), headers, entry, total=total)

    def _put(
        self,
        message: Message,
        headers: Mapping[bytes, bytes],
        entry: Append,
        *,
        reply: bytes = b"",
        ack: bytes | None = None,
        total: Total | None = None,
    ) -> None:
        """Add a message as it is stored, if there is room for it."""
        config, subject = self._config, message[0]
        is_dropped = self._interest.drops(subject)
        rollup = headers.get(header.ROLLUP, b"").lower() if config.allow_rollup_hdrs else b""
        if config.discard == Discard.NEW and not is_dropped:
            self._check_limits(message, entry, rolls_up=bool(rollup))
        msg_id = headers.get(header.MSG_ID)
        self._in_flight.add(entry, message, reply=reply, ack=ack, is_dropped=is_dropped, msg_id=msg_id)
        if total is not None:
            self._totals.learn(subject, entry.next_seq - 1, total)
        if rollup == header.ROLLUP_ALL:
            self._in_flight.roll_up(entry.next_seq - 1)

    # ------------------------------------------------------------------ checks

    def _check_size(self, block: bytes, payload: bytes) -> None:
        if len(block) + len(payload) > self.size_max:
            raise Refused(errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM())

    def _check_allowed(self, headers: Mapping[bytes, bytes]) -> None:
        """Headers that need a feature of the stream, or are not for clients."""
        config = self._config
        increment = headers.get(counters.INCREMENT_HEADER)
        if increment and config.allow_msg_counter:
            if any(headers.get(key) for key in counters.FORBIDDEN_HEADERS):
                raise Refused(errors.MESSAGE_INCR_INVALID())
        elif increment:
            is_valid = counters.parse_increment(increment) is not None
            raise Refused(errors.MESSAGE_INCR_DISABLED() if is_valid else errors.MESSAGE_INCR_INVALID())
        expected_stream = headers.get(header.EXPECTED_STREAM)
        if expected_stream and to_text(expected_stream) != config.name:
            raise Refused(errors.STREAM_NOT_MATCH())
        ttl = headers.get(TTL_HEADER)
        if ttl and not config.allow_msg_ttl and parse_ttl(ttl) is not None:
            raise Refused(errors.MESSAGE_TTL_DISABLED())
        if headers.get(header.STREAM_SOURCE):
            raise Refused(errors.MESSAGE_SOURCE_HDR_NOT_ALLOWED())

    def _check_expectations(
        self, subject: bytes, headers: Mapping[bytes, bytes], entry: Append, batch_first_seq: int
    ) -> None:
        wanted = headers.get(header.EXPECTED_LAST_SUBJECT_SEQ)
        pattern = headers.get(header.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT)
        if wanted:
            pattern = pattern or subject
            if batch_first_seq and entry.last_seq_of(pattern) >= batch_first_seq:
                raise Refused(errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT())
            last_seq = self._in_flight.last_seq_of(pattern, entry)
            if header.parse_seq(wanted) != last_seq:
                raise Refused(errors.STREAM_WRONG_LAST_SEQUENCE(seq=last_seq))
        elif pattern:
            raise Refused(errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID())
        wanted = headers.get(header.EXPECTED_LAST_SEQ)
        if wanted:
            if header.parse_seq(wanted) != entry.next_seq - 1:
                raise Refused(errors.STREAM_WRONG_LAST_SEQUENCE(seq=entry.next_seq - 1))
            if batch_first_seq and entry.next_seq > batch_first_seq:
                # Only its first message can know what came before the batch.
                raise Refused(errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT())

    def _is_schedule(self, subject: bytes, headers: Mapping[bytes, bytes], entry: Append) -> bool:
        """Whether it is a schedule, which rolls up its subject, and a valid one."""
        is_allowed = self._config.allow_msg_schedules
        is_schedule = bool(headers.get(schedules.SCHEDULE))
        if is_schedule and not is_allowed:
            raise Refused(errors.MESSAGE_SCHEDULES_DISABLED())
        zone = headers.get(schedules.ZONE)
        if zone is not None and find_zone(to_text(zone)) is None:
            raise Refused(
                errors.MESSAGE_SCHEDULES_TIME_ZONE_INVALID() if is_allowed else errors.MESSAGE_SCHEDULES_DISABLED()
            )
        error = None
        if headers.get(schedules.SCHEDULER) or headers.get(schedules.NEXT):
            error = schedules.check_scheduler(subject, headers)
            if error is None and not is_allowed:
                error = errors.MESSAGE_SCHEDULES_DISABLED()
            if error is None and not self._is_cancellable(headers[schedules.SCHEDULER], entry):
                error = errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
        if error is None and is_schedule:
            error = schedules.check(subject, headers, self._config.allow_msg_ttl, self._captures)
        if error is not None:
            raise Refused(error)
        return is_schedule

    def _is_cancellable(self, subject: bytes, entry: Append) -> bool:
        """Whether the last message of a subject is a schedule, or there is none: who cancels may not delete others."""
        seq = self._in_flight.last_seq_of(subject, entry)
        if not seq or self._machine.schedules.seq_of(subject) == seq:
            return True
        return bool(header.nats_headers(self._in_flight.headers_at(seq, entry)).get(schedules.SCHEDULE))

    def _captures(self, subject: bytes) -> bool:
        """Whether the stream's subjects take this one in."""
        return any(subject_matches(captured, subject) for captured in self._config.subjects)

    def _with_ttl_floor(self, headers: Mapping[bytes, bytes], block: bytes) -> bytes:
        # A message may not end before the marker of the one it replaced: a reader could miss both.
        floor_ns = self._config.subject_delete_marker_ttl_ns
        if not floor_ns or self._config.max_msgs_per_subject == 1 or TTL_HEADER not in headers:
            return block
        ttl_ns = parse_ttl(headers[TTL_HEADER])
        if not ttl_ns or ttl_ns == NEVER or ttl_ns >= floor_ns:
            return block
        return set_header(block, TTL_HEADER, ttl_text(floor_ns))

    def _answer_duplicate(self, msg_id: bytes, reply: bytes, entry: Append, batch_first_seq: int) -> bool:
        seq = self._in_flight.seq_of_id(msg_id, entry.ts_ns)
        if not seq:
            return False
        if batch_first_seq:
            raise Refused(errors.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE())
        if reply and not self._config.no_ack:
            entry.answer_after(reply, [self._acks.duplicate(seq)])
        return True

    def _check_last_id(self, headers: Mapping[bytes, bytes], last_seq: int) -> None:
        wanted = headers.get(header.EXPECTED_LAST_MSG_ID)
        if not wanted:
            return
        last_id = self._in_flight.id_at(last_seq)
        if wanted != last_id:
            raise Refused(errors.STREAM_WRONG_LAST_MSG_ID(id=to_text(last_id)))

    def _check_rollup(
        self, subject: bytes, headers: Mapping[bytes, bytes], entry: Append, batch_first_seq: int
    ) -> None:
        rollup = headers.get(header.ROLLUP)
        if not rollup:
            return
        if not self._config.allow_rollup_hdrs or self._config.deny_purge:
            raise Refused(errors.STREAM_ROLLUP_FAILED(err="rollup not permitted"))
        value = rollup.lower()
        if value not in (header.ROLLUP_SUBJECT, header.ROLLUP_ALL):
            raise Refused(errors.STREAM_ROLLUP_FAILED(err=f'rollup value invalid: "{to_text(rollup)}"'))
        if batch_first_seq:
            # A roll-up inside a batch would take away what the same batch stores.
            if value == header.ROLLUP_ALL and entry.next_seq > batch_first_seq:
                raise Refused(errors.STREAM_ROLLUP_FAILED(err="batch rollup all invalid"))
            if value == header.ROLLUP_SUBJECT and entry.last_seq_of(subject) >= batch_first_seq:
                raise Refused(errors.STREAM_ROLLUP_FAILED(err="batch rollup sub invalid"))

    def _check_limits(self, message: Message, entry: Append, *, rolls_up: bool) -> None:
        """Discard policy "new": refuse what would exceed a limit when it applies; keep account of what does not."""
        config, store, in_flight, subject = self._config, self._machine.store, self._in_flight, message[0]
        replaces, replaced_bytes = False, 0
        if config.max_msgs_per_subject > 0 or rolls_up:
            ahead = in_flight.count_of(subject, entry)
            count = store.count_of(subject) + ahead
            replaces = count > 0 if rolls_up else count >= config.max_msgs_per_subject
            if replaces and not rolls_up and config.discard_new_per_subject:
                raise Refused(errors.STREAM_STORE_FAILED(err="maximum messages per subject exceeded"))
            if replaces and not ahead:
                replaced_bytes = store.size_of(store.first_seq_of(subject))
        count = store.messages + in_flight.added_count + entry.added_count
        if 0 < config.max_msgs <= count and not replaces:
            raise Refused(errors.STREAM_STORE_FAILED(err="maximum messages exceeded"))
        added_bytes = store.message_bytes(*message) - replaced_bytes
        size = store.total_bytes + in_flight.size_bytes + entry.size_bytes + added_bytes
        if 0 < config.max_bytes < size:
            raise Refused(errors.STREAM_STORE_FAILED(err="maximum bytes exceeded"))
        entry.size_bytes += added_bytes
        entry.added_count += not replaces
