"""Opening a store on a disk that fails."""

from __future__ import annotations

import errno
import random

import pytest
from tests.properties.storage_bench import StepClock, run

from tnats.runtime.api import DiskError
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail
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
