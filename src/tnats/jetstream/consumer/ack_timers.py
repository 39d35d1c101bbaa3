"""When pending messages are due to be sent again, and which of them are ready for that.

One timer stands for many messages: it holds a range of sequences, and goes off at the earliest moment at which one of
them can be due. What of the range is due later then, each by its own time in the window, gets timers of its own. So a
run of deliveries costs one timer, and runs that follow each other closely share it. A message that is sent again and
again leaves a timer behind each time; when those are the majority, all are made anew from what is pending.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from tnats.jetstream.consumer.state import ConsumerState

HEAP_COUNT_MIN = 64
"""A heap this small is not made anew."""

SHARE = 32
"""Timers whose moments differ by less than this part of the wait are one."""


class AckTimers:
    """See the module's text. Moments are of the monotonic clock."""

    def __init__(self, state: ConsumerState) -> None:
        self._state = state
        self.ready: dict[int, None] = {}
        """Messages to be sent again before anything new, in order."""
        self._heap: list[list[int]] = []
        """[moment, first and last sequence]"""
        self._newest: list[int] | None = None
        """The timer made last, which may still grow."""

    def clear(self) -> None:
        """Forget all."""
        self.ready.clear()
        self._heap.clear()
        self._newest = None

    def set_run(self, first: int, last: int, now_ns: int, wait_ns: int) -> None:
        """The messages from `first` to `last`, just sent for the first time, are due in `wait_ns`."""
        due_ns = now_ns + wait_ns
        newest = self._newest
        if newest is not None and newest[2] < first and 0 <= due_ns - newest[0] <= wait_ns // SHARE:
            self._state.pending.set_due_run(first, last, due_ns)
            newest[2] = last
        else:
            self._newest = self.set_range(first, last, due_ns)

    def set_range(self, first: int, last: int, due_ns: int) -> list[int]:
        """The pending messages from `first` to `last` are due at one time; their timer."""
        self._state.pending.set_due_run(first, last, due_ns)
        timer = [due_ns, first, last]
        self._push(timer)
        return timer

    def set(self, seq: int, due_ns: int) -> None:
        """A pending message is due at another time."""
        pending = self._state.pending
        at = pending.find(seq)
        old_due_ns = pending.due_at(at)
        pending.set_due(at, due_ns)
        # A timer that is already set for earlier finds out by itself that the message is due later.
        if not 0 < old_due_ns <= due_ns:
            self._push([due_ns, seq, seq])

    def _push(self, timer: list[int]) -> None:
        pending = self._state.pending
        if len(self._heap) > 2 * len(pending) + HEAP_COUNT_MIN:
            _, stretches = pending.due_until(0, self._state.delivered_stream_seq, 0)
            self._heap[:] = [[*stretch] for stretch in stretches]
            heapq.heapify(self._heap)
            self._newest = None
        heapq.heappush(self._heap, timer)

    def make_ready(self, seq: int) -> None:
        """A pending message is to be sent again as soon as possible."""
        pending = self._state.pending
        pending.set_due(pending.find(seq), 0)
        self.ready[seq] = None

    def next_ns(self) -> int | None:
        """When to look again."""
        if not len(self._state.pending):
            self._heap.clear()
            self._newest = None
        return self._heap[0][0] if self._heap else None

    def due(self, now_ns: int) -> Iterator[int]:
        """The messages whose time is over. Each is to be made ready, or to be pending no more, before the next."""
        heap, pending = self._heap, self._state.pending
        while heap and heap[0][0] <= now_ns:
            timer = heapq.heappop(heap)
            if timer is self._newest:
                self._newest = None
            due, later = pending.due_until(timer[1], timer[2], now_ns)
            for stretch in later:
                heapq.heappush(heap, [*stretch])
            yield from due
