"""C3: nothing comes from nowhere.

Property: every stored or delivered value was attempted by some client, byte for byte, on its subject, and was not
definitely refused. Cost: linear. Source: the contract's K4; Jepsen's "unexpected" is the first half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.history import Operation

SUBJECT = "jepsen.0"


def check(evidence: Evidence) -> Result:
    attempted = {operation.value: operation for operation in evidence.history.operations("publish")}
    return result("C3", "everything present was published", faults(evidence, attempted))


def faults(evidence: Evidence, attempted: dict[str, Operation]) -> Iterator[str]:
    for replica in evidence.replicas:
        places = ((f"{replica.node} at {seq}", stored.value) for seq, stored in sorted(replica.messages.items()))
        yield from strangers(places, attempted)
        for seq, stored in sorted(replica.messages.items()):
            if stored.subject != SUBJECT:
                yield f"{replica.node} holds {stored.value} at {seq} on {stored.subject!r}, published on {SUBJECT!r}"
    for node, pairs in evidence.drained().items():
        yield from strangers(((f"a consumer at {node}, sequence {seq}", value) for seq, value in pairs), attempted)


def strangers(places: Iterable[tuple[str, str]], attempted: dict[str, Operation]) -> Iterator[str]:
    for place, value in places:
        operation = attempted.get(value)
        if operation is None:
            yield f"{place}: {value!r} was never published"
        elif operation.is_failed:
            assert operation.end is not None
            yield f"{place}: {value!r}, which had been refused ({operation.end.error})"
