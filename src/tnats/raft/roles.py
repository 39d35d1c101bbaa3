"""Roles and standings of a replica, and every way from one to another. The diagrams in the docs are drawn from here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum

from tnats.errors import InvariantBroken
from tnats.raft.messages import Standing


class Role(IntEnum):
    FOLLOWER = 0
    PRE_CANDIDATE = 1
    CANDIDATE = 2
    LEADER = 3


class Cause(StrEnum):
    """Why a role changes."""

    TIMEOUT = "election timeout"
    TOLD = "told to campaign"
    PRE_VOTE_WON = "pre-vote won"
    VOTE_WON = "vote won"
    LOST = "vote lost"
    LEADER_SEEN = "leader seen"
    HIGHER_TERM = "higher term"
    QUORUM_LOST = "quorum lost"
    OVERRUN = "overrun"
    REMOVED = "removed"
    UNSOUND = "unsound"


_F, _P, _C, _L = Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER

TRANSITIONS: Mapping[tuple[Role, Cause], Role] = {
    (_F, Cause.TIMEOUT): _P,
    (_F, Cause.TOLD): _C,
    (_F, Cause.LEADER_SEEN): _F,
    (_F, Cause.HIGHER_TERM): _F,
    (_P, Cause.TIMEOUT): _P,
    (_P, Cause.PRE_VOTE_WON): _C,
    (_P, Cause.LOST): _F,
    (_P, Cause.LEADER_SEEN): _F,
    (_P, Cause.HIGHER_TERM): _F,
    (_P, Cause.UNSOUND): _F,
    (_C, Cause.TIMEOUT): _P,
    (_C, Cause.VOTE_WON): _L,
    (_C, Cause.LOST): _F,
    (_C, Cause.LEADER_SEEN): _F,
    (_C, Cause.HIGHER_TERM): _F,
    (_C, Cause.UNSOUND): _F,
    (_L, Cause.HIGHER_TERM): _F,
    (_L, Cause.QUORUM_LOST): _F,
    (_L, Cause.OVERRUN): _F,
    (_L, Cause.REMOVED): _F,
    (_L, Cause.UNSOUND): _F,
}

_SOUND, _FAULTY, _DIRTY, _SHORT, _AMNESIC, _FAILED = Standing

STANDING_CAUSES: Mapping[tuple[Standing, Standing], str] = {
    (_SOUND, _FAULTY): "entries or snapshot unreadable",
    (_SOUND, _AMNESIC): "peers remember more than this replica",
    (_SOUND, _FAILED): "write or sync refused",
    (_FAULTY, _SOUND): "repaired from peers",
    (_FAULTY, _SHORT): "the leader's log conflicts with what is lost",
    (_FAULTY, _AMNESIC): "peers remember more than this replica",
    (_FAULTY, _FAILED): "write or sync refused",
    (_DIRTY, _SOUND): "caught up with the leader, or elected by a census",
    (_DIRTY, _SHORT): "the leader's log conflicts with what is lost",
    (_DIRTY, _AMNESIC): "peers remember more than this replica",
    (_DIRTY, _FAILED): "write or sync refused",
    (_SHORT, _SOUND): "caught up with the leader, or elected by a census",
    (_SHORT, _AMNESIC): "peers remember more than this replica",
    (_SHORT, _FAILED): "write or sync refused",
    (_AMNESIC, _SOUND): "admitted again by a committed configuration, or by a census",
    (_AMNESIC, _FAULTY): "admitted again, entries still unreadable",
    (_AMNESIC, _FAILED): "write or sync refused",
}


def next_role(role: Role, cause: Cause) -> Role:
    """The role after `cause`. A pair outside the table is a fault of ours."""
    try:
        return TRANSITIONS[role, cause]
    except KeyError:
        raise InvariantBroken(f"a {role.name} cannot change its role by: {cause}") from None


def role_diagram() -> str:
    """The table as a mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> FOLLOWER"]
    edges: dict[tuple[str, str], list[str]] = {}
    for (role, cause), target in TRANSITIONS.items():
        edges.setdefault((role.name, target.name), []).append(cause)
    lines += [f"    {source} --> {target}: {', '.join(causes)}" for (source, target), causes in edges.items()]
    return "\n".join(lines)


def standing_diagram() -> str:
    """The ways between standings as a mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> SOUND: clean start"]
    lines += [f"    {source.name} --> {target.name}: {cause}" for (source, target), cause in STANDING_CAUSES.items()]
    return "\n".join(lines)
