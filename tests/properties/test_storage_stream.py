"""A stream's store on the journal: crashes at every disk operation, failing calls, damage, and memory as the measure."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio._core._run as trio_run

from tnats.runtime.api import DiskError
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail, SyncFault, damage_bit
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.commit_log import LocalLog
from tnats.storage.errors import DataDamaged, StorageError, StoreFrozen, StoreFull
from tnats.storage.journal import Journal, JournalOptions, open_journal
from tnats.storage.memory_log import MemoryLog
from tnats.storage.message_log import Message, MessageLog
from tnats.storage.record import Finding, alarms
from tnats.storage.stream_log import StreamLog, StreamLogOptions
from tnats.storage.stream_open import open_stream_log

STORE_ID = b"0123456789abcdef"
Content = dict[int, tuple[int, bytes, bytes, bytes]]


class StepClock:
    """Time that passes only by sleeping; a sleep is one checkpoint."""

    now_ns = 1_000_000_000

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns

    async def sleep_ns(self, duration_ns: int) -> None:
        self.now_ns += duration_ns
        await trio.lowlevel.checkpoint()


# ------------------------------------------------------------------ a small stream machine


async def apply(log: MessageLog, body: bytes) -> None:
    """Carry out one entry: what a stream's machine will do with its own encoding."""
    entry = json.loads(body)
    if entry["do"] == "append":
        await log.append([Message(s, t, *(text.encode() for text in texts)) for s, t, *texts in entry["messages"]])
    elif entry["do"] == "remove":
        log.remove(entry["sequences"], erase=entry["erase"])
    elif entry["do"] == "start":
        log.raise_start(entry["start"])
    else:
        log.skip(entry["first"], entry["last"])


def draw_entry(rng: random.Random, log: MessageLog) -> bytes:
    """A random entry that fits the present state of the log."""
    index = log.index
    choice = rng.random()
    if choice < 0.65 or not index.messages:
        messages = []
        for sequence in range(index.last + 1, index.last + 1 + rng.choice((1, 1, 3, 8))):
            subject, headers = (
                rng.choice(("a", "b.c", "d%d" % rng.randrange(9))),
                rng.choice(("", "", "NATS/1.0\r\nX: y\r\n\r\n")),
            )
            messages.append((sequence, 1000 * sequence, subject, headers, str(sequence) * rng.choice((0, 1, 9, 150))))
        entry = {"do": "append", "messages": messages}
    elif choice < 0.85:
        live = [s for s in range(index.first, index.last + 1) if index.place(s) > 1]
        entry = {
            "do": "remove",
            "sequences": rng.sample(live, min(len(live), rng.choice((1, 2, 6)))),
            "erase": rng.random() < 0.5,
        }
    elif choice < 0.95:
        entry = {"do": "start", "start": rng.randint(index.start, index.first + 5)}
    else:
        entry = {"do": "skip", "first": index.last + 1, "last": index.last + rng.randrange(1, 4)}
    return json.dumps(entry).encode()


async def content(log: MessageLog) -> Content:
    """Everything that can be read; and the searches must agree with it."""
    found: Content = {}
    sequence = log.index.next_live(0)
    while sequence:
        try:
            message = await log.load(sequence)
        except DataDamaged:
            pass
        else:
            assert message.sequence == sequence
            assert message.subject == log.index.subject(sequence)
            found[sequence] = (message.time_ns, message.subject, message.headers, message.payload)
        sequence = log.index.next_live(sequence + 1)
    return found


# ------------------------------------------------------------------ journal and stream on one drive


@attrs.define
class Store:
    journal: Journal
    commit: LocalLog
    log: StreamLog
    applied: int

    async def propose(self, body: bytes) -> None:
        await self.commit.propose_nowait([body]).wait()
        for entry in await self.commit.committed():
            assert entry.body is not None
            await apply(self.log, bytes(entry.body))
            self.applied = entry.index

    async def checkpoint(self) -> None:
        applied = self.applied
        note = await self.log.checkpoint()
        await self.commit.checkpointed(applied, note).wait()
        await self.log.release()
        await self.journal.release()

    @property
    def findings(self) -> list[Finding]:
        return self.journal.findings + self.log.findings


