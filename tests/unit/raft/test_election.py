"""Whose vote is one: by the newest configuration, and by the newest boot."""

from __future__ import annotations

import random

import pytest

from tnats.raft.effects import Campaign, HardState, Input, Persisted, Receive, Tick
from tnats.raft.machine import Machine
from tnats.raft.membership import Member, Membership
from tnats.raft.messages import Message, Relearn, SnapshotMeta, Standing, VoteReply, VoteRequest
from tnats.raft.options import Options
from tnats.raft.recovery import Restored
from tnats.raft.roles import Role

BOOT = 1 << 16


def started(membership: Membership) -> Machine:
    """Replica 1 in term 4, with an empty log, its incarnation durable."""
    restored = Restored(
        HardState(term=4), SnapshotMeta(0, 0, membership), 0, [0], [], [membership], 0, 0, Standing.SOUND
    )
    machine = Machine(1, restored, Options(), random.Random(1))
    durable(machine, Tick())
    return machine


def durable(machine: Machine, event: Input) -> list[Message]:
    """What is said in answer to `event` once everything is on disk."""
    ready = machine.step(event)
    messages = list(ready.messages)
    while ready.persist is not None:
        ready = machine.step(Persisted(ready.persist.number))
        messages += ready.messages
    return messages


@pytest.mark.parametrize(("membership_index", "admits", "granted"), [(7, 0, True), (3, 0, False), (7, -1, False)])
def test_a_learner_votes_only_if_a_newer_configuration_makes_it_a_voter(
    membership_index: int, admits: int, granted: bool
) -> None:
    """One that was demoted at 5 has no vote for a candidate that has not heard of it: their quorums need not meet."""
    machine = started(Membership(5, (Member(1, voter=False), Member(2), Member(3))))
    request = VoteRequest(2, 1, 5, BOOT, False, False, 9, 4, membership_index, admits)
    replies = [message for message in durable(machine, Receive(request)) if isinstance(message, VoteReply)]
    assert [reply.granted for reply in replies] == [granted]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_vote_of_a_superseded_boot_does_not_count(restarted: bool) -> None:
    """Who comes back as a later boot may have forgotten that it voted."""
    machine = started(Membership(0, tuple(Member(node) for node in range(1, 6))))
    durable(machine, Campaign())
    for node in (2, 3):
        durable(machine, Receive(VoteReply(node, 1, 5, BOOT, True, True, Standing.SOUND)))
    assert machine.role is Role.CANDIDATE
    durable(machine, Receive(VoteReply(2, 1, 5, BOOT, False, True, Standing.SOUND)))
    if restarted:
        durable(machine, Receive(Relearn(2, 1, 0, 2 * BOOT, Standing.AMNESIC, 2 * BOOT)))
    durable(machine, Receive(VoteReply(3, 1, 5, BOOT, False, True, Standing.SOUND)))
    assert machine.role is (Role.CANDIDATE if restarted else Role.LEADER)
