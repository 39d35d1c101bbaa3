"""W12: an object is what its only writer put there last, whole.

Property: every object has one writer, whose operations follow each other: versions. A read returns, byte for byte, a
version that was not followed by a confirmed one before the read began, and not one that begins after it ended; a
version of unknown fate may or may not be there. An object that cannot be read (chunks missing, digest wrong) is one
that its writer was changing meanwhile. Cost: reads times versions. Source: the contract's K1, K9; ADR-20.
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.history import History, Operation

DAMAGED = "damaged"


def check(evidence: Evidence) -> Result:
    return result("C3", "objects are whole, and the newest", faults(evidence))


def spans(history: History) -> dict[str, list[tuple[int, int]]]:
    """By object: from where to where its writer was busy with it, whatever came of that."""
    begun: dict[int | str, tuple[str, int]] = {}
    found: dict[str, list[tuple[int, int]]] = {}
    for event in history.events:
        if event.type == "invoke" and event.f in ("put", "delete"):
            begun[event.process] = event.value[0], event.index
        elif event.process in begun:
            name, begin = begun.pop(event.process)
            found.setdefault(name, []).append((begin, event.index))
    return found


def faults(evidence: Evidence, what: str = "object") -> Iterator[str]:
    """`what` it is that has versions, for people."""
    versions: dict[str, list[Operation]] = {}
    for operation in evidence.history.operations("put", "delete"):
        if not operation.is_failed:
            versions.setdefault(operation.value[0], []).append(operation)
    changes = spans(evidence.history)
    for get in evidence.history.operations("get"):
        if not get.is_ok:
            continue
        name, found = get.result
        assert get.end is not None
        possible = [None, *versions.get(name, [])]
        before = [op for op in versions.get(name, []) if op.end is not None and op.end.index < get.invoke.index]
        if before:
            possible = possible[possible.index(before[-1]) :]
        possible = [op for op in possible if op is None or op.invoke.index < get.end.index]
        if found == DAMAGED:
            if not any(begin < get.end.index and get.invoke.index < end for begin, end in changes.get(name, [])):
                text = f"{what} {name} cannot be read (events {get.invoke.index}..{get.end.index})"
                yield text + ", though nobody changed it meanwhile"
            continue
        values = [None if op is None or op.f == "delete" else op.value[1] for op in possible]
        if found not in values:
            told = ", ".join(map(str, values))
            yield f"{what} {name} is {found} (events {get.invoke.index}..{get.end.index}); possible: {told}"
