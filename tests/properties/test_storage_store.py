"""A whole store: several streams, its own checkpoints, deletion, restarts, identity, power loss at every operation."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio
import trio.testing
from tests.properties.storage_bench import StepClock, run

from tnats.limits import SECOND_NS
from tnats.runtime.api import StoreLocked
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, SyncFault, damage_tail, restore_chunks, save_chunks
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.encryption import Encryption
from tnats.storage.errors import DataDamaged, LogRemoved, StoreFrozen, StoreFull, StoreRefused
from tnats.storage.index_columns import PLACE_MIN
from tnats.storage.journal import JournalOptions
from tnats.storage.message_log import Message
from tnats.storage.recover import ENTRY_SIZE_MIN, MISSING_PART_BYTES
from tnats.storage.store import OpenStream, Store, StoreOptions
from tnats.storage.store_open import open_store
from tnats.storage.stream_log import StreamLogOptions

OPTIONS = StoreOptions(JournalOptions(part_bytes=16 * 1024), StreamLogOptions(segment_bytes=9 * 1024))
LARGER = JournalOptions(part_bytes=64 * 1024)
LAZY = JournalOptions(part_bytes=64 * 1024, sync_interval_ns=100 * SECOND_NS)
"""Nothing is synced but by request."""


@asynccontextmanager
async def store_on(
    drive: SimDrive,
    *,
    boot_id: str = "boot",
    seed: int = 1,
    clean: bool = True,
    encryption: Encryption | None = None,
    journal: JournalOptions = OPTIONS.journal,
) -> AsyncIterator[Store]:
    clock = StepClock()
    disk = SimDisk(drive, clock)  # type: ignore[arg-type]
    entropy = random.Random(seed).randbytes
    options = attrs.evolve(OPTIONS, encryption=encryption, journal=journal)
    store = await open_store(disk, clock, entropy, "/data", boot_id=boot_id, options=options)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        try:
            yield store
        finally:
            store.stop()
    if clean:
        await store.close()


async def open_and_replay(store: Store, name: str, *, is_whole: bool = True) -> OpenStream:
    """`is_whole`: no entry is lost."""
    stream = await store.open_stream(name)
    for entry in await stream.commit.replay():
        assert entry.body is not None or not is_whole
        if entry.body is not None:
            await apply(stream, entry.index, bytes(entry.body))
        stream.applied = entry.index
    stream.log.end_recovery()
    return stream


async def apply(stream: OpenStream, index: int, body: bytes) -> None:
    """An entry is "sequence payload", or "-sequence" to remove, or "<sequence" to remove what is below."""
    sequence, _, payload = body.partition(b" ")
    if sequence.startswith(b"-"):
        stream.log.remove([int(sequence[1:])])
    elif sequence.startswith(b"<"):
        stream.log.raise_start(int(sequence[1:]))
    else:
        await stream.log.append([Message(int(sequence), 1, b"s", b"", payload)])
    stream.applied = index


async def propose(stream: OpenStream, body: bytes, *, frees_space: bool = False) -> None:
    await stream.commit.propose_nowait([body], frees_space=frees_space).wait()
    for entry in await stream.commit.committed():
        assert entry.body is not None
        await apply(stream, entry.index, bytes(entry.body))


async def content(stream: OpenStream) -> dict[int, bytes]:
    found = {}
    sequence = stream.log.index.next_live(0)
    while sequence:
        found[sequence] = (await stream.log.load(sequence)).payload
        sequence = stream.log.index.next_live(sequence + 1)
    return found


Expected = dict[str, dict[int, bytes]]


@pytest.mark.parametrize("seed", [3, 4, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 30))])
def test_power_loss_at_every_disk_operation(seed: int) -> None:
    """Streams live, are deleted and made anew under the store's own checkpoints: what was acknowledged is there."""

    async def test() -> None:
        rng = random.Random(seed)
        drive = SimDrive(random.Random(5))
        acked: Expected = {}
        moments: list[tuple[DiskImage, Expected, Expected]] = []
        wanted: Expected = {}

        def observe(kind: str, path: str) -> None:
            if kind != "read":
                copies = [{name: dict(messages) for name, messages in each.items()} for each in (acked, wanted)]
                moments.append((drive.image.clone(), copies[0], copies[1]))

        drive.observer = observe
        async with store_on(drive) as store:
            streams: dict[str, OpenStream] = {}
            for step in range(70):
                name = f"stream {rng.randrange(3)}"
                if name not in streams:
                    streams[name] = await open_and_replay(store, name)
                    wanted[name] = {}
                stream = streams[name]
                if rng.random() < 0.06 and acked.get(name):
                    wanted.pop(name)
                    await store.drop_group(name)
                    acked.pop(name)
                    del streams[name]
                    continue
                live = list(wanted[name])
                if live and rng.random() < 0.3:
                    victim = rng.choice(live)
                    del wanted[name][victim]
                    await propose(stream, b"-%d" % victim)
                else:
                    sequence = stream.log.index.last + 1
                    wanted[name][sequence] = b"%d" % step * rng.choice((1, 100, 900))
                    await propose(stream, b"%d %s" % (sequence, wanted[name][sequence]))
                acked[name] = dict(wanted[name])
        drive.observer = None
        assert len(moments) > 250
        for image, then, possible in moments[rng.randrange(9) :: 9]:
            after = image.clone()
            after.crash(rng.choice(list(CrashPolicy)), rng)
            await check(after, then, possible)

    run(test)


