"""C11: a counter is the sum of its increments, each applied once.

Property: the total stored at each sequence of a subject is the sum of the increments stored on it so far; an
acknowledgement names the total that is stored at its sequence, unless a loss of power within a sync interval took it;
no increment is there twice, none that nobody sent, and none that was refused.
Cost: linear in history and store. Source: the contract's K4; ADR-49.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Replica, Result, Stored, result


def check(evidence: Evidence) -> Result:
    return result("C11", "counters add up", faults(evidence))


def total_of(stored: Stored) -> int | None:
    """The total in a counter's message."""
    try:
        return int(json.loads(stored.body)["val"])
    except (ValueError, KeyError, TypeError):
        return None


def faults(evidence: Evidence) -> Iterator[str]:
    for replica in evidence.replicas:
        yield from in_replica(evidence, replica)


def in_replica(evidence: Evidence, replica: Replica) -> Iterator[str]:
    adds = {operation.value: operation for operation in evidence.history.operations("add")}
    totals: dict[str, int] = {}
    seen: dict[str, int] = {}
    for seq, stored in sorted(replica.messages.items()):
        add = adds.get(stored.value)
        if add is None or add.is_failed:
            yield f"{replica.node} holds {stored.value!r} at {seq}, which nobody added"
            continue
        if seen.setdefault(stored.value, seq) != seq:
            yield f"{replica.node} holds increment {stored.value} at {seen[stored.value]} and at {seq}"
        totals[stored.subject] = totals.get(stored.subject, 0) + add.invoke.extra["by"]
        if total_of(stored) != totals[stored.subject]:
            text = f"{replica.node}: {stored.subject} is {stored.body} at {seq}"
            yield f"{text}; its increments make {totals[stored.subject]}"
    for add in adds.values():
        if not add.is_ok:
            continue
        found = replica.messages.get(add.told("seq"))
        if found is None and evidence.is_lost(add, add.told("seq"), replica):
            continue
        if found is None or found.value != add.value:
            told = "nothing" if found is None else found.value
            yield f"{add.value} was acknowledged at {add.told('seq')}; {replica.node} holds {told} there"
        elif total_of(found) != int(add.told("total")):
            yield f"{add.value} was acknowledged with total {add.told('total')}; {replica.node} holds {found.body}"
