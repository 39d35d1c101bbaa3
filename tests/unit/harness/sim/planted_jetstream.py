"""Deliberately broken builds of JetStream: see `planted`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.harness.sim.planted import (
    Planted,
    begin_nothing,
    ignore_sync_errors,
    no_directory_sync,
    sync_nothing,
)

from tnats.jetstream import service as jetstream_service
from tnats.jetstream.consumer.acknowledge import Acknowledgements
from tnats.jetstream.consumer.service import ConsumerService
from tnats.jetstream.host import Host
from tnats.jetstream.stream.dedup import DuplicateWindow
from tnats.jetstream.stream.entries import Purge, Remove
from tnats.jetstream.stream.judge import Judge
from tnats.jetstream.stream.leader import StreamLeader
from tnats.jetstream.stream.service import StreamService
from tnats.jetstream.stream.sourcing import LocalIntake
from tnats.runtime.sim.disk import SimDisk
from tnats.storage.journal_part import JournalPart

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


def confirms_first(original: Method) -> Method:
    """Confirms acknowledgements as they are heard."""

    def flush(self: ConsumerService) -> None:
        for reply in self._after.replies:
            self._client.publish(reply, b"")
        self._after.replies.clear()
        original(self)

    return flush


def lets_go_at_delivery(original: Method) -> Method:
    """A work queue that forgets a message once somebody has it."""

    def deliver(self: ConsumerService, send: Any, messages: list[Any]) -> None:
        original(self, send, messages)
        self.stream.done_with(list(send.seqs[: len(messages)]), None)

    return deliver


def removes_in_memory(original: Method) -> Method:
    """Removals that no log hears of."""

    def propose(self: StreamService, entry: Any, done: Any = None) -> None:
        if isinstance(entry, Remove | Purge):
            self._apply(entry, done)
        else:
            original(self, entry, done)

    return propose


def waits_by_the_wall(original: Method) -> Method:
    """Ack waits that the wall clock measures."""

    def pulls(self: ConsumerService, messages: Any) -> None:
        original(self, messages)
        self._carry_out(self.machine.tick(self.host.mono_ns()))

    return pulls


def wall_for_mono() -> Callable[[Host], int]:
    """`Host.mono_ns` on the wall clock, beginning where the monotonic one was."""
    ahead_ns: dict[object, int] = {}

    def mono_ns(self: Host) -> int:
        clock = self.runtime.clock
        return clock.wall_ns() - ahead_ns.setdefault(clock, clock.wall_ns() - clock.mono_ns())

    return mono_ns


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
        ("C13 what was acknowledged is there, what was removed is not",),
        lambda: [(StreamService, "propose", removes_in_memory(StreamService.propose))],
    ),
    Planted(
        "acknowledgements are confirmed before they are written",
        "jetstream_consume",
        20,
        ("C15 confirmed acknowledgements survive a crash", "C16 confirmed acknowledgements hold"),
        lambda: [(ConsumerService, "flush", confirms_first(ConsumerService.flush))],
    ),
    Planted(
        "a message is delivered once too often",
        "jetstream_consume",
        20,
        ("C18 consumers keep their limits",),
        lambda: [(Acknowledgements, "gives_up", lambda *arguments: False)],
    ),
    Planted(
        "ack waits follow the wall clock",
        "jetstream_workqueue",
        10,
        ("C17 a message is with one worker at a time",),
        lambda: [
            (ConsumerService, "pulls", waits_by_the_wall(ConsumerService.pulls)),
            (Host, "mono_ns", wall_for_mono()),
        ],
    ),
    Planted(
        "a work queue lets go at delivery",
        "jetstream_workqueue",
        5,
        ("C17 work leaves its queue when it is done",),
        lambda: [(ConsumerService, "_deliver", lets_go_at_delivery(ConsumerService._deliver))],
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
)
