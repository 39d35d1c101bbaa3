"""Reads that wait, who proves them, and what falls asleep or steps down meanwhile."""

from __future__ import annotations

import random

import attrs
from tests.properties.raft.world import SMALL, World

from tnats.raft.effects import Read, Receive, StorageFailed, Tick
from tnats.raft.messages import Heartbeat, HeartbeatReply, ReadIndex, Relearn, Standing
from tnats.raft.roles import Role

SLEEPY = attrs.evolve(SMALL, quiesce_ticks=2, heartbeat_ticks=1, election_ticks=8)


def led() -> World:
    """Three replicas, led by the first, in agreement."""
    world = World(random.Random(1), options=SLEEPY)
    world.elect(1)
    world.drain()
    return world


def test_a_leader_does_not_sleep_while_a_read_waits() -> None:
    """Its followers answer nothing to the last heartbeat before the sleep: the read would wait for ever."""
    world = led()
    world.feed(1, Read(7))
    for _ in range(6):
        world.network.clear()
        world.feed(1, Tick())
        assert not world.machine(1).quiescent
        assert not any(isinstance(message, Heartbeat) and message.quiesce for message in world.network)
    ready = []
    world.isolate(1)
    for _ in range(12):
        ready += world.feed(1, Tick()).reads
    assert [(read.context, read.ok) for read in ready] == [(7, False)]  # no quorum: it is told


def test_a_follower_does_not_sleep_while_its_question_is_out() -> None:
    """Asleep it would not notice that the question was lost."""
    world = led()
    world.feed(2, Read(7))
    world.network = [message for message in world.network if not isinstance(message, ReadIndex)]
    reads = []
    for _ in range(40):
        for node in world.up():
            reads += world.feed(node, Tick()).reads
            world.drain()
    assert [(read.context, read.ok) for read in reads] == [(7, False)]
    assert all(world.machine(node).quiescent for node in world.up())
    assert world.machine(2).leader == 1  # and nobody was deposed for it


def test_a_failed_disk_refuses_the_reads_that_wait() -> None:
    """Those proven but not applied and those without an answer alike."""
    world = led()
    world.propose(1, b"x")
    while world.machine(2).log.commit < 2:
        for message in list(world.network):
            world.network.remove(message)
            world.deliver(message)
        for node in world.up():
            world.sync(node)
        world.feed(1, Tick())
    world.feed(2, Read(1))
    for _ in range(4):
        network, world.network = world.network, []
        for message in network:
            world.deliver(message)
    assert list(world.machine(2).reads.proven) == [(1, 2)]
    world.feed(2, Read(2))
    ready = world.feed(2, StorageFailed("input/output error"))
    assert sorted((read.context, read.ok) for read in ready.reads) == [(1, False), (2, False)]


def test_a_group_with_an_unsound_member_stays_awake() -> None:
    """It is being helped, and does not count yet."""
    world = led()
    world.machine(1).core.progress[3].sound = False
    for _ in range(10):
        world.feed(1, Tick())
        assert not world.machine(1).quiescent
        world.network = [message for message in world.network if message.source != 3 and message.target != 3]
        for message in list(world.network):
            world.network.remove(message)
            world.deliver(message)


def answer(world: World, standing: Standing) -> Receive:
    """What replica 2 says to the newest round, in this standing."""
    core, machine = world.machine(2).core, world.machine(1)
    reply = HeartbeatReply(2, 1, core.term, core.incarnation, machine.replication.round, standing, core.log.last_index)
    return Receive(reply)


def test_a_read_is_not_proven_by_an_unsound_replica() -> None:
    """It may have voted for another and not know it."""
    world = led()
    assert not world.feed(1, Read(7)).reads
    assert not world.feed(1, answer(world, Standing.FAULTY)).reads
    assert [read.context for read in world.feed(1, answer(world, Standing.SOUND)).reads] == [7]


def test_replicas_with_failed_disks_are_no_quorum_to_lead() -> None:
    """They go on talking, but can acknowledge nothing: the leader steps down as if they were silent."""
    world = led()
    for _ in range(2 * SLEEPY.election_ticks):
        for node in (2, 3):
            core = world.machine(node).core
            world.feed(1, Receive(Relearn(node, 1, core.term, core.incarnation, Standing.FAILED, 0)))
        world.feed(1, Tick())
        world.network.clear()
    assert world.machine(1).role is not Role.LEADER
