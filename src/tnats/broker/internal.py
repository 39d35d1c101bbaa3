"""Clients inside the server: JetStream, system events, service imports speak to the broker through these.

An internal client subscribes and publishes like any other, in one account. What it gets is handed to it in batches,
by a plain function call, when the read that brought the messages has been handled: it must not wait and must not
keep the reactor long. What it publishes is routed at once and written at the end of the pass (or, outside of one, as
soon as the current task lets go).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tnats.broker.account import Account
from tnats.broker.hot import Exchange, Inbox, Message, Origin, Plan, Subscription, Target
from tnats.broker.plan import shown_plan
from tnats.limits import SHOWN_PLANS_MAX


class InternalClient:
    """See the module's text. A `SubscriptionOwner`."""

    __slots__ = ("_next_sid", "_shown", "account", "inbox", "name", "origin", "outbound", "subscriptions")

    def __init__(
        self, exchange: Exchange, account: Account, name: str, deliver: Callable[[list[Message]], None], *, echo: bool
    ) -> None:
        """`deliver` gets messages in order; `echo` tells whether its own are among them."""
        self.account = account
        self.name = name
        self.outbound = None
        self.origin = Origin(exchange, self, None)
        self.origin.echo = echo
        self.inbox = Inbox(exchange, self.origin, deliver)
        self.subscriptions: dict[bytes, Subscription] = {}
        self._next_sid = 0
        self._shown: dict[tuple[bytes, bytes], tuple[list[Target], list[list[Target]], Plan]] = {}

    def subscribe(self, subject: bytes, queue: bytes | None = None) -> Subscription:
        """Subscribe to a valid pattern. `Message.subscription` tells by which one a message came."""
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
        return self.origin.publish(plan, reply, len(headers), headers + payload if headers else payload)

    def publish_all(self, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """Publish (subject, payload) pairs in order."""
        find, publish = self.account.plans.find, self.origin.publish
        last, plan = b"", None
        for subject, payload in messages:
            if plan is None or subject != last:
                plan, last = find(subject), subject
            publish(plan, b"", 0, payload)

    def send(self, target: bytes, subject: bytes, payload: bytes, *, reply: bytes, headers: bytes) -> int:
        """Publish to the subscribers of `target` a message that shows `subject` as its own; how many it reached."""
        plan = self._shown_plan(target, subject)
        return self.origin.publish(plan, reply, len(headers), headers + payload if headers else payload)

    def _shown_plan(self, target: bytes, subject: bytes) -> Plan:
        plans = self.account.plans
        base = plans.find(target)
        if base.epoch != base.cell.number:
            plans.refresh(base)
        key = (target, subject)
        known = self._shown.get(key)
        if known is None or known[0] is not base.targets or known[1] is not base.groups:
            if len(self._shown) >= SHOWN_PLANS_MAX:
                self._shown.clear()
            known = self._shown[key] = (base.targets, base.groups, shown_plan(base, subject))
        return known[2]

    def refuse(self, message: Message) -> None:
        """Tell the publisher of a request that nobody answers it, if it asked to be told such things."""
        origin = message.origin
        if message.reply and origin.owner is not None and getattr(origin, "no_responders", False):
            origin.owner.on_no_responders(message.subject, message.reply)

    def close(self) -> None:
        """Unsubscribe from everything."""
        for subscription in list(self.subscriptions.values()):
            self.end_subscription(subscription)
