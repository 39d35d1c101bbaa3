"""The corruption matrix: each persisted thing x each kind of damage x each role x one, f, all replicas.

What must come out is the verdict table's: up to f replicas, the group is safe and available again by itself; all of
them, safe, and either available from another copy of the same thing or halted with the range named and the bytes kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.properties.raft.disk import Disk, Image, flipped
from tests.properties.raft.world import GROUP, World

from tnats.raft import codec
from tnats.raft.codec import Identity
from tnats.raft.effects import HardState
from tnats.raft.membership import Membership
from tnats.raft.messages import Entry, SnapshotMeta, Standing
from tnats.raft.roles import Role

NODES = (1, 2, 3, 4, 5)
F = 2
VICTIM_ENTRY = 14

THINGS = ("entry", "hard", "snapshot", "membership")
DAMAGES = ("lost", "torn", "flipped", "stale", "swapped")
ROLES = ("follower", "leader", "candidate")
EXTENTS = ("one", "f", "all")


def damaged(data: bytes, damage: str, older: bytes | None, foreign: bytes, rng: random.Random) -> bytes | None:
    """The record after the damage; None: gone."""
    match damage:
        case "lost":
            return None
        case "torn":
            return data[: rng.randrange(len(data))]
        case "flipped":
            return flipped(data, rng)
        case "stale":
            return older
        case _:
            return foreign


def spoil(disk: Disk, thing: str, damage: str, rng: random.Random) -> None:
    image = disk.durable
    stranger = Identity(GROUP, 99, 1 << 16)
    own = Identity(GROUP, disk.node, 1 << 16)
    change: Callable[[Image], None]
    if thing == "entry":
        data = image.entries[VICTIM_ENTRY]
        assert data is not None
        older = codec.encode_entry(own, Entry(VICTIM_ENTRY, 0, 1, b"of an earlier term"), 0)
        foreign = image.entries[VICTIM_ENTRY + 1] or b""
        new = damaged(data, damage, older, foreign, rng)

        def change(image: Image) -> None:
            image.entries[VICTIM_ENTRY] = new
    elif thing == "hard":
        assert image.hard is not None
        foreign = codec.encode_hard_state(stranger, HardState(term=9))
        new = damaged(image.hard, damage, disk.older_hard, foreign, rng)

        def change(image: Image) -> None:
            image.hard = new
    elif thing == "membership":
        assert image.membership is not None
        older = codec.encode_stored_membership(own, Membership(0, ()))
        new = damaged(image.membership, damage, older, b"", rng)

        def change(image: Image) -> None:
            image.membership = new
    else:
        newest = max(image.snapshots)
        meta, data = image.snapshots[newest]
        oldest = image.snapshots[min(image.snapshots)]
        foreign_meta = codec.encode_snapshot_meta(stranger, SnapshotMeta(newest, 1, Membership(0, ())))
        spoiled = {
            "lost": None,
            "torn": (meta, data[:-5]),
            "flipped": (meta, flipped(data, rng)),
            "stale": oldest,
            "swapped": (foreign_meta, data),
        }[damage]

        def change(image: Image) -> None:
            if spoiled is None:
                del image.snapshots[newest]
            else:
                image.snapshots[newest] = spoiled

    disk.change(change)


def lived_in_world(rng: random.Random) -> World:
    """Five replicas that took two snapshots, keep the log between them, and have committed more since."""
    world = World(rng, NODES)
    world.elect(2)
    world.elect(1)
    for number in range(4):
        world.propose(1, b"first %d" % number)
    world.run(3)
    for node in NODES:
        assert world.snapshot(node)
    for number in range(4):
        world.propose(1, b"second %d" % number)
    world.run(3)
    for node in NODES:
        assert world.snapshot(node, keep=4)
    for number in range(8):
        world.propose(1, b"third %d" % number)
    assert world.run(5, world.converged)
    assert world.machine(1).log.last_index > VICTIM_ENTRY
    return world


def victims_of(role: str, extent: str) -> list[int]:
    first = {"leader": 1, "follower": 3, "candidate": 4}[role]
    others = [node for node in (5, 2, 3, 4, 1) if node != first]
    return [first, *others][: {"one": 1, "f": F, "all": len(NODES)}[extent]]


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("thing", THINGS)
def test_damage(thing: str, damage: str, role: str, extent: str) -> None:
    """The outcome is the verdict table's (rows 8, 9, 11 to 15, 18); the checkers watch every step."""
    rng = random.Random(f"{thing} {damage} {role} {extent}")
    world = lived_in_world(rng)
    committed = world.checkers.committed_max
    victims = victims_of(role, extent)
    if role == "candidate":  # everybody restarts, and the victim is the first to campaign
        for node in NODES:
            world.stop(node)
    for node in victims:
        if node in world.up():
            world.stop(node)
        spoil(world.hosts[node].disk, thing, damage, rng)
    for node in NODES:
        if node not in world.up():
            world.start(node)
    if role == "candidate":
        world.machine(victims[0]).core.election_elapsed = 50
    came_back = world.run(150, world.converged)
    if extent == "all" and thing in ("entry", "hard"):
        assert not came_back
        assert not any(world.machine(node).role is Role.LEADER for node in NODES)
        halts = [halt for node in NODES if (halt := world.machine(node).core.halt) is not None]
        assert halts
        if thing == "entry":
            assert {(halt.first, halt.last) for halt in halts} == {(VICTIM_ENTRY, VICTIM_ENTRY)}
        assert world.checkers.committed_max == committed
        return
    assert came_back
    world.propose(world.leader(), b"and on")
    assert world.run(50, lambda: world.converged() and world.checkers.committed_max > committed)
    assert all(world.machine(node).standing is Standing.SOUND for node in NODES)


