"""What one client has subscribed to: SUB, UNSUB, and how subscriptions end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, ValuesView
from typing import TYPE_CHECKING

from tnats.broker.hot.message import Subscription
from tnats.limits import UNSUBSCRIBES_PER_STEP_MAX
from tnats.subjects.tokens import is_valid_pattern, to_text
from tnats.wire import errors
from tnats.wire.client import parse_sub_arguments, parse_unsub_arguments

if TYPE_CHECKING:
    from tnats.broker.account import Account
    from tnats.broker.connection import Connection

RESERVED_QUEUE = b"_sys_"


class Subscriptions:
    """The subscriptions of one connection, by sid."""

    __slots__ = ("_by_sid", "_connection", "_leaving")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._by_sid: dict[bytes, Subscription] = {}
        self._leaving: Iterator[tuple[Account, Subscription]] = iter(())
        """Those that have ended together and are not taken out yet; nothing is delivered to them."""

    def __len__(self) -> int:
        return len(self._by_sid)

    def values(self) -> ValuesView[Subscription]:
        """All of them, oldest first."""
        return self._by_sid.values()

    # ------------------------------------------------------------------ what the client says

    def on_sub(self, arguments: bytes) -> None:
        """Handle SUB."""
        connection = self._connection
        parsed = parse_sub_arguments(arguments)
        if parsed is None:
            connection.violate("bad SUB arguments")
            return
        subject, queue, sid = parsed
        options, identity = connection.broker.options, connection.login.identity
        if queue == RESERVED_QUEUE or not identity.may_subscribe(subject, queue):
            connection.outbound.put_bytes(errors.subscription_violation(subject, queue))
            connection.broker.log.error(f"{connection} - Subscription Violation - subject {to_text(subject)!r}")
        elif 0 <= options.max_subscription_tokens <= subject.count(b"."):
            connection.outbound.put_bytes(errors.too_many_tokens(subject))
        elif 0 <= options.max_subscriptions <= len(self._by_sid):
            connection.send_error(errors.MAX_SUBSCRIPTIONS_EXCEEDED)
        elif sid in self._by_sid:
            connection.say_ok()
        elif not is_valid_pattern(subject):
            connection.send_error(errors.INVALID_SUBJECT)
        else:
            subscription = Subscription(connection, subject, queue, sid)
            subscription.checked = identity.needs_delivery_check(subject, queue)
            self._by_sid[sid] = subscription
            connection.account.subscribe(subscription)
            connection.say_ok()

    def on_unsub(self, arguments: bytes) -> None:
        """Handle UNSUB."""
        parsed = parse_unsub_arguments(arguments)
        if parsed is None:
            self._connection.violate("bad UNSUB arguments")
            return
        sid, max_msgs = parsed
        subscription = self._by_sid.get(sid)
        if subscription is not None:
            if max_msgs > subscription.delivered:
                subscription.max_msgs = max_msgs
            else:
                self.end(subscription)
        self._connection.say_ok()

    # ------------------------------------------------------------------ their end

    def end(self, subscription: Subscription) -> None:
        """Unsubscribe; nothing happens if that was done before."""
        if self._by_sid.get(subscription.sid) is subscription:
            del self._by_sid[subscription.sid]
            self._connection.account.unsubscribe(subscription)

    def judge_again(self) -> None:
        """Permissions have changed: subscriptions no longer allowed go, and the client is told."""
        connection = self._connection
        identity = connection.login.identity
        for subscription in list(self._by_sid.values()):
            subject, queue = subscription.subject, subscription.queue
            if not identity.may_subscribe(subject, queue):
                self.end(subscription)
                connection.outbound.put_bytes(errors.subscription_violation(subject, queue, subscription.sid))
            else:
                subscription.checked = identity.needs_delivery_check(subject, queue)
        connection.account.plans.invalidate_all()

    def leave(self) -> None:
        """The client enters another account, or is gone: nothing is delivered any more, and taking them out begins."""
        account, ended = self._connection.account, self._by_sid
        self._by_sid = {}
        for subscription in ended.values():
            subscription.silence()
        self._leaving = itertools.chain(self._leaving, ((account, each) for each in ended.values()))
        self.leave_some()

    def leave_some(self) -> bool:
        """Take out the next of those that have ended together; whether there may be more."""
        count = 0
        for account, subscription in itertools.islice(self._leaving, UNSUBSCRIBES_PER_STEP_MAX):
            account.unsubscribe(subscription)
            count += 1
        return count == UNSUBSCRIBES_PER_STEP_MAX
