"""C2: a sequence is acknowledged once.

Property: no two acknowledgements of one stream carry the same sequence for different values. Two that do prove, with
no read at all, that a sequence was used again after a loss or that two leaders accepted writes.
Cost: linear in the history. Source: the contract's K4.
"""

from __future__ import annotations

from tnats.harness.checkers.evidence import Evidence, Result, result


def check(evidence: Evidence) -> Result:
    holder: dict[tuple[str, int], str] = {}
    faults = []
    for operation in evidence.acked():
        if operation.told("duplicate"):
            continue
        place = (operation.told("stream"), operation.told("seq"))
        first = holder.setdefault(place, operation.value)
        if first != operation.value:
            faults.append(f"sequence {place[1]} of {place[0]} was acknowledged for {first} and for {operation.value}")
    return result("C2", "no sequence is acknowledged twice", faults)
