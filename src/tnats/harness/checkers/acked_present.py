"""C1: what was acknowledged is there.

Property: every value whose publish was acknowledged with sequence s is served at s by every replica, and is seen by
the consumers that read everything at the end. No removal is legal in the workloads that this is used on.
Cost: linear in the history and the stores.
Source: the contract's K1, K2, K5; the sets and the words lost-prefix, -middle, -postfix are those of Jepsen's NATS
test. There they are counted for each producer by what a reader saw of it; by sequence they are exact.
"""

from __future__ import annotations

from collections.abc import Iterable

from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.history import Operation
from tnats.harness.workloads.queue import split_value


def check(evidence: Evidence) -> Result:
    attempted = {operation.value: operation for operation in evidence.history.operations("publish")}
    acked = {operation.value: operation for operation in evidence.acked()}
    drained = evidence.drained()
    seen = {value for pairs in drained.values() for _, value in pairs}
    held = {stored.value for replica in evidence.replicas for stored in replica.messages.values()}
    lost = [operation for value, operation in acked.items() if value not in seen and value not in held]
    figures = {
        "attempted": len(attempted),
        "acked": len(acked),
        "read": len(seen | held),
        "recovered": len([value for value in attempted if value in seen | held and value not in acked]),
        "lost": len(lost),
        **classify(lost, [operation for operation in acked.values() if operation.value in seen | held]),
        "lost_by_producer": classify_by_producer(lost, seen | held),
        "lost_on_node": {
            node: len(acked.keys() - {value for _, value in pairs}) for node, pairs in sorted(drained.items())
        },
    }
    return result("C1", "acknowledged values are present", faults(evidence, list(acked.values()), seen), figures)


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


def classify(lost: list[Operation], kept: list[Operation]) -> dict[str, int]:
    """Where the lost ones lie among those that were kept, by sequence."""
    seqs = [operation.told("seq") for operation in kept]
    first, last = (min(seqs), max(seqs)) if seqs else (1 << 62, 0)
    counts = {"lost_prefix": 0, "lost_middle": 0, "lost_postfix": 0}
    for operation in lost:
        seq = operation.told("seq")
        counts["lost_postfix" if seq > last else "lost_prefix" if seq < first else "lost_middle"] += 1
    return counts


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
