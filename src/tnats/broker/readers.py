"""Readers of one account that are behind: how much may be published to whom, and who waits until more may be.

Theory of operation
-------------------
A connection has room until three quarters of max_pending wait for it. Who found none on a subject asks to be told,
once, when that may have changed:

*Room.* Each write to a connection that leaves it room has one of those told who wait for it, in the order in which they
asked: they take turns, and the one who is told may fill it again. What the connection has yet to write is enough to go
on with meanwhile. The write that leaves nothing has all of them told: nobody waits for a connection that has nothing to
write, hence nobody for ever.

*Interest.* Who waits on a subject is told when somebody subscribes to it or unsubscribes, as a client that leaves does.

Writes and changes of interest happen in the midst of things: it is told when these are through (`Exchange.settle`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tnats.broker.hot.message import Subscription
from tnats.broker.hot.outbound import Exchange, Outbound
from tnats.broker.plan_table import PlanTable
from tnats.subjects.tokens import has_wildcard, subject_matches

NO_BOUND = 2**62
"""Room of those who are inside the server."""

Told = Callable[[bytes], None]
"""Called with the subject that was asked about."""


class Readers:
    """See the module's text. An `InterestObserver` of the account."""

    def __init__(self, exchange: Exchange, plans: PlanTable) -> None:
        self._exchange = exchange
        self._plans = plans
        self._waits: dict[bytes, dict[Told, tuple[Outbound, ...]]] = {}
        """Who waits on each subject, and for which connections."""
        self._lines: dict[Outbound, dict[tuple[bytes, Told], None]] = {}
        """The same by connection."""
        self._to_tell: dict[tuple[bytes, Told], None] = {}

    def room(self, subject: bytes) -> int | None:
        """How many bytes may be published on `subject` before all whom they reach have fallen behind.

        0: all have. None: they would reach nobody.
        """
        return _room_of(self._plans.outbounds(subject))

    def on_room(self, subject: bytes, told: Told) -> None:
        """Call `told` once: soon if the room on `subject` is not 0, else when that may have changed."""
        outbounds = self._plans.outbounds(subject)
        if _room_of(outbounds) != 0:
            self._tell(subject, told)
            return
        waits = self._waits.setdefault(subject, {})
        if told not in waits:
            waits[told] = tuple(dict.fromkeys(filter(None, outbounds)))
            for outbound in waits[told]:
                self._lines.setdefault(outbound, {})[subject, told] = None
                outbound.on_room = self._on_room

    def forget(self, subject: bytes, told: Told) -> None:
        """Do not call `told` any more; nothing happens if it was not going to be called."""
        self._to_tell.pop((subject, told), None)
        waits = self._waits.get(subject, {})
        for outbound in waits.pop(told, ()):
            line = self._lines[outbound]
            del line[subject, told]
            if not line:
                del self._lines[outbound]
                if outbound.on_room == self._on_room:  # and not that of another account, which its client is in now
                    outbound.on_room = None
        if not waits:
            self._waits.pop(subject, None)

    # ------------------------------------------------------------------ what they wait for

    def _on_room(self, outbound: Outbound) -> None:
        line = self._lines[outbound]
        for subject, told in [next(iter(line))] if outbound.pending() else list(line):
            self._tell(subject, told)

    def on_subscribed(self, subscription: Subscription) -> None:
        self._on_interest(subscription.subject)

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._on_interest(subscription.subject)

    def _on_interest(self, pattern: bytes) -> None:
        subjects = [pattern]
        if has_wildcard(pattern):
            subjects = [subject for subject in self._waits if subject_matches(pattern, subject)]
        for subject in subjects:
            for told in list(self._waits.get(subject, ())):
                self._tell(subject, told)

    def _tell(self, subject: bytes, told: Told) -> None:
        self.forget(subject, told)
        if not self._to_tell:
            self._exchange.announce(self)
        self._to_tell[subject, told] = None

    def drain(self) -> None:
        """Tell those who are to be told; whom that leads to comes next time."""
        for wait in list(self._to_tell):
            if wait in self._to_tell:  # and was not forgotten meanwhile
                del self._to_tell[wait]
                subject, told = wait
                told(subject)
        if self._to_tell:
            self._exchange.announce(self)


def _room_of(outbounds: Sequence[Outbound | None]) -> int | None:
    most: int | None = None
    for outbound in outbounds:
        room = NO_BOUND if outbound is None else outbound.room()
        if most is None or room > most:
            most = room
    return most
