"""Removals that damaged segments do not tell of any more: what they had removed is not served again in silence."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.properties.storage_bench import run
from tests.properties.test_storage_store import open_and_replay, propose, store_on

from tnats.runtime.sim.disk import SimDrive
from tnats.runtime.sim.disk_image import DiskImage
from tnats.storage import hot, record, segment
from tnats.storage.store import OpenStream, Store

SEGMENTS = "/data/tnats/streams/0000000001"


def find(image: DiskImage, kind: int, sequence: int) -> tuple[str, record.Record]:
    """Path and record of this kind about a sequence."""
    for path in image.walk(SEGMENTS):
        data = image.content(path)
        header, _ = segment.read_header(data, path)
        assert header is not None
        for found in segment.scan(data, header.seed, path).records:
            if found[2] == kind and found[4] == sequence:
                return path, record.take_apart(data, found, 0)
    raise AssertionError(f"no record of kind {kind} about {sequence}")


async def fill(store: Store) -> OpenStream:
    """Messages 1 to 7 in three segments; the removal of 1 stands in the last, durably, 1 itself in the first."""
    stream = await open_and_replay(store, "s")
    for sequence in range(1, 8):
        size = 900 if sequence == 6 else 140  # 1 to 5 stand in the first
        await propose(stream, b"%d %b" % (sequence, bytes(size)))
    stream.log.remove([1], erase=False)
    await stream.checkpoint()
    return stream


def cut_tail(image: DiskImage) -> None:
    path, gap = find(image, record.GAP, 1)
    image.cut(path, gap.offset + gap.size - 2)


def cut_record(image: DiskImage) -> None:
    path, gap = find(image, record.GAP, 1)
    image.cut(path, gap.offset)


def zero_tail(image: DiskImage) -> None:
    path, gap = find(image, record.GAP, 1)
    image.overwrite(path, bytes(len(image.content(path)) - gap.offset), gap.offset)


def overwrite(image: DiskImage) -> None:
    path, gap = find(image, record.GAP, 1)
    image.overwrite(path, b"????", gap.offset + 20)


def exchange(image: DiskImage) -> None:
    image.swap(find(image, record.GAP, 1)[0], find(image, record.MESSAGE, 6)[0])


@pytest.mark.parametrize("harm", [cut_tail, cut_record, zero_tail, overwrite, exchange])
def test_a_removal_that_was_promised_is_not_forgotten_in_silence(harm: Callable[[DiskImage], None]) -> None:
    """The last segment is damaged before where the note says that all was durable. Neither is anything lost nor are
    there more messages than the note counts: a checkpoint that was cut short has removed another one meanwhile.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await fill(store)
            await propose(stream, b"-2")
            await stream.log.checkpoint(stream.commit.group)
        drive.locks.clear()
        harm(drive.image)
        async with store_on(drive, seed=2) as store:
            await open_and_replay(store, "s")
            assert any(line.startswith("damaged s") for line in store.health())

    run(test)


def test_a_message_that_stands_again_is_not_made_up_for_by_one_that_is_lost() -> None:
    """An older segment has lost the removal of 1, another message 2, which the journal then removes: nothing is lost in
    the end, and there are as many messages as there should be.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await fill(store)
            await propose(stream, b"8 %b" % bytes(900))
            await stream.checkpoint()
            await propose(stream, b"-2")
        drive.locks.clear()
        cut_record(drive.image)
        path, message = find(drive.image, record.MESSAGE, 2)
        drive.image.overwrite(path, bytes(message.size), message.offset)
        async with store_on(drive, seed=2) as store:
            stream = await open_and_replay(store, "s")
            assert stream.log.index.next_live(1) == 1
            assert any("removed messages stand here again" in line for line in store.health())

    run(test)


@pytest.mark.parametrize("done", [24, 100, 150])
def test_an_erasure_that_was_cut_short_is_no_damage(done: int) -> None:
    """What is neither message nor erased, and is removed, alarms nobody, and the next checkpoint erases it."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await fill(store)
            await propose(stream, b"-7")
        drive.locks.clear()
        path, message = find(drive.image, record.MESSAGE, 7)
        header, _ = segment.read_header(drive.image.content(path), path)
        assert header is not None
        erased: hot.Record = (hot.ERASED, 0, 7, 0, b"", b"", bytes(message.size - hot.HEADER_SIZE))
        packed, _ = hot.pack([erased], message.offset, header.seed, message.offset)
        drive.image.overwrite(path, bytes(packed[:done]), message.offset)
        for seed in (2, 3):
            async with store_on(drive, seed=seed) as store:
                stream = await open_and_replay(store, "s")
                assert store.health() == []
                assert stream.log.index.messages == 5
                await stream.checkpoint()
        find(drive.image, hot.ERASED, 7)

    run(test)


def test_messages_that_were_lost_before_do_not_alarm_as_messages_that_are_back() -> None:
    """A note counts the lost ones as well, so a start that finds the same ones lost names them, and nothing else."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            await fill(store)
        path, message = find(drive.image, record.MESSAGE, 3)
        drive.image.overwrite(path, bytes(message.size), message.offset)
        for seed in (2, 3):
            async with store_on(drive, seed=seed) as store:
                stream = await open_and_replay(store, "s")
                assert [line for line in store.health() if "lost" in line] == ["lost s 3-3 messages"]
                assert not any("stand here again" in line for line in store.health())
                await propose(stream, b"%d x" % (stream.log.index.last + 1))
                await stream.checkpoint()

    run(test)