def test_nothing_follows_a_removal() -> None:
    """A checkpoint that meets the removal of its log is refused: in the journal it would bring the log back."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            await propose(stream, b"1 x")
            group = store.journal.group("s")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.drop_group, "s")
                await trio.testing.wait_all_tasks_blocked(0)
                with pytest.raises(LogRemoved):
                    group.set_state_nowait(1, b"")
        async with store_on(drive) as store:
            assert store.health() == []
            assert store.stream_names == []

    run(test)


async def check(image: DiskImage, acked: Expected, wanted: Expected) -> None:
    """Each stream holds what was acknowledged, or that with the one operation under way; then a clean restart."""
    drive = SimDrive(random.Random(5))
    drive.image = image
    found: Expected = {}
    async with store_on(drive, boot_id="later", seed=8) as store:
        assert store.health() == []
        for name in store.stream_names:
            found[name] = await content(await open_and_replay(store, name))
        for name in acked.keys() | found.keys():
            choices = [acked.get(name), wanted.get(name)]
            assert found.get(name) in choices or (found.get(name) == {} and None in choices), name
        await store.shorten()
        await store.settle()
    async with store_on(drive, boot_id="later", seed=9) as store:
        assert store.health() == []
        assert not store.lost_unsynced
        assert {name: await content(await open_and_replay(store, name)) for name in store.stream_names} == found


def test_a_failed_sync_that_leaves_pages_clean_loses_nothing() -> None:
    """A sync fails once and its pages count as clean; the process starts again, goes on, and then power is lost."""

    async def test() -> None:
        fired = 0
        for skip in range(40):
            rng = random.Random(skip)
            drive = SimDrive(random.Random(5))
            rule = DiskFault(("sync",), SyncFault("once"), rng.choice(("*.seg", "*.part", "*")), skip=skip, times=1)
            wanted: Expected = {"a": {}, "b": {}}
            for life in range(2):
                async with store_on(drive, seed=life, clean=False) as store:
                    streams = {name: await open_and_replay(store, name) for name in wanted}
                    for name, stream in streams.items():
                        wanted[name] = await content(stream)
                    drive.faults[:] = [] if life else [rule]
                    with suppress(StoreFrozen):
                        for step in range(24):
                            await change(rng.choice(list(streams.values())), wanted, rng)
                            if step % 5 == 4:
                                await store.shorten()
                                await rng.choice(list(streams.values())).checkpoint()
                drive.faults.clear()
                drive.locks.clear()  # the process is gone
            fired += rule.fired
            drive.power_loss(rng.choice((CrashPolicy.STRICT, CrashPolicy.LAZYFS, CrashPolicy.SUBSET)))
            await check(drive.image, wanted, wanted)
        assert fired > 20

    run(test)


async def change(stream: OpenStream, wanted: Expected, rng: random.Random) -> None:
    """Append or remove a message."""
    live = wanted[stream.name]
    if live and rng.random() < 0.4:
        victim = rng.choice(list(live))
        await propose(stream, b"-%d" % victim)
        del live[victim]
    else:
        sequence = stream.log.index.last + 1
        payload = b"%d" % sequence * rng.choice((1, 100, 900))
        await propose(stream, b"%d %s" % (sequence, payload))
        live[sequence] = payload


def test_the_journal_stays_short() -> None:
    """The store checkpoints streams and moves idle ones' entries, so that the journal never grows past a few parts."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            idle, busy = await open_and_replay(store, "idle"), await open_and_replay(store, "busy")
            store.journal.group("ownerless").append_nowait([b"kept"])
            await propose(idle, b"1 idle")
            most = 0
            for sequence in range(1, 200):
                await propose(busy, b"%d %s" % (sequence, bytes(500)))
                most = max(most, len(drive.image.entries("/data/tnats/journal")))
            assert most <= 4
            assert await content(idle) == {1: b"idle"}
        async with store_on(drive) as store:
            assert (await store.journal.group("ownerless").read(1)).body == b"kept"
            assert len(await content(await open_and_replay(store, "busy"))) == 199

    run(test)


