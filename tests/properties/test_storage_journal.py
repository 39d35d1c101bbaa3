"""The journal against crashes at every disk operation, failing calls, and damage of every byte."""

from __future__ import annotations

import errno
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing
from tests.properties.storage_bench import StepClock, run

from tnats.runtime.api import DiskError
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail, Kind, SyncFault, damage_bit
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.errors import NO_SPACE, DataDamaged, StorageError, StoreFrozen, StoreFull, StoreRefused
from tnats.storage.group import Group, Ticket
from tnats.storage.journal import Journal, JournalOptions
from tnats.storage.journal_open import open_journal
from tnats.storage.record import alarms
from tnats.storage.segment import HEADER_OFFSETS, read_header

STORE_ID = b"0123456789abcdef"
SECOND_NS = 1_000_000_000


@attrs.define
class Bench:
    """A drive with one journal on it."""

    drive: SimDrive
    part_bytes: int = 16 * 1024
    seed: int = 0
    sync_interval_ns: int = 0
    clock: StepClock = attrs.field(factory=StepClock)

    @asynccontextmanager
    async def journal(self) -> AsyncIterator[Journal]:
        clock = self.clock
        disk = SimDisk(self.drive, clock)  # type: ignore[arg-type]
        self.seed += 1
        journal = await open_journal(
            disk,
            clock,  # type: ignore[arg-type]
            random.Random(self.seed).randbytes,
            "/store/journal",
            store_id=STORE_ID,
            options=JournalOptions(part_bytes=self.part_bytes, sync_interval_ns=self.sync_interval_ns),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run)
            try:
                yield journal
            finally:
                journal.close()
        journal.parts.close()


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
    """Every readable entry of every group, read one by one; None for what is lost. A replay reads the same in runs."""
    found: dict[str, dict[int, bytes | None]] = {}
    at_once = {group.name: await group.read_run() for group in journal.groups}
    journal.parts.end_recovery()
    from_files = {group.name: await group.read_run() for group in journal.groups}
    for group in journal.groups:
        entries: dict[int, bytes | None] = {}
        for index in range(group.floor + 1, min(group.last, 1000) + 1):
            try:
                entries[index] = (await group.read(index)).body
            except DataDamaged:
                entries[index] = None
        found[group.name] = entries
        for runs in (at_once[group.name], from_files[group.name]):
            for index, (_, read) in runs.items():
                if index <= 1000:
                    assert bytes(read) == entries[index]
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


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
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
        for image, then in moments[:: 3 if seed == 0 else 1]:
            policies = rng.sample(list(CrashPolicy), 3)
            for policy in policies:
                after = image.clone()
                after.crash(policy, rng)
                await check(after, then)

    run(test)


FAILURES = [
    DiskFault(("write",), Fail(errno.EIO), times=1),
    DiskFault(("sync",), Fail(errno.EIO), times=1),
    DiskFault(("create",), Fail(errno.EIO), times=1),
    DiskFault(("resize",), Fail(errno.EIO), times=1),
    DiskFault(("rename",), Fail(errno.EIO), times=1),
    DiskFault(("sync_dir",), Fail(errno.EIO), times=1),
    *(DiskFault((kind,), Fail(errno.ENOSPC, written=700), times=1) for kind in ("write", "create", "resize")),
    *(DiskFault((kind,), Fail(errno.EMFILE), times=1) for kind in ("open", "create", "sync_dir")),
    DiskFault(("sync",), SyncFault("once"), times=1),
    DiskFault(("sync",), SyncFault("sticky")),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAILURES, ids=lambda fault: f"{fault.kinds[0]}-{fault.effect}")
