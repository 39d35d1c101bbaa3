"""The spare copy of used sequences: what it remembers, and that it keeps a sequence from being used twice."""

from __future__ import annotations

import random

from tests.properties.storage_bench import StepClock, run
from tests.properties.test_storage_store import open_and_replay, propose, store_on

from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.storage.used import Used, UsedSequences

PATH = "/used"


def used_on(drive: SimDrive, store_id: bytes = b"s" * 16) -> UsedSequences:
    clock = StepClock()
    return UsedSequences(SimDisk(drive, clock), clock, random.Random(1).randbytes, PATH, store_id)  # type: ignore[arg-type]


async def saved(drive: SimDrive) -> None:
    await used_on(drive).save({"a": Used(1, 5, 70), "b": Used(2, 1, 7)})


def test_a_block_may_be_lost() -> None:
    """Any one block of the file can be overwritten: the sequences are known, and the damage is reported."""

    async def test() -> None:
        original = SimDrive(random.Random(5))
        await saved(original)
        size = len(original.image.content(PATH))
        for start in range(0, size, 4096):
            drive = SimDrive(random.Random(5))
            drive.image = original.image.clone()
            drive.image.overwrite(PATH, random.Random(start).randbytes(min(4096, size - start)), start)
            used = used_on(drive)
            await used.load()
            assert used.find("a", 1) == Used(1, 5, 70), start
            assert (used.find("b", 2).last, used.find("c", 3)) == (7, Used()), start
            assert used.findings, start

    run(test)


def test_whose_sequences_they_are() -> None:
    """A stream of the same name in another group counts only when the group's number is not known."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        await saved(drive)
        used = used_on(drive)
        await used.load()
        assert used.find("a", 9) == Used()
        assert used.find("a", None) == Used(1, 5, 70)
        used.forget("a")
        assert used.find("a", None) == Used()
        stranger = used_on(drive, b"t" * 16)
        await stranger.load()
        assert stranger.find("b", 2) == Used()
        assert stranger.findings

    run(test)


def test_journal_and_segments_gone() -> None:
    """With every part and segment emptied, a stream still goes on behind what it acknowledged before its clean end."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 10):
                await propose(stream, b"%d x" % sequence)
        for path in list(drive.image.walk("/data/tnats")):
            if path.endswith((".part", ".seg")):
                drive.image.cut(path, 0)
        async with store_on(drive, seed=2) as store:
            assert store.health()
            stream = await open_and_replay(store, "s")
            assert stream.log.index.last >= 9

    run(test)
