"""What users may publish, subscribe to and receive."""

from __future__ import annotations

import pytest

from tnats.auth.permissions import (
    Permissions,
    ReplyGrants,
    ResponsePermission,
    Rules,
    SubjectPermission,
    entry_problem,
)
from tnats.limits import REPLY_GRANTS_MAX


def publisher(allow: list[str] | None = None, deny: list[str] | None = None) -> Rules:
    return Rules(Permissions(publish=SubjectPermission(None if allow is None else tuple(allow), tuple(deny or ()))))


def subscriber(allow: list[str] | None = None, deny: list[str] | None = None) -> Rules:
    return Rules(Permissions(subscribe=SubjectPermission(None if allow is None else tuple(allow), tuple(deny or ()))))


@pytest.mark.parametrize(
    ("allow", "deny", "subject", "allowed"),
    [
        (None, [], b"foo", True),
        ([], [], b"foo", False),
        (["foo"], [], b"foo", True),
        (["foo.*", "bar.>"], [], b"bar.a.b", True),
        (["foo.*"], [], b"foo.a.b", False),
        (["foo.*"], [], b"foo.*", True),
        (["foo.>"], ["foo.secret"], b"foo.secret", False),
        (["foo.>"], ["foo.secret"], b"foo.open", True),
        (None, [">"], b"foo", False),
        (["x.>"], [], b"x..y", False),
    ],
)
def test_publish(allow: list[str] | None, deny: list[str], subject: bytes, allowed: bool) -> None:
    """No list allows all, an empty one nothing, deny wins."""
    assert publisher(allow, deny).may_publish(subject) is allowed


@pytest.mark.parametrize(
    ("allow", "deny", "pattern", "queue", "allowed"),
    [
        (None, [], b"foo.>", None, True),
        ([], [], b"foo", None, True),
        (["foo.*"], [], b"foo.*", None, True),
        (["foo.*"], [], b"foo.bar", None, True),
        (["foo.*"], [], b"foo.>", None, False),
        (["foo.bar"], [], b"foo.*", None, False),
        (["foo.*"], [], b">", None, False),
        (["foo.>"], [], b"foo.*.a", None, True),
        (["foo"], [], b"foo", b"q", True),
        (["foo v1"], [], b"foo", b"v1", True),
        (["foo v1"], [], b"foo", b"v2", False),
        (["foo v1"], [], b"foo", None, False),
        (["foo", "foo v1"], [], b"foo", None, True),
        (["foo", "foo v1"], [], b"foo", b"v1", True),
        (["foo", "foo v1"], [], b"foo", b"v2", False),
        (["foo v1.*"], [], b"foo", b"v1.a", True),
        (["foo v1.*"], [], b"foo", b"v1.*", True),
        (["foo v1.*"], [], b"foo", b"v1", False),
        (["foo  *.dev"], [], b"foo", b"a.dev", True),
        (None, ["foo v1"], b"foo", b"v1", False),
        (None, ["foo v1"], b"foo", b"v2", True),
        (None, ["foo v1"], b"foo", None, True),
        (None, ["foo"], b"foo", b"v1", False),
        (None, ["foo.*"], b"foo.bar", None, False),
        (None, ["foo.*"], b"foo.*", None, False),
        (None, ["foo.*"], b"foo.>", None, True),
        (None, ["foo.bar"], b"foo.*", None, True),
    ],
)
def test_subscribe(
    allow: list[str] | None, deny: list[str], pattern: bytes, queue: bytes | None, allowed: bool
) -> None:
    """A subscription must lie inside what is allowed, and may be wider than what is denied."""
    assert subscriber(allow, deny).may_subscribe(pattern, queue) is allowed


