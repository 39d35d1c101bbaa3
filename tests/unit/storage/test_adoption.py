"""Streams that damage has taken out of the journal: where they begin, by what is left of their files."""

from __future__ import annotations

import random

import pytest
from tests.properties.storage_bench import run
from tests.properties.test_storage_store import open_and_replay, propose, store_on

from tnats.runtime.sim.disk import SimDrive
from tnats.storage.errors import DataDamaged
from tnats.storage.segment import DATA_START

BODY = bytes(3000)
SEGMENTS = "/data/tnats/streams/0000000001"


async def filled(removed: range) -> SimDrive:
    """A disk with a stream of 1 to 12 in several segments, some of them removed, and a journal that is gone."""
    drive = SimDrive(random.Random(5))
    async with store_on(drive) as store:
        stream = await open_and_replay(store, "s")
        for sequence in range(1, 13):
            await propose(stream, b"%d %b" % (sequence, BODY))
        if removed:
            stream.log.raise_start(removed.stop)
        await stream.checkpoint()
    for path in list(drive.image.walk("/data/tnats/journal")):
        drive.image.cut(path, 0)
    return drive


def test_what_stood_in_an_unreadable_first_segment_is_lost() -> None:
    """Messages before the lowest that is found are errors that the health check names, not removed: files are bad."""

    async def test() -> None:
        drive = await filled(range(0))
        first = min(drive.image.walk(SEGMENTS))
        drive.image.overwrite(first, bytes(DATA_START), 0)
        for seed in (2, 3):  # also when the stream stands in the journal again
            async with store_on(drive, seed=seed) as store:
                stream = await open_and_replay(store, "s")
                lowest = stream.log.index.first
                assert 1 < lowest <= 12
                for sequence in range(1, lowest):
                    with pytest.raises(DataDamaged):
                        await stream.log.load(sequence)
                assert any(line == f"lost s 1-{lowest - 1} messages" for line in store.health())
                await stream.checkpoint()

    run(test)


def test_what_stood_in_a_first_segment_that_is_gone_is_lost() -> None:
    """Where a stream began stands in the spare copy too: a first segment that is missing whole was not removed."""

    async def test() -> None:
        drive = await filled(range(1, 4))
        drive.image.remove(min(drive.image.walk(SEGMENTS)))
        async with store_on(drive, seed=2) as store:
            stream = await open_and_replay(store, "s")
            assert stream.log.index.start == 4
            assert stream.log.index.first == 5
            with pytest.raises(DataDamaged):
                await stream.log.load(4)
            assert "lost s 4-4 messages" in store.health()
            with pytest.raises(KeyError):
                await stream.log.load(3)

    run(test)


def test_nothing_is_lost_before_the_lowest_of_sound_files() -> None:
    """A stream whose beginning was removed begins at the lowest sequence that its files have, if all can be read."""

    async def test() -> None:
        drive = await filled(range(1, 7))
        async with store_on(drive, seed=2) as store:
            stream = await open_and_replay(store, "s")
            index = stream.log.index
            assert 1 < index.start <= index.first == 7
            with pytest.raises(KeyError):
                await stream.log.load(1)
            assert not any("lost s 1-" in line for line in store.health())

    run(test)


def test_nothing_is_lost_before_the_first_sequence_of_a_stream() -> None:
    """With unreadable files and no spare copy, what lies before a stream's configured beginning was never there."""

    async def test() -> None:
        drive = await filled(range(0))
        drive.image.remove("/data/tnats/used")
        first = min(drive.image.walk(SEGMENTS))
        drive.image.overwrite(first, bytes(DATA_START), 0)
        async with store_on(drive, seed=2) as store:
            stream = await store.open_stream("s", first_sequence=2)
            stream.log.end_recovery()
            assert stream.log.index.start == 2

    run(test)
