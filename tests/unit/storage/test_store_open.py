"""Opening and closing a store where something fails."""

from __future__ import annotations

import errno
import random

import pytest
import trio
import trio.testing
from tests.properties.storage_bench import StepClock, run
from tests.properties.test_storage_store import LAZY, content, open_and_replay, propose, store_on

from tnats.runtime.api import DiskError
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage import record, segment
from tnats.storage.errors import StoreFrozen
from tnats.storage.store import Store, StoreOptions
from tnats.storage.store_open import open_store


def test_a_store_whose_disk_cannot_sync_is_not_opened() -> None:
    """Neither a new store nor one with entries in it: the error names the file, and the lock is let go of, so that
    the next start, on a sound disk, finds all that was acknowledged.
    """

    async def test() -> None:
        drive, clock = SimDrive(random.Random(1)), StepClock()

        async def opened(seed: int) -> Store:
            disk = SimDisk(drive, clock)  # type: ignore[arg-type]
            return await open_store(
                disk,
                clock,  # type: ignore[arg-type]
                random.Random(seed).randbytes,
                "/store",
                boot_id="boot",
                options=StoreOptions(),
            )

        broken = [DiskFault(effect=Fail(errno.EIO), kinds=("sync",))]
        drive.faults = [*broken]
        with pytest.raises(DiskError, match=r"sync /store/tnats/identity.tmp"):
            await opened(1)
        drive.faults = []
        store = await opened(2)
        group = store.journal.group("s")
        ticket = group.append_nowait([b"kept"])
        store.stop()
        await store.run()
        assert ticket.done
        assert ticket.error is None
        await store.close()
        drive.faults = [*broken]
        with pytest.raises(StoreFrozen, match=r"cannot sync /store/tnats/journal/\d+.part"):
            await opened(3)
        drive.faults = []
        store = await opened(4)
        assert (await store.journal.group("s").read(1)).body == b"kept"
        assert store.health() == []
        store.stop()
        await store.run()
        await store.close()

    run(test)


def test_a_store_without_its_marker_may_have_lost_power() -> None:
    """What it would tell is not known: the worst is assumed, and named. A store that is new has none either."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            assert not store.lost_unsynced
            await propose(await open_and_replay(store, "s"), b"1 x")
        drive.image.remove("/data/tnats/marker")
        async with store_on(drive) as store:
            assert store.lost_unsynced
            assert "marker" in store.health()[0]

    run(test)


def test_what_is_carried_over_outlives_a_start_without_room() -> None:
    """Behind the hole of an unfinished batch stands an entry, which a start serves. It has no room for a part to carry
    it over into: the next one serves it too.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await open_and_replay(store, "s")
            await propose(stream, b"1 x")
            part = store.journal.parts.current
            assert part is not None
            path, promise = part.summary.path, part.durable
            store.journal.group("other").append_nowait([b"torn"])
            await stream.commit.propose_nowait([b"2 behind"]).wait()
            other = store.journal.group("other").state.number
        data = drive.image.content(path)
        header, _ = segment.read_header(data, path)
        assert header is not None
        for offset in segment.SLOT_OFFSETS:
            drive.image.overwrite(path, bytes(header.slot(offset, promise)), offset)
        for found in segment.scan(data, header.seed, path).records:
            if found[0] >= promise and found[3] == other and found[2] in (record.GROUP, record.ENTRY):
                drive.image.overwrite(path, bytes(found[1]), found[0])
        for capacity_bytes in (0, 1 << 40):
            drive.locks.clear()
            drive.capacity_bytes = capacity_bytes
            async with store_on(drive, clean=False) as store:
                stream = await open_and_replay(store, "s")
                await trio.testing.wait_all_tasks_blocked()
                assert await content(stream) == {1: b"x", 2: b"behind"}

    run(test)


@pytest.mark.parametrize("policy", list(CrashPolicy))
def test_a_deleted_stream_leaves_no_files(policy: CrashPolicy) -> None:
    """Before whichever disk call of a deletion power is lost, or behind it: the start that follows has the stream or
    finishes the deletion, and puts nothing aside.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        moments: list[DiskImage] = []
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            await propose(stream, b"1 x")
            await stream.checkpoint()
            drive.observer = lambda kind, path: moments.append(drive.image.clone())
            await store.drop_group("s")
            drive.observer = None
            moments.append(drive.image.clone())
        assert len(moments) > 5
        for image in moments:
            after = SimDrive(random.Random(6))
            after.image = image
            after.power_loss(policy)
            async with store_on(after, boot_id="two") as store:
                names = [path for path in after.image.walk() if path.startswith("/data/tnats/streams/")]
                assert bool(names) == store.journal.knows("s")
                assert not [path for path in names if "quarantine" in path or "deleted" in path]

    run(test)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_an_end_before_the_last_sync_is_not_clean(is_cancelled: bool) -> None:
    """With a sync interval, a store is closed whose task was cancelled: what a loss of power then takes is missed."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        with trio.CancelScope() as scope:
            async with store_on(drive, boot_id="one", clean=False, journal=LAZY) as store:
                await store.journal.group("a").append_nowait([b"acknowledged"]).wait()
                if is_cancelled:
                    scope.cancel()
        await store.close()
        drive.power_loss(CrashPolicy.STRICT)
        async with store_on(drive, boot_id="two") as store:
            assert store.lost_unsynced is is_cancelled
            assert (store.journal.group("a").last == 0) is is_cancelled

    run(test)
