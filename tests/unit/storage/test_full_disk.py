"""A checkpoint on a full disk, which removes dead segments first: nothing goes of which nobody else tells."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest
import trio
from tests.properties.storage_bench import StepClock, run
from tests.properties.test_storage_store import LAZY, OPTIONS, open_and_replay, propose, store_on
from tests.unit.storage.test_check import sequences_of

from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.check import check_store
from tnats.storage.errors import StoreFull
from tnats.storage.group import Ticket
from tnats.storage.journal import JournalOptions
from tnats.storage.journal_part import LEFT_BY_OTHERS
from tnats.storage.segment import DATA_START
from tnats.storage.store import OpenStream, Store
from tnats.storage.stream_checkpoint import NOTE
from tnats.storage.stream_log import StreamLogOptions
from tnats.storage.stream_open import open_stream_log

BODY = bytes(900)
"""No two of these fit into a segment."""


def images_after_unlinks(drive: SimDrive) -> list[DiskImage]:
    """Filled with the disk as it is at the call that follows the removal of a segment, which is under way by then."""
    images: list[DiskImage] = []
    before = ""

    def observe(kind: str, path: str) -> None:
        nonlocal before
        if before == "unlink":
            images.append(drive.image.clone())
        before = kind if path.endswith(".seg") else ""

    drive.observer = observe
    return images


async def expect(image: DiskImage, messages: int, *, clean: bool = True) -> None:
    """A store on this disk is in order, which looking at it finds as well, and has this many messages."""
    drive = SimDrive(random.Random(5))
    drive.image = image
    disk, clock = SimDisk(drive, StepClock()), StepClock()  # type: ignore[arg-type]
    report = await check_store(disk, clock, random.Random(1).randbytes, "/data", sequences_of)  # type: ignore[arg-type]
    assert report.is_clean, report.findings
    async with store_on(drive, boot_id="two", seed=2, clean=clean) as store:
        stream = await open_and_replay(store, "s")
        assert store.health() == []
        assert stream.log.index.messages == messages


def test_what_is_dead_goes_when_its_removal_is_durable() -> None:
    """With a sync interval, a removal that comes while a checkpoint is under way is flushed before its segment goes."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, boot_id="one", clean=False, journal=LAZY) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 5):
                await propose(stream, b"%d %b" % (sequence, BODY))
            await stream.checkpoint()
            await propose(stream, b"-2")
            drive.capacity_bytes = drive.image.used_bytes
            flush, flushed = store.journal.flush, 0

            async def flush_and_remove() -> None:
                nonlocal flushed
                await flush()
                flushed += 1
                if flushed == 1:
                    await propose(stream, b"-1")

            store.journal.flush = flush_and_remove  # type: ignore[method-assign]

            images = images_after_unlinks(drive)
            await stream.log.checkpoint(stream.commit.group)
        assert images
        for image in images:
            image.crash(CrashPolicy.LAZYFS, random.Random(1))
            await expect(image, 2)

    run(test)


async def with_a_gap(store: Store, last: int) -> OpenStream:
    """A stream up to `last`: small messages, and large ones in segments of their own. The second is removed."""
    stream = await open_and_replay(store, "s")
    await propose(stream, b"1 kept")
    await propose(stream, b"2 %b" % BODY)
    await propose(stream, b"3 short")
    await propose(stream, b"-2")
    await stream.checkpoint()  # its gap stands behind 3
    for sequence in range(4, last + 1):
        await propose(stream, b"%d %b" % (sequence, BODY))
    await stream.checkpoint()
    return stream


def test_of_dead_segments_those_go_that_tell_of_no_other_removals() -> None:
    """A gap may be all that tells of an older removal, of which the journal knows nothing any more. If the process dies
    before another segment tells of it, it is no lost message.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await with_a_gap(store, 6)
            assert stream.log.index.place(2) == 1
            await propose(stream, b"-3")
            await propose(stream, b"-4")
            drive.capacity_bytes = drive.image.used_bytes
            images = images_after_unlinks(drive)
            await stream.log.checkpoint(stream.commit.group)
        assert images
        for image in images:
            await expect(image, 3)

    run(test)


async def with_gaps_in_what_is_dead(store: Store) -> OpenStream:
    """A stream with three messages; what of it is dead has all that tells of another removal."""
    stream = await with_a_gap(store, 5)
    await propose(stream, b"-3")
    return stream


def test_what_only_a_dead_segment_tells_the_journal_tells_when_it_goes() -> None:
    """Of all dead segments each has gaps. Whatever a loss of power spares from the moment on when one goes, and
    whatever starts and parts of the journal follow: what was removed is, until the files tell of it again.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await with_gaps_in_what_is_dead(store)
            drive.capacity_bytes = drive.image.used_bytes
            images = images_after_unlinks(drive)
            await stream.log.checkpoint(stream.commit.group)
            drive.observer = None
        assert images
        for image in images:
            for policy in CrashPolicy:
                again = SimDrive(random.Random(5))
                again.image = image.clone()
                again.image.crash(policy, random.Random(1))
                for _ in range(3):
                    await expect(again.image, 3, clean=False)
                async with store_on(again) as store:
                    stream = await open_and_replay(store, "s")
                    await stream.checkpoint()
                    assert stream.commit.group.state.gaps == []
                await expect(again.image, 3)

    run(test)


