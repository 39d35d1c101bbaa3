"""One node's clocks: monotonic with a drift of its own, and a wall clock that people may set.

Both are functions of virtual time. Every node starts its monotonic clock somewhere else, so that a time carried
from node to node by mistake is far off instead of nearly right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import trio

from tnats.runtime.sim import trace as kinds
from tnats.runtime.sim.life import Life
from tnats.runtime.sim.timeline import Timeline, deadline_of_time
from tnats.runtime.sim.trace import Trace

MILLION = 1_000_000
WALL_START_NS = 1_750_000_000 * 1_000_000_000
"""What an exact wall clock shows at virtual time 0 (15 June 2025)."""


class Oscillator:
    """The clock hardware of a node; outlives its incarnations. Drifts are whole parts per million."""

    def __init__(self, timeline: Timeline, *, mono_start_ns: int, wall_offset_ns: int = 0, drift_ppm: int = 0) -> None:
        """`wall_offset_ns` is how far the wall clock is ahead; `drift_ppm` > 0 runs fast (both clocks)."""
        self._timeline = timeline
        self._mono_base_ns = mono_start_ns
        self._wall_base_ns = WALL_START_NS + wall_offset_ns
        self._drift_ppm = drift_ppm
        self._since_ns = timeline.now_ns

    def mono_ns(self) -> int:
        """What the monotonic clock shows."""
        elapsed_ns = self._timeline.now_ns - self._since_ns
        return self._mono_base_ns + elapsed_ns + elapsed_ns * self._drift_ppm // MILLION

    def wall_ns(self) -> int:
        """What the wall clock shows."""
        elapsed_ns = self._timeline.now_ns - self._since_ns
        return self._wall_base_ns + elapsed_ns + elapsed_ns * self._drift_ppm // MILLION

    def time_of_mono(self, mono_ns: int) -> int:
        """The first virtual time at which the monotonic clock shows `mono_ns` or more."""
        wanted_ns = mono_ns - self._mono_base_ns
        time_ns = self._since_ns + wanted_ns * MILLION // (MILLION + self._drift_ppm)
        while time_ns - self._since_ns + (time_ns - self._since_ns) * self._drift_ppm // MILLION < wanted_ns:
            time_ns += 1
        return time_ns

    def jump_wall(self, distance_ns: int) -> None:
        """Set the wall clock forward, or back."""
        self._wall_base_ns += distance_ns

    def drift(self, drift_ppm: int) -> None:
        """From now on run `drift_ppm` fast. Sleeps under way keep the ends they were given."""
        mono_ns, wall_ns = self.mono_ns(), self.wall_ns()
        self._mono_base_ns, self._wall_base_ns = mono_ns, wall_ns
        self._since_ns = self._timeline.now_ns
        self._drift_ppm = drift_ppm

    def reboot(self, mono_start_ns: int) -> None:
        """The machine came up anew: the monotonic clock starts over."""
        self.drift(self._drift_ppm)
        self._mono_base_ns = mono_start_ns


class SimClock:
    """`tnats.runtime.api.Clock` of one incarnation."""

    __slots__ = ("_life", "_oscillator", "_timeline", "_trace")

    def __init__(self, life: Life, timeline: Timeline, oscillator: Oscillator, trace: Trace) -> None:
        self._life = life
        self._timeline = timeline
        self._oscillator = oscillator
        self._trace = trace

    def mono_ns(self) -> int:
        if self._life.dead:
            self._life.check()
        return self._oscillator.mono_ns()

    def wall_ns(self) -> int:
        if self._life.dead:
            self._life.check()
        return self._oscillator.wall_ns()

    def utc_offset_ns(self) -> int:
        self._life.check()
        return 0

    async def sleep_ns(self, duration_ns: int) -> None:
        await self.sleep_until_ns(self._oscillator.mono_ns() + max(0, duration_ns))

    async def sleep_until_ns(self, deadline_ns: int) -> None:
        self._life.check()
        time_ns = self._oscillator.time_of_mono(deadline_ns)
        self._trace.add(kinds.SLEEP, self._life.number, time_ns)
        await self._timeline.sleep_until_ns(time_ns)
        self._life.check()

    def deadline(self, deadline_ns: int) -> AbstractContextManager[trio.CancelScope]:
        self._life.check()
        time_ns = max(0, self._oscillator.time_of_mono(deadline_ns))
        return trio.CancelScope(deadline=deadline_of_time(time_ns))
