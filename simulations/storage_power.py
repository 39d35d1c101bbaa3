"""The storage core under power loss of every kind, kills and slow disks."""

from __future__ import annotations

from typing import ClassVar

from tnats.harness.sim.storage import StorageDrill


class StoragePower(StorageDrill):
    """Whatever power losses and kills do, at any disk call: what was acknowledged is there, and nothing else."""

    probes: ClassVar[tuple[str, ...]] = ("a crash was tried on a copy of the disk", "class B1", *StorageDrill.kinds)


scenario = StoragePower
