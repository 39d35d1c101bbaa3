"""The Raft paper ("In Search of an Understandable Consensus Algorithm") and thesis, section by section.

Each test is named after the section it holds the machine to. The shape is: bring a group into a state, let one thing
happen, look at what goes out.
"""

from __future__ import annotations

import random

import pytest
from tests.properties.raft.world import SMALL, World

from tnats.errors import InvariantBroken
from tnats.raft import messages as m
from tnats.raft.effects import (
    Accepted,
    Campaign,
    Persisted,
    ProposeChange,
    Read,
    Receive,
    Refused,
    Tick,
    TransferLeader,
)
from tnats.raft.machine import Machine
from tnats.raft.membership import Change, ChangeKind, Member, Membership
from tnats.raft.messages import Entry, EntryKind
from tnats.raft.recovery import founding
from tnats.raft.roles import Cause, Role

BOOT = 1 << 16


def machine(node: int = 1, nodes: int = 3) -> Machine:
    """A replica that has just begun, its incarnation durable."""
    members = Membership(0, tuple(Member(number) for number in range(1, nodes + 1)))
    made = Machine(node, founding(members), SMALL, random.Random(node))
    ready = made.step(Tick())
    assert ready.persist is not None
    made.step(Persisted(ready.persist.number))
    return made


def persist_all(made: Machine) -> list[m.Message]:
    """Everything handed out is durable; what had waited for that."""
    return list(made.step(Persisted(made.core.persist_number)).messages)


def vote_request(
    term: int, *, source: int = 2, target: int = 1, last: tuple[int, int] = (0, 0), pre: bool = False
) -> Receive:
    return Receive(m.VoteRequest(source, target, term, BOOT, pre, False, last[1], last[0], 0, 0))


def append(term: int, prev: tuple[int, int], *terms: int, commit: int = 0, source: int = 2, target: int = 1) -> Receive:
    """An append after (term, index) `prev` of entries with these terms."""
    entries = [Entry(prev[1] + k, own, EntryKind.DATA, b"%d" % own) for k, own in enumerate(terms, 1)]
    return Receive(m.Append(source, target, term, BOOT, prev[1], prev[0], commit, entries))


def leading(nodes: int = 3) -> World:
    world = World(random.Random(1), tuple(range(1, nodes + 1)))
    world.elect(1)
    world.run(2)
    return world


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.CANDIDATE, Role.LEADER])
def test_5_1_a_higher_term_makes_a_follower(role: Role) -> None:
    """If one server's current term is smaller than the other's, it updates its term and reverts to follower."""
    world = leading()
    node = 1 if role is Role.LEADER else 2
    if role is Role.CANDIDATE:
        world.machine(2).election.campaign(Cause.TOLD)
    made = world.machine(node)
    assert made.role is role
    higher = made.term + 5
    told = append(higher, (1, 1), source=3, target=node)
    told.message.incarnation = world.machine(3).core.incarnation
    made.step(told)
    assert (made.term, made.role, made.leader) == (higher, Role.FOLLOWER, 3)


def test_5_1_a_stale_term_is_rejected() -> None:
    """If a server receives a request with a stale term number, it rejects it, and the sender learns the newer term."""
    made = machine()
    made.step(append(3, (0, 0), 3))
    persist_all(made)
    (reply,) = made.step(append(2, (0, 0), 2)).messages
    assert isinstance(reply, m.AppendReply)
    assert (reply.rejected, reply.term) == (True, 3)
    assert made.log.last_term == 3


def test_5_2_a_server_begins_as_follower() -> None:
    """When servers start up, they begin as followers."""
    assert machine().role is Role.FOLLOWER


def test_5_2_silence_starts_an_election() -> None:
    """A follower that receives no communication over the election timeout begins an election: asks all others."""
    made = machine()
    messages: list[m.Message] = []
    for _ in range(2 * SMALL.election_ticks):
        messages += made.step(Tick()).messages
        if messages:
            break
    assert made.role is Role.PRE_CANDIDATE
    assert [message.target for message in messages] == [2, 3]


def test_5_2_a_majority_of_votes_makes_a_leader() -> None:
    """A candidate wins with votes from a majority of the full cluster in the same term, and tells the others."""
    made = machine(nodes=5)
    made.step(Campaign())
    for voter in (2, 3):
        made.step(Receive(m.VoteReply(voter, 1, 1, BOOT, True, True, 0)))
    assert (made.role, made.term) == (Role.CANDIDATE, 1)
    persist_all(made)
    made.step(Receive(m.VoteReply(2, 1, 1, BOOT, False, True, 0)))
    assert made.core.role is Role.CANDIDATE
    ready = made.step(Receive(m.VoteReply(3, 1, 1, BOOT, False, True, 0)))
    assert made.role is Role.LEADER
    assert [message.target for message in ready.messages] == [2, 3, 4, 5]
    assert all(isinstance(message, m.Append) for message in ready.messages)


