"""The order in which tasks run, decided by a seed. The only file that knows trio's private names.

With `_ALLOW_DETERMINISTIC_SCHEDULING` set, trio sorts each batch of runnable tasks by creation and hands it to
`_r.shuffle`; whatever stands in `_r` is the scheduler. `Schedule` stands there during a simulation: it chooses
the order, keeps back the tasks of nodes that are paused or stalled (they neither run nor see time pass, as after
SIGSTOP), and reports each batch to the trace. A batch may be empty: released tasks join whichever comes next.

Tasks are named by their creation counter relative to the first task seen, since the counter itself goes on
from run to run in one process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import trio
import trio._core._run as trio_run

Policy = Literal["random", "fifo", "priority"]

PRIORITY_CHANGE_CHANCE = 0.01


class Schedule:
    """What trio calls in place of its random generator.

    Policies: `random` shuffles every batch; `fifo` runs in order of creation (the calmest, for reading traces);
    `priority` gives each task a drawn priority that rarely changes, which starves some tasks for long and so finds
    orders that shuffling almost never does (after PCT, Burckhardt et al. 2010).
    """

    def __init__(
        self,
        rng: random.Random,
        policy: Policy,
        on_batch: Callable[[list[int]], None],
        owner_of: Callable[[trio.lowlevel.Task], object],
    ) -> None:
        """`on_batch` gets the relative counters of each non-empty batch in the order in which its tasks will run.

        `owner_of` ascribes a task to whom it can be kept back with, or charged to.
        """
        self._rng = rng
        self._policy = policy
        self._on_batch = on_batch
        self._base: int | None = None
        self._priorities: dict[int, float] = {}
        self._released: list[trio.lowlevel.Task] = []
        self._kept: dict[object, list[trio.lowlevel.Task]] = {}
        self._owner_of = owner_of
        self._charged: dict[object, Callable[[], None]] = {}

    def shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        """Put `batch` in the order in which its tasks run, last first, without those that are kept back."""
        if self._released:
            batch += self._released
            self._released.clear()
        if self._kept:
            self._keep_back(batch)
        if len(batch) > 1:
            if self._policy == "random":
                self._rng.shuffle(batch)
            elif self._policy == "fifo":
                batch.reverse()
            else:
                batch.sort(key=self._priority)
        if self._charged:
            self._charge(batch)
        if batch:
            if self._base is None:
                self._base = min(task._counter for task in batch)
            base = self._base
            self._on_batch([task._counter - base for task in reversed(batch)])

    def random(self) -> float:
        """Part of the interface trio expects."""
        return self._rng.random()

    def uniform(self, low: float, high: float) -> float:
        """Part of the interface trio expects."""
        return self._rng.uniform(low, high)

    def _priority(self, task: trio.lowlevel.Task) -> float:
        counter = task._counter
        if counter not in self._priorities or self._rng.random() < PRIORITY_CHANGE_CHANCE:
            self._priorities[counter] = self._rng.random()
        return self._priorities[counter]

    def keep_back(self, owner: object) -> None:
        """From the next batch on, leave out the tasks of `owner`, until `release(owner)`."""
        self._kept.setdefault(owner, [])

    def release(self, owner: object) -> None:
        """Let the tasks of `owner` run again from the next batch on. No error if they were not kept back."""
        self._released += self._kept.pop(owner, [])

    def charge(self, owner: object, call: Callable[[], None] | None) -> None:
        """Make `call` before each batch in which tasks of `owner` run; None ends it."""
        self._charged.pop(owner, None)
        if call is not None:
            self._charged[owner] = call

    def _charge(self, batch: list[trio.lowlevel.Task]) -> None:
        owners = dict.fromkeys(self._owner_of(task) for task in batch)
        for owner in owners:
            if owner in self._charged:
                self._charged[owner]()

    def _keep_back(self, batch: list[trio.lowlevel.Task]) -> None:
        running = []
        for task in batch:
            waiting = self._kept.get(self._owner_of(task))
            if waiting is None:
                running.append(task)
            else:
                waiting.append(task)
        batch[:] = running


@contextmanager
def scheduled(schedule: Schedule) -> Iterator[None]:
    """Make `schedule` decide for every `trio.run` inside."""
    allowed, generator = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    trio_run._r = schedule  # type: ignore[assignment]
    try:
        yield
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]
        trio_run._r = generator
