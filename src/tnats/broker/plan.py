"""Publish plans of one account: where messages go, by subject, found once and kept while it stays true.

Theory of operation
-------------------
A `Plan` is the answer of the sublist for one subject, made ready to be run by the hot loop: a `Target` with its
prepared MSG head per subscription, a list of them per queue group, and what extensions add (routes, leaf nodes,
service imports). Connections remember the plans of subjects they publish to, so a plan must know when it is stale.

*Change of a literal subscription*: exactly that subject's plan is marked stale. If it is not in the table, someone may
still hold it (it was pushed out), so all plans under the same first token are.
*Change of a pattern*: all plans under its first token; if that is a wildcard, all plans. A first token has an `Epoch`
cell, and a plan is current while its own epoch equals the cell's number. New clients subscribing to `_INBOX.x.>` hence
disturb inbox subjects only.

A stale plan is rebuilt in place when it is next used. A subject is admitted on its second use (`MatchCache`), so that
reply inboxes, used once each, push nothing out; a plan that was not admitted is not `kept` and nobody may remember it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tnats.broker.hot import STALE_EPOCH, Epoch, Message, Origin, Plan, Subscription, Target
from tnats.limits import PLAN_CELL_BYTES_MAX, PLAN_CELLS_MAX, PLANS_MAX
from tnats.subjects.cache import MatchCache
from tnats.subjects.sublist import Sublist

if TYPE_CHECKING:
    from tnats.broker.ports import PlanExtension


class PlanTable:
    """See the module's text. A `PlanBuilder`."""

    def __init__(self, sublist: Sublist[Subscription]) -> None:
        self._sublist = sublist
        self._plans: MatchCache[Plan] = MatchCache(PLANS_MAX)
        self._cells: dict[bytes, Epoch] = {}
        self.extensions: list[PlanExtension] = []

    def __len__(self) -> int:
        return len(self._plans)

    def find(self, subject: bytes) -> Plan:
        """The plan for messages published on `subject`."""
        plan = self._plans.get(subject)
        if plan is None:
            plan = Plan(subject, self._cell(subject), self)
            self._plans.offer(subject, plan)
            plan.kept = self._plans.get(subject) is plan
        return plan

    def has_interest(self, subject: bytes) -> bool:
        """Whether a message on `subject` would reach anybody."""
        plan = self.find(subject)
        if plan.epoch != plan.cell.number:
            self.refresh(plan)
        return bool(plan.targets or plan.groups or plan.special is not None)

    def refresh(self, plan: Plan) -> None:
        """Build `plan` anew. Its lists are replaced, not changed: the old ones may be under iteration."""
        subject = plan.subject
        matches = self._sublist.match(subject)
        plan.targets = _targets(matches.plain, subject)
        groups = [_targets(members, subject) for members in matches.queues.values()]
        plan.groups = [group for group in groups if group]
        plan.special = None
        for extension in self.extensions:
            extension.extend(plan)
        plan.cell = self._cell(subject)
        plan.epoch = plan.cell.number

    def invalidate(self, subject: bytes, *, literal: bool) -> None:
        """A subscription to `subject` came, went or changed."""
        if literal:
            plan = self._plans.get(subject)
            if plan is not None:
                plan.epoch = STALE_EPOCH
                plan.targets = []  # they would keep connections that are gone
                plan.groups = []
                return
        first = _first_token(subject)
        if first in (b"*", b">"):
            self.invalidate_all()
        else:
            cell = self._cells.get(first)
            if cell is not None:
                cell.number += 1

    def invalidate_all(self) -> None:
        """Every plan may be out of date."""
        for cell in self._cells.values():
            cell.number += 1

    def _cell(self, subject: bytes) -> Epoch:
        first = _first_token(subject)
        cell = self._cells.get(first)
        if cell is None:
            if len(self._cells) >= PLAN_CELLS_MAX:
                self.invalidate_all()
                self._cells = {}
            cell = self._cells[first] = Epoch()
        return cell


def _first_token(subject: bytes) -> bytes:
    """The first token, cut off where no cell is found by more of it."""
    return subject[:PLAN_CELL_BYTES_MAX].partition(b".")[0]


def _targets(subscriptions: Sequence[Subscription], subject: bytes) -> list[Target]:
    return [
        Target(subscription, subject)
        for subscription in subscriptions
        if not subscription.checked or subscription.client.may_receive(subscription, subject)
    ]


class Denied:
    """`Special` of a subject that this client may not publish to."""

    def publish(self, origin: Origin, plan: Plan, message: Message) -> int:
        """Tell the client. Counts as handled: there is no 503 after a violation."""
        origin.owner.on_denied(plan.subject)
        return 1


class Nowhere:
    """`Special` of a message that a mapping drops on purpose."""

    def publish(self, origin: Origin, plan: Plan, message: Message) -> int:
        return 1


DENIED = Denied()
NOWHERE = Nowhere()


class _Unchanging:
    """Builder of plans that are nothing but their special."""

    def refresh(self, plan: Plan) -> None:
        plan.epoch = plan.cell.number


_UNCHANGING = _Unchanging()


def special_plan(subject: bytes, special: Denied | Nowhere) -> Plan:
    """A plan, kept by nobody, whose messages all go to `special`."""
    plan = Plan(subject, Epoch(), _UNCHANGING)
    plan.special = special
    return plan


def shown_plan(base: Plan, subject: bytes) -> Plan:
    """A plan that goes where `base`, which is current, goes now, and shows `subject` to subscribers."""
    plan = Plan(base.subject, Epoch(), _UNCHANGING)
    plan.epoch = plan.cell.number
    plan.targets = [Target(target.subscription, subject) for target in base.targets]
    plan.groups = [[Target(target.subscription, subject) for target in group] for group in base.groups]
    plan.special = base.special
    return plan
