"""Bounded worker threads for what would stall the reactor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")


class LiveProcessor:
    """`tnats.runtime.api.Processor` on trio's worker threads, one limiter per kind."""

    __slots__ = ("_limiters", "_threads_max")

    def __init__(self, threads_max: int) -> None:
        """`threads_max` bounds each kind on its own, so that a flood of log-ins leaves other work its threads."""
        self._threads_max = threads_max
        self._limiters: dict[str, trio.CapacityLimiter] = {}

    async def offload(self, work: Callable[[], T], *, kind: str = "work", cost_ns: int = 0) -> T:
        limiter = self._limiters.get(kind)
        if limiter is None:
            limiter = self._limiters[kind] = trio.CapacityLimiter(self._threads_max)
        return await trio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)