def test_the_nth_call_fails(fault: DiskFault) -> None:
    """Whichever call fails, what was acknowledged survives a crash right then; only reasons that pass let appends
    go on.
    """

    async def test() -> None:
        for skip in range(40):
            rng = random.Random(skip)
            drive = new_drive()
            bench = Bench(drive)
            model = Model()
            rule = attrs.evolve(fault, skip=skip)
            error: BaseException | None = None
            try:
                async with bench.journal() as journal:
                    drive.faults.append(rule)
                    try:
                        await program(journal, model, rng, 6)
                    except* StorageError as group:
                        error = group.exceptions[0]
                    while isinstance(error, BaseExceptionGroup):
                        error = error.exceptions[0]
                    full = isinstance(rule.effect, Fail) and rule.effect.errno in NO_SPACE
                    if error is not None and full:
                        assert isinstance(error, StoreFull)
                        await program(journal, model, rng, 2)
                    elif error is not None:
                        assert isinstance(error, StoreFrozen)
                        with pytest.raises(StoreFrozen):
                            journal.group("alpha").append_nowait([b"x"])
                        await contents(journal)
            except* DiskError as group:
                raise AssertionError("a disk error got out of the journal") from group
            drive.faults.clear()
            drive.power_loss(rng.choice(list(CrashPolicy)))
            await check(drive.image, model)
            if not rule.fired:
                assert skip > 1
                break

    run(test)


async def small_store() -> tuple[DiskImage, Model]:
    """A finished journal of two parts with a few entries, all durable."""
    drive = new_drive()
    bench = Bench(drive, part_bytes=13 * 1024)
    model = Model()
    async with bench.journal() as journal:
        for name, size in (("alpha", 10), ("beta", 0), ("alpha", 700), ("beta", 90), ("alpha", 10)):
            group = journal.group(name)
            index = group.proposed + 1
            model.sizes[name, index] = size
            await group.append_nowait([body(name, index, size)]).wait()
            model.proposed[name] = model.acked[name] = index
    return drive.image, model


async def reopen(image: DiskImage, model: Model) -> tuple[dict[str, dict[int, bytes | None]], Journal]:
    """Open a damaged image; nothing wrong may be served, and no index may be given out twice."""
    bench = Bench(new_drive(image), seed=77)
    async with bench.journal() as journal:
        found = await contents(journal)
        for name, entries in found.items():
            for index, content in entries.items():
                if content is not None:
                    assert content == body(name, index, model.sizes[name, index])
        for name, acked in model.acked.items():
            group = journal.group(name)
            await group.append_nowait([b"after"]).wait()
            assert group.last > acked, (name, group.last)
        return found, journal


def live_bytes(image: DiskImage) -> dict[str, list[int]]:
    """Offsets that say something, by part: those that are not zero, and the eight around them."""
    live = {}
    for path in image.walk():
        content = image.content(path)
        used = {offset + near for offset, byte in enumerate(content) if byte for near in range(-4, 5)}
        live[path] = sorted(offset for offset in used if 0 <= offset < len(content))
    return live


STRIDES = [61, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]


@pytest.mark.parametrize("stride", STRIDES)
def test_every_bit_of_a_small_journal(stride: int) -> None:
    """Whichever bit flips, every entry is served and nothing is alarmed; a flip in what matters is reported."""

    async def test() -> None:
        image, model = await small_store()
        reported = tried = 0
        for path, offsets in live_bytes(image).items():
            for bit in [offset * 8 + bit for offset in offsets for bit in range(8)][::stride]:
                after = image.clone()
                damage_bit(after, path, bit)
                found, journal = await reopen(after, model)
                assert alarms(journal.findings) == [], (path, bit, journal.findings)
                assert {name: max(entries) for name, entries in found.items()} == model.acked
                assert None not in {content for entries in found.values() for content in entries.values()}
                reported += any(finding.kind == "corrected" for finding in journal.findings)
                tried += 1
        assert reported > tried // 2

    run(test)