def test_what_the_journal_tells_of_removals_does_not_say_where_a_stream_ends() -> None:
    """It keeps a gap, and the last messages are gone with their files: no sequence is used twice, and none is lost."""

    async def test() -> None:
        drive, clock = SimDrive(random.Random(5)), StepClock()
        log = await open_stream_log(
            SimDisk(drive, clock),  # type: ignore[arg-type]
            clock,  # type: ignore[arg-type]
            random.Random(1).randbytes,
            "/s",
            name="s",
            store_id=bytes(16),
            options=StreamLogOptions(),
            note=NOTE.pack(1, 6, 4, 0, 1, DATA_START),
            gaps=[(1, 2)],
            last_sequence=6,
        )
        log.remove(range(3, 7))
        log.end_recovery()
        assert log.index.last == 6
        assert log.findings == []

    run(test)


def test_what_the_journal_cannot_tell_stays_where_it_is() -> None:
    """With no room in the journal either, a dead segment whose gaps nobody else has does not go."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await with_gaps_in_what_is_dead(store)
            dead = [number for number, each in stream.log.files.segments.items() if not each.live]
            drive.capacity_bytes = drive.image.used_bytes
            assert store.journal.parts.current is not None
            store.journal.parts.current.close_up()
            with pytest.raises(StoreFull):
                await stream.log.checkpoint(stream.commit.group)
            assert set(dead) <= set(stream.log.files.segments)
        await expect(drive.image, 3)

    run(test)


def test_a_start_on_a_full_disk_has_room_for_what_frees_space() -> None:
    """The journal takes nothing any more, and of what removals have left dead nothing had gone when the process died.
    The next start finds no room for a part of the usual size, nor for a small one: one that is tiny will do.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        options = JournalOptions(part_bytes=1024 * 1024)
        async with store_on(drive, clean=False, journal=options) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 40):
                await propose(stream, b"%d %b" % (sequence, BODY))
            await stream.checkpoint()
            for sequence in range(1, 39):
                await propose(stream, b"-%d" % sequence)
            drive.capacity_bytes = drive.image.used_bytes
            for size in (50_000, 1000, 1):
                with suppress(StoreFull):
                    while True:
                        await store.journal.group("other").append_nowait([bytes(size)], frees_space=True).wait()
        drive.locks.clear()  # the process is gone
        drive.capacity_bytes = drive.image.used_bytes + 20_000
        async with store_on(drive, clean=False, journal=options) as store:
            stream = await open_and_replay(store, "s")
            await stream.log.free(stream.commit.group)
            assert len(stream.log.files.segments) < 10
        drive.locks.clear()
        await expect(drive.image, 1)

    run(test)


