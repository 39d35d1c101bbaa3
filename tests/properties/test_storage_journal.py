"""The journal against crashes at every disk operation, failing calls, and damage of every byte."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.errors import DataDamaged
from tnats.storage.journal import Journal, JournalOptions, open_journal
from tnats.storage.record import alarms

STORE_ID = b"0123456789abcdef"
SECOND_NS = 1_000_000_000


class StepClock:
    """Time that passes only by sleeping; a sleep is one checkpoint."""

    def __init__(self) -> None:
        self.now_ns = SECOND_NS

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns

    async def sleep_ns(self, duration_ns: int) -> None:
        self.now_ns += duration_ns
        await trio.lowlevel.checkpoint()


@attrs.define
class Bench:
    """A drive with one journal on it."""

    drive: SimDrive
    part_bytes: int = 16 * 1024
    seed: int = 0

    @asynccontextmanager
    async def journal(self) -> AsyncIterator[Journal]:
        clock = StepClock()
        disk = SimDisk(self.drive, clock)  # type: ignore[arg-type]
        self.seed += 1
        journal = await open_journal(
            disk,
            clock,  # type: ignore[arg-type]
            random.Random(self.seed).randbytes,
            "/store/journal",
            store_id=STORE_ID,
            options=JournalOptions(part_bytes=self.part_bytes),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run)
            try:
                yield journal
            finally:
                journal.close()
        journal.close_files()


def new_drive(image: DiskImage | None = None) -> SimDrive:
    drive = SimDrive(random.Random(5))
    if image is not None:
        drive.image = image
    else:
        number = drive.image.make_directory("/store")
        assert number
        drive.image.sync_directory(drive.image.directory("/"))
    return drive


async def contents(journal: Journal) -> dict[str, dict[int, bytes | None]]:
    """Every readable entry of every group; None for what is lost."""
    found: dict[str, dict[int, bytes | None]] = {}
    for group in journal.groups:
        entries: dict[int, bytes | None] = {}
        for index in range(group.floor + 1, group.last + 1):
            try:
                entries[index] = (await group.read(index)).body
            except DataDamaged:
                entries[index] = None
        found[group.name] = entries
    return found


def body(group: str, index: int, size: int) -> bytes:
    return f"{group}-{index}-".encode() + bytes([index % 251 + 1]) * size


@attrs.define
class Model:
    """What was proposed and what of it was acknowledged: group -> highest index."""

    proposed: dict[str, int] = attrs.field(factory=dict)
    acked: dict[str, int] = attrs.field(factory=dict)
    floor: dict[str, int] = attrs.field(factory=dict)
    sizes: dict[tuple[str, int], int] = attrs.field(factory=dict)

    def copy(self) -> Model:
        return Model(dict(self.proposed), dict(self.acked), dict(self.floor), self.sizes)


async def program(journal: Journal, model: Model, rng: random.Random, rounds: int) -> None:
    """Several groups append at once; floors rise; parts go."""

    async def owner(name: str) -> None:
        group = journal.group(name)
        for _ in range(rounds):
            count = rng.randrange(1, 4)
            first = group.proposed + 1
            bodies = []
            for index in range(first, first + count):
                size = rng.choice((0, 10, 300, 2000))
                model.sizes[name, index] = size
                bodies.append(body(name, index, size))
            model.proposed[name] = first + count - 1
            ticket = group.append_nowait(bodies)
            await ticket.wait()
            model.acked[name] = first + count - 1
            if rng.random() < 0.3:
                floor = rng.randint(group.floor, group.last)
                model.floor[name] = max(floor, model.floor.get(name, 0))
                await group.set_state_nowait(floor, b"note %d" % floor).wait()
            if rng.random() < 0.3:
                await journal.release()

    async with trio.open_nursery() as nursery:
        for name in ("alpha", "beta"):
            nursery.start_soon(owner, name)


async def check(image: DiskImage, model: Model, *, damaged: bool = False) -> None:
    """Acknowledged entries are there with their content, in order; nothing is there that was not proposed."""
    bench = Bench(new_drive(image), seed=1000)
    async with bench.journal() as journal:
        if not damaged:
            assert alarms(journal.findings) == []
        found = await contents(journal)
        for name, acked in model.acked.items():
            group = journal.group(name)
            assert group.last >= acked, (name, group.last, acked)
            assert group.floor <= model.floor.get(name, 0)
            assert group.note == (b"note %d" % group.floor if group.floor else group.note)
        for name, entries in found.items():
            for index, content in entries.items():
                if not damaged or content is not None:
                    assert index <= model.proposed.get(name, 0)
                    assert content == body(name, index, model.sizes[name, index]), (name, index)
        last = {group.name: group.last for group in journal.groups}
        for name in last:
            await journal.group(name).append_nowait([b"after"]).wait()
    async with bench.journal() as journal:
        if not damaged:
            assert alarms(journal.findings) == []
        again = await contents(journal)
        for name, entries in found.items():
            assert again[name].pop(last[name] + 1) == b"after"
            assert again[name] == entries


def run(test: Callable[[], Awaitable[None]]) -> None:
    trio.run(test)


@pytest.mark.parametrize("seed", range(3))
def test_power_loss_at_every_disk_operation(seed: int) -> None:
    """Whatever a power loss spares at whatever operation, acknowledged entries are there and no alarm is raised."""

    async def test() -> None:
        rng = random.Random(seed)
        drive = new_drive()
        bench = Bench(drive)
        model = Model()
        moments: list[tuple[DiskImage, Model]] = []

        def observe(kind: str, path: str) -> None:
            if kind != "read":
                moments.append((drive.image.clone(), model.copy()))

        drive.observer = observe
        async with bench.journal() as journal:
            await program(journal, model, rng, 8)
        drive.observer = None
        assert journal.sync_count > 5
        assert len(moments) > 60
        for image, then in moments:
            policies = rng.sample(list(CrashPolicy), 3)
            for policy in policies:
                after = image.clone()
                after.crash(policy, rng)
                await check(after, then)

    run(test)