@pytest.mark.parametrize("stride", STRIDES)
def test_every_byte_of_a_small_journal(stride: int) -> None:
    """Whichever bytes are overwritten, the entries outside are served, and what is lost is named."""

    async def test() -> None:
        image, model = await small_store()
        rng = random.Random(1)
        for path, offsets in live_bytes(image).items():
            for offset in offsets[::stride]:
                after = image.clone()
                after.overwrite(path, rng.randbytes(rng.choice((1, 8, 40))), offset)
                found, journal = await reopen(after, model)
                served = sum(content is not None for entries in found.values() for content in entries.values())
                assert served >= 3, (path, offset)
                if served < 5:
                    assert alarms(journal.findings), (path, offset)

    run(test)


@pytest.mark.parametrize("stride", STRIDES)
def test_every_truncation_of_a_small_journal(stride: int) -> None:
    """However short a part is cut, the entries of the other parts are served, and a lost one is named."""

    async def test() -> None:
        image, model = await small_store()
        for path, offsets in live_bytes(image).items():
            for size in offsets[::stride]:
                after = image.clone()
                after.cut(path, size)
                found, journal = await reopen(after, model)
                served = sum(content is not None for entries in found.values() for content in entries.values())
                if served < 5:
                    assert alarms(journal.findings), (path, size)

    run(test)


def test_a_missing_part_is_named() -> None:
    """Neither the first, the middle nor the last part can vanish unnoticed, and no index is given out again."""

    async def test() -> None:
        image, model = await small_store()
        for path in list(image.walk()):
            after = image.clone()
            after.remove(path)
            found, journal = await reopen(after, model)
            served = sum(content is not None for entries in found.values() for content in entries.values())
            assert served == 5 or alarms(journal.findings), path

    run(test)


@pytest.mark.parametrize("seed", range(2))
def test_a_sync_interval_risks_only_the_last_interval(seed: int) -> None:
    """Entries are acknowledged at once; a power loss takes a suffix of each group that was not synced, silently."""

    async def test() -> None:
        rng = random.Random(seed)
        drive = new_drive()
        bench = Bench(drive, sync_interval_ns=SECOND_NS, part_bytes=24 * 1024)
        model = Model()
        moments: list[tuple[DiskImage, Model]] = []
        drive.observer = lambda kind, path: moments.append((drive.image.clone(), model.copy()))
        async with bench.journal() as journal:
            written: dict[str, int] = {}
            alone = at_once = 0
            for step in range(30):
                name = rng.choice(("alpha", "beta"))
                group = journal.group(name)
                model.proposed[name] = written[name] = index = group.proposed + 1
                model.sizes[name, index] = size = rng.choice((0, 300, 1500))
                syncs = journal.sync_count
                if rng.random() < 0.6 and group.write_nowait(body(name, index, size)):
                    alone += 1
                else:
                    ticket = group.append_nowait([body(name, index, size)])
                    if rng.random() < 0.5:
                        journal.write_nowait()
                        at_once += ticket.done
                    await ticket.wait()
                assert group.last == index
                assert bytes((await group.read(index)).body) == body(name, index, size)
                if step % 6 == 5:
                    await (bench.clock.idle() if step % 12 == 5 else journal.flush())
                    assert journal.sync_count > syncs
                    model.acked = dict(written)
            assert alone > 5
            assert at_once
        drive.observer = None
        for image, then in moments:
            after = image.clone()
            after.crash(rng.choice(list(CrashPolicy)), rng)
            await check(after, then)

    run(test)


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_failed_write_does_not_cost_what_was_acknowledged_before(call: Kind) -> None:
    """With a sync interval, a write that fails freezes the journal, and what it had taken is durable an interval later
    all the same; after a sync that failed nothing is synced any more: a second one may answer well and mean nothing.
    """

    async def test() -> None:
        drive = new_drive()
        bench = Bench(drive, sync_interval_ns=SECOND_NS)
        syncs: list[str] = []
        async with bench.journal() as journal:
            group = journal.group("alpha")
            for index in (1, 2):  # the first one takes a lease, whose sync is begun at once
                await group.append_nowait([body("alpha", index, 100)]).wait()
                await trio.testing.wait_all_tasks_blocked()
            drive.faults.append(DiskFault((call,), Fail(errno.EIO), times=1))
            if call == "write":
                with pytest.raises(StoreFrozen):
                    await group.append_nowait([body("alpha", 3, 100)]).wait()
            else:
                with pytest.raises(StoreFrozen):
                    await journal.flush()
            assert journal.frozen is not None
            drive.observer = lambda kind, path: syncs.append(path) if kind == "sync" else None
            await bench.clock.idle()
            after = drive.image.clone()
            drive.observer = None
        assert bool(syncs) == (call == "write")
        after.crash(CrashPolicy.STRICT, random.Random(1))
        async with Bench(new_drive(after)).journal() as journal:
            assert (2 in (await contents(journal)).get("alpha", {})) == (call == "write")

    run(test)


