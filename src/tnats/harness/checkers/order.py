"""C5: sequences follow time.

Property: (a) a publish that began after another was acknowledged has the higher sequence, which holds for one
producer's publishes too (b); (c) a replica passes over no sequence in silence; (d) timestamps do
not decrease along them. (d) is asked only where no wall clock was moved and one node leads.
Cost: O(n log n). Source: the contract's K9, K5.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tnats.harness.checkers.evidence import Evidence, Replica, Result, result
from tnats.harness.history import Operation


def check(evidence: Evidence) -> Result:
    faults = list(against_time(evidence.acked()))
    for replica in evidence.replicas:
        faults += gaps(replica)
        faults += turned_back(replica)
    return result("C5", "sequences follow time, without gaps", faults)


def against_time(acked: list[Operation]) -> Iterator[str]:
    """Pairs in real-time order with sequences the other way round, one for each later publish."""
    ended = sorted(acked, key=lambda operation: operation.end.index if operation.end else 0)
    position = 0
    highest: Operation | None = None
    for operation in acked:
        while position < len(ended):
            end = ended[position].end
            assert end is not None
            if end.index > operation.invoke.index:
                break
            if highest is None or ended[position].told("seq") > highest.told("seq"):
                highest = ended[position]
            position += 1
        if highest is not None and highest.told("seq") >= operation.told("seq"):
            yield (
                f"{operation.value} got sequence {operation.told('seq')}, but began after {highest.value} had been "
                f"acknowledged at {highest.told('seq')}"
            )


def gaps(replica: Replica) -> Iterator[str]:
    """Sequences that are passed over in silence: one that is answered with an error, or that the server itself names as
    lost, is no gap.
    """
    answered = [seq for seq, answer in replica.missing.items() if answer]
    known = sorted([(seq, seq) for seq in [*replica.messages, *answered]] + list(replica.named_lost))
    reached = known[0][0] - 1 if known else 0
    for first, last in known:
        if first > reached + 1:
            yield f"{replica.node}: nothing from {reached + 1} to {first - 1}"
        reached = max(reached, last)


def turned_back(replica: Replica) -> Iterator[str]:
    seqs = sorted(replica.messages)
    for before, after in pairwise(seqs):
        if replica.messages[after].time_ns < replica.messages[before].time_ns:
            yield f"{replica.node}: the timestamp of {after} lies before that of {before}"
