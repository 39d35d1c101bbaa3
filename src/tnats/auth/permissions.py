"""What a user may publish and subscribe to (security, "Permissions"): the rules as records, and their check.

Rules
-----
* Deny wins over allow. No allow list allows everything; an empty one allows nothing to be published and everything to
  be subscribed to.
* A subscription must lie wholly inside one allowed pattern: allowing `foo.*` permits `foo.*` and `foo.bar`, not
  `foo.>`. (nats-server 2.15.1 compares wildcard tokens as if they were text and lets `foo.>` through.)
* A subscription wholly inside a denied pattern is refused. One that is wider, or shares a queue, is accepted, and
  the denied messages are kept from it at delivery.
* A subscribe entry may name a queue group: `foo workers`. `foo` alone covers plain subscriptions and every group
  unless entries for the subject name groups; then only those (a group entry may hold wildcards).
* With response permissions, a reply subject that was delivered to the client may be published to a limited number of
  times and for a limited time, even where the allow list says no.

`Rules` holds no state that changes and does not cache: the broker asks once per subject and keeps the answer in its
own plan. `ReplyGrants` is the state of one connection.
"""

from __future__ import annotations

from tnats.limits import REPLY_GRANTS_MAX, SECOND_NS
from tnats.records import frozen
from tnats.subjects.tokens import has_wildcard, is_subset, is_valid_subject, subject_matches, subjects_overlap, to_bytes


@frozen
class SubjectPermission:
    """Entries as configured. `allow` None: no list given."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@frozen
class ResponsePermission:
    """How often (negative: any number) and how long (negative: for ever) a delivered reply subject may be used."""

    max_msgs: int = 1
    expires_ns: int = 120 * SECOND_NS


@frozen
class Permissions:
    """None: not restricted."""

    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None
    responses: ResponsePermission | None = None


def split_entry(entry: str) -> tuple[bytes, bytes | None]:
    """A subscribe entry's subject and queue group, if it names one."""
    subject, *queue = entry.split()
    return to_bytes(subject), to_bytes(queue[0]) if queue else None


def entry_problem(entry: str, *, with_queue: bool) -> str | None:
    """What is wrong with a permission entry, in nats-server's words, or None."""
    if is_valid_subject(entry):
        return None
    parts = entry.split()
    if not with_queue or len(parts) != 2:
        return f'subject "{entry}" is not a valid subject'
    if not is_valid_subject(parts[0]):
        return f'subject "{parts[0]}" is not a valid subject'
    if not is_valid_subject(parts[1]):
        return f'queue "{parts[1]}" is not a valid queue'
    return None


class _Patterns:
    """Patterns to compare subjects with: literal ones by hash, the others one by one."""

    __slots__ = ("_literal", "_wild")

    def __init__(self, patterns: tuple[bytes, ...]) -> None:
        self._literal = frozenset(pattern for pattern in patterns if not has_wildcard(pattern))
        self._wild = tuple(pattern for pattern in patterns if has_wildcard(pattern))

    def match(self, subject: bytes) -> bool:
        """`subject` as it is published: its tokens are text."""
        if subject in self._literal:
            return True
        return any(subject_matches(pattern, subject) for pattern in self._wild)

    def contain(self, pattern: bytes) -> bool:
        """`pattern` as it is subscribed to: it must lie inside one of these."""
        if pattern in self._literal:
            return True
        return any(is_subset(pattern, outer) for outer in self._wild)

    def overlap(self, pattern: bytes) -> bool:
        """Whether one of these shares a subject with `pattern`."""
        return any(subjects_overlap(pattern, one) for one in (*self._literal, *self._wild))


class _Groups:
    """Subscribe entries: for all subscriptions (`plain`), or for one queue group each (`queues`)."""

    __slots__ = ("_plain", "_queues")

    def __init__(self, entries: tuple[str, ...]) -> None:
        split = [split_entry(entry) for entry in entries]
        self._plain = _Patterns(tuple(subject for subject, queue in split if queue is None))
        self._queues = tuple((subject, queue) for subject, queue in split if queue is not None)

    def allow(self, pattern: bytes, queue: bytes | None) -> bool:
        named = [group for subject, group in self._queues if is_subset(pattern, subject)] if queue else []
        if queue and named:
            return any(_is_group(queue, group) for group in named)
        return self._plain.contain(pattern)

    def deny(self, pattern: bytes, queue: bytes | None) -> bool:
        if self._plain.contain(pattern):
            return True
        return queue is not None and any(
            is_subset(pattern, subject) and _is_group(queue, group) for subject, group in self._queues
        )

    def deny_message(self, subject: bytes, queue: bytes | None) -> bool:
        if self._plain.match(subject):
            return True
        return queue is not None and any(
            subject_matches(pattern, subject) and _is_group(queue, group) for pattern, group in self._queues
        )


