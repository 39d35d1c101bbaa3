"""Virtual time: exactness, order, jumps and the end of all events."""

from __future__ import annotations

import time

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tnats.runtime.sim.clock import Oscillator
from tnats.runtime.sim.timeline import Timeline, deadline_of_time, time_of_deadline
from tnats.runtime.sim.world import Deadlock, Livelock, Settings, World, run_world

DAY_NS = 86_400 * 1_000_000_000


@given(st.integers(0, 30 * DAY_NS))
def test_deadlines_are_exact_to_the_nanosecond(time_ns: int) -> None:
    """A trio deadline made from a virtual time expires at that nanosecond, for a month of virtual time."""
    assert time_of_deadline(deadline_of_time(time_ns)) == time_ns


@given(st.integers(0, DAY_NS), st.integers(0, DAY_NS), st.integers(-5000, 5000))
def test_drifting_clock_finds_the_first_moment(start_ns: int, distance_ns: int, drift_ppm: int) -> None:
    """`time_of_mono` is the earliest virtual time at which the drifting clock shows the wanted value or more."""
    timeline = Timeline()
    timeline.now_ns = start_ns
    oscillator = Oscillator(timeline, mono_start_ns=777, drift_ppm=drift_ppm)
    wanted_ns = oscillator.mono_ns() + distance_ns
    found_ns = oscillator.time_of_mono(wanted_ns)
    timeline.now_ns = found_ns
    assert oscillator.mono_ns() >= wanted_ns
    if found_ns > start_ns:
        timeline.now_ns = found_ns - 1
        assert oscillator.mono_ns() < wanted_ns


def test_a_new_drift_does_not_jump() -> None:
    """When the drift changes, both clocks go on from what they show; only a wall jump moves the wall clock."""
    timeline = Timeline()
    oscillator = Oscillator(timeline, mono_start_ns=5, drift_ppm=100)
    timeline.now_ns = 123_456_789_012
    shown = oscillator.mono_ns(), oscillator.wall_ns()
    oscillator.drift(-4000)
    assert (oscillator.mono_ns(), oscillator.wall_ns()) == shown
    oscillator.jump_wall(-DAY_NS)
    assert (oscillator.mono_ns(), oscillator.wall_ns()) == (shown[0], shown[1] - DAY_NS)
    timeline.now_ns += 1_000_000_000
    assert oscillator.mono_ns() - shown[0] == 996_000_000


def test_a_day_passes_in_no_time() -> None:
    """Sleeping jumps: a thousand virtual days take well under a real second each, and end exactly."""

    async def main(world: World) -> int:
        for _ in range(1000):
            await world.sleep_ns(DAY_NS)
        return world.now_ns()

    before = time.monotonic()
    outcome = run_world(1, main, Settings(time_max_ns=2000 * DAY_NS))
    assert outcome.unwrap() == 1000 * DAY_NS
    assert time.monotonic() - before < 60


def test_events_happen_in_order_and_cancelled_ones_do_not() -> None:
    """Entries are called by time, equal times in the order of booking; a cancelled entry is not called."""

    async def main(world: World) -> list[str]:
        called: list[str] = []
        start_ns = world.now_ns()
        world.timeline.at(start_ns + 20, called.append, "c")
        world.timeline.at(start_ns + 10, called.append, "a")
        world.timeline.at(start_ns + 10, called.append, "b")
        world.timeline.cancel(world.timeline.at(start_ns + 15, called.append, "never"))
        await world.sleep_ns(30)
        return called

    assert run_world(1, main).unwrap() == ["a", "b", "c"]


def test_deadlock_is_reported_with_who_waits_where() -> None:
    """When nothing can happen any more the run ends at once and names the waiting tasks and the virtual time."""

    async def main(world: World) -> None:
        await world.sleep_ns(1_500_000_000)
        await trio.Event().wait()

    outcome = run_world(9, main)
    assert isinstance(outcome.error, Deadlock)
    assert "seed 9 at 1.500000000 s" in str(outcome.error)
    with pytest.raises(Deadlock):
        outcome.unwrap()


def test_deadlock_names_the_tasks_of_nodes() -> None:
    """The report has one line for each task, also of nodes and of nurseries inside them."""

    async def child() -> None:
        await trio.Event().wait()

    async def main(world: World) -> None:
        async def node_main(runtime: object) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child, name="the-child")

        world.node("n1").start(node_main)
        await trio.Event().wait()

    error = str(run_world(1, main).error)
    assert "n1/1 at" in error
    assert "the-child at" in error


def test_livelock_is_reported() -> None:
    """Tasks that run for ever without time passing are stopped, and so is a run that outlasts its time."""

    async def spin(world: World) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    async def go_on(world: World) -> None:
        while True:
            await world.sleep_ns(1_000_000_000)

    outcome = run_world(1, spin)
    assert isinstance(outcome.error, Livelock)
    assert "without time passing" in str(outcome.error)
    outcome = run_world(1, go_on, Settings(time_max_ns=60_000_000_000))
    assert isinstance(outcome.error, Livelock)
    assert outcome.time_ns == 60_000_000_000


def test_an_error_in_an_event_ends_the_run() -> None:
    """An exception out of an entry's call is the outcome of the world, not an internal error of trio."""

    async def main(world: World) -> None:
        world.timeline.at(10, lambda: 1 // 0)
        await trio.sleep_forever()

    assert isinstance(run_world(1, main).error, ZeroDivisionError)
