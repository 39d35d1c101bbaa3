"""Deliberately broken builds: each a bug that somebody could have written, and within how many seeds it must be found.

A build is a few replaced attributes, put in place for one run and taken back after it; the product knows nothing of
them. `rules` are the violations that count as finding it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import attrs

from tnats.broker.account import Account
from tnats.broker.connection import Connection
from tnats.broker.plan_table import PlanTable
from tnats.client.link import Link
from tnats.client.outbound import Outbound
from tnats.client.subscription import Subscription
from tnats.client.table import SubscriptionTable
from tnats.runtime.api import Buffer, DiskError
from tnats.runtime.sim.conn import SimConn
from tnats.runtime.sim.disk import SimDisk
from tnats.storage import segment
from tnats.storage import store as store_module
from tnats.storage.commit_log import LocalLog
from tnats.storage.errors import DataDamaged
from tnats.storage.group import Ticket
from tnats.storage.hot import Record
from tnats.storage.journal_part import JournalPart
from tnats.storage.segment import pack
from tnats.storage.store import Store
from tnats.storage.stream_log import StreamLog
from tnats.storage.stream_reader import StreamReader

Patch = tuple[object, str, object]


@attrs.frozen
class Planted:
    """One broken build."""

    name: str
    scenario: str
    seeds: int
    rules: tuple[str, ...]
    patches: Callable[[], list[Patch]]

    @contextmanager
    def planted(self) -> Iterator[None]:
        patches = self.patches()
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
        for owner, name, value in patches:
            setattr(owner, name, value)
        try:
            yield
        finally:
            for owner, name, value in before:
                setattr(owner, name, value)


# ------------------------------------------------------------------ core messaging


def every(count: int, change: Callable[[bytes], bytes]) -> Callable[[], list[Patch]]:
    """A server that treats every `count`-th write that holds whole messages wrongly."""

    def patches() -> list[Patch]:
        write = SimConn.write
        seen = [0]

        def wrong(conn: SimConn, buffers: Sequence[Buffer]) -> int:
            data = b"".join(buffers)
            if conn.host.name == "server" and data.startswith(b"MSG ") and data.endswith(b"\r\n") and len(data) < 9000:
                seen[0] += 1
                if seen[0] % count == 0:
                    changed = change(data)
                    return len(data) if write(conn, [changed]) == len(changed) else 0
            return write(conn, buffers)

        return [(SimConn, "write", wrong)]

    return patches


def split_messages(data: bytes) -> list[bytes]:
    """The MSG operations of a write, as far as they can be told apart by their first bytes."""
    return [b"MSG " + part for part in data.split(b"MSG ")[1:]]


def swap_two(data: bytes) -> bytes:
    parts = split_messages(data)
    return b"".join([*parts[1::-1], *parts[2:]])


def other_subscription(data: bytes) -> bytes:
    return re.sub(rb"^(MSG \S+ )(\d+)", lambda found: found[1] + b"%d" % (int(found[2]) + 1), data, count=1)


def wrong_byte(data: bytes) -> bytes:
    at = data.index(b"\r\n") + 3
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if len(data) > at + 4 else data


def skip_queue_rule(original: Callable[..., None]) -> Callable[..., None]:
    def refresh(self: PlanTable, plan: Any) -> None:
        original(self, plan)
        plan.targets = [*plan.targets, *(target for group in plan.groups for target in group[1:])]

    return refresh


def literal_alone(self: PlanTable, subject: bytes) -> None:
    """Forgets that a wildcard subscription changes plans too."""
    plan = self._plans.get(subject)
    if plan is not None:
        plan.epoch = -1


def empty_in_place(original: Callable[..., None]) -> Callable[..., None]:
    """Changes the lists of a plan that may be under delivery. (Found by this drill in the real server.)"""

    def invalidate(self: PlanTable, subject: bytes) -> None:
        plan = self._plans.get(subject)
        if plan is not None:
            plan.groups.clear()
        original(self, subject)

    return invalidate


def replay_outbound(self: Outbound, other: Outbound) -> None:
    """Keeps what it has taken over."""
    other._close_run()
    self._close_run()
    self._chunks += other._chunks
    self._chunks += [bytes(chunk) for chunk in other._chunks[:1]]
    self.byte_count = sum(map(len, self._chunks))
    other._chunks, other.byte_count = [], 0


async def never_ping(self: Link) -> None:
    import trio

    await trio.sleep_forever()


def take_newest(original: Callable[..., Any]) -> Callable[..., Any]:
    def take(self: Subscription) -> Any:
        if len(self._messages) > 1:
            self._messages.rotate(1)
        return original(self)

    async def batch(self: Subscription, count_max: int = 1024) -> list[Any]:
        if not self._messages and not await self._wait_pending():
            return []
        return [take(self) for _ in range(len(self._messages))]

    return batch


def keep_closed(self: Account, subscription: Any) -> None:
    """Forgets to take subscriptions out: the dead stay members of their groups."""


# ------------------------------------------------------------------ storage


def begin_nothing(self: JournalPart) -> None:
    """Of a sync."""


async def sync_nothing(self: JournalPart) -> None:
    self.durable = self.end


async def ignore_sync_errors(self: JournalPart) -> None:
    assert self._syncing is not None
    with suppress(DiskError):
        await self._syncing[1].wait()
    self.durable = self.end


def ignore_write_errors(self: JournalPart, records: list[Record]) -> list[int]:
    packed, offsets = pack(records, self.end, self._header.seed, self.durable, self._cipher)
    with suppress(DiskError):
        self.file.pwrite([packed], self.end)
    self.end += len(packed)
    return offsets


def no_promise(self: JournalPart, promise: bytearray, offset: int) -> None:
    pass


async def no_directory_sync(self: SimDisk, path: str) -> None:
    await self.clock.sleep_ns(1000)


async def wait_for_nothing(self: Ticket) -> None:
    import trio

    await trio.lowlevel.checkpoint()


async def committed_at_once(self: LocalLog) -> list[Any]:
    import trio

    await trio.lowlevel.checkpoint()
    ready, self._ready = self._ready, []
    return ready


async def release_first(self: Any) -> None:
    """Lets the journal forget before the segments are durable."""
    applied = self.applied
    if applied > self.commit.floor:
        await self.commit.checkpointed(applied, self.commit.note).wait()


def scan_to_the_first_hole(original: Callable[..., Any]) -> Callable[..., Any]:
    """Takes a record that does not fit for the end of what was written."""

    def scan(*arguments: Any, **keywords: Any) -> Any:
        found = original(*arguments, **keywords)
        if found.holes:
            found.end = found.holes[0][0]
            found.records = [each for each in found.records if each[0] < found.end]
            found.holes, found.clean = [], True
        return found

    return scan


def promise_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    def read_promise(*arguments: Any) -> Any:
        _, is_readable, findings = original(*arguments)
        return segment.DATA_START, is_readable, findings

    return read_promise


def serves_neighbours() -> list[Patch]:
    """A store that reads a place too early now and then."""
    original = StreamReader.load_nowait
    count = [0]

    def load_nowait(self: StreamReader, sequence: int) -> Any:
        count[0] += 1
        with suppress(KeyError, DataDamaged):
            before = original(self, sequence - 1) if count[0] % 5 == 0 else None
            if before is not None:
                return attrs.evolve(before, sequence=sequence)
        return original(self, sequence)

    return [(StreamReader, "load_nowait", load_nowait)]


def lost_is_absent(original: Callable[..., Any]) -> Callable[..., Any]:
    """Answers for what cannot be read as for what is not there, and tells nobody."""

    def load_nowait(self: StreamLog, sequence: int) -> Any:
        try:
            return original(self, sequence)
        except DataDamaged:
            raise KeyError(sequence) from None

    return load_nowait


PLANTED = (
    Planted("delivers twice now and then", "core", 5, ("C32 duplicate",), every(40, lambda data: data * 2)),
    Planted(
        "forgets a message now and then",
        "core",
        10,
        ("C32 loss", "C32 queue loss", "LIVE work"),
        every(60, lambda data: b"".join(split_messages(data)[1:])),
    ),
    Planted("hands to another subscription now and then", "core", 5, ("C32 matching",), every(10, other_subscription)),
    Planted("has a byte wrong now and then", "core", 5, ("C32 invented",), every(20, wrong_byte)),
    Planted("swaps neighbours now and then", "core", 20, ("C32 order",), every(4, swap_two)),
    Planted(
        "a queue group of two gets two",
        "core",
        5,
        ("C32 queue", "C32 duplicate"),
        lambda: [(PlanTable, "refresh", skip_queue_rule(PlanTable.refresh))],
    ),
    Planted(
        "a plan outlives a new wildcard",
        "core",
        30,
        ("C32 loss", "C32 queue loss", "LIVE work"),
        lambda: [(PlanTable, "invalidate", literal_alone)],
    ),
    Planted(
        "a slow client's end skips the queue groups",
        "core_slow",
        200,
        ("C32 queue loss",),
        lambda: [(PlanTable, "invalidate", empty_in_place(PlanTable.invalidate))],
    ),
    Planted(
        "nobody is told of no responders",
        "core",
        20,
        ("LIVE work", "C32 responders"),
        lambda: [(Connection, "on_no_responders", lambda self, subject, reply: None)],
    ),
    Planted(
        "the dead stay in their queue groups",
        "core",
        100,
        ("C32 queue loss", "LIVE work", "LIVE bound", "C34 BugFound"),
        lambda: [(Account, "unsubscribe", keep_closed)],
    ),
    Planted(
        "a reconnect forgets the subscriptions",
        "core",
        10,
        ("C32 loss", "C32 queue loss", "LIVE work", "LIVE bound"),
        lambda: [(SubscriptionTable, "renewal", lambda self: b"")],
    ),
    Planted(
        "a reconnect sends its first bytes twice",
        "core",
        20,
        ("C32 duplicate", "LIVE work"),
        lambda: [(Outbound, "take_over", replay_outbound)],
    ),
    Planted(
        "a client never looks whether its connection lives",
        "core",
        20,
        ("LIVE bound", "LIVE work"),
        lambda: [(Link, "_keep_alive", never_ping)],
    ),
    Planted(
        "a subscription hands out its newest first",
        "core",
        10,
        ("C32 order",),
        lambda: [(Subscription, "next_batch", take_newest(Subscription._take))],
    ),
    Planted(
        "acknowledges before fsync",
        "storage_power",
        5,
        ("C1 acked", "C13 risen"),
        lambda: [(JournalPart, "begin_sync", begin_nothing), (JournalPart, "wait_synced", sync_nothing)],
    ),
    Planted(
        "acknowledges before anything",
        "storage_power",
        5,
        ("C1 acked", "C13 risen", "C2 reused"),
        lambda: [(Ticket, "wait", wait_for_nothing), (LocalLog, "committed", committed_at_once)],
    ),
    Planted(
        "no directory is synced",
        "storage_power",
        5,
        ("C1 acked", "LIVE open", "C33 alarm", "C13 risen"),
        lambda: [(SimDisk, "sync_dir", no_directory_sync)],
    ),
    Planted(
        "the journal forgets before the segments are durable",
        "storage_power",
        20,
        ("C1 acked", "C33 alarm", "C13 risen"),
        lambda: [(store_module.OpenStream, "checkpoint", release_first)],
    ),
    Planted(
        "fsync errors are ignored",
        "storage_errors",
        20,
        ("C1 acked", "C13 risen"),
        lambda: [(JournalPart, "wait_synced", ignore_sync_errors)],
    ),
    Planted(
        "write errors are ignored",
        "storage_errors",
        20,
        ("C1 acked", "C2 reused", "C33 alarm", "C13 risen"),
        lambda: [(JournalPart, "write", ignore_write_errors), (JournalPart, "_promise", no_promise)],
    ),
    Planted(
        "the journal is cut at the first bad checksum",
        "jetstream_damage",
        20,
        ("C1 acked", "C2 reused", "LIVE halt"),
        lambda: [
            (segment, "scan", scan_to_the_first_hole(segment.scan)),
            (segment, "read_promise", promise_nothing(segment.read_promise)),
        ],
    ),
    Planted(
        "what cannot be read is skipped",
        "jetstream_damage",
        20,
        ("C1 acked",),
        lambda: [(StreamLog, "load_nowait", lost_is_absent(StreamLog.load_nowait))],
    ),
    Planted(
        "damage is kept quiet", "storage_damage", 20, ("C33 silent",), lambda: [(Store, "health", lambda self: [])]
    ),
    Planted("serves a neighbour now and then", "storage_power", 5, ("C3 invented",), serves_neighbours),
    Planted("alarms for nothing", "storage_power", 5, ("C33 alarm",), lambda: [(Store, "health", lambda self: ["?"])]),
)
