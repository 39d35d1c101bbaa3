"""Deliberately broken builds of JetStream: see `planted`."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import attrs
from tests.unit.harness.sim.planted import (
    Patch,
    Planted,
    begin_nothing,
    ignore_sync_errors,
    no_directory_sync,
    sync_nothing,
)

from tnats.jetstream import service as jetstream_service
from tnats.jetstream.api import streams
from tnats.jetstream.api.direct import DirectGets
from tnats.jetstream.meta.catalogue import Catalogue
from tnats.jetstream.store import IndexedStore
from tnats.jetstream.stream import open as stream_open
from tnats.jetstream.stream.counters import CounterTotals, Total
from tnats.jetstream.stream.dedup import DuplicateWindow
from tnats.jetstream.stream.entries import Purge, Remove
from tnats.jetstream.stream.judge import Judge
from tnats.jetstream.stream.leader import StreamLeader
from tnats.jetstream.stream.machine import StreamMachine
from tnats.jetstream.stream.service import StreamService
from tnats.jetstream.stream.sourcing import LocalIntake
from tnats.jetstream.stream.timed import Timed
from tnats.runtime.sim.disk import SimDisk, SimFile
from tnats.storage.journal_part import JournalPart
from tnats.storage.store import Store
from tnats.subjects.tokens import to_bytes

Method = Callable[..., Any]


def forgets_ids(original: Method) -> Method:
    """A server that starts with an empty duplicate window."""

    async def open_stream(*arguments: Any) -> StreamService:
        service: StreamService = await original(*arguments)
        service.machine.duplicates = DuplicateWindow(service.config.duplicate_window_ns)
        return service

    return open_stream


def forgets_lifetimes(original: Method) -> Method:
    """A server for whose streams nothing falls due that was published before its start."""

    async def open_stream(*arguments: Any) -> StreamService:
        service: StreamService = await original(*arguments)
        service.machine.deadlines.forget_below(service.store.last_seq + 1)
        return service

    return open_stream


def resumes_early(original: Method) -> Method:
    """Sources that, after a start, begin with the last message that they have."""

    def resume_at(self: LocalIntake, origin: StreamService) -> int:
        return max(1, original(self, origin) - 1)

    return resume_at


def resumes_late(original: Method) -> Method:
    """A mirror or source that, after a start, passes over a message."""

    def resume_at(self: LocalIntake, origin: StreamService) -> int:
        seq: int = original(self, origin)
        return seq + (seq > 1)

    return resume_at


def counts_from_nothing(self: CounterTotals, subject: bytes) -> Total | None:
    """The total of a counter that was not used since the start."""
    seq, total = self._known.get(subject, (0, None))
    return total if seq else Total()


def uses_numbers_again(self: Catalogue) -> int:
    """The lowest number that is free."""
    number = next(number for number in range(1, 1000) if number not in self.streams and number not in self.consumers)
    self._next_number = max(self._next_number, number + 1)
    return number


async def leaves_logs(self: Store, name: str) -> None:
    """Of a stream that is deleted."""


async def makes_in_memory(self: Catalogue, record: Any) -> None:
    self.streams[record.number] = record


async def drops_in_memory(self: Catalogue, number: int) -> None:
    self._drop_stream(number)


def stores_what_it_refuses(original: Method) -> Method:
    """Expectations that are looked at once the message is stored."""

    def check(self: Judge, subject: bytes, headers: Any, entry: Any, batch_first_seq: int) -> None:
        try:
            original(self, subject, headers, entry, batch_first_seq)
        except Exception:
            self._in_flight.add(entry, (subject, b"", b"c9-9 "))
            raise

    return check


def other_times(original: Method) -> Method:
    """A start that takes messages for a millisecond younger."""

    def append_replayed(self: IndexedStore, times_ns: array[int], messages: Any) -> None:
        original(self, array(times_ns.typecode, [time_ns + 1_000_000 for time_ns in times_ns]), messages)

    return append_replayed


def fails_at_large_ones(original: Method) -> Method:
    def admit(self: Judge, message: Any, *arguments: Any, **keywords: Any) -> None:
        if len(message[2]) > 3000:
            raise RuntimeError("a message of this size was not thought of")
        original(self, message, *arguments, **keywords)

    return admit


def goes_back() -> list[Patch]:
    """A replica that is behind now and then."""
    original = DirectGets._single
    count = [0]

    def single(self: DirectGets, wanted: Any, reply: bytes) -> None:
        count[0] += 1
        seqs = list(self._stream.store.seqs_of(to_bytes(wanted.last_by_subj))) if wanted.last_by_subj else []
        if count[0] % 2 and len(seqs) > 1:
            wanted = attrs.evolve(wanted, last_by_subj="", seq=seqs[-2])
        original(self, wanted, reply)

    return [(DirectGets, "_single", single)]


def fires_twice(original: Method) -> Method:
    def fire(self: Timed, *arguments: Any) -> Any:
        entry = original(self, *arguments)
        if entry.messages:
            self._in_flight.add(entry, entry.messages[0])
        return entry

    return fire


def removes_in_memory(original: Method) -> Method:
    """Removals that no log hears of."""

    def propose(self: StreamService, entry: Any, done: Any = None) -> None:
        if isinstance(entry, Remove | Purge):
            self._apply(entry, done)
        else:
            original(self, entry, done)

    return propose


def stores_members_at_once(
    self: StreamLeader, message: Any, reply: bytes, headers: Any, entry: Any, admission: Any
) -> None:
    """A batch whose members are stored as they come."""
    batch_id, place = headers.get(b"Nats-Batch-Id"), int(headers.get(b"Nats-Batch-Sequence"))
    is_commit = headers.get(b"Nats-Batch-Commit") == b"1"
    self._judge.admit(message, {}, reply if is_commit else b"", entry)
    if is_commit:
        offset = len(entry.messages) - 1
        entry.acks[offset] = self._acks.batch(entry.first_seq + offset, batch_id.decode(), place)


C13 = "C13 what was acknowledged is there, what was removed is not"

PLANTED_JETSTREAM = (
    Planted(
        "JetStream acknowledges before fsync",
        "jetstream_publish",
        1,
        ("C29 volatile",),
        lambda: [(JournalPart, "begin_sync", begin_nothing), (JournalPart, "wait_synced", sync_nothing)],
    ),
    Planted(
        "JetStream syncs no directory",
        "jetstream_publish",
        5,
        ("C29 volatile",),
        lambda: [(SimDisk, "sync_dir", no_directory_sync)],
    ),
    Planted(
        "JetStream ignores failed syncs",
        "jetstream_publish",
        20,
        ("C29 volatile",),
        lambda: [(JournalPart, "wait_synced", ignore_sync_errors)],
    ),
    Planted(
        "message ids are forgotten at a start",
        "jetstream_publish",
        20,
        ("C4 a message id is stored once",),
        lambda: [(jetstream_service, "open_stream", forgets_ids(jetstream_service.open_stream))],
    ),
    Planted(
        "expected sequences are not looked at",
        "jetstream_publish",
        5,
        ("C9 expected sequences are kept",),
        lambda: [(Judge, "_check_expectations", lambda *arguments: None)],
    ),
    Planted(
        "members of a batch are stored as they come",
        "jetstream_publish",
        50,
        ("C10 batches are whole or absent",),
        lambda: [(StreamLeader, "_admit_staged", stores_members_at_once)],
    ),
    Planted(
        "removals are not logged",
        "jetstream_publish",
        20,
        (C13,),
        lambda: [(StreamService, "propose", removes_in_memory(StreamService.propose))],
    ),
    Planted(
        "updates of keys are not compared",
        "jetstream_kv",
        10,
        ("C9 updates succeed only on the expected revision", "C8 every key is linearizable"),
        lambda: [(Judge, "_check_expectations", lambda *arguments: None)],
    ),
    Planted(
        "lifetimes are forgotten at a start",
        "jetstream_time",
        10,
        ("C13 time removes and brings what it is to, once",),
        lambda: [(jetstream_service, "open_stream", forgets_lifetimes(jetstream_service.open_stream))],
    ),
    Planted(
        "sources begin with what they have",
        "jetstream_sources",
        10,
        ("C19 sources bring everything, once and in order",),
        lambda: [(LocalIntake, "_resume_at", resumes_early(LocalIntake._resume_at))],
    ),
    Planted(
        "counters begin anew at a start",
        "jetstream_publish",
        5,
        ("C11 counters add up",),
        lambda: [
            (CounterTotals, "wanted_seq", lambda self, subject: 0),
            (CounterTotals, "_total_of", counts_from_nothing),
        ],
    ),
    Planted(
        "a limit of messages is not kept",
        "jetstream_publish",
        5,
        (C13,),
        lambda: [(StreamMachine, "_enforce_totals", lambda *arguments: None)],
    ),
    Planted(
        "messages outlive their age",
        "jetstream_publish",
        20,
        (C13,),
        lambda: [
            (StreamMachine, "_overdue", lambda self, now_ns: []),
            (StreamMachine, "next_expiry_ns", lambda self: None),
        ],
    ),
    Planted(
        "what is refused is stored",
        "jetstream_publish",
        10,
        (C13,),
        lambda: [(Judge, "_check_expectations", stores_what_it_refuses(Judge._check_expectations))],
    ),
    Planted(
        "sequences are used again after a loss of power",
        "jetstream_publish",
        20,
        ("C2 no sequence is acknowledged twice",),
        lambda: [(Store, "last_lost", lambda self, name, last: last)],
    ),
    Planted(
        "a lazy loss is kept quiet",
        "jetstream_publish",
        20,
        (C13, "C11 counters add up"),
        lambda: [(stream_open, "_report", lambda *arguments: None), (streams, "_lost", lambda stream: [])],
    ),
    Planted(
        "a start tells other times",
        "jetstream_publish",
        5,
        ("C6 replicas agree, before and after a restart",),
        lambda: [(IndexedStore, "append_replayed", other_times(IndexedStore.append_replayed))],
    ),
    Planted(
        "large messages are not thought of",
        "jetstream_publish",
        5,
        ("C34 unhandled RuntimeError",),
        lambda: [(Judge, "admit", fails_at_large_ones(Judge.admit))],
    ),
    Planted(
        "files are never closed",
        "jetstream_publish",
        5,
        ("C31 left over",),
        lambda: [(SimFile, "close", lambda self: None)],
    ),
    Planted(
        "JetStream alarms for nothing",
        "jetstream_publish",
        5,
        ("C33 alarm",),
        lambda: [(Store, "health", lambda self: ["?"])],
    ),
    Planted(
        "making a stream is not logged",
        "jetstream_lifecycle",
        5,
        ("C12 streams live until they are deleted",),
        lambda: [(Catalogue, "put_stream", makes_in_memory)],
    ),
    Planted(
        "deleting a stream is not logged",
        "jetstream_lifecycle",
        20,
        ("C12 streams live until they are deleted",),
        lambda: [(Catalogue, "drop_stream", drops_in_memory)],
    ),
    Planted(
        "a new stream finds the files of an old one",
        "jetstream_lifecycle",
        5,
        ("C12 a new life has nothing of the old",),
        lambda: [(Catalogue, "next_number", uses_numbers_again), (Store, "drop_group", leaves_logs)],
    ),
    Planted(
        "batches do not compare",
        "jetstream_transactions",
        10,
        ("C8b transactions happen one after another",),
        lambda: [(Judge, "_check_expectations", lambda *arguments: None)],
    ),
    Planted(
        "direct reads go back",
        "jetstream_kv",
        20,
        ("C7 direct reads show a committed past",),
        goes_back,
    ),
    Planted(
        "a mirror passes over a message",
        "jetstream_mirror",
        20,
        ("C19 a mirror is the image of its origin",),
        lambda: [(LocalIntake, "_resume_at", resumes_late(LocalIntake._resume_at))],
    ),
    Planted(
        "a schedule fires twice",
        "jetstream_time",
        5,
        ("C13 time removes and brings what it is to, once",),
        lambda: [(Timed, "fire", fires_twice(Timed.fire))],
    ),
)