def test_a_full_disk_can_be_emptied() -> None:
    """When nothing fits any more, publishes are refused and reads go on; removing messages makes room again."""

    async def test() -> None:
        drive = SimDrive(random.Random(5), capacity_bytes=120 * 1024)
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            refused = 0
            while refused < 3:
                sequence = stream.log.index.last + 1
                try:
                    if stream.log.trouble is not None:
                        raise stream.log.trouble
                    await propose(stream, b"%d %s" % (sequence, bytes(1000)))
                except StoreFull:
                    refused += 1
                    for _ in range(100):  # time passes, and the store looks for room again and again
                        await trio.lowlevel.checkpoint()
            assert store.journal.frozen is None
            assert len(await content(stream)) > 5
            for sequence in range(1, stream.log.index.last):
                await propose(stream, b"-%d" % sequence, frees_space=True)
                if sequence % 4 == 0:
                    await stream.checkpoint()
            await stream.checkpoint()
            await store.shorten()
            for _ in range(4):
                await propose(stream, b"%d %s" % (stream.log.index.last + 1, bytes(1000)))
            found = await content(stream)
            assert len(found) == 5
        async with store_on(drive) as store:
            assert store.health() == []
            assert await content(await open_and_replay(store, "s")) == found

    run(test)


FULL_SEEDS = [4, 35, 41, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(42, 66))]


