"""Messages that a limit pushed out, of which no entry says that they went: a replay sees it by what is there."""

from __future__ import annotations

import random

from tests.properties.storage_bench import StepClock, run
from tests.properties.test_storage_store import LARGER, content, store_on
from tests.unit.storage.test_check import sequences_of

from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.check import check_store
from tnats.storage.message_log import Message
from tnats.storage.store import OpenStream, Store

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
    stream = await store.open_stream("s")
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
