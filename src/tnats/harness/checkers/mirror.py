"""C19: a mirror is the image of its origin.

Property: what the origin acknowledged stands in the mirror at the same sequence, unless it was to be removed (it may
have gone before the mirror came by); what the mirror holds was published to the origin; at rest its last sequence is
the origin's. What was removed from the origin may stay in the mirror. Cost: O(n log n).
Source: the contract's K4, K8; JetStream documentation, "Source and Mirror Streams".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tnats.harness.checkers import removal
from tnats.harness.checkers.evidence import Evidence, Replica, Result, result

TITLE = "a mirror is the image of its origin"


def check(origin: Evidence, mirrors: list[Replica]) -> Result:
    """`origin` has the history of the origin and, in the order of `mirrors`, what it held at the same times."""
    return result("C19", TITLE, faults(origin, mirrors))


def faults(origin: Evidence, mirrors: list[Replica]) -> Iterator[str]:
    for replica, source in zip(mirrors, origin.readings, strict=True):
        yield from removal.strangers(origin, replica)
        yield from removal.missing(origin, replica, removal.Limits())
        if replica.last_seq != source.last_seq:
            yield f"{replica.node} ends at {replica.last_seq}, its origin at {source.last_seq}"


def check_image(pairs: Iterable[tuple[Replica, Replica]]) -> Result:
    """(stream, its mirror), read one behind the other while nothing came: they hold the same at the same sequences."""
    return result("C19", TITLE, differences(pairs))


def differences(pairs: Iterable[tuple[Replica, Replica]]) -> Iterator[str]:
    for origin, image in pairs:
        for seq in sorted(origin.messages.keys() | image.messages.keys()):
            here, there = origin.messages.get(seq), image.messages.get(seq)
            if here is None or there is None or (here.value, here.subject) != (there.value, there.subject):
                held = [each and f"{each.value} on {each.subject}" for each in (here, there)]
                yield f"{origin.node} holds {held[0]} at {seq}, {image.node} {held[1]}"
        if origin.last_seq != image.last_seq:
            yield f"{image.node} ends at {image.last_seq}, its origin at {origin.last_seq}"
