"""C1: what was acknowledged is there.

Property: every value whose publish was acknowledged with sequence s is served at s by every replica, and is seen by
the consumers that read everything at the end. No removal is legal in the workloads that this is used on.
Cost: linear in the history and the stores.
Source: the contract's K1, K2, K5; the sets and the words lost-prefix, -middle, -postfix are those of Jepsen's NATS
test. There they are counted for each producer by what a reader saw of it; by sequence they are exact.
"""

from __future__ import annotations

from collections.abc import Iterable

from tnats.harness.checkers.evidence import Evidence, Replica, Result, result
from tnats.harness.history import Operation
from tnats.harness.workloads.queue import split_value

TITLE = "acknowledged values are present"
CLASSES = ("ok", "lost_prefix", "lost_middle", "lost_postfix", "unread", "unknown")


def check(evidence: Evidence) -> Result:
    if not evidence.was_read:
        return Result("C1", TITLE, "unknown", ("nothing could be read back",), {"acked": len(evidence.acked())})
    classed = classes(evidence)
    acked = evidence.acked()
    drained = evidence.drained()
    seen = {value for pairs in drained.values() for _, value in pairs}
    present = seen | held(evidence)
    counts = dict.fromkeys(CLASSES, 0)
    for _, name in classed:
        counts[name] += 1
    lost = [operation for operation, name in classed if name.startswith("lost")]
    values = {operation.value for operation in acked}
    figures = {
        "attempted": len(classed),
        "acked": len(acked),
        "read": len(present),
        "recovered": len([op for op, name in classed if name == "ok" and op.value not in values]),
        "lost": len(lost),
        **{name: counts[name] for name in CLASSES if name.startswith("lost")},
        "lost_by_producer": classify_by_producer(lost, present),
        "lost_on_node": {node: len(values - {value for _, value in pairs}) for node, pairs in sorted(drained.items())},
    }
    return result("C1", TITLE, faults(evidence, acked, seen), figures)


def held(evidence: Evidence) -> set[str]:
    """Values that some replica holds."""
    return {stored.value for replica in evidence.replicas for stored in replica.messages.values()}


def classes(evidence: Evidence, replica: Replica | None = None) -> list[tuple[Operation, str]]:
    """Every publish with its class; losses by where they lie among the kept ones, by sequence. With a `replica` kept is
    what that one holds, else what anybody has seen anywhere.
    """
    if replica is not None:
        present = {stored.value for stored in replica.messages.values()}
    else:
        present = held(evidence) | {value for pairs in evidence.drained().values() for _, value in pairs}
    kept = [int(op.told("seq")) for op in evidence.acked() if op.value in present]
    first, last = (min(kept), max(kept)) if kept else (1 << 62, 0)
    was_read = evidence.was_read
    found = []
    for operation in evidence.history.operations("publish"):
        seq = int(operation.told("seq") or 0)
        if operation.value in present:
            name = "ok"
        elif not operation.is_ok:
            name = "unknown"
        elif not was_read:
            name = "unread"
        else:
            name = "lost_postfix" if seq > last else "lost_prefix" if seq < first else "lost_middle"
        found.append((operation, name))
    return found


def faults(evidence: Evidence, acked: list[Operation], seen: set[str]) -> Iterable[str]:
    """A line for each acknowledged value and place that lacks it."""
    for replica in evidence.replicas:
        if replica.failure:
            yield f"{replica.node} could not be read: {replica.failure}"
            continue
        for operation in acked:
            seq = operation.told("seq")
            stored = replica.messages.get(seq)
            if stored is None:
                answer = replica.missing.get(seq) or "no such message"
                yield f"{operation.value} was acknowledged at {seq}; {replica.node} answers: {answer}"
            elif stored.value != operation.value:
                yield f"{operation.value} was acknowledged at {seq}; {replica.node} holds {stored.value} there"
    for operation in acked:
        if operation.value not in seen:
            yield f"{operation.value} was acknowledged at {operation.told('seq')}; no consumer got it"


def classify_by_producer(lost: list[Operation], seen: set[str]) -> dict[str, int]:
    """Jepsen's classes: by the lowest and highest counter that was read of the same producer."""
    spans: dict[str, tuple[int, int]] = {}
    for value in sorted(seen):
        producer, counter = split_value(value)
        low, high = spans.get(producer, (counter, counter))
        spans[producer] = (min(low, counter), max(high, counter))
    counts = {"prefix": 0, "middle": 0, "postfix": 0}
    for operation in lost:
        producer, counter = split_value(operation.value)
        low, high = spans.get(producer, (-1, -1))
        counts["postfix" if counter > high else "prefix" if counter < low else "middle"] += 1
    return counts
