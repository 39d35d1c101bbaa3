"""C12: what was made is there as it was asked for, until it is deleted, and a new life has nothing of the old.

Property: an asset (a stream, a consumer) has one owner, whose changes follow each other: versions, as of objects. What
a reader is told of it (`get`) is a version that may hold then. A consumer has delivered no more than was asked of it
(`take`) since it was last deleted. Cost: reads times versions. Source: the contract's K1, K9.
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers import objects
from tnats.harness.checkers.evidence import Evidence, Result, result

TITLE = "assets are as they were made, until they are deleted"


def check(evidence: Evidence) -> Result:
    return result("C12", TITLE, faults(evidence))


def faults(evidence: Evidence) -> Iterator[str]:
    yield from objects.faults(evidence, "asset")
    yield from haunted(evidence)


def haunted(evidence: Evidence) -> Iterator[str]:
    """Consumers that have more behind them than their life can have brought."""
    deletes = [delete for delete in evidence.history.operations("delete") if delete.is_ok]
    takes = evidence.history.operations("take")
    for get in evidence.history.operations("get"):
        delivered = get.told("delivered") if get.is_ok else None
        if delivered is None:
            continue
        assert get.end is not None
        name = get.value[0]
        born = 0
        for delete in deletes:
            assert delete.end is not None
            if delete.value[0] == name and delete.end.index < get.invoke.index:
                born = delete.end.index
        asked = [take for take in takes if take.value[0] == name and take.invoke.index < get.end.index]
        most = sum(take.value[1] for take in asked if take.end is None or take.end.index > born)
        if delivered > most:
            yield f"consumer {name} has delivered {delivered} (event {get.end.index}); it was asked for {most}"
