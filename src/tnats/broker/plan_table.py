"""Publish plans of one account: where messages go, by subject, found once and kept while it stays true.

Theory of operation
-------------------
A `Plan` is the answer of the sublist for one subject, made ready to be run by the hot loop: a `Target` with its
prepared MSG head per subscription, and a list of them per queue group. Connections remember the plans of subjects they
publish to, so a plan must know when it is stale.

*Change of a literal subscription*: exactly that subject's plan is marked stale. Nobody holds one that is not in the
table: when plans are pushed out, everybody forgets theirs.
*Change of a pattern*: all plans under its first token; if that is a wildcard, all plans. A first token has an `Epoch`
cell, and a plan is current while its own epoch equals the cell's number. New clients subscribing to `_INBOX.x.>` hence
disturb inbox subjects only.

A stale plan is rebuilt in place when it is next used. A subject is admitted on its second use (`MatchCache`), so that
reply inboxes, used once each, push nothing out; a plan that was not admitted is not `kept` and nobody may remember it.

*Families.* Subjects used once are mostly siblings: many under one prefix, matched by the same patterns. From the second
of them on, one plan serves all that no literal subscription is for (`KnownPlans`). It is thrown away when stale. A
subject that turns out to be in steady use gets a plan of its own, at its third use.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tnats.broker.hot.message import Message, Origin, Subscription
from tnats.broker.hot.plan import STALE_EPOCH, Epoch, KnownPlans, Plan, Target
from tnats.limits import (
    FAMILIES_MAX,
    FAMILY_TARGETS_MAX,
    PLAN_CELL_BYTES_MAX,
    PLAN_CELLS_MAX,
    PLAN_TARGETS_KEPT,
    PLAN_TARGETS_MAX,
    PLANS_MAX,
    SLOW_WORK,
)
from tnats.subjects.cache import MatchCache
from tnats.subjects.sublist import Matches, Sublist
from tnats.subjects.tokens import has_wildcard

if TYPE_CHECKING:
    from tnats.broker.hot.outbound import Outbound


class PlanTable:
    """See the module's text. A `PlanBuilder`."""

    def __init__(self, sublist: Sublist[Subscription], forget: Callable[[], None]) -> None:
        """`forget` has everybody forget the plans they remember, those in `known` included."""
        self._sublist = sublist
        self._forget = forget
        self._plans: MatchCache[Plan] = MatchCache(PLANS_MAX, self._push_out)
        self._cells: dict[bytes, Epoch] = {}
        self._target_count = 0
        """Of the plans in the table."""
        self._target_count_max = PLAN_TARGETS_KEPT
        """So many, until those of plans that are out of date are let go."""
        self.known = KnownPlans(sublist.literals)
        self.makes_families = True
        """Off where what is published is not always the subject that a plan is for."""
        self._prefixes: dict[bytes, None] = {}
        """Of subjects used once, each a family to be."""

    def __len__(self) -> int:
        return len(self._plans)

    def find(self, subject: bytes) -> Plan:
        """The plan for messages published on `subject`. One that is not `kept` is good until the next call."""
        plan = self._plans.get(subject) or self.known.find_family(subject)
        if plan is None:
            plan = Plan(subject, self._cell(subject), self)
            self._plans.offer(subject, plan)
            plan.kept = self._plans.get(subject) is plan
            if not plan.kept:
                self._note_sibling(subject)
        return plan

    def has_interest(self, subject: bytes) -> bool:
        """Whether a message on `subject` would reach anybody."""
        plan = self._find_current(subject)
        return bool(plan.targets or plan.groups)

    def outbounds(self, subject: bytes) -> list[Outbound | None]:
        """Of all whom a message on `subject` may reach, queue groups with all their members; None: not a client's."""
        plan = self._find_current(subject)
        targets = [*plan.targets, *itertools.chain(*plan.groups)] if plan.groups else plan.targets
        return [
            subscription.outbound
            for target in targets
            if (subscription := target.subscription).outbound is not None or subscription.inbox is not None
        ]

    def _find_current(self, subject: bytes) -> Plan:
        plan = self.find(subject)
        if plan.epoch != plan.cell.number:
            self.refresh(plan)
        return plan

    def fanouts(self) -> list[int]:
        """To how many subscriptions each plan that is up to date delivers a message."""
        current = [plan for plan in self._plans.values() if plan.epoch == plan.cell.number]
        return [len(plan.targets) + len(plan.groups) for plan in current]

    def refresh(self, plan: Plan) -> None:
        """Build `plan` anew. Its lists are replaced, not changed: the old ones may be under iteration."""
        before = _target_count(plan)
        _aim(plan, self._sublist.match(plan.subject))
        if plan.kept:
            self._target_count += _target_count(plan) - before
        plan.shown = None
        plan.cell = self._cell(plan.subject)
        plan.epoch = plan.cell.number
        if self._target_count > min(self._target_count_max, PLAN_TARGETS_MAX):
            self._shed()

    def _shed(self) -> None:
        """Have plans that are out of date let go of their targets; all of them, if others have too many."""
        for plan in self._plans.values():
            if plan.epoch != plan.cell.number:
                self._empty(plan)
        if self._target_count > PLAN_TARGETS_MAX:
            self._start_anew()
        self._target_count_max = max(PLAN_TARGETS_KEPT, 2 * self._target_count)

    def _empty(self, plan: Plan) -> None:
        self._target_count -= _target_count(plan)
        plan.targets = []
        plan.groups = []
        plan.shown = None

    def invalidate(self, subject: bytes) -> None:
        """A subscription to `subject` came, went or changed."""
        if not has_wildcard(subject):
            plan = self._plans.get(subject)
            if plan is not None:
                plan.epoch = STALE_EPOCH
                self._empty(plan)  # nobody may ask for this subject again
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

    def _push_out(self, plans: Iterable[Plan]) -> None:
        """Others have taken the place of `plans`: nothing tells these of new subscribers to their subjects."""
        for plan in plans:
            self._target_count -= _target_count(plan)
            plan.kept = False
        self._forget()

    def _start_anew(self) -> None:
        """Let go of all plans, with all who remember one: nothing tells that of new subscribers to its subject.

        Subjects in use come back at once.
        """
        self._plans.clear()
        self._forget()
        self._target_count = 0

    def _note_sibling(self, subject: bytes) -> None:
        """A subject is used once; if it is not the first with its prefix, make the plan of the family."""
        prefix = subject[: subject.rfind(b".") + 1]
        if not prefix or not self.makes_families:
            return
        if prefix not in self._prefixes:
            if len(self._prefixes) >= FAMILIES_MAX:
                self._prefixes.clear()
                self.known.families.clear()
            self._prefixes[prefix] = None
            return
        matches = self._sublist.match_siblings(prefix)
        if matches is None or not _is_family(matches):
            del self._prefixes[prefix]
            return
        plan = Plan(subject, self._cell(subject), _FamilyBuilder(self, prefix))
        _aim(plan, matches)
        plan.epoch = plan.cell.number
        self.known.families[prefix] = plan

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


class _FamilyBuilder:
    """Builds a family's plan for the subject it serves just now, which makes it unfit for others."""

    def __init__(self, table: PlanTable, prefix: bytes) -> None:
        self._table = table
        self._prefix = prefix

    def refresh(self, plan: Plan) -> None:
        self._table.known.families.pop(self._prefix, None)
        self._table.refresh(plan)


def _is_family(matches: Matches[Subscription]) -> bool:
    """Whether these subscriptions get any subject, and are few enough to be told each one."""
    subscriptions = [*matches.plain, *itertools.chain.from_iterable(matches.queues.values())]
    return len(subscriptions) <= FAMILY_TARGETS_MAX and not any(each.checked for each in subscriptions)


def _target_count(plan: Plan) -> int:
    return len(plan.targets) + sum(map(len, plan.groups))


def _aim(plan: Plan, matches: Matches[Subscription]) -> None:
    plan.targets = _targets(matches.plain, plan.subject)
    groups = [_targets(members, plan.subject) for members in matches.queues.values()]
    plan.groups = [group for group in groups if group]


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
        return SLOW_WORK


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
