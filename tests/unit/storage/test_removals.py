"""Removals that are not durable yet, and content that is to go, while checkpoints and rewriting are under way."""

from __future__ import annotations

import errno
import random

import pytest
from tests.properties.storage_bench import run
from tests.properties.test_storage_store import LAZY, content, open_and_replay, propose, store_on

from tnats.runtime.sim.disk import SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.hot import HEADER_SIZE
from tnats.storage.index_columns import REMOVED
from tnats.storage.message_log import Message
from tnats.storage.store import OpenStream, Store

SECRET = b"a secret"


async def after(image: DiskImage) -> dict[int, bytes]:
    """What a sound store on this disk has."""
    drive = SimDrive(random.Random(5))
    drive.image = image
    async with store_on(drive, boot_id="two", seed=2) as store:
        stream = await open_and_replay(store, "s")
        assert store.health() == []
        return await content(stream)


def is_there(image: DiskImage) -> bool:
    """Whether SECRET stands in any segment."""
    paths = [path for path in image.walk("/data/tnats/streams") if path.endswith(".seg")]
    return any(SECRET in image.content(path) for path in paths)


async def write_anew(stream: OpenStream) -> None:
    """Every sealed segment."""
    files = stream.log.files
    for each in files.segments.values():
        each.is_stale = each is not files.current
    while await stream.log.rewrite():
        pass


async def with_removals(store: Store) -> OpenStream:
    """A stream of 19 messages, of which the second to the fifth went after the checkpoint."""
    stream = await open_and_replay(store, "s")
    for sequence in range(1, 20):
        await propose(stream, b"%d %b" % (sequence, bytes(100)))
    await stream.checkpoint()
    for sequence in range(2, 6):
        await propose(stream, b"-%d" % sequence)
    return stream


def test_what_a_lost_message_pushed_out_is_there() -> None:
    """With a sync interval, a newer value comes while a checkpoint is under way, and pushes an older one out, which is
    durable. A loss of power may take the newer one: then the older one is there.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5), cold=1.0)
        moments: list[DiskImage] = []
        newer = 0
        async with store_on(drive, boot_id="one", clean=False, journal=LAZY) as store:
            stream = await with_removals(store)

            def observe(kind: str, path: str) -> None:
                nonlocal newer
                if not newer and kind == "read" and path.endswith(".seg"):  # a segment is compacted
                    newer = stream.log.index.last + 1
                    group = store.journal.group("s")
                    group.append_nowait([b"%d newer" % newer, b"-10"], wake=False, sequence=newer)
                    store.journal.write_nowait()
                    stream.log.hold([Message(newer, 1, b"s", b"", b"newer")])
                    stream.log.remove([10], erase=False)
                moments.append(drive.image.clone())

            drive.observer = observe
            await stream.log.checkpoint(stream.commit.group)
            drive.observer = None
            moments.append(drive.image.clone())
        assert newer
        for moment in moments:
            for policy in CrashPolicy:
                image = moment.clone()
                image.crash(policy, random.Random(1))
                assert {10, newer} & set(await after(image)), policy

    run(test)


def test_a_start_that_comes_after_the_note_leaves_no_removal_untold() -> None:
    """The oldest messages go while a checkpoint is under way, behind what its note says. Of what had been removed among
    them the files tell: whenever the process dies then, there is nothing to be alarmed about.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5), cold=1.0)
        moments: list[DiskImage] = []
        async with store_on(drive, clean=False) as store:
            stream = await with_removals(store)

            def observe(kind: str, path: str) -> None:
                if stream.log.index.start == 1 and kind == "read" and path.endswith(".seg"):  # a segment is compacted
                    store.journal.group("s").append_nowait([b"<9"])
                    stream.log.raise_start(9)
                elif stream.commit.group.last > 23:
                    moments.append(drive.image.clone())

            drive.observer = observe
            await stream.checkpoint()
            drive.observer = None
        assert moments
        for image in moments:
            assert sorted(await after(image)) == list(range(9, 20))

    run(test)


