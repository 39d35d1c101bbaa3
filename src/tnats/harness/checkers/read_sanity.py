"""C7: reads of any replica show some committed past.

Property: a direct get returns a value at the revision that some write got (or a write of unknown fate may have got),
and what one connection sees of a key does not go back. That gets at the leader miss no acknowledged write is part of
C8. Cost: linear. Source: the contract's K9; ADR-31.
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.registers import WRITES


def check(evidence: Evidence) -> Result:
    return result("C7", "direct reads show a committed past", faults(evidence))


def faults(evidence: Evidence) -> Iterator[str]:
    revisions: dict[tuple[str, str], int | None] = {}
    for operation in evidence.history.operations(*WRITES):
        if not operation.is_failed:
            revisions[tuple(operation.value)] = operation.told("seq")
    last: dict[tuple[int, str], int] = {}
    for operation in evidence.history.operations("get-direct"):
        if not operation.is_ok:
            continue
        key, value = operation.result
        seq = operation.told("seq")
        if value is not None:
            if (key, value) not in revisions:
                yield f"direct get of {key} returned {value!r} at {seq}, which nobody wrote"
            elif revisions[key, value] not in (None, seq):
                yield f"direct get of {key} returned {value!r} at {seq}, written at {revisions[key, value]}"
        connection = operation.invoke.extra["connection"]
        if seq < last.get((connection, key), 0):
            yield f"direct get of {key} went back from revision {last[connection, key]} to {seq} on one connection"
        last[connection, key] = seq
