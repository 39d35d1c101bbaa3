"""One ticker for all streams and consumers of a node: who waits for which moment, and the task that wakes them.

A sleeper has one moment at a time; setting another replaces it. Replaced ones stay in the heap until they come up, and
are passed over then.
"""

from __future__ import annotations

import heapq
from typing import Protocol

import trio

from tnats.runtime.api import Clock


class Sleeper(Protocol):
    """Somebody who waits. `wake_ns` belongs to `Timers`."""

    wake_ns: int | None

    def tick(self, now_ns: int) -> None:
        """The moment has come; set the next one in here."""


class Timers:
    """See the module's text. Moments are of the monotonic clock, in nanoseconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Sleeper]] = []
        self._count = 0
        self._earlier = trio.Event()
        self._waits_until_ns: int | None = None

    def set(self, sleeper: Sleeper, wake_ns: int | None) -> None:
        """Wake `sleeper` at `wake_ns`; None: not at all."""
        if sleeper.wake_ns == wake_ns:
            return
        sleeper.wake_ns = wake_ns
        if wake_ns is None:
            return
        self._count += 1
        heapq.heappush(self._heap, (wake_ns, self._count, sleeper))
        if self._waits_until_ns is None or wake_ns < self._waits_until_ns:
            self._earlier.set()

    async def run(self) -> None:
        """Until cancelled."""
        clock, heap = self._clock, self._heap
        while True:
            now_ns = clock.mono_ns()
            for _ in range(len(heap)):  # who sets the present moment again comes in the next round
                if not heap or heap[0][0] > now_ns:
                    break
                wake_ns, _, sleeper = heapq.heappop(heap)
                if sleeper.wake_ns == wake_ns:
                    sleeper.wake_ns = None
                    sleeper.tick(now_ns)
            self._earlier = trio.Event()
            self._waits_until_ns = heap[0][0] if heap else None
            if self._waits_until_ns is None:
                await self._earlier.wait()
            elif self._waits_until_ns <= now_ns:
                await trio.lowlevel.checkpoint()
            else:
                with clock.deadline(self._waits_until_ns):
                    await self._earlier.wait()
