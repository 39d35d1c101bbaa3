"""C18 for advisories: what was done is told to who listens, once, and nothing else is.

Property: of each confirmed change that lies within a session of a listener (it began after the session, and ended
before a moment until which the session is known to have heard everything) there is an advisory; no more advisories tell
of something than were attempts at it; none has another's id. Cost: sessions times history.
Source: JetStream documentation, "Advisories"; published schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from tnats.harness.checkers.evidence import Result, result
from tnats.harness.history import Operation
from tnats.records import define, frozen


@frozen
class Heard:
    """An advisory: its subject behind the prefix, its id and its type."""

    subject: str
    id: str
    type: str


@define
class Session:
    """One connection of a listener: heard is everything between two places of the history."""

    begun: int
    until: int = 0
    heard: list[Heard] = attrs.field(factory=list)


def check(sessions: list[Session], changes: Mapping[str, list[Operation]]) -> Result:
    """`changes`: by the subject of their advisory."""
    return result("C18", "what is done is told to who listens", faults(sessions, changes))


def faults(sessions: list[Session], changes: Mapping[str, list[Operation]]) -> Iterator[str]:
    ids: dict[str, str] = {}
    counts: dict[str, int] = {}
    for session in sessions:
        for heard in session.heard:
            counts[heard.subject] = counts.get(heard.subject, 0) + 1
            if heard.id in ids:
                yield f"the advisories {ids[heard.id]} and {heard.subject} have the id {heard.id}"
            ids[heard.id] = heard.subject
    for subject, operations in changes.items():
        for session in sessions:
            own = [each for each in operations if is_within(each, session)]
            count = sum(heard.subject == subject for heard in session.heard)
            if count < len(own):
                text = f"{own[-1].f} of {own[-1].value[0]} was confirmed {len(own)} times"
                yield f"{text}, {subject} was heard {count} times"
        tried = [each for each in operations if not each.is_failed]
        if counts.get(subject, 0) > len(tried):
            yield f"{subject} was heard {counts[subject]} times; it was tried {len(tried)} times"


def is_within(operation: Operation, session: Session) -> bool:
    """Whether a confirmed change happened for certain while everything was heard."""
    if not operation.is_ok or operation.end is None:
        return False
    return session.begun <= operation.invoke.index and operation.end.index < session.until
