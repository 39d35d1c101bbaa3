"""Core messaging with clients that do not keep up."""

from __future__ import annotations

from typing import ClassVar

from tnats.harness.sim.core import CoreDrill


class CoreSlow(CoreDrill):
    """Clients behind slow links, paused and clogged, in heavy traffic: who is cut off costs nobody else a message."""

    kinds: ClassVar[tuple[str, ...]] = ("N_SLOW", "N_CLOG", "N_PART", "N_CHUNK", "P_PAUSE", "P_SLOWCPU")
    probes: ClassVar[tuple[str, ...]] = ("the server cut off a slow consumer", *kinds)
    PENDING: ClassVar[tuple[int, ...]] = (64 * 1024,)
    BULK: ClassVar[float] = 0.7
    QUEUES: ClassVar[float] = 0.5


scenario = CoreSlow
