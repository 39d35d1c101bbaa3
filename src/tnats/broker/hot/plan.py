"""Where messages on a subject go, as found once by slow code (`tnats.broker.plan_table`) and run once per message here.

A `Plan` is current while its epoch equals that of its `Epoch` cell; a change of subscriptions moves the cell, or sets
the plan's own epoch to STALE_EPOCH. What cannot be said by targets and groups (a denied subject, a message that
a mapping drops) is the plan's `special`.

From the reply or size on, MSG repeats the bytes of PUB: a delivery is a prepared head ("MSG subject sid ") and one
range of what the publisher sent, copied, or from VIEW_BYTES on referenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tnats.limits import FAMILY_SUBJECTS_MAX, PLANS_MAX
from tnats.wire.bundle import HEAD_SIZE

if TYPE_CHECKING:
    from tnats.broker.hot.message import Origin, Subscription
    from tnats.broker.ports import PlanBuilder, Special

try:
    import cython
except ImportError:  # interpreted, where nobody compiles
    from tnats import speedups as cython

if not cython.compiled:
    from tnats.memory import equal, pin, word

STALE_EPOCH = -1
"""Epoch of a plan to be built anew before its next use."""


class Target:
    """One subscription in one plan."""

    __slots__ = ("head", "header_head", "subject", "subscription")

    def __init__(self, subscription: Subscription, subject: bytes) -> None:
        self.subscription = subscription
        self.show(subject)

    def show(self, subject: bytes) -> None:
        """Set what the subscriber sees as the subject."""
        self.subject = subject
        self.head = b"MSG %b %b " % (subject, self.subscription.sid)
        self.header_head = b"H" + self.head

    def deliver(self, origin: Origin, data: bytes, start: int, stop: int, view: Any, borrowed: bool) -> bool:
        """Deliver origin's message data[start:stop] ("[reply ][header size ]size", payload, line ends)."""
        subscription = self.subscription
        outbound = subscription.outbound
        if subscription.max_msgs and subscription.delivered >= subscription.max_msgs:
            return False
        if outbound is None:
            inbox = subscription.inbox
            if inbox is None or (inbox.origin is origin and not origin.echo):
                return False
            inbox.take(origin, self.subject, data, start, stop)
        else:
            if outbound is origin.outbound and not origin.echo:
                return False
            if outbound.gated and origin.stalls:
                if outbound.drops_when_gated:
                    return False
                origin.owner.on_stall()
            if origin.header_size:
                if not outbound.headers:
                    if not outbound.put_bytes(self.head + origin.without_headers(data, start, stop)):
                        return False
                elif view is not None:
                    if not outbound.put_view(self.header_head, view, borrowed):
                        return False
                elif not outbound.put(self.header_head, data, start, stop):
                    return False
            elif view is not None:
                if not outbound.put_view(self.head, view, borrowed):
                    return False
            elif not outbound.put(self.head, data, start, stop):
                return False
            outbound.msgs += 1
            outbound.bytes += origin.size
            if outbound.tracks_replies and origin.reply_size:
                assert outbound.owner is not None
                outbound.owner.on_reply_delivered(data[start : start + origin.reply_size])
        subscription.delivered += 1
        if subscription.max_msgs and subscription.delivered >= subscription.max_msgs:
            subscription.client.end_subscription(subscription)
        return True


