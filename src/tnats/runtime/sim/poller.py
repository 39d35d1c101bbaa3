"""Simulated readiness: level-triggered, in a drawn order."""

from __future__ import annotations

import random

import trio

from tnats.errors import ensure
from tnats.runtime.api import Conn, Listener
from tnats.runtime.sim.conn import SimConn
from tnats.runtime.sim.life import Life
from tnats.runtime.sim.listener import SimListener
from tnats.runtime.sim.timeline import QUIET

READY_MAX = 256
SimSource = SimConn | SimListener


class SimPoller:
    """`tnats.runtime.api.Poller` in simulation."""

    __slots__ = ("_candidates", "_life", "_paused", "_rng", "_waiting", "_watched")

    def __init__(self, life: Life, rng: random.Random) -> None:
        self._life = life
        self._rng = rng
        self._watched: dict[SimSource, None] = {}
        self._paused: dict[SimSource, None] = {}
        self._candidates: dict[SimSource, None] = {}
        """All that are ready, and listeners that no longer are."""
        self._waiting: trio.lowlevel.Task | None = None

    def add(self, source: Conn | Listener) -> None:
        self._life.check()
        source = sim_source(source)
        source.poller = self
        self._watched[source] = None
        if source.readable:
            self.mark(source)

    def remove(self, source: Conn | Listener) -> None:
        source = sim_source(source)
        if source.poller is self:
            source.poller = None
            self._watched.pop(source, None)
            self._paused.pop(source, None)
            self._candidates.pop(source, None)

    def pause(self, source: Conn | Listener) -> None:
        self._life.check()
        source = sim_source(source)
        if source in self._watched:
            self._paused[source] = None
            self._candidates.pop(source, None)

    def resume(self, source: Conn | Listener) -> None:
        self._life.check()
        source = sim_source(source)
        if source in self._paused:
            del self._paused[source]
            if source.readable:
                self.mark(source)

    def mark(self, source: SimSource) -> object:
        """`source` became ready. Returns QUIET when that made no task runnable."""
        if source in self._candidates or source in self._paused:
            return QUIET
        self._candidates[source] = None
        if self._waiting is None:
            return QUIET
        trio.lowlevel.reschedule(self._waiting)
        self._waiting = None
        return None

    def unmark(self, source: SimSource) -> None:
        """`source` has been read empty."""
        self._candidates.pop(source, None)

    async def wait(self) -> list[Conn | Listener]:
        self._life.check()
        while True:
            if self._candidates:
                await trio.lowlevel.checkpoint()
            else:
                await self._park()
            ready = self.ready_nowait()
            if ready:
                return ready

    def ready_nowait(self) -> list[Conn | Listener]:
        if self._life.dead:
            self._life.check()
        candidates = self._candidates
        if not candidates:
            return []
        idle = [source for source in candidates if not source.readable]
        for source in idle:
            del candidates[source]
        ready: list[Conn | Listener] = list(candidates)
        if len(ready) > READY_MAX:
            # The others are first in line at the next call.
            del ready[READY_MAX:]
            for source in list(candidates)[:READY_MAX]:
                candidates[source] = candidates.pop(source)
        if len(ready) > 1:
            self._rng.shuffle(ready)
        return ready

    async def _park(self) -> None:
        ensure(self._waiting is None, "two tasks wait for one poller")
        self._waiting = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiting = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def close(self) -> None:
        self._life.check()
        for source in list(self._watched):
            self.remove(source)


def sim_source(source: Conn | Listener) -> SimSource:
    """`source` as one of this implementation's own."""
    ensure(isinstance(source, SimSource), f"a simulated poller cannot watch {source!r}")
    return source  # type: ignore[return-value]  # just ensured
