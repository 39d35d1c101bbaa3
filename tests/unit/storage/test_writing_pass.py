"""How a stream log writes beside publishers that never pause."""

from __future__ import annotations

import errno

import pytest
import trio

from tnats.harness.sim.storage import StepClock
from tnats.runtime.sim.chance import stream
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail
from tnats.storage.errors import LogRemoved, StoreFrozen
from tnats.storage.stream_log import StreamLog, StreamLogOptions
from tnats.storage.stream_open import open_stream_log

SEGMENT_BYTES = 64 * 1024
RUN = [(b"subject", b"", bytes(20))] * 200


class Uncommitted:
    """A group of the journal of which nothing is asked but to flush, and to tell of removals."""

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    async def keep_gaps(self, gaps: list[tuple[int, int]]) -> None:
        await trio.lowlevel.checkpoint()


async def new_log() -> tuple[SimDrive, StreamLog]:
    rng = stream(1, "pass")
    clock = StepClock(1)
    drive = SimDrive(rng)
    disk = SimDisk(drive, clock)  # type: ignore[arg-type]
    log = await open_stream_log(
        disk,
        clock,  # type: ignore[arg-type]
        rng.randbytes,
        "/stream",
        name="s",
        store_id=bytes(16),
        options=StreamLogOptions(segment_bytes=SEGMENT_BYTES),
    )
    return drive, log


async def test_nothing_waits_in_memory_while_the_next_segment_is_prepared_in_time() -> None:
    """Whoever lets `write` run when `write_nowait` asks for it never sees a message left over, over many segments."""
    drive, log = await new_log()
    log.hold_run(1, RUN)
    await log.write()
    turns = 100
    for _ in range(turns):
        log.hold_run(1, RUN)
        has_more = not log.write_nowait()
        assert log.unwritten_bytes == 0
        if has_more:
            await log.write()
    assert log.index.messages == (turns + 1) * len(RUN)
    assert sum(path.endswith(".seg") for path in drive.image.walk("/stream")) > turns * len(RUN) * 64 // SEGMENT_BYTES
    await log.close()


async def test_what_comes_while_a_segment_is_made_is_written_behind_it() -> None:
    """Making a segment takes the disk long: others hold and write as they like, and all of it is there in the end."""
    _, log = await new_log()
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            log.hold_run(1, RUN)
            if not log.write_nowait():
                nursery.start_soon(log.write)
            if log.index.messages % (7 * len(RUN)) == 0:
                await trio.lowlevel.checkpoint()
    assert log.unwritten_bytes == 0
    for sequence in range(1, 50 * len(RUN) + 1, 97):
        assert (await log.load(sequence)).payload == RUN[0][2]
    await log.close()


@pytest.mark.parametrize("removed", [range(1, 201), range(1, 100), range(100, 201), range(2, 200, 2)])
async def test_what_was_removed_before_it_was_written_holds_nobody_up(removed: range) -> None:
    """Messages that are removed while they wait for their segment are passed over, wherever they stand in a run: the
    writing ends, nothing waits any more, and what is left is there.
    """
    _, log = await new_log()
    log.hold_run(1, RUN)
    assert log.remove(removed) == len(removed)
    await log.checkpoint(Uncommitted())  # type: ignore[arg-type]
    assert log.unwritten_bytes == 0
    left = [sequence for sequence in range(1, len(RUN) + 1) if sequence not in removed]
    assert log.index.messages == len(left)
    for sequence in left:
        assert (await log.load(sequence)).payload == RUN[0][2]
    await log.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_spare_segment_that_cannot_be_made(code: int) -> None:
    """With no room for it, writing goes on as long as the present segment has room, and the messages behind it wait
    until there is some; any other failure is one of the disk, and ends the log's writing.
    """
    drive, log = await new_log()
    log.hold_run(1, RUN)
    await log.write()
    fault = DiskFault(("create",), Fail(code))
    drive.faults.append(fault)
    while not fault.fired:
        log.hold_run(1, RUN)
        assert not log.unwritten_bytes or log.trouble is None
        if not log.write_nowait():
            await log.write()
    if code == errno.EIO:
        assert isinstance(log.trouble, StoreFrozen)
        await log.close()
        return
    assert log.trouble is None
    while log.trouble is None:
        log.hold_run(1, RUN)
        await log.write()
    assert 0 < log.unwritten_bytes < 2 * sum(30 + 7 + 20 for _ in RUN)
    drive.faults.clear()
    await log.checkpoint(Uncommitted())
    assert log.trouble is None
    assert log.unwritten_bytes == 0
    await log.close()


@pytest.mark.parametrize("steps", range(12))
async def test_a_log_that_is_closed_while_it_is_written(steps: int) -> None:
    """At whichever moment its stream is removed, the task that writes ends in order: whatever it left over stays in
    memory. No unfinished file stays behind.
    """
    drive, log = await new_log()
    for _ in range(60):
        log.hold_run(1, RUN)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.write)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        await log.close()
    assert log.unwritten_bytes > 0
    assert log.trouble is None or isinstance(log.trouble, LogRemoved)
    assert not [path for path in drive.image.walk("/stream") if path.endswith(".tmp")]