@pytest.mark.parametrize("call", ["sync_dir", "open"])
def test_nothing_goes_behind_the_end_that_a_part_without_a_durable_name_tells(call: Kind) -> None:
    """A new part has its name when that cannot be made durable, or the part cannot be opened; it says where the one
    before ends. What is acknowledged afterwards is found all the same, also where it may use the reserve.
    """

    async def test() -> None:
        drive = new_drive()
        async with Bench(drive).journal() as journal:
            group = journal.group("alpha")
            await group.append_nowait([body("alpha", 1, 100)]).wait()
            drive.faults.append(DiskFault((call,), Fail(errno.EMFILE), times=1))
            with pytest.raises(StoreFull):
                await group.append_nowait([body("alpha", 2, 20_000)]).wait()
            for index in (2, 3):
                await group.append_nowait([body("alpha", index, 100)], frees_space=True).wait()
            after = drive.image.clone()
        for policy in CrashPolicy:
            image = after.clone()
            image.crash(policy, random.Random(1))
            async with Bench(new_drive(image)).journal() as journal:
                assert (await contents(journal))["alpha"] == {index: body("alpha", index, 100) for index in (1, 2, 3)}

    run(test)


def test_tickets_are_done_in_the_order_of_their_appends() -> None:
    """With a sync interval too, where an append may be written at once: one that comes of a ticket is behind those that
    were in line before it.
    """

    async def test() -> None:
        bench = Bench(new_drive(), sync_interval_ns=SECOND_NS)
        async with bench.journal() as journal:
            one, other = journal.group("one"), journal.group("other")
            done: list[str] = []

            def append(group: Group, name: str, then: Callable[[], None] = lambda: None) -> Ticket:
                def on_ticket(ticket: Ticket) -> None:
                    assert ticket.error is None
                    done.append(name)
                    then()

                return group.append_nowait([name.encode()], callback=on_ticket, wake=False)

            def append_third() -> None:
                append(other, "third")
                journal.write_nowait()

            append(one, "first", append_third)
            append(other, "second")
            journal.write_nowait()
            assert done == ["first", "second"]
            await journal.flush()
            assert done == ["first", "second", "third"]
            assert [bytes((await other.read(index)).body) for index in (1, 2)] == [b"second", b"third"]

    run(test)


def test_a_lagging_group_is_written_forward() -> None:
    """A group that keeps few old entries does not hold back the parts: they move, and survive the release."""

    async def test() -> None:
        drive = new_drive()
        bench = Bench(drive)
        async with bench.journal() as journal:
            idle, busy = journal.group("idle"), journal.group("busy")
            await idle.append_nowait([b"one", b"two"], term=7).wait()
            for _ in range(30):
                await busy.append_nowait([bytes(900)]).wait()
                await busy.set_state_nowait(busy.last, b"").wait()
            await journal.release()
            assert len(journal.old_parts) > 2
            while journal.old_parts:
                for group in journal.needing(journal.old_parts[0]):
                    await journal.write_forward(group, journal.old_parts[0])
                assert await journal.release()
            assert [(await idle.read(index)).body for index in (1, 2)] == [b"one", b"two"]
        drive.power_loss(CrashPolicy.STRICT)
        async with bench.journal() as journal:
            assert alarms(journal.findings) == []
            idle = journal.group("idle")
            assert [((await idle.read(index)).body, (await idle.read(index)).stamp) for index in (1, 2)] == [
                (b"one", 7),
                (b"two", 7),
            ]

    run(test)


