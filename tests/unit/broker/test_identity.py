"""What an identity allows, and what has to be asked again."""

from __future__ import annotations

from tnats.auth.permissions import Permissions, ResponsePermission, SubjectPermission
from tnats.auth.users import Admitted, User
from tnats.broker.identity import Identity, Publishing
from tnats.limits import SECOND_NS


def _identity(permissions: Permissions | None) -> Identity:
    return Identity(Admitted(User("u", permissions=permissions), "u"))


def test_nobody_is_not_restricted() -> None:
    """Without a user, or without permissions, everything is allowed for good."""
    for identity in (Identity(), _identity(None)):
        assert not identity.is_restricted
        assert not identity.may_respond
        assert identity.may_publish(b"any", 0) is Publishing.ALLOWED
        assert identity.may_subscribe(b">", None)
        assert not identity.needs_delivery_check(b">", None)
        assert identity.may_receive(b"any", None)


def test_denied_messages_of_wider_subscriptions() -> None:
    """A subscription wider than a denied subject is accepted, and has to be checked at delivery."""
    identity = _identity(Permissions(subscribe=SubjectPermission(deny=("secret",))))
    assert identity.is_restricted
    assert not identity.may_subscribe(b"secret", None)
    assert identity.may_subscribe(b">", None)
    assert identity.needs_delivery_check(b">", None)
    assert not identity.may_receive(b"secret", None)
    assert identity.may_receive(b"other", None)


def test_replies_are_allowed_one_by_one() -> None:
    """Response permission counts every message and ends in time."""
    identity = _identity(Permissions(responses=ResponsePermission(max_msgs=2, expires_ns=10 * SECOND_NS)))
    assert identity.may_respond
    assert identity.may_publish(b"re.1", 0) is Publishing.DENIED
    identity.note_reply(b"re.1", 0)
    asked = [identity.may_publish(b"re.1", SECOND_NS) for _ in range(3)]
    assert asked == [Publishing.ONCE, Publishing.ONCE, Publishing.DENIED]
    identity.note_reply(b"re.2", 0)
    assert identity.may_publish(b"re.2", 11 * SECOND_NS) is Publishing.DENIED
