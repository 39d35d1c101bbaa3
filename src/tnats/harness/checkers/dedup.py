"""C4 with message ids: what is published again with the same id is stored once.

Property: attempts with one message id inside the duplicate window leave one message at most; an acknowledgement that
says "duplicate" gives the sequence of the stored one, and one that does not is the only one of its kind, but for those
that a loss of power within a sync interval took before. Values without an id are attempted once each, so they stand at
one sequence at most. Where clocks were moved the window is where nobody can say, so nothing is asked (`is_windowed`).
Cost: linear in history and store. Source: the contract's K4; JetStream documentation, "Message Deduplication".
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.history import Operation

TITLE = "a message id is stored once"


def check(evidence: Evidence, *, is_windowed: bool = True) -> Result:
    return result("C4", TITLE, faults(evidence) if is_windowed else ())


def faults(evidence: Evidence) -> Iterator[str]:
    for replica in evidence.replicas:
        places: dict[str, list[int]] = {}
        for seq, stored in replica.messages.items():
            places.setdefault(stored.value, []).append(seq)
        for value, seqs in places.items():
            if len(seqs) > 1:
                yield f"{replica.node} holds {value} at {' and '.join(map(str, sorted(seqs)))}"
    first: dict[str, Operation] = {}
    for operation in evidence.acked():
        seq = operation.told("seq")
        before = first.setdefault(operation.value, operation)
        known = before.told("seq")
        if known != seq and evidence.was_lost(before, operation):
            first[operation.value] = operation
        elif operation.told("duplicate") and known != seq:
            yield f"{operation.value} was acknowledged at {known}, and as a duplicate of {seq}"
        elif known != seq:
            yield f"{operation.value} was acknowledged at {known} and at {seq}, not as a duplicate"
