"""Keeping the journal and the segments short on a disk that cannot be read everywhere."""

from __future__ import annotations

import errno
import random

import pytest
import trio
from tests.properties.storage_bench import run
from tests.properties.test_storage_store import content, open_and_replay, propose, store_on

from tnats.runtime.sim.disk import SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail
from tnats.storage.segment import DATA_START


def test_a_part_that_cannot_be_read_stays() -> None:
    """Nobody owns a group, and its entry cannot be read to be written forward: the store goes on, and the part goes
    when the disk answers again.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5), cold=1.0)
        async with store_on(drive) as store:
            await store.journal.group("ownerless").append_nowait([b"kept"]).wait()
            stream = await open_and_replay(store, "s")
            await propose(stream, b"1 x")
            fault = DiskFault(("read",), Fail(errno.EIO), glob="*.part")
            drive.faults.append(fault)
            for sequence in range(2, 40):
                await propose(stream, b"%d %b" % (sequence, bytes(500)))
            assert fault.fired
            assert store.journal.old_parts[0].number == 1
            drive.faults.clear()
            await store.shorten()
            assert not store.journal.old_parts
            assert (await store.journal.group("ownerless").read(1)).body == b"kept"
            assert store.health() == []

    run(test)


def test_an_entry_that_is_found_damaged_is_named() -> None:
    """It stands in a part that was sound at the start, which stays; the health check names it."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            await store.journal.group("ownerless").append_nowait([b"kept"]).wait()
            path = store.journal.parts.current.summary.path  # type: ignore[union-attr]
            stream = await open_and_replay(store, "s")
            drive.image.overwrite(path, b"\xff" * 4000, DATA_START + 4200)
            for sequence in range(1, 40):
                await propose(stream, b"%d %b" % (sequence, bytes(500)))
            assert store.journal.old_parts[0].path == path
            assert [line for line in store.health() if path in line and "ownerless" in line]

    run(test)


def test_a_segment_that_cannot_be_read_is_not_compacted() -> None:
    """A checkpoint leaves it as it is, and the stream takes messages."""

    async def test() -> None:
        drive = SimDrive(random.Random(5), cold=1.0)
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 20):
                await propose(stream, b"%d %b" % (sequence, bytes(150)))
            await stream.checkpoint()
            stream.log.remove(range(2, 6), erase=False)
            fault = DiskFault(("read",), Fail(errno.EIO), glob="*0001.seg")
            drive.faults.append(fault)
            await stream.checkpoint()
            assert fault.fired
            await propose(stream, b"20 x")
            assert stream.log.trouble is None
            drive.faults.clear()
            await trio.lowlevel.checkpoint()
            assert sorted(await content(stream)) == [1, *range(6, 21)]

    run(test)


@pytest.mark.parametrize("note_bytes", [7_000, 50_000])
def test_notes_that_fill_parts_do_not_make_parts_of_each_append(note_bytes: int) -> None:
    """Each part begins with the notes of all groups, twice. Where these are larger than a part is meant to be, there is
    room for entries behind them, and for the note of the checkpoint that follows: parts come no faster than entries.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            group = store.journal.group("s")

            async def checkpoint() -> None:
                await group.set_state_nowait(group.last, bytes(note_bytes)).wait()

            store.own("s", checkpoint)
            for _ in range(300):
                await group.append_nowait([bytes(100)]).wait()
            part = store.journal.parts.current
            assert part is not None
            assert part.summary.number < 10  # 43 KiB of entries, with room for 8 in each
            await store.shorten()
            assert len(store.journal.old_parts) == 0
        async with store_on(drive, seed=2) as store:
            assert store.health() == []
            assert len(store.journal.group("s").note) == note_bytes

    run(test)