class Epoch:
    """A number that moves when plans built before are out of date."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class Plan:
    """Where messages published on `subject` go: to every one of `targets` and to one member of each of `groups`."""

    __slots__ = ("builder", "cell", "epoch", "groups", "kept", "shown", "special", "subject", "targets")

    def __init__(self, subject: bytes, cell: Epoch, builder: PlanBuilder) -> None:
        self.subject = subject
        self.cell = cell
        self.epoch = STALE_EPOCH
        self.builder = builder
        self.kept = False
        """In the builder's table, so that it hears of changes: may be remembered outside."""
        self.targets: list[Target] = []
        self.groups: list[list[Target]] = []
        self.special: Special | None = None
        self.shown: Plan | None = None
        """Goes where this plan goes, to `show` subscribers other subjects; whoever builds this plan anew drops it."""

    def show(self, subject: bytes) -> None:
        """Serve `subject`, whose messages go to the same subscriptions."""
        self.subject = subject
        for target in self.targets:
            target.show(subject)
        for group in self.groups:
            for target in group:
                target.show(subject)

    def route(self, origin: Origin, data: bytes, start: int, stop: int, buffer: bytearray | None) -> int:
        """Deliver origin's current message, data[start:stop]; how many got it.

        `buffer` is what `data` is pinned to, if large messages may be referenced there.
        """
        if self.epoch != self.cell.number:
            self.builder.refresh(self)
        if self.special is not None:
            return self.special.publish(origin, self, origin.message(self.subject, data, start, stop))
        return self.fan_out(origin, data, start, stop, buffer)

    def publish(self, origin: Origin, reply: bytes, header_size: int, data: bytes) -> int:
        """Route a message made by our own code; how many it reached."""
        origin.reply_size = len(reply)
        origin.header_size = header_size
        origin.size = len(data)
        shape = b"%d" % len(data)
        if header_size:
            shape = b"%d %b" % (header_size, shape)
        if reply:
            shape = b"%b %b" % (reply, shape)
        message = b"%b\r\n%b\r\n" % (shape, data)
        return self.route(origin, message, 0, len(message), None)

    def publish_bundle(self, origin: Origin, bundle: bytearray) -> int:
        """Deliver the messages of a bundle here, whatever their subjects are; these are shown. How many deliveries."""
        end = len(bundle)
        data = pin(bundle, end)
        delivered = 0
        at = 0
        while at < end:
            start = at + HEAD_SIZE + word(data, at)
            stop = start + word(data, at + 16)
            origin.reply_size = word(data, at + 4)
            origin.header_size = word(data, at + 8)
            origin.size = word(data, at + 12)
            if self.epoch != self.cell.number:
                self.builder.refresh(self)
            shown = self.shown
            if shown is None:
                shown = self.shown = self.copy()
            if not equal(data, at + HEAD_SIZE, start, shown.subject):
                shown.show(data[at + HEAD_SIZE : start])
            delivered += shown.fan_out(origin, data, start, stop, None)
            at = stop
        return delivered

    def copy(self) -> Plan:
        """A plan that goes where this one, which is current, goes now."""
        twin = Plan(self.subject, self.cell, self.builder)
        for target in self.targets:
            twin.targets.append(Target(target.subscription, self.subject))
        for group in self.groups:
            twin.groups.append([Target(target.subscription, self.subject) for target in group])
        return twin

    def fan_out(self, origin: Origin, data: bytes, start: int, stop: int, buffer: bytearray | None) -> int:
        """`route` for targets and groups alone."""
        delivered = 0
        view = None
        borrowed = False
        groups = self.groups  # a target that this very message closes makes the plan stale, which empties it
        if buffer is not None and stop - start >= origin.exchange.view_bytes:
            view = memoryview(buffer)[start:stop]
            borrowed = buffer is origin.exchange.buffer
        for target in self.targets:
            if target.deliver(origin, data, start, stop, view, borrowed):
                delivered += 1
        for group in groups:
            count = len(group)
            first = origin.exchange.draw.below(count) if count > 1 else 0
            for step in range(count):
                index = first + step
                if index >= count:
                    index -= count
                target = group[index]
                if target.deliver(origin, data, start, stop, view, borrowed):
                    delivered += 1
                    break
        return delivered


class KnownPlans:
    """What all connections without permissions of their own share of the plans found so far.

    A family is the plan for every subject that is its prefix and one token more, apart from those in `literals`: reply
    subjects, used once each, need no plan of their own. It is made to show the subject at each use, and a subject that
    comes again is left to get its own.
    """

    __slots__ = ("families", "literals", "plans", "served")

    def __init__(self, literals: dict[bytes, Any]) -> None:
        """`literals` is kept up to date by its owner: its keys are the literal subjects of subscriptions."""
        self.plans: dict[bytes, Plan] = {}
        self.families: dict[bytes, Plan] = {}
        """By prefix, with the dot at its end."""
        self.literals = literals
        self.served: dict[bytes, None] = {}
        """Subjects that a family was used for lately."""

    def find(self, subject: bytes) -> Plan | None:
        """The plan for `subject`, good until the next call."""
        plan = self.plans.get(subject)
        return self.find_family(subject) if plan is None else plan

    def find_family(self, subject: bytes) -> Plan | None:
        """The plan of the family of `subject`, good until the next call; None if it has none or comes again."""
        if not self.families:
            return None
        prefix_size = subject.rfind(b".") + 1
        family = self.families.get(subject[:prefix_size])
        if family is None or family.epoch != family.cell.number or prefix_size == len(subject):
            return None
        if subject in self.literals or subject in self.served:
            return None
        if len(self.served) >= FAMILY_SUBJECTS_MAX:
            self.served.clear()
        self.served[subject] = None
        family.show(subject)
        return family

    def keep(self, plan: Plan, subject: bytes) -> None:
        """Keep the plan of `subject`, as published."""
        if len(self.plans) >= PLANS_MAX:
            self.plans.clear()
        self.plans[subject] = plan

    def clear(self) -> None:
        self.plans.clear()
        self.families.clear()
