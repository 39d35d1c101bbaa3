"""A start on a disk that does not sync: what it reads is not proved, so nobody gets to see it."""

from __future__ import annotations

import pytest
import trio

from tnats.harness.sim.storage import StepClock
from tnats.runtime.sim.chance import stream
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, SyncFault
from tnats.storage.errors import StoreFrozen
from tnats.storage.store import Store, StoreOptions
from tnats.storage.store_open import open_store

DIRECTORY = "/data"


async def test_a_start_that_cannot_make_sure_of_what_it_read_does_not_open() -> None:
    """A write whose sync failed can be read back, and is on no medium: a start refuses until it can be synced."""
    rng = stream(1, "unproved")
    drive = SimDrive(rng)
    clock = StepClock(1)

    async def start() -> Store:
        disk = SimDisk(drive, clock)  # type: ignore[arg-type]
        drive.locks.clear()
        return await open_store(
            disk,
            clock,  # type: ignore[arg-type]
            rng.randbytes,
            DIRECTORY,
            boot_id="boot",
            options=StoreOptions(),
        )

    async def propose(store: Store, body: bytes) -> None:
        log = await store.open_stream("s")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            try:
                await log.commit.propose_nowait([body]).wait()
            finally:
                nursery.cancel_scope.cancel()

    await propose(await start(), b"proved")
    second = await start()
    drive.faults.append(DiskFault(("sync",), SyncFault("once")))
    with pytest.raises(ExceptionGroup) as failed:
        await propose(second, b"unproved")
    assert failed.group_contains(StoreFrozen)
    with pytest.raises(StoreFrozen):
        await start()
    drive.faults.clear()
    log = await (await start()).open_stream("s")
    assert [bytes(entry.body or b"") for entry in await log.commit.replay()] == [b"proved", b"unproved"]
