"""The seeded scheduler, and the private names of trio that it stands on."""

from __future__ import annotations

import random

import pytest
import trio
import trio._core._run as trio_run

from tnats.runtime.sim.scheduler import Policy, Schedule, scheduled


def name_of(task: trio.lowlevel.Task) -> str:
    return task.name


def order_of_ten(seed: int, policy: Policy) -> tuple[list[int], list[list[int]]]:
    """In which order ten tasks run three steps each, and what the schedule reported."""
    order: list[int] = []
    batches: list[list[int]] = []

    async def worker(number: int) -> None:
        for _ in range(3):
            order.append(number)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(worker, number)

    with scheduled(Schedule(random.Random(seed), policy, batches.append, name_of)):
        trio.run(main)
    return order, batches


def test_trio_still_has_the_private_names() -> None:
    """The scheduler hook consists of two names of trio._core._run and the creation counter of a task."""
    assert trio_run._ALLOW_DETERMINISTIC_SCHEDULING in (True, False)
    assert hasattr(trio_run, "_r")

    async def main() -> None:
        assert isinstance(trio.lowlevel.current_task()._counter, int)

    trio.run(main)


@pytest.mark.parametrize("policy", ["random", "fifo", "priority"])
def test_a_seed_repeats_its_schedule(policy: Policy) -> None:
    """The same seed gives the same order of steps and the same report in every run of one process."""
    assert order_of_ten(5, policy) == order_of_ten(5, policy)


def test_seeds_give_different_schedules() -> None:
    """Random and priority schedules differ between seeds; fifo runs in order of creation whatever the seed."""
    assert len({tuple(order_of_ten(seed, "random")[0]) for seed in range(5)}) == 5
    assert len({tuple(order_of_ten(seed, "priority")[0]) for seed in range(5)}) == 5
    assert order_of_ten(1, "fifo")[0] == list(range(10)) * 3


def test_reported_tasks_are_counted_from_the_first() -> None:
    """Task numbers in the report start at 0 in every run, though trio counts on through the process."""
    _, batches = order_of_ten(1, "random")
    assert min(min(batch) for batch in batches) == 0


def test_kept_back_tasks_wait_for_their_release() -> None:
    """Tasks of an owner that is kept back take no step until released, and then go on where they were."""
    steps: list[str] = []
    schedule = Schedule(random.Random(1), "random", lambda batch: None, name_of)

    async def worker(name: str) -> None:
        for _ in range(5):
            steps.append(name)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker, "kept", name="kept")
            schedule.keep_back("kept")
            await worker("free")
            assert "kept" not in steps
            schedule.release("kept")
            await worker("free")
        assert steps.count("kept") == 5

    with scheduled(schedule):
        trio.run(main)


def test_trio_is_left_as_it_was() -> None:
    """After the block trio schedules by its own means again, also when the block raised."""
    before = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r
    with (
        pytest.raises(ZeroDivisionError),
        scheduled(Schedule(random.Random(1), "fifo", lambda batch: None, name_of)),
    ):
        raise ZeroDivisionError
    assert (trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r) == before
