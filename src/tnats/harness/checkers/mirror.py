"""C19: a mirror is the image of its origin.

Property: what the origin acknowledged stands in the mirror at the same sequence, unless it was to be removed (it may
have gone before the mirror came by); what the mirror holds was published to the origin; at rest its last sequence is
the origin's. What was removed from the origin may stay in the mirror. Cost: O(n log n).
Source: the contract's K4, K8; JetStream documentation, "Source and Mirror Streams".
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers import removal
from tnats.harness.checkers.evidence import Evidence, Replica, Result, result


def check(origin: Evidence, mirrors: list[Replica]) -> Result:
    """`origin` has the history of the origin and, in the order of `mirrors`, what it held at the same times."""
    return result("C19", "a mirror is the image of its origin", faults(origin, mirrors))


def faults(origin: Evidence, mirrors: list[Replica]) -> Iterator[str]:
    for replica, source in zip(mirrors, [*origin.replicas, *origin.restarted], strict=True):
        yield from removal.strangers(origin, replica)
        yield from removal.missing(origin, replica, removal.Limits())
        if replica.last_seq != source.last_seq:
            yield f"{replica.node} ends at {replica.last_seq}, its origin at {source.last_seq}"
