"""Who a connection has shown itself to be, and what that allows it."""

from __future__ import annotations

import enum

from tnats.auth.permissions import ReplyGrants, Rules
from tnats.auth.users import Admitted


class Publishing(enum.Enum):
    """Whether a subject may be published to."""

    DENIED = enum.auto()
    ONCE = enum.auto()
    """This message may, by response permission; the next one has to ask again."""
    ALLOWED = enum.auto()


class Identity:
    """A user's name, rules and granted replies. Pure: times are monotonic nanoseconds passed in."""

    __slots__ = ("_grants", "_rules", "name")

    def __init__(self, admitted: Admitted | None = None) -> None:
        """None: nobody yet, who may do anything where no login is required."""
        user = admitted.user if admitted is not None else None
        self.name = admitted.name if admitted is not None else ""
        """What monitoring shows as `authorized_user`."""
        self._rules = Rules(user.permissions) if user is not None and user.permissions is not None else None
        responses = self._rules.responses if self._rules is not None else None
        self._grants = ReplyGrants(responses) if responses is not None else None

    @property
    def is_restricted(self) -> bool:
        """Whether any permissions are to be asked."""
        return self._rules is not None

    @property
    def may_respond(self) -> bool:
        """Whether delivered reply subjects are to be reported by `note_reply`."""
        return self._grants is not None

    def may_publish(self, subject: bytes, now_ns: int) -> Publishing:
        """Ask for each message, unless the last answer was ALLOWED or DENIED and there are no grants."""
        if self._rules is None or self._rules.may_publish(subject):
            return Publishing.ALLOWED
        if self._grants is not None and self._grants.use(subject, now_ns):
            return Publishing.ONCE
        return Publishing.DENIED

    def may_publish_all(self, pattern: bytes) -> bool:
        """Whether every subject of a pattern may be published to at any time."""
        return self._rules is None or self._rules.may_publish_all(pattern)

    def note_reply(self, reply: bytes, now_ns: int) -> None:
        """A message with this reply subject was delivered."""
        if self._grants is not None and self._rules is not None and not self._rules.may_publish(reply):
            self._grants.grant(reply, now_ns)

    def may_subscribe(self, subject: bytes, queue: bytes | None) -> bool:
        return self._rules is None or self._rules.may_subscribe(subject, queue)

    def needs_delivery_check(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether an accepted subscription can meet denied messages."""
        return self._rules is not None and self._rules.needs_delivery_check(subject, queue)

    def may_receive(self, subject: bytes, queue: bytes | None) -> bool:
        return self._rules is None or self._rules.may_receive(subject, queue)
