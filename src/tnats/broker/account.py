"""One account's share of the broker: its subscriptions, plans, mappings, clients and counters.

An account is a subject space of its own. Shared tables change only in the synchronous functions here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from tnats.broker.hot.message import Funnel, Subscription
from tnats.broker.hot.plan import Plan
from tnats.broker.plan_table import NOWHERE, PlanTable, special_plan
from tnats.errors import ensure
from tnats.records import define
from tnats.subjects.draw import Draw
from tnats.subjects.mappings import Mapping, find_mapping
from tnats.subjects.sublist import Sublist
from tnats.subjects.tokens import subjects_overlap

if TYPE_CHECKING:
    from tnats.broker.connection import Connection
    from tnats.broker.ports import InterestObserver

WILDCARDS = b"*>"


@define
class Traffic:
    """Messages and payload bytes, in and out."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0

    def add(self, other: Traffic) -> None:
        self.in_msgs += other.in_msgs
        self.in_bytes += other.in_bytes
        self.out_msgs += other.out_msgs
        self.out_bytes += other.out_bytes


class Account:
    """See the module's text."""

    def __init__(self, name: str, draw: Draw) -> None:
        self.name = name
        self.sublist: Sublist[Subscription] = Sublist()
        self.plans = PlanTable(self.sublist, self._forget_plans)
        self._mappings: Sequence[Mapping] = ()
        self.funnel: Funnel | None = None
        """Where what clients publish under one prefix is gathered without plans, while nobody else gets it."""
        self.clients: dict[int, Connection] = {}
        """Logged-in client connections by cid."""
        self.closed_traffic = Traffic()
        """Of connections that are gone."""
        self.slow_consumer_count = 0
        self.observers: list[InterestObserver] = []
        self._draw = draw

    @property
    def mappings(self) -> Sequence[Mapping]:
        """Applied to what clients publish, first match first."""
        return self._mappings

    @mappings.setter
    def mappings(self, mappings: Sequence[Mapping]) -> None:
        self._mappings = mappings
        self.plans.makes_families = not mappings
        self._forget_plans()

    def _forget_plans(self) -> None:
        self.plans.known.clear()
        for client in self.clients.values():
            client.forget_plans()

    def open_funnel(self, funnel: Funnel) -> None:
        """Gather what comes under the funnel's prefix there; its owner subscribes to the same pattern next."""
        ensure(self.funnel is None, f"account {self.name} has a funnel")
        self.funnel = funnel
        funnel.rivals = len(self.sublist.overlapping(funnel.prefix + b">"))
        self._forget_plans()

    def close_funnel(self) -> None:
        """Gather no more."""
        self.funnel = None
        self._forget_plans()

    def funnel_for(self, may_publish: Callable[[bytes], bool]) -> Funnel | None:
        """The funnel, for a client who may publish everything under its prefix and whose messages no mapping moves."""
        if self.funnel is None:
            return None
        pattern = self.funnel.prefix + b">"
        if any(subjects_overlap(mapping.source, pattern) for mapping in self._mappings):
            return None
        return self.funnel if may_publish(pattern) else None

    def _count_rival(self, subscription: Subscription, step: int) -> None:
        funnel = self.funnel
        if funnel is None or subscription.inbox is funnel:
            return
        subject = subscription.subject
        if subject[0] in (funnel.prefix[0], *WILDCARDS) and subjects_overlap(subject, funnel.prefix + b">"):
            funnel.rivals += step

    def subscribe(self, subscription: Subscription) -> None:
        """Add a subscription to a valid pattern."""
        self.sublist.insert(subscription)
        self.plans.invalidate(subscription.subject)
        self._count_rival(subscription, 1)
        for observer in self.observers:
            observer.on_subscribed(subscription)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Take a subscription out; nothing happens if it is not in."""
        if self.sublist.remove(subscription):
            self.plans.invalidate(subscription.subject)
            self._count_rival(subscription, -1)
            for observer in self.observers:
                observer.on_unsubscribed(subscription)
            subscription.retire(_NOBODY)

    def map_subject(self, subject: bytes) -> tuple[bytes, bool]:
        """What a client's message on `subject` is published on (empty: dropped), and whether that is always so."""
        mapping = find_mapping(self._mappings, subject) if self._mappings else None
        if mapping is None:
            return subject, True
        return mapping.apply(subject, self._draw), mapping.is_fixed

    def find_plan(self, subject: bytes) -> Plan:
        """The plan for a subject after mapping."""
        return self.plans.find(subject) if subject else special_plan(subject, NOWHERE)

    def traffic(self) -> Traffic:
        """All of this account's client traffic so far."""
        total = attrs.evolve(self.closed_traffic)
        for client in self.clients.values():
            total.add(client.traffic())
        return total


class _Nobody:
    """Owner of the subscriptions that have ended."""

    outbound = None
    inbox = None

    def may_receive(self, subscription: Subscription, subject: bytes) -> bool:
        return False

    def end_subscription(self, subscription: Subscription) -> None:
        """It has ended already."""


_NOBODY = _Nobody()