@asynccontextmanager
async def open_store(drive: SimDrive, seed: int = 1, segment_bytes: int = 9500) -> AsyncIterator[Store]:
    clock = StepClock()
    disk = SimDisk(drive, clock)  # type: ignore[arg-type]
    entropy = random.Random(seed).randbytes
    journal = await open_journal(
        disk, clock, entropy, "/store/journal", store_id=STORE_ID, options=JournalOptions(part_bytes=16 * 1024)  # type: ignore[arg-type]
    )  # fmt: skip
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        try:
            commit = LocalLog(journal.group("stream"))
            log = await open_stream_log(
                disk, clock, entropy, "/store/stream", name="stream", store_id=STORE_ID,  # type: ignore[arg-type]
                options=StreamLogOptions(segment_bytes=segment_bytes), note=commit.note,
            )  # fmt: skip
            store = Store(journal, commit, log, commit.floor)
            for entry in await commit.replay():
                if entry.body is None:
                    log.index.extend(log.index.last + entry.index - store.applied)
                else:
                    await apply(log, bytes(entry.body))
                store.applied = entry.index
            log.end_recovery()
            yield store
        finally:
            journal.close()
    await log.close()
    journal.close_files()


def new_drive(image: DiskImage | None = None) -> SimDrive:
    drive = SimDrive(random.Random(5), cold=0.2)
    if image is None:
        drive.image.make_directory("/store")
        drive.image.sync_directory(drive.image.directory("/"))
    else:
        drive.image = image
    return drive


@attrs.define
class Model:
    """Entry by entry, what a memory log holds: (content, start, last)."""

    log: MemoryLog = attrs.field(factory=MemoryLog)
    states: list[tuple[Content, int, int]] = attrs.field(factory=lambda: [({}, 1, 0)])
    acked: int = 0

    async def add(self, body: bytes) -> None:
        await apply(self.log, body)
        self.states.append((await content(self.log), self.log.index.start, self.log.index.last))


async def state_of(log: MessageLog) -> tuple[Content, int, int]:
    return await content(log), log.index.start, log.index.last


async def check(image: DiskImage, model: Model, acked: int) -> None:
    """The store holds exactly what some prefix of the entries gives, with every acknowledged one in it, for ever."""
    drive = new_drive(image)
    async with open_store(drive, seed=50) as store:
        assert alarms(store.findings) == []
        assert acked <= store.applied <= len(model.states) - 1
        expected = model.states[store.applied]
        assert await state_of(store.log) == expected
        assert store.log.index.messages == len(expected[0])
        await store.checkpoint()
        assert await state_of(store.log) == expected
    drive.power_loss(CrashPolicy.STRICT)
    async with open_store(drive, seed=51) as store:
        assert alarms(store.findings) == []
        assert await state_of(store.log) == expected
        assert not [path for path in drive.image.walk() if path.endswith(".tmp")]


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run with a seeded order of tasks, so that a failure repeats."""
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True
    trio_run._r.seed(11)
    try:
        trio.run(test)
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = False


@pytest.mark.parametrize("seed", range(3))
def test_power_loss_at_every_disk_operation(seed: int) -> None:
    """Append, roll, remove, purge, compact, checkpoint, release: whatever a power loss spares in between."""

    async def test() -> None:
        rng = random.Random(seed)
        drive = new_drive()
        model = Model()
        moments: list[tuple[DiskImage, int]] = []
        drive.observer = lambda kind, path: (
            moments.append((drive.image.clone(), model.acked)) if kind != "read" else None
        )
        async with open_store(drive) as store:
            for step in range(60):
                body = draw_entry(rng, store.log)
                await model.add(body)
                await store.propose(body)
                model.acked += 1
                assert await state_of(store.log) == model.states[-1]
                if step % 7 == 6:
                    await store.checkpoint()
        drive.observer = None
        assert len(moments) > 200
        for image, acked in moments:
            after = image.clone()
            after.crash(rng.choice(list(CrashPolicy)), rng)
            await check(after, model, acked)
        killed = drive.image.clone()
        await check(killed, model, model.acked)

    run(test)