def test_5_2_one_vote_in_a_term_first_come() -> None:
    """Each server votes for at most one candidate in a given term, and the vote is durable before it is told."""
    made = machine()
    assert made.step(vote_request(1, source=2)).messages == ()
    (granted,) = persist_all(made)
    assert isinstance(granted, m.VoteReply)
    assert (granted.target, granted.granted) == (2, True)
    (refused,) = made.step(vote_request(1, source=3)).messages
    assert isinstance(refused, m.VoteReply)
    assert not refused.granted


def test_5_2_a_candidate_yields_to_a_leader_of_its_term() -> None:
    """A candidate that hears from a leader whose term is at least as large returns to follower state."""
    made = machine()
    made.step(Campaign())
    made.step(Receive(m.VoteReply(2, 1, 1, BOOT, True, True, 0)))
    assert (made.role, made.term) == (Role.CANDIDATE, 1)
    made.step(append(1, (0, 0), 1, source=3))
    assert (made.role, made.leader) == (Role.FOLLOWER, 3)


def test_5_2_timeouts_are_spread() -> None:
    """Election timeouts are chosen randomly from a fixed interval, anew for each election."""
    made = machine()
    drawn = []
    for _ in range(200):
        made.core.reset_election_timer()
        drawn.append(made.core.election_timeout)
    ticks = SMALL.election_ticks
    assert set(drawn) == set(range(ticks, 2 * ticks))


def test_5_2_two_leaders_in_a_term_stop_the_node() -> None:
    """Election safety: at most one leader in a term. A second one contradicts everything, so the node stops."""
    made = machine()
    made.step(append(1, (0, 0), 1, source=2))
    with pytest.raises(InvariantBroken, match="two leaders"):
        made.step(append(1, (0, 0), 1, source=3))


def test_5_3_an_entry_is_committed_when_a_majority_has_it() -> None:
    """The leader commits once it has replicated on a majority, and tells the followers the commit index."""
    world = leading()
    world.isolate(3)
    world.propose(1, b"a")
    last = world.machine(1).log.last_index
    assert world.machine(1).log.commit == last - 1
    world.drain()
    assert world.machine(1).log.commit == world.machine(2).log.commit == last
    assert world.machine(3).log.commit < last


def test_5_3_a_follower_refuses_an_append_it_cannot_follow() -> None:
    """If the follower finds no entry with the previous index and term, it refuses, and says where they may meet."""
    made = machine()
    made.step(append(2, (0, 0), 1, 1, 2))
    persist_all(made)
    (reply,) = made.step(append(3, (3, 5), 3)).messages
    assert isinstance(reply, m.AppendReply)
    assert (reply.rejected, reply.index, reply.hint_index, reply.hint_term) == (True, 5, 3, 2)


@pytest.mark.parametrize(
    ("terms", "prev", "new", "expected"),
    [
        ((1, 2), (2, 2), (3,), (1, 2, 3)),
        ((1, 2), (1, 1), (3, 4), (1, 3, 4)),
        ((1, 1, 1), (0, 0), (2,), (2,)),
        ((1, 2, 3), (1, 1), (2,), (1, 2, 3)),
    ],
)
def test_5_3_conflicting_entries_are_overwritten(
    terms: tuple[int, ...], prev: tuple[int, int], new: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """A conflicting entry and all that follow it go; entries that agree stay, even behind the message's end."""
    made = machine()
    made.step(append(3, (0, 0), *terms))
    persist_all(made)
    made.step(append(4, prev, *new))
    assert tuple(made.log.terms[1:]) == expected


# The six followers of figure 7; the leader of term 8 has these terms.
LEADER_TERMS = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)


