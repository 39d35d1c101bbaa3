"""The writing task of a stream log beside publishers that never pause."""

from __future__ import annotations

import trio

from tnats.harness.sim.storage import StepClock
from tnats.runtime.sim.chance import stream
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.storage.stream_log import WRITE_NOWAIT_MAX, StreamLogOptions
from tnats.storage.stream_open import open_stream_log

TURNS = 40
RUN = [(b"subject", b"", bytes(20))] * (3 * WRITE_NOWAIT_MAX)
"""What comes between two turns of the writing task: more than one write of it takes."""


async def test_what_waits_in_memory_stays_bounded_however_much_comes_in_a_turn() -> None:
    """Publishers that bring three writes' worth each turn leave a few turns' worth unwritten, not all they brought."""
    rng = stream(1, "pass")
    clock = StepClock(1)
    disk = SimDisk(SimDrive(rng), clock)  # type: ignore[arg-type]
    log = await open_stream_log(
        disk,
        clock,  # type: ignore[arg-type]
        rng.randbytes,
        "/stream",
        name="s",
        store_id=bytes(16),
        options=StreamLogOptions(segment_bytes=1 << 30),
    )
    log.hold_run(1, RUN)
    one_turn_bytes = log.unwritten_bytes
    await log.write()  # its file is there from now on
    async with trio.open_nursery() as nursery:
        log.hold_run(1, RUN)
        nursery.start_soon(log.write)
        for _ in range(TURNS):
            await trio.lowlevel.checkpoint()
            log.hold_run(1, RUN)
            assert log.unwritten_bytes <= 4 * one_turn_bytes
    assert log.unwritten_bytes == 0
    assert log.index.messages == (TURNS + 2) * len(RUN)
    await log.close()
