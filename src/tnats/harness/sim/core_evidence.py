"""What a run of core messaging leaves to be judged: connections, messages, subscriptions, requests.

Times here are ticks: indexes of the run's recording, which order all events strictly, those at one virtual instant too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import attrs

from tnats.records import define

NEVER = 1 << 62


@define(eq=False)
class Session:
    """One connection of one client, from log-in to its end."""

    actor: str
    number: int
    opened: int
    ended: int = NEVER
    round_trips: list[tuple[int, int]] = attrs.field(factory=list)
    """Flushes that began and ended well on this connection, as (start, end)."""

    def proof(self, tick: int) -> int:
        """The end of the first round trip that began after `tick`: by then the server had handled what was sent before.

        NEVER when there was none.
        """
        return next((end for start, end in self.round_trips if start >= tick), NEVER)


@define(eq=False)
class Sent:
    """A message as it was published.

    `session` is the connection that it went out on; None when there was none, or nobody can say when it did.
    """

    id: str
    tick: int
    session: Session | None
    subject: str
    payload: bytes
    headers: bool
    handled: int = NEVER
    """By this tick the server had handled it, on the connection it was published on."""


@define(eq=False)
class Got:
    """A message as a subscription got it."""

    id: str
    tick: int
    subject: str
    payload: bytes
    header: str | None


@define(eq=False)
class Interest:
    """A subscription of one client, over all its connections. `known`: (session, tick by which the server had it)."""

    actor: str
    label: str
    subject: str
    queue: str
    opened: int
    closed: int = NEVER
    """When its client ended it."""
    gone: int = NEVER
    """By when the server knew of that, as a round trip proved."""
    on: list[Session] = attrs.field(factory=list)
    """Every connection that it was made or renewed on."""
    known: list[tuple[Session, int]] = attrs.field(factory=list)
    got: list[Got] = attrs.field(factory=list)
    dropped: int = 0
    """Messages that the client dropped because its queue was full."""

    def saw_all(self, published: int, handled: int) -> bool:
        """Whether it was connected throughout, so that it must have got a message of these ticks.

        The connection must have known the subscription before the message was published, and have made a round trip
        after the server handled it, with the subscription still open.
        """
        for session, since in self.known:
            if since <= published < session.ended and session.proof(handled) < min(self.closed, session.ended):
                return True
        return False

    def is_clean(self, handled: int) -> bool:
        """Whether none of its connections ended before: the server may not have learnt of that end yet."""
        return all(session.ended > handled for session in self.on)

    def may_have(self, published: int, handled: int) -> bool:
        """Whether it may have been given a message that was published and handled at these ticks."""
        return self.opened <= handled and published <= self.gone


@define(eq=False)
class Asked:
    """A request. `outcome` is "reply", "no responders", "timed out", "lost", or "" while it is under way."""

    id: str
    actor: str
    tick: int
    session: Session | None
    subject: str
    ended: int = NEVER
    outcome: str = ""
    reply: bytes = b""


@define
class CoreEvidence:
    """Everything that the checkers look at."""

    sent: dict[str, Sent] = attrs.field(factory=dict)
    interests: list[Interest] = attrs.field(factory=list)
    sessions: list[Session] = attrs.field(factory=list)
    asked: list[Asked] = attrs.field(factory=list)

    def prove_handled(self) -> None:
        """Set `handled` of every message that a round trip of its connection vouches for."""
        for message in self.sent.values():
            if message.session is not None:
                message.handled = message.session.proof(message.tick)

    def must_be_refused(self, actor: str, subject: str) -> bool:
        """Whether nobody ever listened on `subject`, so that a request of `actor` is told so.

        A client whose own wildcard takes in its inbox may hear of it on that subscription alone, as with nats-server.
        """
        return not any(
            matches(interest.subject, subject) or (interest.actor == actor and matches(interest.subject, "_INBOX.x.y"))
            for interest in self.interests
        )

    def groups(self) -> Iterator[tuple[str, list[Interest]]]:
        """The queue groups with their members."""
        found: dict[str, list[Interest]] = {}
        for interest in self.interests:
            if interest.queue:
                found.setdefault(interest.queue, []).append(interest)
        yield from found.items()


@cache
def matches(pattern: str, subject: str) -> bool:
    """The oracle of subject matching, token by token (NATS documentation, "Subject-Based Messaging")."""
    wanted, given = pattern.split("."), subject.split(".")
    for place, token in enumerate(wanted):
        if token == ">" and place == len(wanted) - 1:
            return len(given) > place
        if place >= len(given) or (token != "*" and token != given[place]):
            return False
    return len(wanted) == len(given)
