"""The system's clocks."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

import trio

from tnats.limits import SECOND_NS


class LiveClock:
    """`tnats.runtime.api.Clock` on CLOCK_MONOTONIC and CLOCK_REALTIME."""

    __slots__ = ()

    mono_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)

    def utc_offset_ns(self) -> int:
        return time.localtime().tm_gmtoff * SECOND_NS

    async def sleep_ns(self, duration_ns: int) -> None:
        await trio.sleep(max(0, duration_ns) / SECOND_NS)

    async def sleep_until_ns(self, deadline_ns: int) -> None:
        await trio.sleep(max(0, deadline_ns - time.monotonic_ns()) / SECOND_NS)

    def deadline(self, deadline_ns: int) -> AbstractContextManager[trio.CancelScope]:
        # trio's clock has an origin of its own, so the deadline is carried over as a distance from now.
        distance_ns = deadline_ns - time.monotonic_ns()
        return trio.CancelScope(deadline=trio.current_time() + distance_ns / SECOND_NS)
