"""The storage core on a disk whose calls fail."""

from __future__ import annotations

from typing import ClassVar

from tnats.harness.sim.storage import StorageDrill

FAILING = ("D_FSYNC_EIO", "D_WRITE_EIO", "D_READ_EIO", "D_ENOSPC", "D_EROFS", "D_EMFILE", "D_EACCES", "P_MEM")


class StorageErrors(StorageDrill):
    """Failed calls and full disks: what was acknowledged is there, what was refused is not, and it recovers."""

    least: ClassVar[int] = 1
    kinds: ClassVar[tuple[str, ...]] = (*FAILING, "D_POWER", "P_KILL", "P_TERM")
    probes: ClassVar[tuple[str, ...]] = (
        "a write failed and froze the store",
        "a write was refused for want of space",
        "D_FSYNC_EIO met a call",
        "D_WRITE_EIO met a call",
        *kinds,
    )


scenario = StorageErrors
