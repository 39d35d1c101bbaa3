"""The storage core on a disk that damages what it keeps."""

from __future__ import annotations

from typing import ClassVar

import attrs

from tnats.harness.faults import Fault
from tnats.harness.sim.plan import Plan
from tnats.harness.sim.storage import StorageDrill

DAMAGE = (
    "D_BITFLIP",
    "D_TRUNC",
    "D_ZERO",
    "D_SWAPFILE",
    "D_MISDIRECT",
    "D_STALE",
    "D_LYING",
    "D_FSYNC_EIO",
    "D_ROLLBACK",
    "D_DUPFILE",
    "D_WIPE",
)


def silent(fault: Fault) -> Fault:
    """A sync that fails says nothing here: what fails aloud is in `storage_errors`."""
    if fault.kind != "D_FSYNC_EIO":
        return fault
    return attrs.evolve(fault, parameters={**fault.parameters, "variant": "silent"})


class StorageDamage(StorageDrill):
    """Damage is an error that names it, everything else is served, and nothing is made up."""

    kinds: ClassVar[tuple[str, ...]] = (*DAMAGE, "D_POWER", "P_KILL")
    budget: ClassVar[str] = "B4"
    probes: ClassVar[tuple[str, ...]] = ("damage was named", "class B3", "class B4", *kinds)

    @classmethod
    def draw(cls, seed: int) -> Plan:
        plan = super().draw(seed)
        return attrs.evolve(plan, faults=tuple(map(silent, plan.faults)))


scenario = StorageDamage
