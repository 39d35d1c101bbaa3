"""Snapshots: whole and verified, or the older one, at every power loss and under any damage."""

from __future__ import annotations

import errno
import random
import sys

import pytest
from tests.properties.storage_bench import StepClock, run

from tnats.runtime.api import DiskError
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail, Flip, Kind, damage_bit
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage import snapshot
from tnats.storage.encryption import Encryption, make_keys
from tnats.storage.errors import DataDamaged, StoreFull
from tnats.storage.record import alarms
from tnats.storage.snapshot import Snapshot, SnapshotStore


async def store_on(drive: SimDrive, *, group: str = "meta", store_id: bytes = b"s" * 16) -> SnapshotStore:
    disk, clock = SimDisk(drive, StepClock()), StepClock()  # type: ignore[arg-type]
    entropy = random.Random(1).randbytes
    keys = make_keys(ENCRYPTION, store_id, entropy)
    store = SnapshotStore(disk, clock, entropy, "/snap", group=group, store_id=store_id, keys=keys)  # type: ignore[arg-type]
    await store.open()
    return store


ENCRYPTION: Encryption | None = None


@pytest.fixture(autouse=True, params=[None, Encryption("key")], ids=["plain", "encrypted"])
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ENCRYPTION", request.param)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "CHUNK_BYTES", 100)


def pieces(index: int) -> list[bytes]:
    return [b"%d," % index * 70, b"", b"end"]


def state(index: int) -> Snapshot:
    return Snapshot(index, index // 10, b"".join(pieces(index)))


async def saved(*indexes: int) -> SimDrive:
    drive = SimDrive(random.Random(2))
    store = await store_on(drive)
    for index in indexes:
        await store.save(index, index // 10, pieces(index))
    return drive


def test_power_loss_at_every_disk_operation() -> None:
    """The newest finished snapshot or, while the next is being saved, either of the two; never a mixture."""

    async def test() -> None:
        rng = random.Random(1)
        drive = SimDrive(random.Random(2))
        moments: list[tuple[DiskImage, int]] = []
        done = 0
        drive.observer = lambda kind, path: moments.append((drive.image.clone(), done))
        store = await store_on(drive)
        for index in (10, 20, 30):
            await store.save(index, index // 10, pieces(index))
            done = index
        for image, then in moments:
            for policy in CrashPolicy:
                after = SimDrive(rng)
                after.image = image.clone()
                after.power_loss(policy)
                again = await store_on(after)
                found = await again.load()
                assert found in ([state(then), state(then + 10)] if then else [None, state(10)]), policy
                assert [path for path in after.image.walk() if path.endswith(".tmp")] == []
                if found is not None:
                    assert alarms(again.findings) == []

    run(test)


def test_damage_falls_back_to_the_older_one() -> None:
    """A flipped bit is undone; wider damage sets the file aside and the older snapshot answers."""

    async def test() -> None:
        drive = await saved(10)
        older = drive.image.content("/snap/00000000000000000010.snap")
        await (await store_on(drive)).save(20, 2, pieces(20))
        number = drive.image.create("/snap/00000000000000000010.snap")
        drive.image.write(number, older, 0)
        path = "/snap/00000000000000000020.snap"
        size = len(drive.image.content(path))
        for offset in [*range(120), *range(4096, 4200), *range(8192, size)]:
            after = SimDrive(random.Random(1))
            after.image = drive.image.clone()
            damage_bit(after.image, path, offset * 8 + offset % 8)
            assert await (await store_on(after)).load() == state(20)
            if offset < 8192:
                continue
            after.image = drive.image.clone()
            after.image.overwrite(path, bytes([offset % 251, 0x55, offset % 7]), offset)
            store = await store_on(after)
            found = await store.load()
            assert found in (state(20), state(10))
            if found == state(10):
                assert alarms(store.findings)
                assert after.image.is_file("/snap/quarantine/00000000000000000020.snap")
        for cut in range(0, size, 13):
            after.image = drive.image.clone()
            after.image.cut(path, cut)
            assert await (await store_on(after)).load() == state(10)

    run(test)


def test_what_belongs_elsewhere_is_not_taken() -> None:
    """A snapshot of another group or store, or under another index, does not verify."""

    async def test() -> None:
        for options in ({"group": "other"}, {"store_id": b"t" * 16}):
            assert await (await store_on(await saved(10), **options)).load() is None  # type: ignore[arg-type]
        drive = await saved(10)
        drive.image.rename("/snap/00000000000000000010.snap", "/snap/00000000000000000099.snap")
        assert await (await store_on(drive)).load() is None

    run(test)


def test_failing_calls_keep_the_older_one() -> None:
    """Whichever call of saving fails or corrupts, the older snapshot is still there, and a full disk is called so."""

    async def test() -> None:
        kinds: list[Kind] = ["write", "sync", "create", "rename", "sync_dir", "read"]
        faults = [DiskFault((kind,), Fail(errno.EIO), times=1) for kind in kinds]
        faults += [DiskFault(("write",), Fail(errno.ENOSPC), times=1), DiskFault(("write",), Flip(3), times=1)]
        for fault in faults:
            for skip in range(6):
                drive = await saved(10)
                store = await store_on(drive)
                fault.skip, fault.seen, fault.fired = skip, 0, 0
                drive.faults.append(fault)
                try:
                    await store.save(20, 2, pieces(20))
                except StoreFull:
                    assert fault.effect == Fail(errno.ENOSPC)
                except (DiskError, DataDamaged):
                    pass
                else:
                    assert not fault.fired or isinstance(fault.effect, Flip)
                drive.faults.clear()
                drive.power_loss(CrashPolicy.STRICT)
                found = await (await store_on(drive)).load()
                assert found in (state(10), state(20))

    run(test)