def test_a_stream_whose_removal_finds_no_room_goes_when_there_is_room() -> None:
    """The journal takes nothing at all. The stream is gone for its owner, and when there is room its files go."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            await propose(stream, b"1 %b" % BODY)
            await stream.checkpoint()
            await propose(stream, b"2 more")
            capacity_bytes, drive.capacity_bytes = drive.capacity_bytes, drive.image.used_bytes
            assert store.journal.parts.current is not None
            store.journal.parts.current.close_up()
            await store.drop_group("s")
            assert store.stream_names == ["s"]
            assert stream.log.files.is_closed
            drive.capacity_bytes = capacity_bytes
            for _ in range(1000):
                if not drive.image.entries("/data/tnats/streams"):
                    break
                await trio.lowlevel.checkpoint()
            assert store.stream_names == []
        async with store_on(drive, seed=2) as store:
            assert store.stream_names == []
            assert store.health() == []

    run(test)


def test_removals_alone_empty_a_full_disk() -> None:
    """The journal is as full as the disk, and nobody asks for a checkpoint: what removals leave dead goes all the same,
    and when enough has gone, publishes are taken.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        options = JournalOptions(part_bytes=64 * 1024)
        async with store_on(drive, journal=options) as store:
            stream = await open_and_replay(store, "s")
            part = store.journal.parts.current
            assert part is not None
            while part.room(LEFT_BY_OTHERS) > 1200:
                await propose(stream, b"%d %b" % (stream.log.index.last + 1, BODY))
            drive.capacity_bytes = drive.image.used_bytes
            with pytest.raises(StoreFull):
                await propose(stream, b"%d %b" % (stream.log.index.last + 1, BODY + BODY))
            for sequence in range(1, stream.log.index.last):
                await propose(stream, b"-%d" % sequence, frees_space=True)
            for _ in range(1000):
                if store.journal.full is None:
                    break
                await trio.lowlevel.checkpoint()
            await propose(stream, b"%d %b" % (stream.log.index.last + 1, BODY))
            assert stream.log.index.messages == 2
        await expect(drive.image, 2)

    run(test)


def test_removals_leave_room_for_what_they_lead_to() -> None:
    """When the journal takes no publish and no removal any more, it takes a checkpoint's note."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            group = store.journal.group("s")
            drive.capacity_bytes = drive.image.used_bytes
            last = []
            for frees_space in (False, True):
                with suppress(StoreFull):
                    while group.last < 1000:
                        await group.append_nowait([bytes(10)], frees_space=frees_space).wait()
                last.append(group.last)
            assert 0 < last[0] < last[1] < 1000
            await group.set_state_nowait(group.last, b"a note").wait()
            assert group.note == b"a note"

    run(test)


async def fill(store: Store, drive: SimDrive) -> None:
    """Let the journal, and the disk, have room for nothing but what frees space."""
    part = store.journal.parts.current
    assert part is not None
    group = store.journal.group("filler")
    while (room := part.room(LEFT_BY_OTHERS)) > 300:
        await group.append_nowait([bytes(room - 290)]).wait()
    drive.capacity_bytes = drive.image.used_bytes


def outcomes(tickets: list[Ticket]) -> str:
    """One letter for each: done, refused, or not yet."""
    return "".join("?" if not each.done else "d" if each.error is None else "r" for each in tickets)


@pytest.mark.parametrize("options", [OPTIONS.journal, LAZY], ids=["synced", "lazy"])
def test_a_removal_goes_on_when_a_publish_is_refused_with_it(options: JournalOptions) -> None:
    """They wait together for a journal that is full. What is refused leaves no trace, and each log goes on behind what
    it has.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, journal=options) as store:
            journal = store.journal
            busy, queue, consumer = (journal.group(name) for name in ("busy", "queue", "consumer"))
            for group in (busy, queue, consumer):
                await group.append_nowait([b"made"]).wait()
            await fill(store, drive)
            tickets = [
                busy.append_nowait([bytes(300)]),
                consumer.append_nowait([b"acknowledged"], frees_space=True),
                queue.append_nowait([b"-1"], frees_space=True),
                busy.append_nowait([bytes(300)]),
                queue.append_nowait([b"-2"], frees_space=True),
            ]
            await journal.flush()
            assert outcomes(tickets) == "rddrd"
            assert (busy.proposed, queue.proposed, consumer.proposed) == (1, 3, 2)
            await queue.append_nowait([b"-3"], frees_space=True).wait()
            drive.capacity_bytes *= 2
            await busy.append_nowait([b"at last"]).wait()
        async with store_on(drive, seed=2) as store:
            found = {
                name: [bytes(body) for _, body in (await store.journal.group(name).read_run()).values()]
                for name in ("busy", "queue", "consumer")
            }
            assert found["busy"] == [b"made", b"at last"]
            assert found["queue"] == [b"made", b"-1", b"-2", b"-3"]
            assert found["consumer"] == [b"made", b"acknowledged"]
            assert store.health() == []

    run(test)


