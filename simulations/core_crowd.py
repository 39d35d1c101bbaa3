"""Core messaging with many clients."""

from __future__ import annotations

from typing import ClassVar

from tnats.harness.sim.core import CoreDrill


class CoreCrowd(CoreDrill):
    """Twenty to fifty clients under everything: as `core`, with more to go wrong at once."""

    CLIENTS: ClassVar[tuple[int, ...]] = (20, 35, 50)
    OPERATIONS: ClassVar[tuple[int, int]] = (60, 150)
    kinds: ClassVar[tuple[str, ...]] = (*CoreDrill.kinds, "N_FLOOD", "N_ADDR", "P_CRASHLOOP")
    probes: ClassVar[tuple[str, ...]] = kinds


scenario = CoreCrowd
