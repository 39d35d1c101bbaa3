"""Opening streams: a new one, or one that the store has, with everything that its log says since the checkpoint.

Entries that the journal has lost are made up for by what the segment files hold: their messages are taken back in, what
the entries removed stays, and sequences that no file knows are counted as lost.

After a loss of power under a sync interval, what was acknowledged in the last interval may be gone without a trace. All
sequences that it can have had are passed over, durably and before the stream serves, and named until the next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

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
    commit, log = opened.commit, opened.log
    store = IndexedStore(log)
    used_seq = log.recovery.highest
    machine = StreamMachine(decode(StreamConfig, note.config, strict=False), store)
    if note.machine:
        await _restore(machine, store, note.machine)
    gathered = PlainAppends()
    taken_back = 0
    replayed = await commit.replay()
    for entry in replayed:
        if entry.body is not None and machine.is_unlimited:
            if gathered.add(entry.body, store.last_seq + 1):
                continue
            _replay(machine, store, gathered)
            if gathered.add(entry.body, store.last_seq + 1):
                continue
        _replay(machine, store, gathered)
        if entry.body is None:
            host.log.error(f"JetStream stream '{account.name} > {record.name}': log entry {entry.index} is lost")
            continue
        change = entries.decode(bytes(entry.body))
        if isinstance(change, Append):
            if change.next_seq <= store.last_seq + 1:
                continue  # given to the files alone, after an entry before it was lost
            if change.first_seq > store.last_seq + 1:
                taken_back += await _take_back(machine, store, log, change.first_seq)
        machine.apply(change)
    _replay(machine, store, gathered)
    taken_back += await _take_back(machine, store, log, used_seq + 1)
    log.index.extend(used_seq)  # whatever became of them, these are not given out again
    log.end_recovery()
    passed_over = []
    last_lost = host.store.last_lost(record.group, log.index.last)
    if last_lost > log.index.last:
        passed_over.append(_pass_over(log, last_lost))
    group = host.store.journal.group(record.group)
    log.is_packing = machine.config.compression == Compression.S2
    service = StreamService(host, account, record, machine, store, group)
    host.store.own(record.group, service.checkpoint)
    # A log begins with the configuration under which its entries were made: by a later one, others would have gone. The
    # catalogue is ahead of it where the server ended in the middle of an update. What lost entries removed for limits
    # is removed by a configuration too.
    if machine.config != record.config or not (extra or replayed) or taken_back:
        service.propose(Configure(encode_config(record.config)))
    service.lost = log.index.absent(log.index.start, log.index.last, LOST) + passed_over
    _report(host, service, log)
    log.files.on_finding = lambda finding: _warn(host, service, finding)
    if passed_over:
        await service.checkpoint(anyway=True)
    return service


def _pass_over(log: StreamLog, last: int) -> tuple[int, int]:
    """Count the sequences up to `last` as used, for messages that a loss of power has taken; (first, last) of them."""
    first = log.index.last + 1
    log.skip(first, last)
    text = "messages, as many as there were: power failed, and their sync was still to come"
    log.findings.append(Finding("lost", log.files.directory, first, last + 1, group=log.files.name, text=text))
    return first, last


async def _restore(machine: StreamMachine, store: IndexedStore, data: bytes) -> None:
    held = {}
    for _, seq, _ in orjson.loads(data[1:])["schedules"]:
        try:
            message = await store.load(seq)
        except (KeyError, StorageError):
            continue
        held[seq] = (message.time_ns, content(message))
    snapshot.load(machine, data, held.get)


def _replay(machine: StreamMachine, store: IndexedStore, gathered: PlainAppends) -> None:
    """Apply what was gathered: at once, where the messages have no headers that could mean something."""
    if not gathered.bodies:
        return
    bodies, times_ns, run = gathered.take()
    if run.has_headers:
        for body in bodies:
            machine.apply(entries.decode(bytes(body)))
    else:
        store.append_replayed(times_ns, run)


async def _take_back(machine: StreamMachine, store: IndexedStore, log: StreamLog, next_seq: int) -> int:
    """The journal has lost what came before `next_seq`: the files tell what they have of it. Returns how many."""
    found = log.recovery.take_back(next_seq)
    log.index.extend(next_seq - 1)
    for seq in found:
        store.last_time_ns = log.index.time_ns(seq)
        try:
            message = await store.load(seq)
        except (KeyError, StorageError):
            continue
        machine.observe(seq, message.time_ns, content(message))
    return len(found)


def _report(host: Host, service: StreamService, log: StreamLog) -> None:
    for finding in log.findings:
        _warn(host, service, finding)


def _warn(host: Host, service: StreamService, finding: Finding) -> None:
    host.log.warn(f"JetStream stream '{service.account.name} > {service.name}': {finding}")
