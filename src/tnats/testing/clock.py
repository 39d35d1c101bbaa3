"""A clock that a test can move ahead.

The server's monotonic clock, its wall clock and the deadlines of its trio run are one: the machine's monotonic time,
plus how far it was moved. So whatever waits for a moment waits less, and nothing else changes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import trio

from tnats.errors import NodeKilled
from tnats.limits import SECOND_NS
from tnats.runtime.live.clock import LiveClock


class MovableClock(trio.abc.Clock):
    """A `tnats.runtime.api.Clock` and the clock of the trio run that it serves (pass it to `trio.run`).

    Once the incarnation that it serves is over (`is_over`), the seam's calls raise `NodeKilled`.
    """

    def __init__(self, ahead_ns: int = 0) -> None:
        self.ahead_ns = ahead_ns
        """How far it was moved ahead of the machine's clocks."""
        self.is_over = False
        self._live = LiveClock()

    def move(self, distance_ns: int) -> None:
        """Go ahead by `distance_ns`; what has fallen due happens once the trio run looks again."""
        self.ahead_ns += distance_ns

    # ------------------------------------------------------------------ the seam's clock

    def mono_ns(self) -> int:
        if self.is_over:
            raise NodeKilled("the server of this clock was killed")
        return self._live.mono_ns() + self.ahead_ns

    def wall_ns(self) -> int:
        return self._live.wall_ns() + self.ahead_ns

    def utc_offset_ns(self) -> int:
        return self._live.utc_offset_ns()

    async def sleep_ns(self, duration_ns: int) -> None:
        await self.sleep_until_ns(self.mono_ns() + duration_ns)

    async def sleep_until_ns(self, deadline_ns: int) -> None:
        await trio.lowlevel.checkpoint()
        while self.mono_ns() < deadline_ns:
            with self.deadline(deadline_ns):
                await trio.sleep_forever()

    def deadline(self, deadline_ns: int) -> AbstractContextManager[trio.CancelScope]:
        self.mono_ns()  # raises when nothing may go on
        return trio.CancelScope(deadline=deadline_ns / SECOND_NS)

    # ------------------------------------------------------------------ trio's clock

    def start_clock(self) -> None:
        """There is nothing to start."""

    def current_time(self) -> float:
        return (self._live.mono_ns() + self.ahead_ns) / SECOND_NS

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()
