"""C19 for sources: a stream that gathers from others has what they acknowledged, once, in each origin's order.

Property: each message says which message of which origin it is (`Nats-Stream-Source`); along the stream, an origin's
sequences rise; what is there was published to that origin, on a subject that is taken from it, and stands at the
sequence that the origin acknowledged, or holds it at (when clocks are moved a message id's window passes, and what is
sent again is stored twice; C4 judges that); all that an origin acknowledged on such a subject is there, unless its
removal was asked for (it may have gone before the source came by). Of an origin that was deleted and made anew
(`is_made_anew`) the lives follow each other, sequences rise in each of them, no value comes twice, and all that it
holds now is there.
Cost: O(n log n). Source: the contract's K4, K5, K8; JetStream documentation, "Source and Mirror Streams".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tnats.harness.checkers.evidence import Evidence, Replica, Result, Stored, result
from tnats.harness.checkers.removal import doomed
from tnats.harness.history import Operation
from tnats.records import frozen
from tnats.subjects.tokens import subject_matches

HEADER = "Nats-Stream-Source"
LIFE_WORD = 5
"""Which word of it names the life of the origin."""


@frozen
class Origin:
    """The history of an origin, and what is taken from it."""

    evidence: Evidence
    filter: str = ">"
    is_made_anew: bool = False
    is_windowed: bool = True
    """Message ids were known throughout."""


@frozen
class Place:
    """Where a gathered message comes from: the origin, which of its lives, and the sequence there."""

    origin: str
    life: str
    seq: int


@frozen
class Published:
    """A message that was published to an origin; `seq` None: nobody knows whether, or where."""

    value: str
    subject: str
    seq: int | None
    is_refused: bool


def check(origins: Mapping[str, Origin], replicas: list[Replica]) -> Result:
    return result("C19", "sources bring everything, once and in order", faults(origins, replicas))


def faults(origins: Mapping[str, Origin], replicas: list[Replica]) -> Iterator[str]:
    for number, replica in enumerate(replicas):
        found: dict[str, dict[int, Stored]] = {name: {} for name in origins}
        for seq, stored in sorted(replica.messages.items()):
            place = told_source(stored)
            if place.origin not in origins:
                yield f"{replica.node} holds {stored.value} at {seq}, which is of no origin"
                continue
            found[place.origin][place.seq] = stored
        yield from turned_back(replica)
        for name, origin in origins.items():
            if origin.is_made_anew:
                yield from of_lives(replica, name, origin, origin.evidence.readings[number])
            else:
                yield from of_origin(replica, name, origin, found[name])


def told_source(stored: Stored) -> Place:
    """What a message says of its origin; a place without an origin where it says nothing."""
    words = (stored.headers or {}).get(HEADER, "").split()
    if len(words) < 2 or not words[1].isdecimal():
        return Place("", "", 0)
    return Place(words[0].partition(":")[0], words[LIFE_WORD] if len(words) > LIFE_WORD else "", int(words[1]))


def turned_back(replica: Replica) -> Iterator[str]:
    """Sequences of an origin that do not rise, and lives of it that come back."""
    last: dict[str, Place] = {}
    over: dict[tuple[str, str], None] = {}
    for seq, stored in sorted(replica.messages.items()):
        place = told_source(stored)
        before = last.get(place.origin)
        if before is not None and before.life != place.life:
            over[before.origin, before.life] = None
        elif before is not None and place.seq <= before.seq:
            yield f"{replica.node} holds {place.origin}'s {place.seq} at {seq}, behind its {before.seq}"
        if (place.origin, place.life) in over:
            yield f"{replica.node} holds {place.origin}'s {place.seq} of a life that was over at {seq}"
        last[place.origin] = place


def of_lives(replica: Replica, name: str, origin: Origin, held: Replica) -> Iterator[str]:
    """Of an origin with several lives; `held` is what the last one holds."""
    published = {each.value: each for each in publications(origin.evidence)}
    places: dict[str, int] = {}
    for seq, stored in sorted(replica.messages.items()):
        if told_source(stored).origin != name:
            continue
        each = published.get(stored.value)
        if each is None or each.is_refused or each.subject != stored.subject:
            yield f"{replica.node} holds {stored.value!r} at {seq}, which nobody published to {name}"
        first = places.setdefault(stored.value, seq)
        if first != seq and origin.is_windowed:
            yield f"{replica.node} holds {stored.value} of {name} at {first} and at {seq}"
    for seq, stored in held.messages.items():
        if subject_matches(origin.filter, stored.subject) and stored.value not in places:
            yield f"{name} holds {stored.value} at {seq}; {replica.node} does not hold it"


def of_origin(replica: Replica, name: str, origin: Origin, found: Mapping[int, Stored]) -> Iterator[str]:
    published = {each.value: each for each in publications(origin.evidence)}
    gone = doomed(origin.evidence)
    for place, stored in found.items():
        each = published.get(stored.value)
        if each is None or each.is_refused or each.subject != stored.subject:
            yield f"{replica.node} holds {stored.value!r} as {name}'s {place}, which nobody published there"
        elif each.seq not in (None, place) and not _holds(origin.evidence, place, stored.value):
            yield f"{replica.node} holds {stored.value} as {name}'s {place}; it was acknowledged at {each.seq}"
        elif not subject_matches(origin.filter, stored.subject):
            yield f"{replica.node} holds {stored.value} on {stored.subject}, which is not taken from {name}"
    for each in published.values():
        if each.seq is None or each.seq in found or each.seq in gone:
            continue
        if subject_matches(origin.filter, each.subject):
            yield f"{name} acknowledged {each.value} at {each.seq}; {replica.node} does not hold it"


def _holds(origin: Evidence, seq: int, value: str) -> bool:
    held = (replica.messages.get(seq) for replica in origin.readings)
    return any(stored is not None and stored.value == value for stored in held)


def publications(origin: Evidence) -> Iterator[Published]:
    """Everything that was published, members of batches too; what was tried several times once for each."""
    tries: dict[str, list[Operation]] = {}
    for operation in origin.history.operations("publish"):
        tries.setdefault(operation.value, []).append(operation)
    for value, own in tries.items():
        seq = next((operation.told("seq") for operation in own if operation.is_ok), None)
        subject = own[0].invoke.extra["subject"]
        yield Published(value, subject, seq, is_refused=all(operation.is_failed for operation in own))
    for batch in origin.history.operations("batch"):
        for place, value in enumerate(batch.value, 1):
            seq = batch.told("seq") - len(batch.value) + place if batch.is_ok else None
            yield Published(value, batch.invoke.extra["subject"], seq, batch.is_failed)
