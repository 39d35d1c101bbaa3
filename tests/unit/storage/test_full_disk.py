"""A checkpoint on a full disk, which removes dead segments first: nothing goes of which nobody else tells."""

from __future__ import annotations

import random

import attrs
import trio
from tests.properties.storage_bench import StepClock, run
from tests.properties.test_storage_store import OPTIONS, open_and_replay, propose, store_on

from tnats.limits import SECOND_NS
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.journal import JournalOptions
from tnats.storage.store_open import open_store

BODY = bytes(900)
"""No two of these fit into a segment."""


def images_after_unlinks(drive: SimDrive) -> list[DiskImage]:
    """Filled with the disk as it is at the call that follows the removal of a segment, which is under way by then."""
    images: list[DiskImage] = []
    before = ""

    def observe(kind: str, path: str) -> None:
        nonlocal before
        if before == "unlink":
            images.append(drive.image.clone())
        before = kind if path.endswith(".seg") else ""

    drive.observer = observe
    return images


async def expect(image: DiskImage, messages: int) -> None:
    """A store on this disk is in order, and has this many messages."""
    drive = SimDrive(random.Random(5))
    drive.image = image
    async with store_on(drive, boot_id="two", seed=2) as store:
        stream = await open_and_replay(store, "s")
        assert store.health() == []
        assert stream.log.index.messages == messages


def test_what_is_dead_goes_when_its_removal_is_durable() -> None:
    """With a sync interval, a removal that comes while a checkpoint is under way is flushed before its segment goes."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        clock = StepClock()
        options = attrs.evolve(OPTIONS, journal=JournalOptions(64 * 1024, sync_interval_ns=100 * SECOND_NS))
        store = await open_store(
            SimDisk(drive, clock),  # type: ignore[arg-type]
            clock,  # type: ignore[arg-type]
            random.Random(1).randbytes,
            "/data",
            boot_id="one",
            options=options,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 4):
                await propose(stream, b"%d %b" % (sequence, BODY))
            await stream.checkpoint(store.journal)
            drive.capacity_bytes = drive.image.used_bytes
            flushed = 0

            async def flush() -> None:
                nonlocal flushed
                await store.journal.flush()
                flushed += 1
                if flushed == 1:
                    await propose(stream, b"-1")

            images = images_after_unlinks(drive)
            await stream.log.checkpoint(flush)
            nursery.cancel_scope.cancel()
        assert images
        for image in images:
            image.crash(CrashPolicy.LAZYFS, random.Random(1))
            await expect(image, 2)

    run(test)


def test_of_dead_segments_those_go_that_tell_of_no_other_removals() -> None:
    """A gap may be all that tells of an older removal, of which the journal knows nothing any more. If the process dies
    before another segment tells of it, it is no lost message.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await open_and_replay(store, "s")
            await propose(stream, b"1 kept")
            await propose(stream, b"2 %b" % BODY)  # a segment of its own
            await propose(stream, b"3 short")
            await propose(stream, b"-2")
            await stream.checkpoint(store.journal)  # its gap stands behind 3
            for sequence in (4, 5, 6):
                await propose(stream, b"%d %b" % (sequence, BODY))
            await stream.checkpoint(store.journal)
            assert stream.log.index.place(2) == 1
            await propose(stream, b"-3")
            await propose(stream, b"-4")
            drive.capacity_bytes = drive.image.used_bytes
            images = images_after_unlinks(drive)
            await stream.log.checkpoint(store.journal.flush)
        assert images
        for image in images:
            await expect(image, 3)

    run(test)