@pytest.mark.parametrize("seed", FULL_SEEDS)
def test_power_loss_on_a_full_disk(seed: int) -> None:
    """Publishes, removals here and there and checkpoints, most of them refused, while nothing fits any more, and beside
    them another stream's publishes: whatever power loss takes, what was acknowledged is there, what was removed is not,
    and nothing is to be alarmed about.
    """

    async def test() -> None:
        rng = random.Random(seed)
        drive = SimDrive(random.Random(5))
        there: dict[int, bytes] = {}
        doubt: dict[int, bytes] = {}
        beside: dict[int, bytes] = {}
        moments: list[tuple[DiskImage, dict[int, bytes], dict[int, bytes], dict[int, bytes]]] = []
        async with store_on(drive, clean=False, journal=rng.choice((OPTIONS.journal, LARGER))) as store:
            stream, other = await open_and_replay(store, "s"), await open_and_replay(store, "other")
            length = rng.choice((10, 100, 300, 900))
            for step in range(rng.randrange(80, 140)):
                if step == 60:
                    drive.capacity_bytes = drive.image.used_bytes + rng.choice((0, 10, 100, 1000, 9000))
                    drive.observer = lambda kind, path: (
                        moments.append((drive.image.clone(), dict(there), dict(doubt), dict(beside)))
                        if kind != "read"
                        else None
                    )
                choice = rng.random()
                with suppress(StoreFull):
                    if choice < 0.25:
                        await stream.checkpoint()
                        await store.shorten()
                    elif choice < (0.7 if step < 60 else 0.45) or not there:
                        sequence = stream.log.index.last + 1
                        payload = b"%d" % sequence * rng.choice((1, length))
                        doubt[sequence] = payload
                        await propose(stream, b"%d %b" % (sequence, payload))
                        there[sequence] = doubt.pop(sequence)
                    else:
                        victim = rng.choice(sorted(there)[: rng.choice((1, 3, 1000))])
                        is_all = rng.random() < 0.15
                        going = [each for each in there if each == victim or (is_all and each < victim)]
                        doubt.update((each, there.pop(each)) for each in going)
                        body = b"<%d" % (victim + 1) if is_all else b"-%d" % victim
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(publish, other, beside, bytes(length))
                            with suppress(StoreFull):
                                await propose(stream, body, frees_space=True)
                                doubt.clear()
                kept = [sequence for sequence in doubt if stream.log.index.place(sequence) >= PLACE_MIN]
                there.update((sequence, doubt.pop(sequence)) for sequence in kept)  # their removal was refused
        drive.observer = None
        for image, acked, possible, acked_beside in moments:
            after = image.clone()
            after.crash(rng.choice(list(CrashPolicy)), rng)
            again = SimDrive(random.Random(5))
            again.image = after
            async with store_on(again, boot_id="later", seed=8) as store:
                stream = await open_and_replay(store, "s")
                assert store.health() == []
                found = await content(stream)
                assert acked_beside.items() <= (await content(await open_and_replay(store, "other"))).items()
            assert found.items() <= (acked | possible).items()
            assert acked.items() <= found.items()

    run(test)


async def publish(stream: OpenStream, acked: dict[int, bytes], payload: bytes) -> None:
    """Append a message, unless the disk is full."""
    sequence = stream.log.index.last + 1
    with suppress(StoreFull):
        await propose(stream, b"%d %b" % (sequence, payload))
        acked[sequence] = payload


def test_a_full_disk_can_be_opened() -> None:
    """With no byte free the store starts, serves reads, refuses publishes, and takes them when there is room."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 5):
                await propose(stream, b"%d x" % sequence)
        drive.capacity_bytes = drive.image.used_bytes
        async with store_on(drive, boot_id="later") as store:
            stream = await open_and_replay(store, "s")
            assert len(await content(stream)) == 4
            for _ in range(2):
                with pytest.raises(StoreFull):
                    await propose(stream, b"5 x")
            with pytest.raises(StoreFull):
                await store.shorten()
            drive.capacity_bytes += 40_000
            await propose(stream, b"5 x")
        async with store_on(drive, boot_id="later") as store:
            assert store.health() == []
            assert len(await content(await open_and_replay(store, "s"))) == 5

    run(test)


def test_dying_again_and_again_does_not_fill_the_disk() -> None:
    """A start that is never followed by a checkpoint takes a few kilobytes, not a part each time."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        sizes = []
        for _ in range(12):
            async with store_on(drive, clean=False) as store:
                await propose(await open_and_replay(store, "s"), b"%d x" % (_ + 1))
            drive.locks.clear()
            sizes.append(sum(size for _, _, size in drive.image.entries("/data/tnats/journal")))
        assert sizes[-1] - sizes[0] < 12 * 14 * 1024
        async with store_on(drive) as store:
            assert store.health() == []
            stream = await open_and_replay(store, "s")
            await stream.checkpoint()
            await store.shorten()
            assert len(drive.image.entries("/data/tnats/journal")) == 1
            assert len(await content(stream)) == 12

    run(test)