def test_halted_group_resumes_with_one_good_copy() -> None:
    """Row 9: the entry is damaged everywhere and the group halts; one copy comes back, and with it the group."""
    rng = random.Random(9)
    world = lived_in_world(rng)
    good = world.hosts[3].disk.durable.copy()
    for node in NODES:
        world.stop(node)
        spoil(world.hosts[node].disk, "entry", "flipped", rng)
        world.start(node)
    assert not world.run(60, world.converged)
    kept = world.hosts[1].disk.durable.entries[VICTIM_ENTRY]
    assert kept is not None, "the damaged bytes are kept for an operator"
    world.stop(3)
    world.hosts[3].disk.change(lambda image: image.entries.update({VICTIM_ENTRY: good.entries[VICTIM_ENTRY]}))
    world.start(3)
    assert world.run(150, world.converged)
    assert all(world.machine(node).core.halt is None for node in NODES)


def test_helix() -> None:
    """Row 10: every replica has lost something, no two the same: they repair each other without a leader."""
    world = lived_in_world(random.Random(10))
    for node in NODES:
        world.stop(node)
        index = VICTIM_ENTRY - 2 + node
        world.hosts[node].disk.change(lambda image, index=index: image.entries.update({index: None}))  # type: ignore[misc]
    for node in NODES:
        world.start(node)
        assert world.machine(node).standing is Standing.FAULTY
    assert world.run(150, world.converged)


def test_snapshot_lost_everywhere_without_the_log_before_it() -> None:
    """Row 11 for snapshots: nothing to rebuild the state from, so the group halts and names the range."""
    world = World(random.Random(11))
    world.elect(1)
    world.propose(1, b"a", b"b", b"c")
    world.run(5)
    for node in (1, 2, 3):
        assert world.snapshot(node)
    world.propose(1, b"d")
    world.run(5)
    for node in (1, 2, 3):
        world.stop(node)
        world.hosts[node].disk.change(lambda image: image.snapshots.clear())
    for node in (1, 2, 3):
        world.start(node)
    assert not world.run(100, world.converged)
    halts = [world.machine(node).core.halt for node in (1, 2, 3)]
    assert all(halt is not None and (halt.first, halt.last) == (1, 4) for halt in halts)


def test_last_entry_lost_on_a_minority() -> None:
    """The tail that a replica promised is gone: it is missed, not taken for torn, and comes back from the others."""
    world = World(random.Random(12))
    world.elect(1)
    world.propose(1, b"a", b"b", b"c")
    world.run(5)
    last = world.machine(2).log.last_index
    world.stop(2)
    world.hosts[2].disk.change(lambda image: image.entries.__delitem__(last))
    world.start(2)
    assert world.machine(2).standing is Standing.FAULTY
    assert world.machine(2).log.last_index == last
    assert world.run(100, world.converged)
