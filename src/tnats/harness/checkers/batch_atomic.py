"""C10: an atomic batch is stored whole, or not at all.

Property: in every reading, the members of a batch are all there, at consecutive sequences in their order, or none is;
the acknowledgement of a commit names the last of them and their number; a batch that was never committed has left
nothing. Members that were removed on purpose are not asked for, nor a whole batch that a loss of power within a sync
interval took. Cost: linear in history and store.
Source: the contract's K1; ADR-50.
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Replica, Result, result
from tnats.harness.checkers.removal import Removals, doomed
from tnats.harness.history import Operation


def check(evidence: Evidence) -> Result:
    return result("C10", "batches are whole or absent", faults(evidence))


def faults(evidence: Evidence) -> Iterator[str]:
    batches = evidence.history.operations("batch")
    gone = doomed(evidence)
    for replica in evidence.readings:
        place = {stored.value: seq for seq, stored in replica.messages.items()}
        for batch in batches:
            yield from of_batch(evidence, replica, batch, place, gone)


def of_batch(
    evidence: Evidence, replica: Replica, batch: Operation, place: dict[str, int], gone: Removals
) -> Iterator[str]:
    values: list[str] = batch.value
    found = {at: place[value] for at, value in enumerate(values) if value in place}
    name = f"batch {values[0]} to {values[-1]}"
    if batch.is_ok:
        first = batch.told("seq") - len(values) + 1
        missing = [at for at in range(len(values)) if first + at not in gone and found.get(at) != first + at]
        if not found and all(evidence.is_lost(batch, first + at, replica) for at in range(len(values))):
            return
        if batch.told("count") != len(values):
            yield f"{name} was acknowledged as {batch.told('count')} messages"
        elif missing and not replica.failure:
            at = missing[0]
            text = f"{name} was acknowledged up to {batch.told('seq')}"
            yield f"{text}; {replica.node} lacks {values[at]} at {first + at}"
    elif found and (batch.is_failed or not batch.invoke.extra["commit"]):
        yield f"{replica.node} holds {values[min(found)]} of {name}, which was never committed"
    elif found:
        starts = {seq - at for at, seq in found.items()}
        first = min(starts)
        missing = [at for at in range(len(values)) if at not in found and first + at not in gone]
        if len(starts) > 1:
            yield f"{replica.node} holds the members of {name} at {sorted(found.values())}"
        elif missing:
            yield f"{replica.node} holds a part of {name}: {values[min(found)]}, and not {values[missing[0]]}"