def test_what_was_removed_stays_so_below_a_start_that_is_not_durable() -> None:
    """A segment is written anew, whose oldest messages went since the checkpoint. When that turns out to be lost they
    are back, but for what had been removed for good before.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 6):
                await propose(stream, b"%d %b" % (sequence, bytes(100)))
            await propose(stream, b"-2")
            await stream.checkpoint()  # its removal stands behind 5
            for sequence in range(6, 12):
                await propose(stream, b"%d %b" % (sequence, bytes(300)))
            await stream.checkpoint()
            stream.log.raise_start(4)  # by an entry that is lost
            await write_anew(stream)
        drive.power_loss(CrashPolicy.STRICT)
        assert sorted(await after(drive.image)) == [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]

    run(test)


def test_what_is_to_be_erased_is_after_any_loss_of_power() -> None:
    """Power fails at any operation of the checkpoint that erases: behind the next one the content is gone."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        moments: list[DiskImage] = []
        async with store_on(drive, clean=False) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 20):
                await propose(stream, b"%d %b" % (sequence, SECRET if sequence == 2 else bytes(100)))
            await stream.checkpoint()
            await propose(stream, b"-2")
            drive.observer = lambda kind, path: moments.append(drive.image.clone())
            await stream.checkpoint()
            drive.observer = None
        for moment in moments:
            for seed in range(20):
                crashed = SimDrive(random.Random(seed))
                crashed.image = moment.clone()
                crashed.power_loss(CrashPolicy.SUBSET if seed % 2 else CrashPolicy.TORN)
                async with store_on(crashed, boot_id="two", seed=seed) as store:
                    stream = await open_and_replay(store, "s")
                    assert stream.log.index.place(2) == REMOVED
                    await stream.checkpoint()
                    assert not is_there(crashed.image)

    run(test)


def test_what_is_to_be_erased_is_when_its_segment_was_written_anew() -> None:
    """A message is deleted, and its segment written anew before the checkpoint that erases: the content goes then."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 20):
                await propose(stream, b"%d %b" % (sequence, SECRET if sequence == 2 else bytes(100)))
            await stream.checkpoint()
            await propose(stream, b"-2")
            await write_anew(stream)
            assert is_there(drive.image)  # the removal is not known to be durable
            await stream.checkpoint()
            assert not is_there(drive.image)

    run(test)


def test_removals_between_checkpoints_are_noted_in_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours make one note, and a checkpoint tells of all that went."""
    monkeypatch.setattr("tnats.storage.stream_checkpoint.GAPS_MERGED_MIN", 16)

    async def test() -> None:
        drive = SimDrive(random.Random(5), cold=1.0)
        async with store_on(drive, clean=False) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 400):
                await propose(stream, b"%d" % sequence)
            for sequence in range(1, 200):
                await propose(stream, b"-%d" % sequence)
                assert len(stream.log._checkpoints.gaps) <= 17
            for sequence in range(201, 400, 2):
                await propose(stream, b"-%d" % sequence)
            await stream.checkpoint()
            assert stream.log._checkpoints.gaps == []
        image = drive.image.clone()
        image.crash(CrashPolicy.STRICT, random.Random(1))
        assert sorted(await after(image)) == list(range(200, 400, 2))

    run(test)


def test_what_damage_took_that_told_of_removals_is_told_again_by_a_segment_that_is_written_anew() -> None:
    """All messages of a segment can be read, but not what stood between them and told that others are removed. The
    server knows it: after it has written the segment anew, so does every start.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5), cold=1.0)
        async with store_on(drive) as store:
            stream = await with_removals(store)
            await stream.checkpoint()
            current = stream.log.files.current
            assert current is not None
            end = current.end  # the last that was written is what tells of removals
            while stream.log.files.current is current:
                await propose(stream, b"%d %b" % (stream.log.index.last + 1, bytes(100)))
            await stream.checkpoint()
            drive.image.overwrite(current.path, b"\xff" * HEADER_SIZE, end - HEADER_SIZE)
            await write_anew(stream)
            there = await content(stream)
        assert await after(drive.image) == there

    run(test)


def test_the_name_of_a_segment_that_was_written_anew_is_durable_with_the_next_checkpoint() -> None:
    """The sync of its directory finds no descriptor. What is erased behind that is after any loss of power."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 20):
                await propose(stream, b"%d %b" % (sequence, SECRET if sequence == 2 else bytes(100)))
            await stream.checkpoint()
            fault = DiskFault(("sync_dir",), Fail(errno.EMFILE), times=1)
            drive.faults.append(fault)
            stream.log.files.segments[1].is_stale = True
            await stream.log.rewrite()
            assert fault.fired
            await propose(stream, b"-2")
            await stream.checkpoint()
            assert not is_there(drive.image)
        drive.power_loss(CrashPolicy.STRICT)
        assert not is_there(drive.image)

    run(test)
