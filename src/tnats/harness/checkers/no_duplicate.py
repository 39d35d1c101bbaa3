"""C4: what was published once is there once.

Property: each value is at one sequence at most, in a replica and in what one consumer got (every value is published
by one attempt, and a consumer acknowledges what it gets). Cost: linear. Source: the contract's K4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tnats.harness.checkers.evidence import Evidence, Result, result


def check(evidence: Evidence) -> Result:
    return result("C4", "nothing is present twice", faults(evidence))


def faults(evidence: Evidence) -> Iterator[str]:
    for replica in evidence.replicas:
        pairs = ((seq, stored.value) for seq, stored in sorted(replica.messages.items()))
        yield from repeated(replica.node, pairs)
    for node, drained in evidence.drained().items():
        yield from repeated(f"a consumer at {node}", sorted(set(drained)))


def repeated(place: str, pairs: Iterable[tuple[int, str]]) -> Iterator[str]:
    first: dict[str, int] = {}
    for seq, value in pairs:
        if first.setdefault(value, seq) != seq:
            yield f"{place}: {value} at {first[value]} and at {seq}"
