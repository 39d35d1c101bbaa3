"""Who receives what: the subscriptions of one client by their wire id, and how they come back after a reconnect."""

from __future__ import annotations

import re
from typing import Protocol

from tnats.client.errors import ClientError, PermissionsViolation
from tnats.client.message import Message
from tnats.records import frozen
from tnats.subjects.tokens import to_bytes
from tnats.wire.client import encode_sub, encode_unsub

DENIED = re.compile(r'Permissions Violation for (Subscription|Publish) to "((?:[^"\\]|\\.)*)"(?: using queue "(.*?)")?')
ESCAPED = re.compile(r"\\(.)")


@frozen
class Denial:
    """A permissions violation taken apart."""

    error: PermissionsViolation
    publish: bool
    subject: str
    queue: str

    @classmethod
    def parse(cls, error: PermissionsViolation) -> Denial | None:
        """From the server's text, in which names are quoted with backslashes as Go's %q does."""
        found = DENIED.match(str(error))
        if found is None:
            return None
        return cls(error, found[1] == "Publish", ESCAPED.sub(r"\1", found[2]), ESCAPED.sub(r"\1", found[3] or ""))


class Interest(Protocol):
    """One entry: a subscription, or the inbox of requests."""

    @property
    def subject(self) -> str: ...

    @property
    def queue(self) -> str: ...

    @property
    def left_count(self) -> int | None:
        """Messages until the server may forget it; None for no end."""

    def deliver(self, message: Message) -> None:
        """Take a message from the protocol loop."""

    def renewed(self) -> None:
        """A fresh connection has been told of it: what the last one had been asked for will not come."""

    def end(self, error: ClientError | None) -> None:
        """Nothing more will arrive. Idempotent."""

    def denied(self, denial: Denial) -> bool:
        """The server refused a publish or a subscription: whether it was this subscription."""


class SubscriptionTable:
    """Interests by wire id (sid), in the order they were made."""

    def __init__(self) -> None:
        self.interests: dict[bytes, Interest] = {}
        self._last_sid = 0

    def add(self, interest: Interest) -> bytes:
        """Enter `interest`; returns its sid."""
        self._last_sid += 1
        sid = b"%d" % self._last_sid
        self.interests[sid] = interest
        return sid

    def remove(self, sid: bytes) -> bool:
        """Forget it; whether it was there."""
        return self.interests.pop(sid, None) is not None

    def renewal(self) -> bytes:
        """The operations that make a fresh connection know every entry; tells the entries."""
        for interest in list(self.interests.values()):
            interest.renewed()
        return b"".join(subscribe_operation(sid, interest) for sid, interest in self.interests.items())

    def deny(self, error: PermissionsViolation) -> None:
        """End the subscriptions, or tell the waiting requests, that the server's refusal names."""
        denial = Denial.parse(error)
        if denial is not None:
            for sid, interest in list(self.interests.items()):
                if interest.denied(denial):
                    del self.interests[sid]
                    interest.end(error)

    def end_all(self, error: ClientError | None) -> None:
        """The client is over."""
        for interest in self.interests.values():
            interest.end(error)
        self.interests.clear()


def subscribe_operation(sid: bytes, interest: Interest) -> bytes:
    """SUB, and UNSUB with the number of messages that are left if there is an end."""
    operation = encode_sub(to_bytes(interest.subject), sid, to_bytes(interest.queue))
    if interest.left_count is not None:
        operation += encode_unsub(sid, interest.left_count)
    return operation
