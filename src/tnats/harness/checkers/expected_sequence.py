"""C9 for streams: a publish that expects a last sequence is stored only behind it.

Property: of the stream (`expected`): the acknowledged sequence is the next one. Of the subject (`expected_subject`): no
message on that subject stands between the expected and the acknowledged sequence. A refusal is right only if another
publish can have come between: one that was acknowledged beyond the expectation and had begun before the refusal, or
one whose fate nobody knew by then.
Cost: O(n log n) for n acknowledgements. Source: the contract's K9; ADR-28.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.checkers.removal import doomed
from tnats.harness.history import Operation

CONFLICT = "conflict"


def check(evidence: Evidence, *, skips: bool = False) -> Result:
    """`skips`: the server may have passed over sequences, which explains a refusal."""
    return result("C9", "expected sequences are kept", faults(evidence, skips=skips))


def faults(evidence: Evidence, *, skips: bool) -> Iterator[str]:
    publishes = evidence.history.operations("publish", "batch")
    gone = doomed(evidence)  # a message that may have been removed is no last one
    on_subject: dict[str, list[int]] = {}
    for operation in publishes:
        is_stored = operation.is_ok and operation.f == "publish" and not operation.told("duplicate")
        if is_stored and operation.told("seq") not in gone:
            on_subject.setdefault(operation.invoke.extra["subject"], []).append(operation.told("seq"))
    for seqs in on_subject.values():
        seqs.sort()
    for operation in publishes:
        extra = operation.invoke.extra
        if operation.told("duplicate"):
            continue
        if operation.is_ok and "expected" in extra and operation.told("seq") != extra["expected"] + 1:
            expected, got = extra["expected"], operation.told("seq")
            yield f"{operation.value} expected last sequence {expected} and was stored at {got}"
        elif operation.is_ok and "expected_subject" in extra:
            expected, seqs = extra["expected_subject"], on_subject.get(extra["subject"], [])
            between = seqs[bisect_right(seqs, expected) :][:1]
            if between and between[0] < operation.told("seq"):
                yield (
                    f"{operation.value} expected {expected} as the last sequence on {extra['subject']} and was stored "
                    f"at {operation.told('seq')}, but {between[0]} came between"
                )
        elif not skips and operation.is_failed and operation.end is not None and operation.end.error == CONFLICT:
            if extra.get("expected_subject") not in gone:
                yield from refused(operation, publishes)


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
