"""What `tnats.runtime.api.Clock` and `Chance` promise, held against the real and the simulated ones."""

from __future__ import annotations

import pytest
import trio
from tests.contract.stage import Stage
from trio.testing import assert_checkpoints

MS = 1_000_000


def test_sleep_takes_at_least_its_time(stage: Stage) -> None:
    """After `sleep_ns(n)` the monotonic clock shows at least n more, after `sleep_until_ns(t)` at least t."""

    async def scene(stage: Stage) -> None:
        clock = stage.client.clock
        for duration_ns in (1, 999, MS, 3 * MS + 1):
            start_ns = clock.mono_ns()
            await clock.sleep_ns(duration_ns)
            assert clock.mono_ns() - start_ns >= duration_ns
            deadline_ns = clock.mono_ns() + duration_ns
            await clock.sleep_until_ns(deadline_ns)
            assert clock.mono_ns() >= deadline_ns

    stage.run(scene)


def test_sleeping_no_time_is_a_checkpoint(stage: Stage) -> None:
    """Even a sleep of nothing, or until a moment that is past, lets others run and can be cancelled."""

    async def scene(stage: Stage) -> None:
        clock = stage.client.clock
        with assert_checkpoints():
            await clock.sleep_ns(0)
        with assert_checkpoints():
            await clock.sleep_until_ns(clock.mono_ns() - 1)

    stage.run(scene)


def test_deadline_ends_the_scope_at_its_time(stage: Stage) -> None:
    """A scope of `deadline` is cancelled at that monotonic time and says so; one left earlier says it was not."""

    async def scene(stage: Stage) -> None:
        clock = stage.client.clock
        deadline_ns = clock.mono_ns() + 2 * MS
        with clock.deadline(deadline_ns) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        assert clock.mono_ns() >= deadline_ns
        with clock.deadline(clock.mono_ns() + 3_600_000 * MS) as scope:
            await trio.lowlevel.checkpoint()
        assert not scope.cancelled_caught
        with clock.deadline(clock.mono_ns() - 1) as scope:
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught

    stage.run(scene)


def test_timeouts_of_many_tasks_fire_in_order(stage: Stage) -> None:
    """No sleeper wakes before its time; where no machine can stand still they wake in the order of their times."""

    async def scene(stage: Stage) -> None:
        clock = stage.client.clock
        woken: list[tuple[int, int]] = []
        start_ns = clock.mono_ns()

        async def sleeper(step: int) -> None:
            await clock.sleep_until_ns(start_ns + step * 10 * MS)
            woken.append((step, clock.mono_ns() - start_ns))

        async with trio.open_nursery() as nursery:
            for step in (3, 1, 4, 2):
                nursery.start_soon(sleeper, step)
        assert sorted(step for step, _ in woken) == [1, 2, 3, 4]
        assert all(at_ns >= step * 10 * MS for step, at_ns in woken)
        assert woken == sorted(woken) or not stage.simulated

    stage.run(scene)


def test_cancelled_sleep_leaves_nothing_behind(stage: Stage) -> None:
    """A cancelled sleeper does not run again when its time comes."""

    async def scene(stage: Stage) -> None:
        clock = stage.client.clock
        with clock.deadline(clock.mono_ns() + MS):
            await clock.sleep_ns(5 * MS)
            pytest.fail("the scope should have ended the sleep")
        await clock.sleep_ns(10 * MS)

    stage.run(scene)


def test_wall_clock_is_a_date_of_our_time(stage: Stage) -> None:
    """`wall_ns` counts from the Unix epoch: it lies between 2020 and 2100, and passes with the monotonic clock."""

    async def scene(stage: Stage) -> None:
        clock = stage.client.clock
        year_ns = 365 * 86400 * 1_000_000_000
        before_ns = clock.wall_ns()
        assert 50 * year_ns < before_ns < 130 * year_ns
        await clock.sleep_ns(5 * MS)
        assert 4 * MS < clock.wall_ns() - before_ns < 60_000 * MS

    stage.run(scene)


def test_random_streams_differ(stage: Stage) -> None:
    """Each call of `rng` gives a stream of its own, also for the same label; entropy has the length asked for."""

    async def scene(stage: Stage) -> None:
        chance = stage.client.chance
        draws = [chance.rng(label).getrandbits(64) for label in ("a", "b", "a")]
        assert len(set(draws)) == 3
        assert len(chance.entropy(32)) == 32
        assert chance.entropy(32) != chance.entropy(32)
        assert stage.server.chance.entropy(32) != stage.client.chance.entropy(32)

    stage.run(scene)