@pytest.mark.parametrize(
    "terms",
    [
        (1, 1, 1, 4, 4, 5, 5, 6, 6),
        (1, 1, 1, 4),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
        (1, 1, 1, 4, 4, 4, 4),
        (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
    ],
)
def test_5_3_the_logs_of_figure_7_converge(terms: tuple[int, ...]) -> None:
    """Whatever happened before, a follower's log becomes the leader's, whole terms at a time."""
    leader, follower = machine(1), machine(2)
    leader.step(append(7, (0, 0), *LEADER_TERMS, source=3, target=1))
    follower.step(append(7, (0, 0), *terms, source=3, target=2))
    for made in (leader, follower):
        persist_all(made)
        made.core.set_term(7)
    leader.step(Campaign())
    leader.step(Receive(m.VoteReply(3, 1, 8, BOOT, True, True, 0)))
    persist_all(leader)
    outgoing = list(leader.step(Receive(m.VoteReply(3, 1, 8, BOOT, False, True, 0))).messages)
    rounds = 0
    while outgoing and rounds < 20:
        rounds += 1
        answers: list[m.Message] = []
        for message in outgoing:
            if message.target == 2:
                answers += follower.step(Receive(message)).messages
        answers += persist_all(follower)
        outgoing = []
        for answer in answers:
            outgoing += leader.step(Receive(answer)).messages
    assert follower.log.terms == leader.log.terms == [0, *LEADER_TERMS, 8]
    assert rounds <= 6


@pytest.mark.parametrize(
    ("own", "candidate", "granted"),
    [
        ((1,), (1, 1), True),
        ((1,), (2, 1), True),
        ((1, 1), (1, 2), True),
        ((1, 1), (2, 1), True),
        ((1, 1), (1, 1), False),
        ((2,), (1, 2), False),
        ((1, 2), (1, 5), False),
    ],
)
def test_5_4_1_only_an_up_to_date_log_gets_a_vote(
    own: tuple[int, ...], candidate: tuple[int, int], granted: bool
) -> None:
    """The later last term is more up to date; with the same last term, the longer log. `candidate`: (term, index)."""
    made = machine()
    made.step(append(2, (0, 0), *own, source=3))
    persist_all(made)
    made.core.election_elapsed = SMALL.election_ticks
    ready = made.step(vote_request(3, last=candidate))
    replies = [*ready.messages, *persist_all(made)]
    assert [reply.granted for reply in replies if isinstance(reply, m.VoteReply)] == [granted]


def test_5_4_2_only_entries_of_the_own_term_are_committed_by_counting() -> None:
    """Figure 8: an old entry on a majority is not committed until one of the leader's term behind it is."""
    made = machine()
    made.step(append(1, (0, 0), 1, source=3))
    persist_all(made)
    made.step(Campaign())
    made.step(Receive(m.VoteReply(2, 1, 2, BOOT, True, True, 0)))
    persist_all(made)
    made.step(Receive(m.VoteReply(2, 1, 2, BOOT, False, True, 0)))
    persist_all(made)
    assert (made.role, made.term, made.log.terms) == (Role.LEADER, 2, [0, 1, 2])
    made.step(Receive(m.AppendReply(2, 1, 2, BOOT, False, 1, 0, 0, 1, 0)))
    assert made.log.commit == 0
    made.step(Receive(m.AppendReply(2, 1, 2, BOOT, False, 2, 0, 0, 2, 0)))
    assert made.log.commit == 2


def test_5_4_3_a_committed_entry_is_never_overwritten() -> None:
    """State machine safety: a leader that asks for it contradicts itself, and the node stops."""
    made = machine()
    made.step(append(1, (0, 0), 1, 1, commit=2))
    with pytest.raises(InvariantBroken, match="overwrites entry 2"):
        made.step(append(2, (1, 1), 2))


def test_5_5_requests_are_idempotent() -> None:
    """A request that arrives twice changes nothing the second time."""
    made = machine()
    made.step(append(1, (0, 0), 1, 1))
    persist_all(made)
    ready = made.step(append(1, (0, 0), 1, 1))
    assert ready.persist is None
    (reply,) = ready.messages
    assert isinstance(reply, m.AppendReply)
    assert (reply.rejected, reply.index) == (False, 2)


def test_7_a_snapshot_replaces_what_it_covers() -> None:
    """A follower whose next entry the leader has discarded gets the snapshot; then the log goes on behind it."""
    world = leading()
    world.isolate(3)
    world.propose(1, b"a", b"b", b"c")
    world.drain()
    assert world.snapshot(1)
    world.heal()
    assert world.run(30, world.converged)
    assert world.machine(3).log.snapshot.index == world.machine(1).log.snapshot.index > 0


def test_8_a_leader_opens_its_term_with_an_empty_entry() -> None:
    """A new leader commits a blank no-op entry at the start of its term, to learn what is committed."""
    world = leading()
    world.stop(1)
    assert world.run(30, lambda: bool(world.leaders()))
    leader = world.machine(world.leader())
    entry = world.hosts[leader.node].disk.read(leader.log.last_index)
    assert entry is not None
    assert (entry.kind, entry.term) == (EntryKind.NOOP, leader.term)
    assert leader.log.commit == leader.log.last_index


def test_8_a_leader_takes_proposals_and_others_name_it() -> None:
    """Clients are served by the leader; who does not lead says who does."""
    world = leading()
    (accepted,) = world.propose(1, b"a").proposals
    assert isinstance(accepted, Accepted)
    (refused,) = world.propose(2, b"a").proposals
    assert isinstance(refused, Refused)
    assert refused.leader == 1


def test_thesis_3_10_transfer_waits_for_the_log_and_stops_proposals() -> None:
    """The prior leader stops accepting requests, brings the target's log up to date, and sends TimeoutNow."""
    world = leading()
    world.propose(1, b"a")
    ready = world.feed(1, TransferLeader(2))
    assert not any(isinstance(message, m.TimeoutNow) for message in ready.messages)
    (refused,) = world.propose(1, b"b").proposals
    assert isinstance(refused, Refused)
    world.run(2)
    assert world.leaders() == [2]


def test_thesis_4_1_one_change_at_a_time_from_the_append_on() -> None:
    """A configuration is used as soon as it is in the log, and the next waits for its commit."""
    world = leading()
    change = Change(ChangeKind.DEMOTE, 3)
    (accepted,) = world.feed(1, ProposeChange(change)).proposals
    assert isinstance(accepted, Accepted)
    assert world.machine(1).membership.voters == (1, 2)
    (refused,) = world.feed(1, ProposeChange(Change(ChangeKind.PROMOTE, 3))).proposals
    assert isinstance(refused, Refused)
    assert "not committed yet" in refused.reason


def test_thesis_4_2_1_a_new_member_catches_up_before_it_votes() -> None:
    """A server is added as a non-voting member until it has caught up."""
    world = World(random.Random(1), spare=(4,))
    world.elect(1)
    world.propose(1, b"a", b"b")
    world.drain()
    world.isolate(4)
    world.feed(1, ProposeChange(Change(ChangeKind.ADD_LEARNER, 4)))
    world.drain()
    (refused,) = world.feed(1, ProposeChange(Change(ChangeKind.PROMOTE, 4))).proposals
    assert isinstance(refused, Refused)
    assert "caught up" in refused.reason
    world.heal()
    world.run(5)
    (accepted,) = world.feed(1, ProposeChange(Change(ChangeKind.PROMOTE, 4))).proposals
    assert isinstance(accepted, Accepted)


def test_thesis_4_2_2_a_removed_leader_goes_when_that_is_committed() -> None:
    """A leader that is removed manages the group until the change is committed, without counting itself."""
    world = leading()
    world.feed(1, ProposeChange(Change(ChangeKind.REMOVE, 1)))
    assert world.machine(1).role is Role.LEADER
    world.drain()
    assert world.machine(1).role is Role.FOLLOWER
    assert world.run(30, lambda: bool(world.leaders()))
    assert world.leader() in (2, 3)


def test_thesis_4_2_3_a_follower_of_a_live_leader_ignores_candidates() -> None:
    """A server that hears from a leader within the minimum election timeout neither votes nor raises its term."""
    made = machine()
    made.step(append(1, (0, 0), 1, source=3))
    persist_all(made)
    assert made.step(vote_request(9, last=(9, 9))).messages == ()
    assert made.term == 1


def test_thesis_6_2_a_leader_without_a_quorum_steps_down() -> None:
    """A leader steps down if an election timeout passes without a round of heartbeats to a majority."""
    world = leading()
    world.isolate(1)
    for _ in range(2 * SMALL.election_ticks):
        world.tick(1)
    assert world.machine(1).role is Role.FOLLOWER


def test_thesis_6_4_a_read_waits_for_a_round_and_for_the_state() -> None:
    """A read is answered at an index that was committed when it came, once a majority has confirmed the leader."""
    world = leading()
    assert world.feed(1, Read(1)).reads == ()
    (message,) = [message for message in world.network if message.target == 2]
    world.network.clear()
    (reply,) = world.machine(2).step(Receive(message)).messages
    (read,) = world.feed(1, Receive(reply)).reads
    assert (read.context, read.ok, read.index) == (1, True, world.machine(1).log.commit)


def test_thesis_9_6_a_pre_vote_changes_nothing() -> None:
    """A server cut off from the others asks in vain, and its term does not grow."""
    world = leading()
    world.isolate(3)
    before = world.machine(3).term
    for _ in range(20 * SMALL.election_ticks):
        world.tick(3)
    assert (world.machine(3).role, world.machine(3).term) == (Role.PRE_CANDIDATE, before)
    world.heal()
    world.run(5)
    assert world.leaders() == [1]


def test_thesis_10_2_1_the_leader_writes_in_parallel() -> None:
    """The leader sends entries before its own disk has them, and may commit without it."""
    world = leading()
    ready = world.propose(1, b"a")
    assert len(ready.messages) == 2
    index = world.machine(1).log.last_index
    for node in (2, 3):
        for message in [message for message in world.network if message.target == node]:
            world.network.remove(message)
            world.deliver(message)
        world.sync(node)
    for message in list(world.network):
        world.network.remove(message)
        world.deliver(message)
    assert world.machine(1).log.commit == index
    assert world.machine(1).log.stable == index - 1
