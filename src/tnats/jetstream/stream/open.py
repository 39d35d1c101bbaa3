"""Opening streams: a new one, or one that the store has, with everything that its log says since the checkpoint.

Entries that the journal has lost are made up for by what the segment files hold: their messages are taken back in, what
the entries removed stays, and sequences that no file knows are counted as lost.

After a loss of power under a sync interval, what was acknowledged in the last interval may be gone without a trace. All
sequences that it can have had are passed over, durably and before the stream serves, and named until the next start.
What the files have of that interval is kept up to the first message that they do not have: none stands without those
that were published before it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tnats.jetstream.api.fields import decode
from tnats.jetstream.host import Host
from tnats.jetstream.meta.catalogue import StreamRecord, encode_config
from tnats.jetstream.store import IndexedStore, content
from tnats.jetstream.stream import entries, snapshot
from tnats.jetstream.stream.config import Compression, Storage, StreamConfig
from tnats.jetstream.stream.entries import Append, Configure, PlainAppends
from tnats.jetstream.stream.machine import StreamMachine
from tnats.jetstream.stream.note import Note
from tnats.jetstream.stream.service import StreamService
from tnats.runtime.api import Buffer
from tnats.storage.errors import StorageError
from tnats.storage.index_columns import LOST
from tnats.storage.memory_log import MemoryLog
from tnats.storage.record import Finding
from tnats.storage.stream_checkpoint import NOTE
from tnats.storage.stream_log import StreamLog

if TYPE_CHECKING:
    from tnats.jetstream.account import AccountService


async def open_stream(host: Host, account: AccountService, record: StreamRecord) -> StreamService:
    """The service of a stream, recovered, not started. Raises StorageError, DiskError."""
    first_seq = max(record.config.first_seq, 1)
    if record.config.storage == Storage.MEMORY:
        memory = IndexedStore(MemoryLog(first_sequence=first_seq))
        return StreamService(host, account, record, StreamMachine(record.config, memory), memory, None)
    journal = host.store.journal
    # To ask for a group makes it: one that damage has taken must be found missing, since sequences went with it.
    extra = journal.group(record.group).note[NOTE.size :] if journal.knows(record.group) else b""
    note = Note.decode(extra) if extra else Note(encode_config(record.config), first_seq - 1, b"")
    opened = await host.store.open_stream(record.group, first_sequence=first_seq, last_sequence=note.last_seq)
    log = opened.log
    store = IndexedStore(log)
    used_seq = log.recovery.highest
    machine = StreamMachine(decode(StreamConfig, note.config, strict=False), store)
    if note.machine:
        await _restore(machine, store, note.machine)
    replay = _Replay(machine, store, log)
    entries_since = await opened.commit.replay()
    for entry in entries_since:
        if entry.body is None:
            host.log.error(f"{record.label}: log entry {entry.index} is lost")
        await replay.apply(entry.body)
    has_lost = host.store.last_lost(record.group, 0) > 0 and not journal.damaged_bytes
    first_lost = await replay.finish(used_seq, is_cut=has_lost)
    passed_over = []
    last_lost = host.store.last_lost(record.group, log.index.last)
    if last_lost >= first_lost:
        passed_over.append(_pass_over(log, first_lost, last_lost))
    group = host.store.journal.group(record.group)
    log.is_packing = machine.config.compression == Compression.S2
    service = StreamService(host, account, record, machine, store, group)
    host.store.own(record.group, service.checkpoint)
    # A log begins with the configuration under which its entries were made: by a later one, others would have gone. The
    # catalogue is ahead of it where the server ended in the middle of an update. What lost entries removed for limits
    # is removed by a configuration too.
    if machine.config != record.config or not (extra or entries_since) or replay.taken_back_count:
        service.propose(Configure(encode_config(record.config)))
    service.lost = log.index.absent(log.index.start, log.index.last, LOST) + passed_over
    _report(host, service, log)
    log.files.on_finding = partial(_warn, host, record)
    if passed_over:
        await service.checkpoint(anyway=True)
    return service


def _pass_over(log: StreamLog, first: int, last: int) -> tuple[int, int]:
    """Count sequences as used, for messages that a loss of power has taken; returns the first and the last."""
    log.skip(first, last)
    text = "messages, as many as there were: power failed, and their sync was still to come"
    log.findings.append(Finding("lost", log.files.directory, first, last + 1, group=log.files.name, text=text))
    return first, last


async def _restore(machine: StreamMachine, store: IndexedStore, data: bytes) -> None:
    state = snapshot.decode(data)
    held = {}
    for seq in snapshot.messages_in(state):
        try:
            message = await store.load(seq)
        except (KeyError, StorageError):
            continue
        held[seq] = (message.time_ns, content(message))
    snapshot.load(machine, state, held.get)


class _Replay:
    """Brings a machine, and the store below it, up to what the log says since the checkpoint."""

    def __init__(self, machine: StreamMachine, store: IndexedStore, log: StreamLog) -> None:
        self._machine = machine
        self._store = store
        self._log = log
        self._gathered = PlainAppends()
        self.taken_back_count = 0
        """Messages that the log has lost and the files have."""

    async def apply(self, body: Buffer | None) -> None:
        """The next entry; None: it is lost."""
        if body is not None and self._gathers(body):
            return
        self._apply_gathered()
        if body is None or self._gathers(body):
            return
        change = entries.decode(bytes(body))
        if isinstance(change, Append):
            next_seq = self._store.last_seq + 1
            if change.next_seq <= next_seq:
                return  # given to the files alone, after an entry before it was lost
            if change.first_seq > next_seq:
                await self._take_back(change.first_seq)
        self._machine.apply(change)

    def _gathers(self, body: Buffer) -> bool:
        return self._machine.is_unlimited and self._gathered.add(body, self._store.last_seq + 1)

    async def finish(self, used_seq: int, *, is_cut: bool) -> int:
        """There are no further entries. What becomes of sequences up to `used_seq`, they are not given out again;
        `is_cut`: what the files have of them counts up to the first that is lost. The sequence behind all that counts.
        """
        self._apply_gathered()
        log = self._log
        beyond = log.recovery.beyond
        lost = beyond.absent(self._store.last_seq + 1, used_seq, LOST) if beyond is not None and is_cut else []
        end_seq = lost[0][0] if lost else used_seq + 1
        await self._take_back(end_seq)
        log.remove(log.recovery.take_back(used_seq + 1), erase=False)
        log.skip(end_seq, used_seq)
        log.index.extend(used_seq)
        log.end_recovery()
        return end_seq if lost else log.index.last + 1

    def _apply_gathered(self) -> None:
        """At once, where the messages have no headers that could mean something."""
        if not self._gathered.bodies:
            return
        bodies, times_ns, run = self._gathered.take()
        if run.has_headers:
            for body in bodies:
                self._machine.apply(entries.decode(bytes(body)))
        else:
            self._store.append_replayed(times_ns, run)

    async def _take_back(self, next_seq: int) -> None:
        """The journal has lost what came before `next_seq`: the files tell what they have of it."""
        found = self._log.recovery.take_back(next_seq)
        self._log.index.extend(next_seq - 1)
        for seq in found:
            self._store.last_time_ns = self._log.index.time_ns(seq)
            try:
                message = await self._store.load(seq)
            except (KeyError, StorageError):
                continue
            self._machine.observe(seq, message.time_ns, content(message))
        self.taken_back_count += len(found)


def _report(host: Host, service: StreamService, log: StreamLog) -> None:
    for finding in log.findings:
        _warn(host, service.record, finding)


def _warn(host: Host, record: StreamRecord, finding: Finding) -> None:
    host.log.warn(f"{record.label}: {finding}")
