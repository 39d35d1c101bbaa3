"""Looking at a store: what is damaged is named, nothing changes, and a repair writes only what is proved."""

from __future__ import annotations

import random

import pytest
from tests.properties.storage_bench import StepClock, run
from tests.properties.test_storage_store import (
    apply,
    harm,
    open_and_replay,
    propose,
    readable,
    store_on,
    used_store,
)

from tnats.runtime.api import StoreLocked
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_image import DiskImage
from tnats.storage.check import Report, check_store, repair_store
from tnats.storage.errors import StoreRefused
from tnats.storage.store import OpenStream, Store


def disk_of(drive: SimDrive) -> tuple[SimDisk, StepClock]:
    clock = StepClock()
    return SimDisk(drive, clock), clock  # type: ignore[arg-type]


def sequences_of(body: bytes) -> tuple[int, int] | None:
    """As `apply` takes an entry; "~sequence" uses up those up to there."""
    if body.startswith(b"~"):
        return 0, int(body[1:])
    sequence = int(body.partition(b" ")[0])
    return (sequence, sequence) if sequence > 0 else None


async def check(drive: SimDrive) -> Report:
    disk, clock = disk_of(drive)
    return await check_store(disk, clock, random.Random(1).randbytes, "/data", sequences_of)  # type: ignore[arg-type]


def copy_of(image: DiskImage) -> SimDrive:
    drive = SimDrive(random.Random(5))
    drive.image = image.clone()
    return drive


def contents(image: DiskImage) -> dict[str, bytes]:
    return {path: bytes(image.content(path)) for path in image.walk("/data")}


def test_a_sound_store_is_clean_and_damage_is_named() -> None:
    """What a start would alarm about, or not serve, is found before; and looking changes no byte."""

    async def test() -> None:
        rng = random.Random(7)
        images: list[DiskImage] = []
        original, expected, _ = await used_store(rng, images)
        report = await check(original)
        assert report.is_clean, report.findings
        assert {stream.group for stream in report.streams} == set(expected)
        found_damage = 0
        for _ in range(25):
            drive = copy_of(original.image)
            what = harm(drive.image, images, rng)
            before = contents(drive.image)
            report = await check(drive)
            assert contents(drive.image) == before, what
            async with store_on(drive, seed=30) as store:
                served = {name: await readable(await opened(store, name)) for name in store.stream_names}
                alarmed = bool(store.health())
            lost = any(not expected[name].keys() <= served.get(name, {}).keys() for name in expected)
            assert not report.is_clean or not (alarmed or lost), (what, report.findings)
            found_damage += not report.is_clean
        assert found_damage > 10

    run(test)


def test_sequences_that_are_passed_over_are_not_lost() -> None:
    """A mirror passes over what its origin has removed. Until the next checkpoint only the journal tells."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            await propose(stream, b"1 x")
            await stream.checkpoint()
            await propose(stream, b"2 x")
            await stream.commit.propose_nowait([b"~5"]).wait()
            stream.log.skip(3, 5)
            await stream.commit.committed()
            await propose(stream, b"6 x")
        report = await check(drive)
        assert report.is_clean, report.findings
        assert report.streams[0].last == 6

    run(test)


async def opened(store: Store, name: str) -> OpenStream:
    """As an owner does it that passes over lost entries."""
    stream = await store.open_stream(name)
    for entry in await stream.commit.replay():
        if entry.body is not None:
            await apply(stream, entry.index, bytes(entry.body))
    stream.log.end_recovery()
    return stream


@pytest.mark.parametrize("kind", [".part", ".seg", "/identity"])
def test_a_repair_writes_one_bit_back(kind: str) -> None:
    """A flipped bit is found and named, a repair makes the file what it was, and after that the store is clean."""

    async def test() -> None:
        original, _, _ = await used_store(random.Random(7), [])
        right = contents(original.image)
        path = next(path for path in right if path.endswith(kind))
        offsets = [offset for offset, byte in enumerate(right[path]) if byte and not 1024 <= offset % 4096 < 1100]
        for offset in random.Random(1).sample(offsets, 12):
            drive = copy_of(original.image)
            drive.image.overwrite(path, bytes([right[path][offset] ^ 16]), offset)
            report = await check(drive)
            assert not report.is_clean, offset
            assert any(finding.kind == "corrected" and finding.path == path for finding in report.findings), offset
            await repair_store(disk_of(drive)[0], "/data", report)  # type: ignore[arg-type]
            assert (await check(drive)).is_clean
            assert contents(drive.image) == right, offset

    run(test)


def test_what_cannot_be_checked_is_refused() -> None:
    """A store in use, another program's, one of a newer format, none at all: an error that says so."""

    async def test() -> None:
        original, _, _ = await used_store(random.Random(7), [])
        async with store_on(original, seed=9):
            with pytest.raises(StoreLocked):
                await check(original)
        disk, _ = disk_of(original)
        await disk.unlink("/data/tnats/identity")
        with pytest.raises(StoreRefused, match="no store"):
            await check(original)
        await disk.mkdir("/data/jetstream")
        with pytest.raises(StoreRefused, match="nats-server"):
            await check(original)

    run(test)
