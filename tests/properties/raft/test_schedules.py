"""Random schedules with faults find nothing.

TNATS_RAFT_SCHEDULES=n sets how many are run (default 500, about 15 ms each), TNATS_RAFT_SEED the first seed.
A failure names its seed; `run_schedule(seed)` repeats it exactly.
"""

from __future__ import annotations

import os
import random

import pytest
from tests.properties.raft.schedules import Swarm, run_schedule
from tests.properties.raft.world import GROUP, World

from tnats.errors import InvariantBroken
from tnats.raft import codec
from tnats.raft.messages import Standing

COUNT = int(os.environ.get("TNATS_RAFT_SCHEDULES", "500"))
FIRST = int(os.environ.get("TNATS_RAFT_SEED", "0"))
CHUNK = 250


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, CHUNK))
def test_random_schedules(first: int) -> None:
    """C20 to C29 hold after every step of every schedule, and the group comes back when everything heals."""
    for seed in range(first, min(first + CHUNK, FIRST + COUNT)):
        try:
            run_schedule(seed)
        except (AssertionError, InvariantBroken) as found:
            raise AssertionError(f"seed {seed}: {found}") from found


def test_schedules_reach_what_they_are_for() -> None:
    """A few dozen schedules see elections, commits, snapshots, repairs and re-admissions: they are not idle."""
    elections = committed = forgotten = snapshots = changes = 0
    for seed in range(60):
        world = run_schedule(seed)
        elections += world.checkers.seen_elections
        committed += world.checkers.committed_max
        forgotten += sum(epoch for epoch in world.checkers.epochs.values())
        snapshots += len(world.checkers.states) - 1
        changes += sum(1 for node in world.up() if world.machine(node).membership.index > 0)
    assert elections > 60
    assert committed > 1_000
    assert forgotten > 5
    assert snapshots > 20
    assert changes > 5


def test_the_same_seed_is_the_same_schedule() -> None:
    """Two runs of a seed end in the same state of every machine: a failing seed can be repeated."""

    def fingerprint(world: World) -> list[tuple[int, ...]]:
        return [
            (node, world.machine(node).term, world.machine(node).log.last_index, world.machine(node).core.incarnation)
            for node in world.up()
        ]

    assert fingerprint(run_schedule(7)) == fingerprint(run_schedule(7))


@pytest.mark.parametrize("seed", range(10))
def test_power_loss_of_all_in_lazy_mode(seed: int) -> None:
    """All replicas lose their unsynced writes at once: the group comes back by a census with one history, and what it
    may have lost is reported; only entries that were on no disk any more are gone."""
    rng = random.Random(seed)
    world = World(rng, lazy=True)
    world.elect(1)
    for number in range(10):
        world.propose(1, b"synced %d" % number)
        world.drain()
    kept = world.checkers.committed_max
    for number in range(5):
        world.propose(1, b"lazy %d" % number)
        settle_without_sync(world)
    assert world.checkers.committed_max > kept
    world.checkers.loss_allowed = True
    for node in (1, 2, 3):
        world.stop(node, rng.choice(("lost", "prefix")))
    survivors = max(len(world.hosts[node].disk.durable.entries) for node in (1, 2, 3))
    forget_the_lost(world, survivors)
    for node in (1, 2, 3):
        world.start(node)
    assert world.run(100, world.converged)
    leader = world.machine(world.leader())
    assert leader.log.last_index >= survivors >= kept
    world.propose(world.leader(), b"goes on")
    assert world.run(50, world.converged)


def settle_without_sync(world: World) -> None:
    """Deliver and complete everything but the background sync."""
    while world.network or any(world.hosts[node].completions for node in world.up()):
        for node in world.up():
            while world.hosts[node].completions:
                world.complete(node)
        network, world.network = world.network, []
        for message in network:
            world.deliver(message)


def forget_the_lost(world: World, survivors: int) -> None:
    """What is on no disk any more may be committed anew with other content."""
    checkers = world.checkers
    checkers.committed = {index: value for index, value in checkers.committed.items() if index <= survivors}
    checkers.committed_max = min(checkers.committed_max, survivors)


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_rollback_to_an_old_image(victim: int) -> None:
    """A replica that starts from an old image of its disk is told so by its peers, becomes amnesic, and is admitted
    again as a new incarnation; nothing committed is lost."""
    world = World(random.Random(victim))
    world.elect(1)
    world.propose(1, b"before")
    world.run(5)
    host = world.hosts[victim]
    image, cached = host.disk.durable.copy(), host.disk.cached.copy()
    world.stop(victim)
    world.run(20)
    world.start(victim)
    world.run(20)
    world.propose(world.leader(), b"after")
    world.run(20, world.converged)
    world.stop(victim)
    host.disk.durable, host.disk.cached = image, cached
    world.checkers.acted_term[victim] = 0  # the image is older than what it did: that is the fault
    world.checkers.votes = {key: vote for key, vote in world.checkers.votes.items() if key[0] != victim}
    world.checkers.epochs[victim] = 100
    world.start(victim)
    assert world.run(200, world.converged)
    assert world.machine(victim).membership.admits(victim) == world.machine(victim).core.incarnation


def test_lying_disk_is_found_out_by_the_leader() -> None:
    """A disk that acknowledged a sync and lost it anyway: the leader knows what was acknowledged and says so; the
    replica becomes amnesic instead of counting with a hole in its past."""
    world = World(random.Random(3))
    world.elect(1)
    world.propose(1, b"a", b"b")
    world.run(5)
    image = world.hosts[2].disk.durable.copy()
    world.propose(1, b"c", b"d")
    world.run(5)
    world.stop(2)
    newest = world.hosts[2].disk.durable
    image.hard = newest.hard
    promise = codec.Promise(3, 1, codec.decode_hard_state(GROUP, 2, newest.hard or b"")[1].version)
    image.promises = [None, codec.encode_promise(codec.Identity(GROUP, 2, 1 << 16), promise)]
    world.hosts[2].disk.durable, world.hosts[2].disk.cached = image, image.copy()
    world.start(2)
    assert world.machine(2).standing is Standing.SOUND
    assert world.run(200, world.converged)
    assert world.machine(2).membership.admits(2) > 0, "it was admitted again as a new member"


def test_calm_life_has_no_alarm() -> None:
    """Without faults no replica is ever anything but sound, and no halt or census is reported."""
    for seed in range(5):
        world = run_schedule(seed, swarm=Swarm())
        assert not any(world.checkers.forgetful.values())
