"""Names and numbers that are given again: what the one before them left behind is not taken for theirs."""

from __future__ import annotations

import random

from tests.properties.storage_bench import run
from tests.properties.test_storage_store import content, open_and_replay, propose, store_on

from tnats.runtime.sim.disk import SimDrive
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.storage import record, segment
from tnats.storage.encryption import Encryption

PART = "/data/tnats/journal/0000000000000001.part"


def test_a_stream_that_was_deleted_is_made_anew_behind_a_crash() -> None:
    """Its sequences begin with 1, whatever the spare copy says of the stream that had its name."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 20):
                await propose(stream, b"%d old" % sequence)
        async with store_on(drive, clean=False) as store:
            await open_and_replay(store, "s")
            await store.drop_group("s")
        drive.locks.clear()
        for start in range(2):
            async with store_on(drive, seed=2 + start) as store:
                stream = await open_and_replay(store, "s")
                assert stream.log.index.last == start
                await propose(stream, b"%d new" % (start + 1))
                assert store.health() == []

    run(test)


def test_a_stream_takes_nothing_over_from_one_whose_removal_is_damaged() -> None:
    """The other stream's entries stand in the journal, and what told of its removal is damaged."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            old = await open_and_replay(store, "old")
            for sequence in range(1, 20):
                await propose(old, b"%d old" % sequence)
            await store.drop_group("old")
        async with store_on(drive) as store:
            new = await open_and_replay(store, "new")
            for sequence in range(1, 4):
                await propose(new, b"%d new" % sequence)
        data = drive.image.content(PART)
        header, _ = segment.read_header(data, PART)
        assert header is not None
        (drop,) = [each for each in segment.scan(data, header.seed, PART).records if each[2] == record.DROP]
        drive.image.overwrite(PART, b"\xff" * drop[1], drop[0])
        async with store_on(drive) as store:
            assert store.health()
            assert await content(await open_and_replay(store, "new")) == {1: b"new", 2: b"new", 3: b"new"}

    run(test)


def test_segments_behind_ones_that_all_went_are_made_durable() -> None:
    """A stream has no segment left. What is published after a start is synced by the checkpoint of the next one: no
    number counts as durable that the last note was about.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        key = Encryption("a key")
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 8):
                await propose(stream, b"%d %b" % (sequence, bytes(900)))
            await stream.checkpoint()
        async with store_on(drive, encryption=key) as store:
            stream = await open_and_replay(store, "s")  # and goes on in none of the segments, which are in the clear
            await propose(stream, b"-7")
            stream.log.raise_start(8)
            await stream.checkpoint()
            assert not stream.log.files.segments
        async with store_on(drive, encryption=key, clean=False) as store:
            await propose(await open_and_replay(store, "s"), b"8 x")
        drive.locks.clear()
        async with store_on(drive, encryption=key, clean=False) as store:
            stream = await open_and_replay(store, "s")
            await stream.checkpoint()
            await store.shorten()
        drive.power_loss(CrashPolicy.STRICT)
        async with store_on(drive, encryption=key) as store:
            stream = await open_and_replay(store, "s")
            assert store.health() == []
            assert await content(stream) == {8: b"x"}

    run(test)