def test_a_part_goes_only_when_it_is_known_for_good_that_nobody_needs_it() -> None:
    """With a sync interval a group is checkpointed while an older part goes: its entries stay until that is durable."""

    async def test() -> None:
        drive = new_drive()
        bench = Bench(drive, sync_interval_ns=SECOND_NS, part_bytes=24 * 1024)
        async with bench.journal() as journal:
            early, late = journal.group("early"), journal.group("late")
            for group in (early, late):
                parts_count = len(journal.old_parts)
                while len(journal.old_parts) == parts_count:
                    await group.append_nowait([bytes(3000)]).wait()
            await journal.flush()
            await early.set_state_nowait(early.last, b"").wait()

            def checkpoint_late(kind: str, path: str) -> None:
                if kind == "unlink" and not path.endswith(".tmp") and not checkpointed:
                    checkpointed.append(late.set_state_nowait(late.last, b""))

            checkpointed: list[Ticket] = []
            drive.observer = checkpoint_late
            assert await journal.release() == 1
            drive.observer = None
            await checkpointed[0].wait()
            after = drive.image.clone()
            assert await journal.release() == 1
        after.crash(CrashPolicy.STRICT, random.Random(1))
        async with Bench(new_drive(after)).journal() as journal:
            assert alarms(journal.findings) == []
            assert journal.group("late").floor == 0
            assert len(await journal.group("late").read_run()) == journal.group("late").last > 0

    run(test)


def parts_of(image: DiskImage) -> list[str]:
    return [path for path in image.walk() if path.endswith(".part")]


def test_dropping() -> None:
    """A dropped group is gone, also at the next start, and its name starts anew."""

    async def test() -> None:
        bench = Bench(new_drive())
        async with bench.journal() as journal:
            kept, gone = journal.group("kept"), journal.group("gone")
            await kept.append_nowait([b"1", b"2"], term=1).wait()
            await gone.append_nowait([b"x"]).wait()
            await gone.drop_nowait().wait()
            assert journal.group("gone").last == 0
        async with bench.journal() as journal:
            assert alarms(journal.findings) == []
            assert [group.name for group in journal.groups] == ["kept"]
            kept = journal.group("kept")
            assert [(await kept.read(index)).body for index in (1, 2)] == [b"1", b"2"]
            with pytest.raises(KeyError):
                await kept.read(3)

    run(test)


def test_a_newer_format_and_a_foreign_part_are_refused() -> None:
    """A part of a newer version stops the start; one of another store is named and left alone."""

    async def test() -> None:
        image, _ = await small_store()
        paths = parts = [path for path in image.walk() if path.endswith(".part")]
        after = image.clone()
        header, _ = read_header(after.content(paths[0]), paths[0])
        assert header is not None
        newer = attrs.evolve(header, version=99)
        for offset in HEADER_OFFSETS:
            after.overwrite(paths[0], newer.encode(offset), offset)
        with pytest.raises(StoreRefused, match="format version 99"):
            async with Bench(new_drive(after)).journal():
                pass
        after = image.clone()
        foreign = attrs.evolve(header, store_id=b"f" * 16)
        for offset in HEADER_OFFSETS:
            after.overwrite(parts[0], foreign.encode(offset), offset)
        async with Bench(new_drive(after)).journal() as journal:
            assert "foreign" in [finding.kind for finding in journal.findings]
        assert after.is_file(parts[0])

    run(test)