def test_a_loss_of_power_is_told_from_a_crash() -> None:
    """Only an unclean end together with another boot id means that unsynced entries may be gone; and a start that ends,
    however, before that was accounted for leaves it to the next.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        for boot_id, clean, settles, expected in (
            ("one", True, True, False),
            ("two", True, True, False),
            ("three", False, True, False),
            ("three", False, True, False),
            ("four", False, False, True),
            ("four", True, False, True),
            ("four", False, True, True),
            ("four", False, True, False),
            ("five", True, True, True),
            ("six", True, True, False),
        ):
            async with store_on(drive, boot_id=boot_id, clean=clean) as store:
                assert store.lost_unsynced is expected, boot_id
                if settles:
                    await store.settle()
            drive.locks.clear()
        assert store.incarnation == 10
        path = "/data/tnats/marker"
        drive.image.overwrite(path, b"????", 20)
        async with store_on(drive, boot_id="five") as store:
            assert store.lost_unsynced
            assert store.incarnation > 10
            assert "marker" in store.health()[0]

    run(test)


def test_what_is_not_ours_is_refused() -> None:
    """A store of nats-server, a locked one, one without or with a wrong identity: a clear line, and nothing touched."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        drive.image.make_directory("/data")
        drive.image.make_directory("/data/jetstream")
        before = list(drive.image.walk())
        with pytest.raises(StoreRefused, match="nats-server"):
            async with store_on(drive):
                pass
        assert list(drive.image.walk()) == before
        drive.image.remove_directory("/data/jetstream")
        drive.image.remove_directory("/data")
        drive.image.create("/data")
        with pytest.raises(StoreRefused, match=r"^/data: storage directory is not a directory"):
            async with store_on(drive):
                pass
        drive.image.remove("/data")
        async with store_on(drive):
            with pytest.raises(StoreLocked):
                async with store_on(drive):
                    pass
        identity = drive.image.content("/data/tnats/identity")
        drive.image.overwrite("/data/tnats/identity", b"\xff" * 50, 0)
        async with store_on(drive) as store:
            assert store.health() == []
            assert store.findings
        drive.image.overwrite("/data/tnats/identity", b"\xff" * len(identity), 0)
        with pytest.raises(StoreRefused, match="damaged"):
            async with store_on(drive):
                pass
        drive.image.remove("/data/tnats/identity")
        with pytest.raises(StoreRefused, match="missing"):
            async with store_on(drive):
                pass

    run(test)


