"""Virtual time: one integer of nanoseconds and one heap of what happens when.

trio asks its clock how long to sleep only when no task can run. That is the moment at which virtual time moves:
to the next entry of the heap or the next trio deadline, whichever is first. Entries are plain calls, made right
there without any task, so a delivery costs a heap operation and a function call; one that made no task runnable
says so and the next follows at once. Tasks run to rest before time moves on.

When neither heap nor deadlines hold anything, no task will ever run again: a deadlock, reported at once instead
of hanging.
"""

from __future__ import annotations

import gc
import heapq
import math
from collections.abc import Callable
from typing import Any

import trio

from tnats.limits import SECOND_NS

GC_INTERVAL_NS = 10 * SECOND_NS

Entry = list[Any]
"""[time_ns, number, call, arguments]; cancelled by putting None for the call."""

QUIET = True
"""What an entry's call returns when it made no task runnable and touched no trio deadline."""


class Timeline(trio.abc.Clock):
    """The clock of a simulated world, given to `trio.run`; starts at 0 ns."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.event_count = 0
        self.on_stuck: Callable[[], None] = lambda: None
        """Called when nothing can ever happen again; must make some task runnable or raise."""
        self.on_error: Callable[[BaseException], None] = reraise
        """Called with an exception that escaped from an entry's call."""
        self.time_max_ns: int | None = None
        self.on_overtime: Callable[[], None] = lambda: None
        """Called once when virtual time reaches `time_max_ns`."""
        self.stopped = False
        """Set at the end of a world: nothing happens any more, while trio winds up by its own means."""
        self._heap: list[Entry] = []
        self._number = 0
        self._gc_due_ns = GC_INTERVAL_NS

    def at(self, time_ns: int, call: Callable[..., object], *arguments: object) -> Entry:
        """Have `call(*arguments)` made at `time_ns` (now at the earliest). Equal times keep the order of booking."""
        self._number += 1
        entry: Entry = [time_ns if time_ns > self.now_ns else self.now_ns, self._number, call, arguments]
        heapq.heappush(self._heap, entry)
        return entry

    @staticmethod
    def cancel(entry: Entry) -> None:
        """Make `entry` nothing. No error if it has happened."""
        entry[2] = None
        entry[3] = ()

    async def sleep_until_ns(self, time_ns: int) -> None:
        """Wait until virtual time is `time_ns`; a checkpoint even when that is past."""
        if time_ns <= self.now_ns:
            await trio.lowlevel.checkpoint()
            return
        entry = self.at(time_ns, trio.lowlevel.reschedule, trio.lowlevel.current_task())

        def abort(_: object) -> trio.lowlevel.Abort:
            self.cancel(entry)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    # what trio asks

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        """Virtual time in seconds."""
        return self.now_ns / SECOND_NS

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Move time to whatever comes first and let it happen. Always 0: nothing is ever slept in reality."""
        if self.stopped:
            return 0
        try:
            self._advance(deadline)
        except BaseException as exc:
            self.on_error(exc)
        return 0

    def _advance(self, deadline: float) -> None:
        deadline_ns = None if deadline == math.inf else time_of_deadline(deadline)
        heap = self._heap
        while True:
            if heap and (deadline_ns is None or heap[0][0] <= deadline_ns):
                time_ns: int = heap[0][0]
            elif deadline_ns is not None:
                self._move_to(deadline_ns)
                return
            else:
                self.on_stuck()
                return
            self._move_to(time_ns)
            quiet = True
            while heap and heap[0][0] == time_ns:
                entry = heapq.heappop(heap)
                call = entry[2]
                if call is not None:
                    self.event_count += 1
                    if call(*entry[3]) is not QUIET:
                        quiet = False
            if not quiet:
                return

    def _move_to(self, time_ns: int) -> None:
        if time_ns > self.now_ns:
            self.now_ns = time_ns
            if time_ns >= self._gc_due_ns:
                # The collector is off during a run; finalizers run at virtual times that repeat.
                self._gc_due_ns = time_ns + GC_INTERVAL_NS
                gc.collect()
            if self.time_max_ns is not None and time_ns >= self.time_max_ns:
                self.time_max_ns = None
                self.on_overtime()


def deadline_of_time(time_ns: int) -> float:
    """The trio deadline that expires exactly when virtual time reaches `time_ns`."""
    return time_ns / SECOND_NS


def time_of_deadline(deadline: float) -> int:
    """The first nanosecond at which trio finds `deadline` expired."""
    time_ns = math.floor(deadline * SECOND_NS)
    while time_ns / SECOND_NS < deadline:
        time_ns += 1
    return time_ns


def reraise(exc: BaseException) -> None:
    """`Timeline.on_error` until a world sets its own."""
    raise exc
