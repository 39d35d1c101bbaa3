"""Who waits for which moment, and the task that wakes them: one for all client connections, one for all of JetStream.

A sleeper has one moment at a time; setting another replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

from tnats.moments import Moments
from tnats.runtime.api import Clock

Sleeper = TypeVar("Sleeper")


class Timers(Generic[Sleeper]):
    """See the module's text. Moments are of the monotonic clock, in nanoseconds."""

    def __init__(self, clock: Clock, wake: Callable[[Sleeper, int], None]) -> None:
        """`wake` is told who is to wake up and what time it is; it may set their next moment."""
        self._clock = clock
        self._wake = wake
        self._moments: Moments[Sleeper] = Moments()
        self._earlier = trio.Event()
        self._waits_until_ns: int | None = None

    def set(self, sleeper: Sleeper, wake_ns: int | None) -> None:
        """Wake `sleeper` at `wake_ns`; None: not at all."""
        if wake_ns is None:
            self._moments.forget(sleeper)
            return
        self._moments.set(sleeper, wake_ns)
        if self._waits_until_ns is None or wake_ns < self._waits_until_ns:
            self._earlier.set()

    async def run(self) -> None:
        """Until cancelled."""
        clock, moments = self._clock, self._moments
        while True:
            now_ns = clock.mono_ns()
            self._wake_all(now_ns)
            self._earlier = trio.Event()
            self._waits_until_ns = moments.next_ns()
            if self._waits_until_ns is None:
                await self._earlier.wait()
            elif self._waits_until_ns <= now_ns:
                await trio.lowlevel.checkpoint()
            else:
                with clock.deadline(self._waits_until_ns):
                    await self._earlier.wait()

    def _wake_all(self, now_ns: int) -> None:
        """Wake whose moment has come; who sets the present moment again comes in the next round.

        Nobody is kept until the next moment comes.
        """
        for _ in range(len(self._moments)):
            sleeper = self._moments.pop_due(now_ns)
            if sleeper is None:
                break
            self._wake(sleeper, now_ns)
