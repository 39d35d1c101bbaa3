"""The storage core on a disk that damages what it keeps."""

from __future__ import annotations

from typing import ClassVar

from tnats.harness.sim.storage import StorageDrill

DAMAGE = (
    "D_BITFLIP",
    "D_TRUNC",
    "D_ZERO",
    "D_SWAPFILE",
    "D_MISDIRECT",
    "D_STALE",
    "D_LYING",
    "D_ROLLBACK",
    "D_DUPFILE",
    "D_WIPE",
)


class StorageDamage(StorageDrill):
    """Damage is an error that names it, everything else is served, and nothing is made up."""

    kinds: ClassVar[tuple[str, ...]] = (*DAMAGE, "D_POWER", "P_KILL")
    budget: ClassVar[str] = "B4"
    probes: ClassVar[tuple[str, ...]] = ("damage was named", "class B3", "class B4", *kinds)


scenario = StorageDamage
