"""The stream's leader: turns what is published, and what time does, into log entries.

Purpose. `admit` takes a batch from the broker, decides for each message, and gives back one `Append` entry for those
that will be stored, and the answers for those that will not. What is stored is decided in `judge`, against what
`in_flight` says will hold when the entry applies; what becomes of a batch of the publisher's in `batches` and
`fast_batches`; what time does in `timed`; what is said of it in `pub_acks`.

Theory. An entry in flight commits, or this server's leadership ends and nothing after it commits either; so an
answer that rests on in-flight entries waits in `Append.after` for the last of them. `reset` drops everything that
only a leader has: in-flight entries, open batches, counter totals.

The common path, a message without headers on a stream without special rules, is one short loop.

The host's duties: subscribe to the stream's subjects; give `admit` what arrives, with the wall clock; propose the
entry; once it is committed, apply it to the machine, call `applied`, send `answers`; fetch the contents that
`wanted_totals` names before admitting to a counter stream; call `expire` when `next_deadline_ns` has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from tnats.jetstream.api import errors
from tnats.jetstream.api.advisories import Advisory, batch_abandoned
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.levels import REQUIRED_LEVEL_HEADER, supports
from tnats.jetstream.api.messages import JSApiMsgDeleteRequest, JSApiStreamPurgeRequest
from tnats.jetstream.stream import headers as header
from tnats.jetstream.stream import schedules
from tnats.jetstream.stream.batches import AtomicBatches, BatchBudget
from tnats.jetstream.stream.config import Discard, Retention, Storage, StreamConfig
from tnats.jetstream.stream.counters import CounterTotals, parse_total
from tnats.jetstream.stream.entries import Append, Entry, Expire, Message, Purge, Remove, Reply, Skip
from tnats.jetstream.stream.fast_batches import SUFFIX, Control, FastBatches, parse_control
from tnats.jetstream.stream.in_flight import InFlight
from tnats.jetstream.stream.interest import InterestTable
from tnats.jetstream.stream.judge import Judge, Refused
from tnats.jetstream.stream.machine import StreamMachine
from tnats.jetstream.stream.ports import Inbound
from tnats.jetstream.stream.pub_acks import PubAcks
from tnats.jetstream.stream.timed import Timed
from tnats.records import define
from tnats.subjects.draw import Draw
from tnats.subjects.tokens import to_bytes, to_text


@define
class Admission:
    """What became of a batch: the entry to propose (None: nothing to store), and what to send at once."""

    entry: Append | None = None
    replies: list[Reply] = attrs.field(factory=list)
    advisories: list[Advisory] = attrs.field(factory=list)


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
        self._acks = PubAcks(machine.config.name, domain)
        self._in_flight = InFlight(machine)
        self._totals = CounterTotals(machine)
        self._judge = Judge(machine, interest, self._in_flight, self._totals, self._acks, draw)
        self._batches = AtomicBatches(budget)
        self._fast = FastBatches(machine.config.name, budget)
        self._timed = Timed(machine, interest, self._in_flight, self._judge.stored_subject)
        self._is_plain = False
        self.reconfigure()

    @property
    def config(self) -> StreamConfig:
        """The configuration in force."""
        return self.machine.config

    def reconfigure(self) -> None:
        """The machine's configuration changed: derive anew what depends on it."""
        config = self.config
        self.interest.retention = config.retention
        self._judge.reconfigure()
        if not config.allow_atomic:
            self._batches.clear()
        if not config.allow_batched:
            self._fast.clear()
        self._is_plain = not (
            config.sealed
            or config.allow_msg_counter
            or config.discard == Discard.NEW
            or config.retention == Retention.INTEREST
            or config.subject_transform is not None
        )

    # ------------------------------------------------------------------ admission

    def admit(self, batch: Sequence[Inbound], now_ns: int) -> Admission:
        """Judge published messages. `now_ns`: wall clock, the time of all that is stored of them."""
        admission = Admission()
        entry = self._in_flight.begin(now_ns)
        assert isinstance(entry.messages, list)
        add, add_reply = entry.messages.append, entry.replies.append
        is_plain, size_max = self._is_plain, self._judge.size_max
        for message in batch:
            data, reply = message.data, message.reply
            if is_plain and not message.header_size and len(data) <= size_max and reply[-4:] != SUFFIX:
                add((message.subject, b"", data))
                add_reply(reply)
            else:
                size = message.header_size
                self._admit_one((message.subject, data[:size], data[size:]), reply, entry, admission)
        self._totals.trim()
        return self._finish(entry, admission)

    def stored_subject(self, subject: bytes) -> bytes:
        """What a message that comes on a subject is stored under, by the stream's own transform."""
        return self._judge.stored_subject(subject)

    def admit_sourced(self, messages: list[Message], now_ns: int) -> tuple[Admission, int]:
        """Store messages of other streams, which have judged them; how many were taken.

        The others have no room now, or need a total that `wanted_total` names.
        """
        entry = self._in_flight.begin(now_ns)
        count = 0
        for message in messages:
            if self.config.allow_msg_counter and self._totals.wanted_seq(message[0]):
                break
            try:
                self._judge.admit_sourced(message, entry)
            except Refused:
                break
            count += 1
        self._totals.trim()
        return self._finish(entry, Admission()), count

    def _finish(self, entry: Append, admission: Admission) -> Admission:
        for gone in self._batches.take_abandoned():
            admission.advisories.append(
                batch_abandoned(self._account, self.config.name, to_text(gone.batch_id), gone.reason)
            )
        if entry.messages:
            self._in_flight.push(entry)
            admission.entry = entry
        elif entry.after and not self._in_flight.answer_after(entry):
            admission.replies.extend(answer for _, answer in entry.after)
        return admission

    def _admit_one(self, message: Message, reply: bytes, entry: Append, admission: Admission) -> None:
        headers = header.nats_headers(message[1])
        if reply.endswith(SUFFIX):
            self._admit_fast(message, reply, headers, entry)
        elif headers.get(header.BATCH_ID):
            self._admit_staged(message, reply, headers, entry, admission)
        else:
            try:
                self._judge.admit(message, headers, reply, entry)
            except Refused as refused:
                self._send_refusal(refused.error, reply, admission)

    def _send_refusal(self, error: ApiError, reply: bytes, admission: Admission) -> None:
        if reply and not self.config.no_ack:
            admission.replies.append((reply, self._acks.refusal(error)))

    def refusal(self, error: ApiError) -> bytes:
        """The answer to a publish that is not stored."""
        return self._acks.refusal(error)

    # ------------------------------------------------------------------ batches of publishers

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
        elif len(message[1]) + len(message[2]) > self._judge.size_max:
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
        first_seq = entry.next_seq
        mark = self._in_flight.mark(entry)
        self._totals.mark()
        try:
            for message in messages:
                self._judge.admit(message, header.nats_headers(message[1]), b"", entry, batch_first_seq=first_seq)
        except Refused as refused:
            self._in_flight.take_back(entry, mark)
            self._totals.take_back()
            self._send_refusal(refused.error, reply, admission)
            return
        finally:
            self._totals.settle()
        last = len(entry.messages) - 1
        for offset in range(mark.messages_count, last):
            entry.acks[offset] = None
        entry.replies[last] = reply
        entry.acks[last] = self._acks.batch(entry.first_seq + last, batch_id, len(messages))

    def _admit_fast(self, message: Message, reply: bytes, headers: Mapping[bytes, bytes], entry: Append) -> None:
        control: Control | ApiError
        if not self.config.allow_batched:
            control = errors.BATCH_PUBLISH_DISABLED()
        elif not supports(headers.get(REQUIRED_LEVEL_HEADER) or None):
            control = errors.REQUIRED_API_LEVEL()
        else:
            control = parse_control(reply)
        if isinstance(control, ApiError):
            entry.answer_after(reply, [self._acks.refusal(control)])
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
            self._judge.admit(message, headers, reply, entry)
        except Refused as refused:
            entry.answer_after(reply, self._fast.refused(control, refused.error))
            return
        if len(entry.messages) == offset:
            # A duplicate: stored before, and answered in the batch's own way.
            del entry.after[answers_count:]
            seq = self._in_flight.seq_of_id(headers[header.MSG_ID], entry.ts_ns)
            answer = self._fast.stored(control, seq, is_duplicate=True)
            if answer is not None:
                entry.answer_after(reply, [answer])
        else:
            entry.acks[offset] = self._fast.stored(control, entry.first_seq + offset)

    # ------------------------------------------------------------------ commitment

    def applied(self, entry: Entry) -> None:
        """The machine applied an entry of this leader's (or of the one before it)."""
        if isinstance(entry, Append):
            self._in_flight.applied(entry)
            self._timed.applied(entry)
        elif isinstance(entry, Expire):
            self._timed.applied(entry)
        elif isinstance(entry, Skip):
            self._in_flight.continue_from(self.machine.store.last_seq + 1)
        elif not isinstance(entry, Remove | Purge):
            self.reconfigure()

    @property
    def waiting_answers_count(self) -> int:
        """Answers that wait for entries, beside those to the messages that the entries store."""
        return self._in_flight.answers_count

    def answers(self, entry: Append) -> list[Reply]:
        """What to send now that the entry is committed."""
        if self.config.no_ack or not entry.replies:
            return [answer for _, answer in entry.after]
        return self._acks.answers(entry)

    def reset(self) -> list[Advisory]:
        """Leadership began or ended: drop what only a leader has. The advisories of abandoned batches."""
        self._in_flight.reset()
        self._totals.clear()
        self._batches.clear()
        self._fast.clear()
        self._timed.reset()
        return self._finish(self._in_flight.begin(0), Admission()).advisories

    # ------------------------------------------------------------------ counters

    def wanted_totals(self, batch: Sequence[Inbound]) -> list[int]:
        """Sequences whose contents must be given to `learn_total` before `admit(batch)` (counter streams only)."""
        if not self.config.allow_msg_counter:
            return []
        published = [message.subject for message in batch]
        if self.config.allow_atomic:
            for message in batch:
                headers = header.nats_headers(message.data[: message.header_size])
                if headers.get(header.BATCH_ID) and header.BATCH_COMMIT in headers:
                    published += self._batches.subjects(headers[header.BATCH_ID])
        subjects = dict.fromkeys(map(self._judge.stored_subject, published))
        return [seq for subject in subjects if (seq := self.wanted_total(subject))]

    def wanted_total(self, subject: bytes) -> int:
        """The sequence whose content must be given to `learn_total` before `admit_sourced`; 0: none."""
        return self._totals.wanted_seq(subject)

    def learn_total(self, seq: int, message: Message | None) -> None:
        """The content of a message that `wanted_totals` or `wanted_total` named; None if it cannot be read."""
        subject = self.machine.store.subject_of(seq)
        if subject is not None and seq == self.wanted_total(subject):
            self._totals.learn(subject, seq, message and parse_total(message[1], message[2]))

    # ------------------------------------------------------------------ time

    def next_deadline_ns(self) -> int | None:
        """When `expire` has something to do, by the wall clock; None: nothing is waiting."""
        candidates = [self._batches.next_deadline_ns(), self._fast.next_deadline_ns(), *self._timed.next_deadlines_ns()]
        return min((deadline_ns for deadline_ns in candidates if deadline_ns is not None), default=None)

    def expire(self, now_ns: int) -> tuple[Expire | None, Admission]:
        """End what is over: (an entry that removes messages, delete markers to store); propose them in this order."""
        self._batches.expire(now_ns)
        self._fast.expire(now_ns)
        expire, markers = self._timed.expire(now_ns)
        return expire, self._finish(markers, Admission())

    def due_schedules(self, now_ns: int) -> list[schedules.Due]:
        """The schedules whose time has come, each once: the host owes each a `fire` or a `put_off`."""
        return self._timed.due_schedules(now_ns)

    def put_off(self, due: schedules.Due, now_ns: int) -> None:
        """A schedule could not be read: it stays due, and is tried again in a while."""
        self._timed.put_off(due, now_ns)

    def fire(self, due: schedules.Due, schedule: Message, content: tuple[bytes, bytes], now_ns: int) -> Admission:
        """Store one firing of a schedule, unless it was cancelled or replaced meanwhile.

        `schedule`: its message; `content`: header block and payload of the sampled message, or of the schedule.
        """
        return self._finish(self._timed.fire(due, schedule, content, now_ns), Admission())

    # ------------------------------------------------------------------ requests of the API

    def delete_message(self, request: JSApiMsgDeleteRequest) -> Remove | ApiError:
        """The entry of STREAM.MSG.DELETE, or its refusal."""
        if self.config.sealed:
            return errors.STREAM_SEALED()
        if self.config.deny_delete:
            return errors.STREAM_MSG_DELETE_FAILED(err="message delete not permitted")
        store = self.machine.store
        if self.config.storage == Storage.FILE:  # nats-server's two kinds of stores tell this apart
            if request.seq > store.last_seq:
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
