"""C6: replicas agree, and a clean restart changes nothing.

Property: at rest all replicas hold the same messages at the same sequences; each holds after a clean restart what it
held before. Cost: linear in the stores. Source: the contract's K8, K4.
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Replica, Result, result


def check(evidence: Evidence) -> Result:
    faults: list[str] = []
    readable = [replica for replica in evidence.replicas if not replica.failure]
    for other in readable[1:]:
        faults += differences(readable[0], other, f"{readable[0].node} and {other.node}")
    before = {replica.name: replica for replica in readable}
    for replica in evidence.restarted:
        if replica.name not in before:
            continue
        if replica.failure:
            faults.append(f"{replica.node} could not be read after a clean restart: {replica.failure}")
        else:
            faults += differences(before[replica.name], replica, f"{replica.name} before and after a clean restart")
    return result("C6", "replicas agree, before and after a restart", faults)


def differences(one: Replica, other: Replica, places: str) -> Iterator[str]:
    """The first difference, with both contents."""
    if one.last_seq != other.last_seq:
        yield f"{places}: last sequence {one.last_seq} and {other.last_seq}"
    for seq in sorted(one.messages.keys() | other.messages.keys()):
        here, there = one.messages.get(seq), other.messages.get(seq)
        if here != there:
            words = [each.value if each else "nothing" for each in (here, there)]
            if here and there and here.value == there.value:
                words = [f"{each.value} on {each.subject} of {each.time_ns} ns" for each in (here, there)]
            yield f"{places}: at {seq} {' and '.join(words)}"
            return
