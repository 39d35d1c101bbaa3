"""The service of one stream: between the broker, the machine that decides, the journal and the store.

Theory of operation
-------------------
*Publishing.* `ingest` hands over what the broker's read brought. The leader judges it as a batch; what is to be stored
becomes one entry, which is proposed to the journal. When the journal has it, the machine and the store apply it and the
answers go out, all in one go: between a publish and its answer there is no task of this service. A memory stream has no
journal: its entries are applied at once. What is applied is brought to its files behind that (`backlog`).

*Order.* Entries commit in the order of proposal, so `_pending` is a queue. If the journal refuses entries, they and all
behind them fail together, and the leader starts over from what is applied.

*The end.* The parts of a stream that do its work (`ingest`, `backlog`, `intakes`) are handed the stream for each call,
and do not keep it. So a removed stream is gone at once, with its index and what it had in memory: the garbage collector
might come hours later.

*Errors.* No space: publishers are told so for a moment, then it is tried again. Any other failed write freezes the
store; publishers are told, reads go on, the health check fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from tnats.ids import name_hash
from tnats.jetstream.api import errors
from tnats.jetstream.host import Host
from tnats.jetstream.meta.catalogue import StreamRecord, encode_config
from tnats.jetstream.store import IndexedStore, content
from tnats.jetstream.stream import snapshot
from tnats.jetstream.stream.backlog import Backlog
from tnats.jetstream.stream.config import Compression, Retention, StreamConfig
from tnats.jetstream.stream.entries import Append, Configure, Entry, Expire, Purge, Remove, Reply, encode
from tnats.jetstream.stream.ingest import Ingest
from tnats.jetstream.stream.intakes import Intakes
from tnats.jetstream.stream.interest import InterestTable
from tnats.jetstream.stream.leader import Admission, StreamLeader
from tnats.jetstream.stream.machine import Applied, StreamMachine
from tnats.jetstream.stream.note import Note
from tnats.jetstream.stream.ports import Inbound
from tnats.jetstream.stream.republish import Republisher
from tnats.jetstream.stream.schedules import Due
from tnats.limits import REPUBLISHINGS_MAX, SECOND_NS
from tnats.records import define
from tnats.runtime.api import DiskError
from tnats.storage.errors import LogRemoved, StorageError, StoreFull
from tnats.storage.group import Group, Ticket
from tnats.subjects.tokens import is_subset

if TYPE_CHECKING:
    from tnats.jetstream.account import AccountService
    from tnats.jetstream.consumer.service import ConsumerService

LOOK_AGAIN_NS = 60 * SECOND_NS
"""Deadlines are wall-clock times, which may jump: none is trusted for longer."""
CONSUMERS_TOLD_MAX = 4
"""Up to so many consumers are told of every change; to find those that it matters to would cost more."""

Done = Callable[[Applied | None, StorageError | None], None]
"""What became of an entry: applied, or why not."""


@define(eq=False)
class _Pending:
    """An entry on its way into the log."""

    entry: Entry
    size: int
    done: Done | None
    is_given_up: bool = False
    """It was refused, or comes behind one that was."""


class StreamService:
    """See the module's text."""

    def __init__(
        self,
        host: Host,
        account: AccountService,
        record: StreamRecord,
        machine: StreamMachine,
        store: IndexedStore,
        group: Group | None,
    ) -> None:
        """`machine` is recovered; `group`: its log in the journal, None for a memory stream."""
        self.host = host
        self.account = account
        self.record = record
        self.machine = machine
        self.store = store
        self.consumers: dict[str, ConsumerService] = {}
        self._direct: dict[str, None] = {}
        """Names of those that serve mirrors and sources elsewhere, which nobody lists."""
        self.interest = InterestTable(machine.config.retention)
        self.leader = StreamLeader(
            machine, self.interest, host.budget, host.draw, account=account.name, domain=host.options.domain
        )
        self.trouble: StorageError | None = None
        self.lost: list[tuple[int, int]] = []
        """Ranges (first, last) of sequences whose messages could not be recovered."""
        self.applied_index = group.last if group is not None else 0
        self._group = group
        self._journal = host.store.journal
        self._pending: deque[_Pending] = deque()
        self.pending_bytes = 0
        self.pending_msgs = 0
        self._held: deque[tuple[int, list[Reply]]] = deque()
        """Answers with the index of the entry that they wait for: a refusal tells of entries that are on their way, and
        whoever has heard it must find them."""
        self._held_count = 0
        self._republisher: Republisher | None = None
        self._is_circular = False
        """That it republishes in a circle has been logged."""
        self._keeps_time = True
        """Something in it can fall due."""
        self.ingest = Ingest(self)
        self.backlog = Backlog(store.log)
        self.intakes = Intakes()
        self._is_sweeping = False
        self._is_sweep_wanted = False
        self._advanced: trio.Event | None = None
        self._checkpointing = trio.Lock()

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def identity(self) -> bytes:
        """What tells it from other streams that have had its name."""
        return name_hash(f"{self.name} {self.record.created_ns}").encode()

    @property
    def consumer_count(self) -> int:
        """How many consumers it has, without those that are made for mirrors and sources elsewhere."""
        return len(self.consumers) - len(self._direct)

    def listed_consumers(self) -> list[ConsumerService]:
        """The same, in the order of their names."""
        return [self.consumers[name] for name in sorted(self.consumers) if name not in self._direct]

    @property
    def config(self) -> StreamConfig:
        return self.machine.config

    def start(self) -> None:
        """Take in what is published from now on."""
        self.ingest.is_open = True
        self._follow_config()
        self.intakes.follow(self)
        self._set_timer()

    def stop(self) -> None:
        """Take in nothing more."""
        self._keeps_time = False
        self.ingest.stop(self)
        self.intakes.stop()
        self._has_advanced()  # whoever waits for more must look elsewhere
        self.host.timers.set(self, None)

    async def wait_advanced(self) -> None:
        """Return when a message was stored since the call, or the stream has stopped."""
        if self._advanced is None:
            self._advanced = trio.Event()
        await self._advanced.wait()

    def _has_advanced(self) -> None:
        if self._advanced is not None:
            self._advanced.set()
            self._advanced = None

    def _follow_config(self) -> None:
        if not self.ingest.is_open:
            return
        config = self.config
        self.account.capture(self.name, config.subjects)
        self.ingest.listen(config)
        self._keeps_time = bool(
            config.max_age_ns > 0
            or config.allow_msg_ttl
            or config.allow_msg_schedules
            or config.allow_atomic
            or config.allow_batched
        )
        self.store.log.is_packing = config.compression == Compression.S2
        self._republisher = None
        if config.republish is not None and config.republish.dest:
            self._republisher = Republisher(config, self.host.draw)

    # ------------------------------------------------------------------ publishing

    def admit(self, batch: list[Inbound]) -> None:
        """Have the leader judge what was published (`Ingest`)."""
        self._take(self.leader.admit(batch, self.host.wall_ns()))

    def _take(self, admission: Admission) -> None:
        if admission.advisories:
            self.account.advise(admission.advisories)
        if admission.entry is not None:
            self.propose(admission.entry)
        elif self._keeps_time:
            self._set_timer()  # a batch may have begun
        if admission.replies and self._pending:
            self._held.append((self.applied_index + len(self._pending), admission.replies))
            self._held_count += len(admission.replies)
        elif admission.replies:
            self.ingest.client.publish_all(admission.replies)

    @property
    def waiting_answers_count(self) -> int:
        """Answers that wait for the log, although nothing is stored of what they answer."""
        return self._held_count + self.leader.waiting_answers_count

    # ------------------------------------------------------------------ the log

    def propose(self, entry: Entry, done: Done | None = None) -> None:
        """Put an entry into the log; it is applied when the log has it."""
        if self._group is None:
            self._answer(entry)
            self._apply(entry, done)
            return
        body = encode(entry)
        seq = entry.next_seq - 1 if isinstance(entry, Append) and self.config.mirror is None else 0
        if not self._pending and self._group.write_nowait(body, sequence=seq):
            self.applied_index += 1
            self._answer(entry)
            self._apply(entry, done)
            return
        pending = _Pending(entry, len(body), done)
        self._pending.append(pending)
        self.pending_bytes += pending.size
        if isinstance(entry, Append):
            self.pending_msgs += len(entry.messages)
        try:
            frees_space = isinstance(entry, Remove | Purge | Expire)
            self._group.append_nowait(
                (body,),
                callback=partial(self._on_ticket, pending),
                on_durable=partial(self._on_durable, pending),
                frees_space=frees_space,
                wake=False,
                sequence=seq,
            )
        except StorageError as error:
            self._fail_all(error)
            return
        self._journal.write_nowait()

    async def commit(self, entry: Entry) -> Applied:
        """Propose, and wait until it is applied; removals and configurations are durable then. Raises StorageError."""
        outcome: list[tuple[Applied | None, StorageError | None]] = []
        happened = trio.Event()

        def done(applied: Applied | None, error: StorageError | None) -> None:
            outcome.append((applied, error))
            happened.set()

        self.propose(entry, done)
        await happened.wait()
        applied, error = outcome[0]
        if applied is None:
            assert error is not None
            raise error
        if self._group is not None and isinstance(entry, Remove | Purge | Configure):
            await self._journal.flush()  # a sync interval is for messages alone
        return applied

    def _on_ticket(self, pending: _Pending, ticket: Ticket) -> None:
        if ticket.error is not None:
            self._fail_all(ticket.error)
        elif not pending.is_given_up:
            self._pending.popleft()
            self.pending_bytes -= pending.size
            if isinstance(pending.entry, Append):
                self.pending_msgs -= len(pending.entry.messages)
            self.applied_index += 1
            self._apply(pending.entry, pending.done)

    def fail(self, error: StorageError) -> None:
        """Take no more writes, for what has become of one is not known."""
        if self.trouble is None:
            self.trouble = error
            if not isinstance(error, LogRemoved):  # which happens to a stream that is being deleted
                self.host.log.error(f"{self.record.label} takes no more writes: {error}")

    def _fail_all(self, error: StorageError) -> None:
        """Nothing pending will be applied. Where it is not known whether it is stored, publishers hear nothing."""
        if not self._pending:
            return
        given_up, self._pending = self._pending, deque()
        for pending in given_up:
            pending.is_given_up = True
        self.pending_bytes = self.pending_msgs = 0
        self._held.clear()
        self._held_count = 0
        if isinstance(error, StoreFull):
            self.ingest.pause(self, error)
            if not error.may_have_written and not self.config.no_ack:
                refusal = self.leader.refusal(errors.STORAGE_RESOURCES_EXCEEDED())
                appends = [one.entry for one in given_up if isinstance(one.entry, Append)]
                self.ingest.client.publish_all([(reply, refusal) for one in appends for reply in one.replies if reply])
        else:
            self.fail(error)
        self.account.advise(self.leader.reset())
        self._set_timer()  # what fell due and was given up with the rest is due still
        for pending in given_up:
            if pending.done is not None:
                pending.done(None, error)

    def _on_durable(self, pending: _Pending) -> None:
        """The next entry is committed, and applied in a moment: publishers hear of it first."""
        if not pending.is_given_up:
            self._answer(pending.entry)

    def _answer(self, entry: Entry) -> None:
        if isinstance(entry, Append):
            answers = self.leader.answers(entry)
            if answers:
                self.ingest.client.publish_all(answers)

    def _apply(self, entry: Entry, done: Done | None) -> None:
        applied = self.machine.apply(entry)
        self.leader.applied(entry)
        if isinstance(entry, Append):
            if self._republisher is not None:
                self._republish(self._republisher, entry, applied)
        elif isinstance(entry, Configure):
            self._follow_config()
        while self._held and self._held[0][0] <= self.applied_index:
            _, replies = self._held.popleft()
            self._held_count -= len(replies)
            self.ingest.client.publish_all(replies)
        if isinstance(entry, Append):
            self._has_advanced()
        if self.consumers:
            self._tell_consumers(applied, entry)
        if done is not None:
            done(applied, None)
        if self._keeps_time:
            self._set_timer()
        self.backlog.has_grown(self)

    def _republish(self, republisher: Republisher, entry: Append, applied: Applied) -> None:
        for offset, message in enumerate(entry.messages):
            if offset in entry.dropped:
                continue
            built = republisher.build(message, entry.first_seq + offset, entry.ts_ns, applied.previous[offset])
            if built is not None:
                subject, headers, payload = built
                self.ingest.client.publish(subject, payload, headers=headers)
        if republisher.is_circular and not self._is_circular:
            self._is_circular = True
            self.host.log.warn(
                f"{self.record.label} republishes in a circle with other streams: "
                f"a message is republished at most {REPUBLISHINGS_MAX} times"
            )

    def _tell_consumers(self, applied: Applied, entry: Entry) -> None:
        for consumer in self._concerned(applied, entry):
            if applied.removed:
                consumer.stream_removed(applied.removed)
            if applied.purged:
                begin_seq = self._first_left(consumer.machine.filters, applied.purged)
                if begin_seq:
                    consumer.stream_purged(begin_seq, is_counted=not applied.removed_below)
            if isinstance(entry, Purge):
                consumer.flush()  # who is told of a purge will find every consumer where it stands now
            if applied.next_seq > applied.first_seq:
                consumer.stream_advanced()

    def _concerned(self, applied: Applied, entry: Entry) -> list[ConsumerService]:
        """The consumers that a change matters to. Where there are many, those whose filters match."""
        if applied.removed_below or isinstance(entry, Purge) or len(self.consumers) <= CONSUMERS_TOLD_MAX:
            return list(self.consumers.values())
        subjects = dict.fromkeys(subject for _, subject in applied.removed)
        if isinstance(entry, Append):
            subjects.update(dict.fromkeys(message[0] for message in entry.messages))
        names: dict[str, None] = {}
        for subject in subjects:
            names.update(dict.fromkeys(self.interest.names(subject)))
        return [self.consumers[name] for name in names if name in self.consumers]

    def _first_left(self, filters: tuple[bytes, ...], purged: list[bytes]) -> int:
        """Where a consumer with these filters stands, at least, when such patterns were purged; 0: where it was."""
        store = self.store
        seq = 0
        for pattern in purged:
            if filters and all(is_subset(wanted, pattern) for wanted in filters):
                seq = max(seq, store.next_matching((pattern,), store.first_seq) or store.last_seq + 1)
            elif not filters or any(is_subset(pattern, wanted) or is_subset(wanted, pattern) for wanted in filters):
                seq = max(seq, store.first_seq)
        return seq

    # ------------------------------------------------------------------ what consumers are done with

    def done_with(self, seqs: list[int], done: Done | None, *, is_copied: bool = False) -> bool:
        """A consumer, or, if `is_copied`, another stream, is done with these messages. Whether some go, and `done` is
        called when they are gone.
        """
        if self.config.retention == Retention.LIMITS or self.trouble is not None:
            return False
        gone = self.interest.removable(self.store, seqs, is_copied=is_copied)
        if gone:
            self.propose(Remove(tuple(gone)), done)
        return bool(gone)

    def add_consumer(self, consumer: ConsumerService) -> None:
        """A consumer was made, or its filters changed."""
        self.consumers[consumer.name] = consumer
        if consumer.config.direct:
            self._direct[consumer.name] = None
        self.interest.put(consumer.name, consumer.machine)

    def remove_consumer(self, name: str) -> None:
        """A consumer is gone."""
        self.consumers.pop(name, None)
        self._direct.pop(name, None)
        self.interest.discard(name)
        self.sweep()

    def sweep(self) -> None:
        """Interest may have ended: let go of what nobody needs. Asked for during a sweep: once more after it."""
        if self.config.retention != Retention.INTEREST:
            return
        self._is_sweep_wanted = True
        if not self._is_sweeping:
            self._is_sweeping = True
            self.host.spawn(self._sweep)

    async def _sweep(self) -> None:
        try:
            while self._is_sweep_wanted:
                self._is_sweep_wanted = False
                seq = 1
                while seq and self.trouble is None:
                    gone, seq = self.interest.sweep(self.store, seq)
                    if gone:
                        # Waited for: all pieces in one batch of the journal would be applied in one go.
                        with suppress(StorageError):
                            await self.commit(Remove(tuple(gone)))
                    await trio.lowlevel.checkpoint()
        finally:
            self._is_sweeping = False

    # ------------------------------------------------------------------ time

    def _set_timer(self) -> None:
        is_writable = self._keeps_time and self.trouble is None
        deadline_ns = self.leader.next_deadline_ns() if is_writable else None
        if deadline_ns is None:
            self.host.timers.set(self, None)
            return
        wait_ns = min(max(deadline_ns - self.host.wall_ns(), 0), LOOK_AGAIN_NS)
        self.host.timers.set(self, max(self.host.mono_ns() + wait_ns, self.ingest.paused_until_ns))

    def tick(self, now_ns: int) -> None:
        """A deadline has come (`Sleeper`)."""
        wall_ns = self.host.wall_ns()
        if self.trouble is None:
            expire, markers = self.leader.expire(wall_ns)
            if expire is not None:
                self.propose(expire)
            self._take(markers)
            due = self.leader.due_schedules(wall_ns)
            if due:
                self.host.spawn(self._fire, due)
                return
        self._set_timer()

    async def _fire(self, due: Iterable[Due]) -> None:
        """Store what schedules have produced."""
        for one in due:
            try:
                schedule = content(await self.store.load(one.seq))
                source = self.store.last_seq_of(one.source) if one.source else 0
                sample = content(await self.store.load(source)) if source else schedule
            except (KeyError, StorageError, DiskError):
                self.leader.put_off(one, self.host.wall_ns())
                continue
            self._take(self.leader.fire(one, schedule, (sample[1], sample[2]), self.host.wall_ns()))
        self._set_timer()

    # ------------------------------------------------------------------ administration

    async def reconfigure(self, config: StreamConfig) -> None:
        """An update that the catalogue already has. Raises StorageError."""
        old = self.config
        self.record.config = config
        if config.sealed:
            self.intakes.rest()  # nothing of theirs goes behind the entry
        await self.commit(Configure(encode_config(config)))
        if (config.mirror, config.sources) != (old.mirror, old.sources):
            if config.mirror is None and old.mirror is not None:
                self.account.advise(self.leader.reset())
            self.intakes.follow(self)

    async def checkpoint(self, *, anyway: bool = False) -> None:
        """Let the journal forget, durably, what is applied; `anyway`, even nothing new. Raises StorageError."""
        if self._group is None:
            return
        async with self._checkpointing:
            index = self.applied_index
            if index <= self._group.floor and not anyway:
                return
            note = Note(encode_config(self.config), self.store.last_seq, snapshot.save(self.machine))
            log_note = await self.store.log.checkpoint(self._group)
            await self._group.set_state_nowait(index, log_note + note.encode()).wait()
            await self._group.flush()  # with a sync interval the note is not durable yet
            await self.store.log.release()
            self.store.forget_recent()  # so all streams together keep what a few parts of the journal have
