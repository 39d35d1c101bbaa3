"""The damage ledger: what faults have destroyed so far, and what the contract still promises after that.

Classes of a run, computed and not chosen (for one node that acknowledges what is synced):

| class | what happened | what must hold |
|---|---|---|
| B0 | no fault of storage | everything; no alarm |
| B1 | power loss, full or failing disk that says so | nothing acknowledged is lost |
| B3 | bytes were damaged or a write went astray; no other copy | damage is an error that names it, the rest is served |
| B4 | what nobody could notice: lying syncs, old disks, every write of a while gone astray | nothing is made up |

A plan has a budget (`budget` = one of these): faults that would go beyond it are refused. B2 (damage that another
replica repairs) needs a second copy.
"""

from __future__ import annotations

from tnats.harness.faults import Fault

CLASSES = ("B0", "B1", "B2", "B3", "B4")

CLASS_OF_KIND = {
    "D_POWER": "B1",
    "P_MEM": "B1",
    "D_WRITE_EIO": "B1",
    "D_READ_EIO": "B1",
    "D_ENOSPC": "B1",
    "D_EROFS": "B1",
    "D_EMFILE": "B1",
    "D_EACCES": "B1",
    "D_BITFLIP": "B3",
    "D_TRUNC": "B3",
    "D_ZERO": "B3",
    "D_SWAPFILE": "B3",
    "D_STALE": "B4",
    "D_LYING": "B4",
    "D_WIPE": "B4",
    "D_ROLLBACK": "B4",
}


def class_of(fault: Fault) -> str:
    """What class a run has after this fault alone."""
    if fault.kind == "D_FSYNC_EIO":
        # A sync that fails freezes the store, also where the pages count as clean afterwards (as on Linux): the next
        # start writes again what it cannot prove. Only a sync that lies is beyond the contract.
        return "B4" if fault.word("variant", "sticky") == "silent" else "B1"
    if fault.kind == "D_MISDIRECT":
        # One write that lands elsewhere is damage at two places. A disk that puts every write of a while elsewhere
        # and says that all is synced is lying: what was acknowledged in that while stands nowhere.
        return "B3" if fault.number("times_count", 0) == 1 else "B4"
    if fault.kind == "D_DUPFILE":
        # What a death leaves beside a file is no damage; a file that nobody made is found, and told.
        return "B3" if fault.word("variant", "leftover") == "double" else "B0"
    return CLASS_OF_KIND.get(fault.kind, "B0")


class Ledger:
    """What was destroyed in one run."""

    def __init__(self, budget: str) -> None:
        """`budget` is one of `CLASSES`."""
        self.budget = budget
        self.reached = "B0"
        self.kinds: dict[str, int] = {}

    def refusal(self, fault: Fault) -> str:
        """Why the budget does not allow this fault; empty when it does."""
        wanted = class_of(fault)
        if CLASSES.index(wanted) > CLASSES.index(self.budget):
            return f"{wanted} is beyond the budget {self.budget}"
        return ""

    def enter(self, fault: Fault) -> None:
        """A fault is carried out."""
        self.kinds[fault.kind] = self.kinds.get(fault.kind, 0) + 1
        self.reached = max(self.reached, class_of(fault))