def test_a_missing_journal_fails_the_health_check() -> None:
    """Without its journal the store serves what the segments have, goes on past it, and says what is wrong."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            for name in ("gone", "s"):
                stream = await open_and_replay(store, name)
                for sequence in range(1, 5):
                    await propose(stream, b"%d %s" % (sequence, name.encode()))
                await stream.checkpoint()
            stream.log.raise_start(3)
            await propose(stream, b"-3")
            await stream.checkpoint()
            await store.drop_group("gone")
        for path in list(drive.image.walk("/data/tnats/journal")):
            drive.image.remove(path)
        for _ in range(2):
            async with store_on(drive) as store:
                if _ == 0:
                    assert any("all parts of the journal" in line for line in store.health())
                assert store.stream_names == ["s"]
                stream = await open_and_replay(store, "s")
                assert (await content(stream))[4] == b"s"
                assert 3 not in await content(stream)
                await propose(stream, b"%d more" % (stream.log.index.last + 1))
                assert stream.log.index.last == 4 + MISSING_PART_BYTES // ENTRY_SIZE_MIN + 1 + _

    run(test)


# ------------------------------------------------------------------ damage of every kind


async def used_store(rng: random.Random, images: list[DiskImage]) -> tuple[SimDrive, Expected, dict[str, int]]:
    """A store with a history: what its streams hold, and the highest sequence that each ever used."""
    drive = SimDrive(random.Random(5))
    expected: Expected = {"a": {}, "b": {}}
    highest = {"a": 0, "b": 0}
    for life in range(2):
        async with store_on(drive, seed=20 + life) as store:
            streams = {name: await open_and_replay(store, name) for name in expected}
            for _ in range(rng.randrange(20, 60)):
                name = rng.choice(("a", "b"))
                stream, live = streams[name], expected[name]
                if live and rng.random() < 0.3:
                    victim = rng.choice(list(live))
                    del live[victim]
                    await propose(stream, b"-%d" % victim)
                else:
                    highest[name] = sequence = stream.log.index.last + 1
                    live[sequence] = b"%s%d" % (name.encode(), sequence) * rng.choice((1, 50, 300))
                    await propose(stream, b"%d %s" % (sequence, live[sequence]))
                if rng.random() < 0.1:
                    await stream.checkpoint()
                if rng.random() < 0.1:
                    images.append(drive.image.clone())
    return drive, expected, highest


def harm(image: DiskImage, images: list[DiskImage], rng: random.Random) -> str:
    """One fault of the catalogue, done to a drawn file of the journal or of a stream."""
    paths = [path for path in image.walk("/data/tnats") if path.endswith((".part", ".seg"))]
    path, other = rng.choice(paths), rng.choice(paths)
    content = image.content(path)
    live = [offset for offset, byte in enumerate(content) if byte]
    if not live:
        return f"nothing {path}"
    kind = rng.choice(("bits", "bytes", "block", "tail", "stale", "swap", "copy", "misdirect", "remove", "empty"))
    if kind == "bits":
        for offset in rng.sample(live, min(2, len(live))):
            image.overwrite(path, bytes([content[offset] ^ 1 << rng.randrange(8)]), offset)
    elif kind == "bytes":
        image.overwrite(path, rng.randbytes(rng.choice((4, 600, 5000))), rng.choice(live))
    elif kind == "block":
        size = rng.choice((512, 4096))
        image.overwrite(path, bytes(size), rng.choice(live) // size * size)
    elif kind == "tail":
        damage_tail(image, path, rng)
    elif kind == "stale":
        old = rng.choice(images)
        if old.is_file(path):
            restore_chunks(image, path, save_chunks(old, path, rng))
    elif kind == "swap":
        image.swap(path, other)
    elif kind == "copy":
        image.duplicate(other, path)
    elif kind == "misdirect":
        image.overwrite(path, image.content(other)[8192:][: rng.choice((100, 4096))], rng.choice(live) // 8 * 8)
    elif kind == "remove":
        image.remove(path)
    else:
        image.cut(path, 0)
    return f"{kind} {path} {other}"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 60))])
def test_damage_of_any_kind_is_never_silent(seed: int) -> None:
    """Nothing false is served, what is missing is named or alarmed, and no sequence is used twice, twice over."""

    async def test() -> None:
        rng = random.Random(seed)
        images: list[DiskImage] = []
        original, expected, highest = await used_store(rng, images)
        for _ in range(40):
            drive = SimDrive(random.Random(5))
            drive.image = original.image.clone()
            harms = [harm(drive.image, images, rng) for _ in range(rng.choice((1, 1, 2, 4)))]
            known: list[str] = []
            for life in range(2):
                async with store_on(drive, seed=30 + life, boot_id=f"{life}") as store:
                    known = known or store.stream_names
                    for name in expected:
                        stream = await store.open_stream(name)
                        for entry in await stream.commit.replay():
                            if entry.body is None:
                                stream.log.index.extend(stream.log.index.last + entry.index - stream.applied)
                                stream.applied = entry.index
                            else:
                                await apply(stream, entry.index, bytes(entry.body))
                        stream.log.end_recovery()
                        found = await readable(stream)
                        alarmed = bool(store.health())
                        for sequence, payload in found.items():
                            if sequence <= highest[name]:
                                assert payload == expected[name].get(sequence, payload), (harms, name, sequence)
                                assert sequence in expected[name] or alarmed, (harms, name, sequence)
                        if not expected[name].keys() <= found.keys():
                            assert alarmed, (harms, name)
                        if name in known:  # else neither journal nor segment knows the stream: it is made anew
                            assert stream.log.index.last >= highest[name], (harms, name)
                        await propose(stream, b"%d new" % (stream.log.index.last + 1))

    run(test)


async def readable(stream: OpenStream) -> dict[int, bytes]:
    """What can be read."""
    found = {}
    sequence = stream.log.index.next_live(0)
    while sequence:
        try:
            found[sequence] = (await stream.log.load(sequence)).payload
        except DataDamaged:
            pass
        sequence = stream.log.index.next_live(sequence + 1)
    return found
