"""Who belongs to a group: voters, learners, and the one-at-a-time rule (thesis chapter 4).

A configuration takes effect when it is appended, and is taken back when its entry is truncated. Two neighbours in
the chain differ by at most one voter, so that any two of their quorums share a node.

A member is named by node and by the incarnation that was admitted: a replica that lost its memory comes back as a
new member under its old node id, and what its former incarnations said no longer counts.
"""

from __future__ import annotations

from enum import StrEnum

import attrs

from tnats.records import define, frozen


@frozen
class Member:
    """`incarnation`: the lowest one that counts. `returning`: a voter on its way back after it lost its memory."""

    node: int
    incarnation: int = 0
    voter: bool = True
    returning: bool = False


def _by_node(members: tuple[Member, ...]) -> dict[int, Member]:
    return {member.node: member for member in members}


@frozen
class Membership:
    """One configuration, appended at `index` (0: the one a group was created with). Members sorted by node."""

    index: int
    members: tuple[Member, ...]
    by_node: dict[int, Member] = attrs.field(init=False, eq=False, repr=False)
    voters: tuple[int, ...] = attrs.field(init=False, eq=False, repr=False)

    @by_node.default
    def _by_node(self) -> dict[int, Member]:
        return _by_node(self.members)

    @voters.default
    def _voters(self) -> tuple[int, ...]:
        return tuple(member.node for member in self.members if member.voter)

    def is_voter(self, node: int) -> bool:
        member = self.by_node.get(node)
        return member is not None and member.voter

    def counts_again(self, node: int, since: int) -> bool:
        """Whether `node`, which forgot everything before its incarnation `since`, is a member again as such."""
        member = self.by_node.get(node)
        return member is not None and 0 < since <= member.incarnation and not member.returning

    def admits(self, node: int) -> int:
        """The incarnation from which `node` votes here; 0 for a founding voter, -1 for no voter at all."""
        member = self.by_node.get(node)
        return member.incarnation if member is not None and member.voter else -1


EMPTY = Membership(0, ())


class ChangeKind(StrEnum):
    ADD_LEARNER = "add-learner"
    PROMOTE = "promote"
    DEMOTE = "demote"
    READMIT = "readmit"
    REMOVE = "remove"


@frozen
class Change:
    """One wish. `incarnation`: which boot of the node is meant (0: any, or keep what is there)."""

    kind: ChangeKind
    node: int
    incarnation: int = 0
    returning: bool = False


def changed(current: Membership, change: Change, index: int) -> Membership | str:
    """The configuration after `change`, appended at `index`, or the reason why there is none."""
    member = current.by_node.get(change.node)
    rest = [other for other in current.members if other.node != change.node]
    incarnation = change.incarnation or (member.incarnation if member is not None else 0)
    match change.kind:
        case ChangeKind.ADD_LEARNER:
            if member is not None:
                return f"node {change.node} is a member already"
            rest.append(Member(change.node, incarnation, voter=False))
        case ChangeKind.PROMOTE:
            if member is None or member.voter:
                return f"node {change.node} is no learner"
            rest.append(Member(change.node, incarnation))
        case ChangeKind.DEMOTE:
            if member is None or not member.voter:
                return f"node {change.node} is no voter"
            rest.append(Member(change.node, incarnation, voter=False, returning=change.returning))
        case ChangeKind.READMIT:
            if member is None or member.voter:
                return f"node {change.node} is no learner"
            rest.append(Member(change.node, incarnation, voter=False, returning=member.returning))
        case ChangeKind.REMOVE:
            if member is None:
                return f"node {change.node} is no member"
    if not any(other.voter for other in rest):
        return "the last voter cannot leave"
    return Membership(index, tuple(sorted(rest, key=lambda other: other.node)))


@define
class MembershipLog:
    """The configurations a log holds, oldest first: the last is in force, those past the commit may be taken back."""

    chain: list[Membership]

    @property
    def current(self) -> Membership:
        return self.chain[-1]

    def at(self, index: int) -> Membership | None:
        """The configuration in force at `index`; None if only later ones are known, after damage."""
        for membership in reversed(self.chain):
            if membership.index <= index:
                return membership
        return None

    def append(self, membership: Membership) -> None:
        """Note a configuration of the log, in its place: a later one may be known already, from a second copy."""
        if not self.current.members:
            self.chain = [membership]
            return
        at = len(self.chain)
        while at and self.chain[at - 1].index > membership.index:
            at -= 1
        if at and self.chain[at - 1].index < membership.index:
            self.chain.insert(at, membership)

    def truncate(self, index: int) -> bool:
        """Take back what was appended at `index` or later. Whether anything was."""
        count = len(self.chain)
        while len(self.chain) > 1 and self.chain[-1].index >= index:
            self.chain.pop()
        return len(self.chain) != count

    def release(self, index: int) -> None:
        """Forget configurations that were replaced at or before `index`."""
        while len(self.chain) > 1 and self.chain[1].index <= index:
            self.chain.pop(0)