def test_removals_are_refused_when_one_before_them_has_to_be() -> None:
    """A removal may rest on another log's that waits before it. If that is behind a publish, neither is written."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            journal = store.journal
            await fill(store, drive)
            queue, consumer = journal.group("queue"), journal.group("consumer")
            tickets = [
                consumer.append_nowait([b"delivered"]),
                consumer.append_nowait([b"acknowledged"], frees_space=True),
                queue.append_nowait([b"-1"], frees_space=True),
            ]
            await journal.flush()
            assert outcomes(tickets) == "rrr"
            assert (queue.proposed, consumer.proposed) == (0, 0)

    run(test)


def test_more_removals_than_the_reserve_takes_are_refused() -> None:
    """They do not wait for ever: beside a publish they are refused with it, and later they go as far as may be."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            journal = store.journal
            await fill(store, drive)
            tickets = [journal.group("busy").append_nowait([bytes(300)])]
            tickets += [journal.group("queue").append_nowait([bytes(20)], frees_space=True) for _ in range(40)]
            await journal.flush()
            assert outcomes(tickets) == "r" * 41
            await journal.group("queue").append_nowait([bytes(20)], frees_space=True).wait()

    run(test)


def test_what_was_moved_is_durable_before_the_segment_that_it_came_from_goes() -> None:
    """Compaction has room, the removals have not, so the segment that is dead now goes at once: whatever a loss of
    power spares then, the message that was moved out of it is there.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        moments: list[DiskImage] = []
        async with store_on(drive, clean=False) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 30):
                await propose(stream, b"%d %b" % (sequence, bytes(150)))
            await stream.checkpoint()
            await store.shorten()
            oldest = stream.log.files.segments[1]
            for sequence in range(2, oldest.highest + 1):
                await propose(stream, b"-%d" % sequence)
            wanted = stream.log.index.messages
            drive.capacity_bytes = drive.image.used_bytes + 210
            drive.observer = lambda kind, path: moments.append(drive.image.clone())
            await stream.log.checkpoint(stream.commit.group)
            drive.observer = None
            assert 1 not in stream.log.files.segments
        for moment in moments:
            for policy in CrashPolicy:
                image = moment.clone()
                image.crash(policy, random.Random(1))
                await expect(image, wanted)

    run(test)


def test_a_checkpoint_that_finds_room_for_nothing_but_a_header_ends() -> None:
    """A segment can be made, and no record written into it: the disk is full, and what was made for it is no help."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive, clean=False) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 20):
                await propose(stream, b"%d %b" % (sequence, bytes(150)))
            await stream.checkpoint()
            await propose(stream, b"-3")
            drive.capacity_bytes = drive.image.used_bytes + 10
            for _ in range(4):
                with pytest.raises(StoreFull):
                    await stream.checkpoint()
            drive.capacity_bytes += 100
            await stream.checkpoint()
        await expect(drive.image, 18)

    run(test)


def no_room_to_set_aside(drive: SimDrive) -> DiskFault:
    fault = DiskFault(("mkdir",), Fail(errno.ENOSPC), glob="*quarantine")
    drive.faults.append(fault)
    return fault


def test_a_damaged_segment_that_cannot_be_set_aside_waits_for_room() -> None:
    """The other dead segments go all the same, and when there is room it is set aside: nothing is frozen."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 6):
                await propose(stream, b"%d %b" % (sequence, BODY))
            await stream.checkpoint()
            stream.log.files.segments[2].is_damaged = True
            for sequence in (1, 2, 3):
                await propose(stream, b"-%d" % sequence)
            fault = no_room_to_set_aside(drive)
            for _ in range(2):
                with pytest.raises(StoreFull):
                    await stream.checkpoint()
                assert list(stream.log.files.segments)[:2] == [2, 4]
            drive.faults.remove(fault)
            await stream.checkpoint()
            assert 2 not in stream.log.files.segments
            assert stream.log.trouble is None

    run(test)


def test_a_damaged_part_that_cannot_be_set_aside_waits_for_room() -> None:
    """The journal goes on with it, and sets it aside when there is room."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            for sequence in range(1, 4):
                await propose(stream, b"%d x" % sequence)
        part = "/data/tnats/journal/0000000000000001.part"
        drive.image.overwrite(part, b"\xff" * 500, DATA_START)
        async with store_on(drive) as store:
            await open_and_replay(store, "s", is_whole=False)
            fault = no_room_to_set_aside(drive)
            for _ in range(2):
                with pytest.raises(StoreFull):
                    await store.shorten()
            assert store.journal.frozen is None
            drive.faults.remove(fault)
            await store.shorten()
            assert not drive.image.is_file(part)
            assert drive.image.is_file("/data/tnats/journal/quarantine/0000000000000001.part")

    run(test)
