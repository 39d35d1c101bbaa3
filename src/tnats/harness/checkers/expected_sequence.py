"""C9 for streams: a publish that expects a last sequence is stored only behind it.

Property: of the stream (`expected`): the acknowledged sequence is the next one. Of the subject (`expected_subject`): no
message on that subject stands between the expected and the acknowledged sequence. A refusal is right only if another
publish can have come between: one that was acknowledged beyond the expectation and had begun before the refusal, or
one whose fate nobody knew by then. What a loss of power within a sync interval took is no last message from then on;
and a server that passes over sequences then may refuse what nobody published behind.
Cost: O(n log n) for n acknowledgements. Source: the contract's K9; ADR-28.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.checkers.removal import doomed
from tnats.harness.history import Operation

CONFLICT = "conflict"


def check(evidence: Evidence) -> Result:
    return result("C9", "expected sequences are kept", faults(evidence))


def faults(evidence: Evidence) -> Iterator[str]:
    publishes = evidence.history.operations("publish", "batch")
    gone = doomed(evidence)  # a message that may have been removed is no last one
    on_subject: dict[str, list[Operation]] = {}
    for operation in publishes:
        is_stored = operation.is_ok and operation.f == "publish" and not operation.told("duplicate")
        if is_stored and seq_of(operation) not in gone:
            on_subject.setdefault(operation.invoke.extra["subject"], []).append(operation)
    for stored in on_subject.values():
        stored.sort(key=seq_of)
    for operation in publishes:
        extra = operation.invoke.extra
        if operation.told("duplicate"):
            continue
        if operation.is_ok and "expected" in extra and seq_of(operation) != extra["expected"] + 1:
            yield f"{operation.value} expected last sequence {extra['expected']} and was stored at {seq_of(operation)}"
        elif operation.is_ok and "expected_subject" in extra:
            yield from between(evidence, operation, on_subject.get(extra["subject"], []))
        elif operation.is_failed and operation.end is not None and operation.end.error == CONFLICT:
            if not evidence.unsynced_ns and extra.get("expected_subject") not in gone:
                yield from refused(operation, publishes)


def between(evidence: Evidence, operation: Operation, stored: list[Operation]) -> Iterator[str]:
    """What stands on the subject between what was expected and what was acknowledged."""
    expected, subject = operation.invoke.extra["expected_subject"], operation.invoke.extra["subject"]
    got = seq_of(operation)
    for other in stored[bisect_right(stored, expected, key=seq_of) : bisect_left(stored, got, key=seq_of)]:
        if not evidence.was_lost(other, operation):
            text = f"{operation.value} expected {expected} as the last sequence on {subject} and was stored at {got}"
            yield f"{text}, but {seq_of(other)} came between"
            return


def seq_of(operation: Operation) -> int:
    seq: int = operation.told("seq")
    return seq


def refused(operation: Operation, publishes: list[Operation]) -> Iterator[str]:
    """A refusal that nothing explains."""
    extra = operation.invoke.extra
    expected = extra.get("expected", extra.get("expected_subject"))
    assert operation.end is not None
    for other in publishes:
        if other is operation or other.invoke.index > operation.end.index or other.is_failed:
            continue
        if other.end is None or other.end.index > operation.end.index or other.told("seq") > expected:
            return
    yield f"{operation.value} expected last sequence {expected} and was refused, though nobody published behind it"
