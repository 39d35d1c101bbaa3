"""Work off the reactor, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from tnats.runtime.sim import trace as kinds
from tnats.runtime.sim.life import Life
from tnats.runtime.sim.timeline import Timeline
from tnats.runtime.sim.trace import Trace

T = TypeVar("T")

COST_DEFAULT_NS = 50_000
"""A hop to a worker thread and back."""


class SimProcessor:
    """`tnats.runtime.api.Processor` in simulation: the work is done inline once its time has passed."""

    __slots__ = ("_life", "_limiters", "_threads_max", "_timeline", "_trace")

    def __init__(self, life: Life, timeline: Timeline, trace: Trace, threads_max: int) -> None:
        self._life = life
        self._timeline = timeline
        self._trace = trace
        self._threads_max = threads_max
        self._limiters: dict[str, trio.CapacityLimiter] = {}

    async def offload(self, work: Callable[[], T], *, kind: str = "work", cost_ns: int = 0) -> T:
        self._life.check()
        limiter = self._limiters.get(kind)
        if limiter is None:
            limiter = self._limiters[kind] = trio.CapacityLimiter(self._threads_max)
        async with limiter:
            self._trace.add(kinds.OFFLOAD, self._life.number, cost_ns)
            await self._timeline.sleep_until_ns(self._timeline.now_ns + COST_DEFAULT_NS + cost_ns)
            self._life.check()
            return work()
