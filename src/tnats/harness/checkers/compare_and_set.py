"""C9: an update succeeds only on the revision that it expected.

Property: between the expected revision and the one that a successful update got, no other known write to the key has
a revision. (That a refusal had a reason is judged with the order of everything else, in C8.)
Cost: O(n log n). Source: the contract's K9; ADR-8.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.linearizability import Call
from tnats.harness.registers import calls_by_key, shown
from tnats.harness.workloads.register import CONFLICT


def check(evidence: Evidence) -> Result:
    faults = [text for key, calls in calls_by_key(evidence.history).items() for text in between(key, calls)]
    return result("C9", "updates succeed only on the expected revision", faults)


def between(key: str, calls: list[Call]) -> Iterator[str]:
    """Successful updates with a write between what they expected and what they got."""
    written = [call for call in calls if call.f != "get" and call.result not in (None, CONFLICT)]
    revisions = sorted(call.result[1] for call in written)
    for call in written:
        expected = call.argument[1]
        if call.f != "update" or call.end is None:
            continue
        got = call.result[1]
        low, high = bisect_right(revisions, expected), bisect_left(revisions, got)
        if got <= expected:
            yield f"{key}: {shown(call)}, not after the revision that it expected"
        elif low < high:
            yield f"{key}: {shown(call)}, but revision {revisions[low]} came between"
