"""Clients inside the server: JetStream, system events, service imports speak to the broker through these.

An internal client subscribes and publishes like any other, in one account. What it gets is handed to it in batches,
by a plain function call, when the read that brought the messages has been handled: it must not wait and must not
keep the reactor long. What it publishes is routed at once and written at the end of the pass (or, outside of one, as
soon as the current task lets go).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tnats.broker.account import Account
from tnats.broker.hot.inbound import Inbound
from tnats.broker.hot.message import Funnel, Inbox, Message, Origin, Subscription
from tnats.broker.hot.outbound import Exchange


class InternalClient:
    """See the module's text. A `SubscriptionOwner`."""

    __slots__ = ("_next_sid", "account", "inbox", "name", "origin", "outbound", "subscriptions")

    def __init__(
        self,
        exchange: Exchange,
        account: Account,
        name: str,
        deliver: Callable[[list[Message]], None] | Callable[[bytearray], None],
        *,
        echo: bool,
        prefix: bytes = b"",
    ) -> None:
        """`deliver` gets messages in order; `echo` tells whether its own are among them.

        With a `prefix` ("name.") the client subscribes to everything under it, and `deliver` gets bundles.
        """
        self.account = account
        self.name = name
        self.outbound = None
        self.origin = Origin(exchange, None, None)
        self.origin.echo = echo
        self.subscriptions: dict[bytes, Subscription] = {}
        self._next_sid = 0
        self.inbox: Inbox
        if prefix:
            self.inbox = funnel = Funnel(exchange, self.origin, deliver, prefix)
            account.open_funnel(funnel)
            self.subscribe(prefix + b">")
        else:
            self.inbox = Inbox(exchange, self.origin, deliver)

    def subscribe(self, subject: bytes, queue: bytes | None = None) -> Subscription:
        """Subscribe to a valid pattern."""
        self._next_sid += 1
        sid = b"%d" % self._next_sid
        subscription = self.subscriptions[sid] = Subscription(self, subject, queue, sid)
        self.account.subscribe(subscription)
        return subscription

    def end_subscription(self, subscription: Subscription) -> None:
        """Unsubscribe; nothing happens if that was done before."""
        if self.subscriptions.pop(subscription.sid, None) is not None:
            self.account.unsubscribe(subscription)

    def may_receive(self, subscription: Subscription, subject: bytes) -> bool:
        return True

    def publish(self, subject: bytes, payload: bytes, *, reply: bytes = b"", headers: bytes = b"") -> int:
        """Publish, with a raw header block or none; how many subscribers it reached."""
        plan = self.account.plans.find(subject)
        return plan.publish(self.origin, reply, len(headers), headers + payload if headers else payload)

    def publish_all(self, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """Publish (subject, payload) pairs in order."""
        find, origin = self.account.plans.find, self.origin
        last, plan = b"", None
        for subject, payload in messages:
            if plan is None or subject != last:
                plan, last = find(subject), subject
            plan.publish(origin, b"", 0, payload)

    def send_bundle(self, target: bytes, bundle: bytearray) -> int:
        """Publish to the subscribers of `target` messages that show their own subjects; how many deliveries it was."""
        return self.account.plans.find(target).publish_bundle(self.origin, bundle)

    def refuse(self, reply: bytes) -> None:
        """Tell the publisher of a message with this reply subject, in the bundle that just came, that nobody answers.

        If it asked to be told such things.
        """
        asker = self.inbox.asked.get(reply) if isinstance(self.inbox, Funnel) else None
        if asker is not None:
            subject, origin = asker
            if isinstance(origin, Inbound) and origin.owner is not None and origin.no_responders:
                origin.owner.on_no_responders(subject, reply)

    def close(self) -> None:
        """Unsubscribe from everything. What has come is handed over first; whoever heard it is kept no longer."""
        if self.account.funnel is self.inbox:
            self.account.close_funnel()
        for subscription in list(self.subscriptions.values()):
            self.end_subscription(subscription)
        self.inbox.drain()
        self.inbox.deliver = _hear_nothing


def _hear_nothing(messages: object) -> None:
    """What comes to a client that is closed."""