def _is_group(queue: bytes, group: bytes) -> bool:
    return queue == group or (has_wildcard(group) and is_subset(queue, group))


class Rules:
    """The permissions of one user, ready to be asked. Subjects are bytes as on the wire."""

    __slots__ = (
        "_denied_patterns", "_publish_allow", "_publish_deny", "_subscribe_allow", "_subscribe_deny", "responses",
    )  # fmt: skip

    def __init__(self, permissions: Permissions) -> None:
        publish = permissions.publish or SubjectPermission()
        subscribe = permissions.subscribe or SubjectPermission()
        self._publish_allow = None if publish.allow is None else _Patterns(tuple(map(to_bytes, publish.allow)))
        self._publish_deny = _Patterns(tuple(map(to_bytes, publish.deny))) if publish.deny else None
        self._subscribe_allow = _Groups(subscribe.allow) if subscribe.allow else None
        self._subscribe_deny = _Groups(subscribe.deny) if subscribe.deny else None
        self._denied_patterns = tuple(split_entry(entry)[0] for entry in subscribe.deny)
        self.responses = permissions.responses
        if self.responses is not None and self._publish_allow is None:
            self._publish_allow = _Patterns(())  # permission to respond is not permission to publish at will

    def may_publish(self, subject: bytes) -> bool:
        """Whether a message may be published on `subject`, response permissions apart (`ReplyGrants`)."""
        if self._publish_allow is not None and not self._publish_allow.match(subject):
            return False
        return self._publish_deny is None or not self._publish_deny.match(subject)

    def may_publish_all(self, pattern: bytes) -> bool:
        """Whether `may_publish` says yes to every subject that `pattern` matches."""
        if self._publish_allow is not None and not self._publish_allow.contain(pattern):
            return False
        return self._publish_deny is None or not self._publish_deny.overlap(pattern)

    def may_subscribe(self, pattern: bytes, queue: bytes | None = None) -> bool:
        """Whether SUB `pattern` [`queue`] is accepted; ask `needs_delivery_check` next."""
        if self._subscribe_allow is not None and not self._subscribe_allow.allow(pattern, queue):
            return False
        return self._subscribe_deny is None or not self._subscribe_deny.deny(pattern, queue)

    def needs_delivery_check(self, pattern: bytes, queue: bytes | None = None) -> bool:
        """Whether an accepted subscription can meet denied messages, so that `may_receive` must be asked for each."""
        if queue is None and not has_wildcard(pattern):
            return False
        return any(subjects_overlap(denied, pattern) for denied in self._denied_patterns)

    def may_receive(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Whether a message on `subject` may be delivered to a subscription with that queue group."""
        return self._subscribe_deny is None or not self._subscribe_deny.deny_message(subject, queue)


class ReplyGrants:
    """The reply subjects one connection may publish to because they were delivered to it.

    Bounded by REPLY_GRANTS_MAX: the oldest go first. Times are monotonic nanoseconds.
    """

    __slots__ = ("_expires_ns", "_max_msgs", "_replies")

    def __init__(self, permission: ResponsePermission) -> None:
        self._max_msgs = permission.max_msgs
        self._expires_ns = permission.expires_ns
        self._replies: dict[bytes, tuple[int, int]] = {}
        """Reply subject to (time of delivery, messages published to it)."""

    def __len__(self) -> int:
        return len(self._replies)

    def grant(self, reply: bytes, now_ns: int) -> None:
        """`reply` was delivered to the client and `Rules.may_publish` does not cover it. A repeat starts afresh."""
        self._replies.pop(reply, None)
        self._replies[reply] = (now_ns, 0)
        while len(self._replies) > REPLY_GRANTS_MAX:
            del self._replies[next(iter(self._replies))]

    def use(self, subject: bytes, now_ns: int) -> bool:
        """Whether one more message may be published to `subject`; counts it."""
        found = self._replies.get(subject)
        if found is None:
            return False
        granted_ns, used = found
        expired = 0 <= self._expires_ns < now_ns - granted_ns
        if expired or 0 <= self._max_msgs <= used:
            del self._replies[subject]
            return False
        self._replies[subject] = (granted_ns, used + 1)
        return True
