"""What `tnats.runtime.api.Processor` and `Process` promise, held against the real and the simulated ones."""

from __future__ import annotations

import pytest
import trio
from tests.contract.stage import Stage
from trio.testing import assert_checkpoints

from tnats.runtime.api import DiskError


def test_offloaded_work_returns_or_raises(stage: Stage) -> None:
    """The result of the work comes back, and so does its exception; the call is a checkpoint."""

    async def scene(stage: Stage) -> None:
        processor = stage.client.processor
        with assert_checkpoints():
            assert await processor.offload(lambda: 6 * 7) == 42
        with pytest.raises(ZeroDivisionError):
            await processor.offload(lambda: 1 // 0, kind="login", cost_ns=1_000_000)

    stage.run(scene)


def test_excess_work_waits_in_line(stage: Stage) -> None:
    """Far more calls than workers all finish."""

    async def scene(stage: Stage) -> None:
        results: list[int] = []

        async def call(number: int) -> None:
            results.append(await stage.client.processor.offload(lambda: number, cost_ns=1000))

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(call, number)
        assert sorted(results) == list(range(100))

    stage.run(scene)


def test_cancelled_wait_drops_the_result(stage: Stage) -> None:
    """A cancelled caller goes on at once, and later calls work."""

    async def scene(stage: Stage) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await stage.client.processor.offload(lambda: 1)
        assert scope.cancelled_caught
        assert await stage.client.processor.offload(lambda: 2) == 2

    stage.run(scene)


def test_signals_arrive_in_order(stage: Stage) -> None:
    """Inside the context signals are received by name instead of killing the process."""

    async def scene(stage: Stage) -> None:
        with stage.client.process.signals() as receiver:
            for name in ("HUP", "USR1", "USR2", "TERM", "INT"):
                stage.signal(name)
                assert await receiver.next() == name

    stage.run(scene)


def test_process_knows_itself(stage: Stage) -> None:
    """Arguments, environment, cores, memory, processor time and boot are told."""

    async def scene(stage: Stage) -> None:
        process = stage.client.process
        assert list(process.argv) == ["tnats", "--flag"]
        assert "PATH" in process.environment or stage.simulated
        assert process.pid > 0
        assert process.core_count >= 1
        assert 0 < process.memory_bytes() < process.memory_total_bytes()
        assert process.cpu_time_ns() >= 0
        assert process.boot_id() == process.boot_id() != ""

    stage.run(scene)


def test_buggify_is_off_outside_of_simulation(stage: Stage) -> None:
    """No rare branch is forced where it was not asked for."""

    async def scene(stage: Stage) -> None:
        assert not any(stage.client.buggify(f"site {number}") for number in range(100))

    stage.run(scene)


@pytest.mark.parametrize("path", ["/no/such/file", "a\0b", "/" + "x" * 300])
def test_what_cannot_be_read_is_named(stage: Stage, path: str) -> None:
    """A file that is not there, or a name that no file can have, raises DiskError."""

    async def scene(stage: Stage) -> None:
        with pytest.raises(DiskError, match="open "):
            stage.client.process.read_text(path)

    stage.run(scene)
