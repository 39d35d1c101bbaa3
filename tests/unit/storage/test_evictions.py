"""Messages that a limit pushed out, of which no entry says that they went: a replay sees it by what is there."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.properties.storage_bench import StepClock, run
from tests.properties.test_storage_store import LARGER, OPTIONS, content, store_on
from tests.unit.storage.test_check import sequences_of

from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.check import check_store
from tnats.storage.errors import StoreFull
from tnats.storage.message_log import Message
from tnats.storage.store import OpenStream, Store
from tnats.storage.stream_checkpoint import NOTE

MESSAGES_MAX = 10
SMALL, LARGE = bytes(100), bytes(900)
"""What stands in a segment together with others, and what does not."""


async def apply(stream: OpenStream, index: int, body: bytes) -> None:
    """As in the tests of the store, and then the oldest messages go that are beyond the limit."""
    sequence, _, payload = body.partition(b" ")
    if sequence.startswith(b"-"):
        stream.log.remove([int(sequence[1:])])
    else:
        await stream.log.append([Message(int(sequence), 1, b"s", b"", payload)])
    while stream.log.index.messages > MESSAGES_MAX:
        stream.log.remove([stream.log.index.first], erase=False)
    stream.applied = index


async def propose(stream: OpenStream, body: bytes) -> None:
    await stream.commit.propose_nowait([body], frees_space=body.startswith(b"-")).wait()
    for entry in await stream.commit.committed():
        assert entry.body is not None
        await apply(stream, entry.index, bytes(entry.body))


async def opened(store: Store) -> OpenStream:
    note = store.journal.group("s").note if store.journal.knows("s") else b""
    last = NOTE.unpack(note)[1] if note else 0
    stream = await store.open_stream("s", last_sequence=last)  # what the files have behind it is not there yet
    for entry in await stream.commit.replay():
        assert entry.body is not None
        await apply(stream, entry.index, bytes(entry.body))
    stream.log.end_recovery()
    return stream


async def evicted_and_removed(store: Store, body: bytes) -> OpenStream:
    """The first three of ten messages were pushed out, and the last five of the ten, with this body, are removed since:
    none of those would be pushed out any more. No checkpoint has heard of it.
    """
    stream = await opened(store)
    for sequence in range(1, 11):
        await propose(stream, b"%d %b" % (sequence, SMALL if sequence < 6 else body))
    await stream.checkpoint()
    for sequence in (11, 12, 13):
        await propose(stream, b"%d more" % sequence)
    for sequence in range(6, 11):
        await propose(stream, b"-%d" % sequence)
    assert sorted(await content(stream)) == [4, 5, 11, 12, 13]
    return stream


async def expect(image: DiskImage) -> None:
    """Looking finds a store on this disk in order, and so does a start, which has what is left."""
    drive = SimDrive(random.Random(5))
    drive.image = image
    disk, clock = SimDisk(drive, StepClock()), StepClock()  # type: ignore[arg-type]
    report = await check_store(disk, clock, random.Random(1).randbytes, "/data", sequences_of)  # type: ignore[arg-type]
    assert report.is_clean, report.findings
    async with store_on(drive, boot_id="two", seed=2) as store:
        stream = await opened(store)
        assert store.health() == []
        assert sorted(await content(stream)) == [4, 5, 11, 12, 13]


async def expect_all(moments: list[DiskImage]) -> None:
    assert moments
    for moment in moments:
        for policy in CrashPolicy:
            image = moment.clone()
            image.crash(policy, random.Random(1))
            await expect(image)


def test_what_a_limit_pushed_out_is_not_back_when_a_checkpoint_is_cut_short() -> None:
    """Power fails at any operation of a checkpoint that erases and tells of removals: all is known, or nothing."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        moments: list[DiskImage] = []
        async with store_on(drive, clean=False, journal=LARGER) as store:
            stream = await evicted_and_removed(store, SMALL)
            drive.observer = lambda kind, path: moments.append(drive.image.clone())
            await stream.checkpoint()
            drive.observer = None
        await expect_all(moments)

    run(test)


def test_what_a_limit_pushed_out_is_not_back_when_a_full_disk_has_no_room_for_a_checkpoint() -> None:
    """Dead segments go without one. Whenever power fails from then on, what the others hold is as it was."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        moments: list[DiskImage] = []
        async with store_on(drive, clean=False, journal=LARGER) as store:
            stream = await evicted_and_removed(store, LARGE)
            drive.capacity_bytes = drive.image.used_bytes
            drive.observer = lambda kind, path: moments.append(drive.image.clone())
            await stream.log.free(stream.commit.group)
            drive.observer = None
            moments.append(drive.image.clone())
        await expect_all(moments)

    run(test)


async def live(drive: SimDrive, rng: random.Random, possible: list[list[int]]) -> tuple[DiskImage, list[list[int]]]:
    """One run of a store, which has one of the possible contents; the disk at some operation, and what is possible
    there.
    """
    ends_at, count = rng.choice((rng.randrange(1, 40), rng.randrange(1, 500))), 0
    end: list[tuple[DiskImage, list[list[int]]]] = []
    now = [*possible]

    def observe(kind: str, path: str) -> None:
        nonlocal count
        count += kind != "read"
        if count == ends_at:
            end.append((drive.image.clone(), [*now]))

    drive.observer = observe
    journal = rng.choice((OPTIONS.journal, LARGER))
    async with store_on(drive, clean=False, seed=rng.randrange(1000), journal=journal) as store:
        stream = await opened(store)
        found = sorted(await content(stream))
        assert found in possible, (found, possible)
        assert store.health() == []
        now[:] = [found]
        await store.settle()
        if rng.random() < 0.4:
            drive.capacity_bytes = drive.image.used_bytes + rng.choice((0, 100, 3000, 20_000))
        for _ in range(rng.randrange(5, 80)):
            with suppress(StoreFull):
                await change(store, stream, rng, now)
            if end:
                break
    drive.observer = None
    return end[0] if end else (drive.image, now)


async def change(store: Store, stream: OpenStream, rng: random.Random, now: list[list[int]]) -> None:
    """Publish, remove, make a checkpoint. Raises StoreFull."""
    choice, there = rng.random(), now[-1]
    if choice < 0.12:
        await stream.checkpoint()
    elif choice < 0.16:
        await store.shorten()
    elif choice < 0.65 or not there:
        sequence = stream.log.index.last + 1
        now.append([*there, sequence][-MESSAGES_MAX:])
        try:
            await propose(stream, b"%d %b" % (sequence, rng.choice((SMALL, SMALL, LARGE))))
        except StoreFull:
            now.pop()
            raise
    else:
        victim = rng.choice(there)
        now.append([each for each in there if each != victim])
        try:
            await propose(stream, b"-%d" % victim)
        except StoreFull:
            now.pop()
            raise
    now[:] = now[-1:]


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 60))])
def test_what_a_limit_pushed_out_stays_away_over_many_lives(seed: int) -> None:
    """Each life goes on with what is left of the one before at some operation of its disk, with loss of power or
    without, and some have a full disk: what was acknowledged is there, and nothing else.
    """

    async def test() -> None:
        rng = random.Random(seed)
        image, possible = DiskImage(), [list[int]()]
        for _ in range(12):
            drive = SimDrive(random.Random(rng.random()))
            drive.image = image
            image, possible = await live(drive, rng, possible)
            if rng.random() < 0.6:
                image.crash(rng.choice(list(CrashPolicy)), rng)

    run(test)