@pytest.mark.parametrize(
    ("deny", "pattern", "subject"),
    [
        ("*.secret", b"foo.*", b"foo.secret"),
        ("foo.*.bar", b"foo.baz.*", b"foo.baz.bar"),
        ("*.*.bar", b"foo.*.*", b"foo.x.bar"),
        ("a.>", b"*.b", b"a.b"),
    ],
)
@pytest.mark.parametrize("queue", [None, b"q"])
def test_denied_messages_are_kept_from_a_wider_subscription(
    deny: str, pattern: bytes, subject: bytes, queue: bytes | None
) -> None:
    """A subscription that overlaps a deny is accepted, filtered, and still gets everything else."""
    rules = subscriber(deny=[deny])
    assert rules.may_subscribe(pattern, queue)
    assert rules.needs_delivery_check(pattern, queue)
    assert not rules.may_receive(subject, queue)
    assert rules.may_receive(b"foo.x.y", queue)


def test_delivery_needs_no_check_where_nothing_denied_can_arrive() -> None:
    """A literal plain subscription was judged as a whole; patterns apart from every deny meet none."""
    rules = subscriber(deny=["foo.secret"])
    assert not rules.needs_delivery_check(b"foo.open")
    assert not rules.needs_delivery_check(b"bar.*")
    assert not rules.needs_delivery_check(b"bar", b"q")
    assert rules.needs_delivery_check(b">")


def test_deny_of_a_group_filters_that_group_only() -> None:
    """Other groups and plain subscriptions receive."""
    rules = subscriber(deny=["foo v1"])
    assert not rules.may_receive(b"foo", b"v1")
    assert rules.may_receive(b"foo", b"v2")
    assert rules.may_receive(b"foo")


def test_response_permission_takes_the_blanket_allow_away() -> None:
    """Who may respond may not publish at will, unless an allow list says so."""
    responder = Permissions(responses=ResponsePermission())
    assert not Rules(responder).may_publish(b"foo")
    assert Rules(Permissions(SubjectPermission(("foo",)), responses=ResponsePermission())).may_publish(b"foo")


def test_reply_may_be_used_so_often_and_so_long() -> None:
    """The count and the time of a grant are kept exactly; a new delivery starts afresh."""
    grants = ReplyGrants(ResponsePermission(max_msgs=2, expires_ns=100))
    grants.grant(b"r", 0)
    assert [grants.use(b"r", 1) for _ in range(3)] == [True, True, False]
    grants.grant(b"r", 10)
    assert grants.use(b"r", 110)
    assert not grants.use(b"r", 111)
    assert not grants.use(b"other", 0)


def test_negative_limits_do_not_limit() -> None:
    """Any number of messages, for ever."""
    grants = ReplyGrants(ResponsePermission(max_msgs=-1, expires_ns=-1))
    grants.grant(b"r", 0)
    assert all(grants.use(b"r", 10**18) for _ in range(100))


def test_grants_are_bounded() -> None:
    """The oldest go when there are too many."""
    grants = ReplyGrants(ResponsePermission(max_msgs=1, expires_ns=100))
    for index in range(REPLY_GRANTS_MAX + 10):
        grants.grant(b"r%d" % index, index)
    assert len(grants) == REPLY_GRANTS_MAX
    assert not grants.use(b"r9", 50)
    assert grants.use(b"r10", 50)


@pytest.mark.parametrize(
    ("entry", "with_queue", "problem"),
    [
        ("foo.>", False, None),
        ("foo q", True, None),
        ("foo q", False, 'subject "foo q" is not a valid subject'),
        ("foo..bar", True, 'subject "foo..bar" is not a valid subject'),
        ("foo..bar q", True, 'subject "foo..bar" is not a valid subject'),
        ("foo q..r", True, 'queue "q..r" is not a valid queue'),
        ("a b c", True, 'subject "a b c" is not a valid subject'),
        ("", True, 'subject "" is not a valid subject'),
    ],
)
def test_entries_are_checked(entry: str, with_queue: bool, problem: str | None) -> None:
    """nats-server's words for entries that are no subject, or no subject and queue."""
    assert entry_problem(entry, with_queue=with_queue) == problem
