"""Machines and hosts with one deliberate fault each, to show that the schedules find it.

Every mutant is a subclass or a replaced method, made here and undone after the run: the product knows nothing of it.
`seeds` is within how many schedules it must be found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from tests.properties.raft.disk import Disk
from tests.properties.raft.schedules import Swarm
from tests.properties.raft.world import Host, World, decode_state

from tnats.raft import codec, recovery
from tnats.raft.core import Core
from tnats.raft.effects import Input, Load, Loaded, Persist, Persisted, ReadReady, SnapshotStored, SnapshotWrite
from tnats.raft.election import Election
from tnats.raft.following import Following
from tnats.raft.log import Log
from tnats.raft.membership import Membership
from tnats.raft.messages import (
    Append,
    Entry,
    Heartbeat,
    Holding,
    Message,
    RepairRequest,
    Standing,
    VoteReply,
    VoteRequest,
)
from tnats.raft.reads import Reads
from tnats.raft.recovery import Found, Restored
from tnats.raft.relearn import Relearning
from tnats.raft.repair import Repair
from tnats.raft.replication import Replication

Patch = tuple[object, str, object]


@attrs.define
class Mutant:
    """`swarm` names a recipe: which faults this one needs. None: the ordinary draw."""

    name: str
    seeds: int
    patches: list[Patch]
    world_class: type[World] = World
    swarm: Callable[[random.Random], Swarm] | None = None

    @contextmanager
    def planted(self) -> Iterator[None]:
        missing = object()
        before = [(owner, name, vars(owner).get(name, missing)) for owner, name, _ in self.patches]
        for owner, name, value in self.patches:
            setattr(owner, name, value)
        try:
            yield
        finally:
            for owner, name, value in before:
                if value is missing:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)


# Acknowledging and committing


def commit_own(self: Replication) -> None:
    log = self.core.log
    if log.stable > log.commit and log.term(log.stable) == self.core.term:
        log.commit = log.stable
        self.on_commit()


def commit_any_term(self: Replication) -> None:
    core = self.core
    matches = sorted(core.progress[voter].match for voter in core.membership.voters if voter in core.progress)
    index = matches[(len(matches) - 1) // 2]
    if index > core.log.commit:
        core.log.commit = index
        self.on_commit()


def commit_any_standing(self: Replication) -> None:
    core = self.core
    matches = sorted(p.match if (p := core.progress.get(voter)) else 0 for voter in core.membership.voters)
    index = matches[(len(matches) - 1) // 2]
    if index > core.log.commit and core.log.term(index) == core.term:
        core.log.commit = index
        self.on_commit()


def send_at_once(self: Core, message: Message) -> None:
    self.send(message)


def count_own_at_once(self: Replication, entries: list[Entry]) -> None:
    self.core.log.append(entries)
    own = self.core.progress.get(self.core.node)
    if own is not None:
        own.match = self.core.log.last_index
    self.broadcast()


def accept_last(self: Following, index: int, commit: int) -> None:
    core = self.core
    index = core.log.last_index
    core.verified = index
    self.commit_to(min(commit, index))
    core.send_durable(self._reply(index, rejected=False))


def heartbeat_commits(self: Following, message: Heartbeat, *, may_sleep: bool) -> None:
    core, log = self.core, self.core.log
    core.election_elapsed = 0
    self.commit_to(min(message.commit, log.last_index))


def heartbeat_tells_all(self: Replication, *, quiesce: bool = False) -> None:
    core = self.core
    self.heartbeat_elapsed = 0
    for node in core.progress:
        if node != core.node:
            core.send(Heartbeat(*core.header(node), core.log.commit, self.round, False, quiesce))


# Electing


def always_fresh(self: Log, last_index: int, last_term: int) -> bool:
    return True


def vote_again(self: Election, request: VoteRequest) -> None:
    core = self.core
    granted = core.log.is_fresh(request.last_index, request.last_term) and self.may_vote(request)
    if granted and not request.pre:
        core.vote = request.source
    term = request.term if granted else core.term
    core.send(VoteReply(core.node, request.source, term, core.incarnation, request.pre, granted, core.standing))


def revert_term(original: Callable[[Core, int], None]) -> Callable[[Core, int], None]:
    def truncate(self: Core, index: int) -> None:
        original(self, index)
        self.term = self.log.term(index - 1) or 0
        self.vote = 0
        self.hard_changed = True

    return truncate


class VoteNotPersisted(World):
    def persist(self, host: Host, persist: Persist) -> None:
        if persist.hard is not None:
            persist.hard.vote = 0
        super().persist(host, persist)


# Recovering


def cut_at_first_damage(group: bytes, node: int, found: Found) -> Restored:
    restored = recovery.recover(group, node, found)
    if restored.faulty:
        last = restored.faulty[0].first - 1
        restored.terms = restored.terms[: last + 1 - restored.base]
        restored.faulty = []
        restored.memberships = [m for m in restored.memberships if m.index <= last] or restored.memberships[:1]
        restored.commit = min(restored.commit, last)
        restored.applied = min(restored.applied, last)
    return restored


def skip_damage(group: bytes, node: int, found: Found) -> Restored:
    restored = recovery.recover(group, node, found)
    terms = restored.terms
    for at, term in enumerate(terms):
        if term is None:
            terms[at] = terms[at - 1]
    restored.faulty = []
    return restored


def torn_anyway(group: bytes, node: int, found: Found) -> Restored:
    restored = recovery.recover(group, node, found)
    version = codec.Promise(restored.snapshot.index, restored.snapshot.term, restored.hard.version)
    found.promises = [codec.encode_promise(codec.Identity(group, node, 0), version)]
    return recovery.recover(group, node, found)


class Tearing(World):
    recover = staticmethod(torn_anyway)


class Cutting(World):
    recover = staticmethod(cut_at_first_damage)


class Skipping(World):
    recover = staticmethod(skip_damage)

    def load(self, host: Host, load: Load) -> Input:
        entries = []
        for index in range(load.first, load.last + 1):
            entry = host.disk.read(index)
            term = self.machine(host.node).log.term(index) or 0
            entries.append(entry if entry is not None else Entry(index, term, 0, b""))
        return Loaded(load, entries)


class SnapshotUnverified(World):
    def state_of_snapshot(self, host: Host, restored: Restored) -> int:
        if restored.snapshot.index == 0:
            return 0
        return decode_state(host.disk.durable.snapshots[restored.snapshot.index][1])


def found_unverified(self: Disk, *, dirty: bool) -> Found:
    snapshots = [meta for meta, _ in self.durable.snapshots.values()]
    promises = [promise for promise in self.durable.promises if promise is not None]
    image = self.durable
    return Found(image.hard, image.membership, promises, snapshots, dict(image.entries), 0, dirty)


class EarlyEnd(World):
    """Takes what has arrived of a snapshot for all of it."""

    def write_snapshot(self, host: Host, write: SnapshotWrite) -> None:
        del host.arriving[write.offset :]
        host.arriving += write.data
        receiving = self.machine(host.node).snapshots.receiving
        if receiving is not None:
            receiving.storing = True
        host.completions.append(SnapshotStored(write.meta, True))


class SyncErrorIgnored(World):
    def sync_fails(self, node: int) -> None:
        host = self.hosts[node]
        host.disk.power_cut("lost", self.rng)
        last = host.unsynced[-1].number if host.unsynced else 0
        host.unsynced.clear()
        self.checkers.synced(host)
        if last:
            self.feed(node, Persisted(last))


class HalfRecord(World):
    """The disk is full in the middle of a record, and the host goes on as if it were written."""

    def sync_fails(self, node: int) -> None:
        host = self.hosts[node]
        entries = [operation for operation in host.disk.pending if operation[0] == "entry"]
        last = host.unsynced[-1].number if host.unsynced else 0
        host.unsynced.clear()
        host.disk.sync()
        if entries:
            _, index, record, _ = entries[-1]
            host.disk.change(lambda image: image.entries.__setitem__(index, record[: len(record) // 2]))
        self.checkers.synced(host)
        if last:
            self.feed(node, Persisted(last))


# Remembering and re-admitting


def starts_sound(original: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Core, *args: Any, **kwargs: Any) -> None:
        kwargs["memory"] = Standing.SOUND
        original(self, *args, **kwargs)
        self.standing = Standing.SOUND

    return __init__


def sound_at_once(self: Relearning) -> None:
    if self.core.memory:
        self.core.remember()


def repair_by_index(self: Repair, request: RepairRequest) -> None:
    log = self.core.log
    first, last = request.first, min(request.last, log.last_index)
    if first >= log.cache_first and first <= last:
        entries = log.slice_to(first, last, 10_000)
        self._reply(request, Holding.HAVE, entries)


def readmitted_at_once(self: Core) -> None:
    self.membership_changed = True
    if self.memory is Standing.AMNESIC and self.membership.members:
        self.remember()


def no_conflict_check(self: Following, entries: list[Entry]) -> None:
    log = self.core.log
    fresh = [entry for entry in entries if entry.index > log.last_index]
    if fresh:
        log.append(fresh)


def no_prev_check(original: Callable[[Following, Append], None]) -> Callable[[Following, Append], None]:
    def append(self: Following, message: Append) -> None:
        log = self.core.log
        if log.base <= message.prev_index <= log.last_index:
            message = attrs.evolve(message, prev_term=log.term(message.prev_index) or 0)
        original(self, message)

    return append


# Changing members, reading


def committed_membership(self: Core) -> Membership:
    return self.memberships.at(self.log.commit) or self.memberships.current


def never_pending(self: Core) -> bool:
    return False


def read_at_once(self: Reads, node: int, incarnation: int, context: int) -> None:
    core = self.core
    if core.log.applied >= core.log.commit:
        core.reads.append(ReadReady(context, core.log.commit))


# Recipes


def calm(rng: random.Random) -> Swarm:
    """Nothing goes wrong; the disk is slow."""
    return Swarm(tick=20.0, sync=6.0)


def figure_eight(rng: random.Random) -> Swarm:
    """Leaders that come and go before they commit (paper, figure 8)."""
    return Swarm(tick=25.0, propose=8.0, drop=3.0, partition=1.0, crash=0.5, ordered=False)


def pauses(rng: random.Random) -> Swarm:
    """A leader cut off, deposed, and asked."""
    return Swarm(tick=25.0, partition=1.2, heal=0.6, read=8.0)


def crashes(rng: random.Random) -> Swarm:
    return Swarm(tick=20.0, crash=2.0, start=4.0, drop=1.0)


def damages(rng: random.Random) -> Swarm:
    return Swarm(tick=14.0, damage=2.0, snapshot=rng.choice((0.0, 1.0)), propose=8.0, crash=0.2)


def snapshots(rng: random.Random) -> Swarm:
    spoils = ("snapshot", "snapshot", "entries")
    return Swarm(tick=14.0, damage=2.0, spoils=spoils, snapshot=3.0, propose=8.0, crash=0.6, start=1.0, partition=0.5)


def failing_disks(rng: random.Random) -> Swarm:
    return Swarm(tick=14.0, sync_fails=1.0, crash=0.5, start=3.0)


def changes(rng: random.Random) -> Swarm:
    return Swarm(tick=18.0, change=4.0, partition=0.5, drop=1.0)


def amnesia(rng: random.Random) -> Swarm:
    return Swarm(tick=18.0, wipe=1.0, damage=0.5, partition=0.6, propose=8.0)


def lazy_power(rng: random.Random) -> Swarm:
    policies = ("lost", "prefix")
    return Swarm(tick=10.0, crash=1.5, start=4.0, sync=1.0, lazy=True, partition=0.2, policies=policies, propose=8.0)


MUTANTS = [
    Mutant("acknowledges before a quorum has it", 5, [(Replication, "advance_commit", commit_own)]),
    Mutant("a follower acknowledges before its fsync", 1, [(Core, "send_durable", send_at_once)], swarm=calm),
    Mutant("the leader counts itself before its fsync", 5, [(Replication, "append", count_own_at_once)]),
    Mutant("the vote is not persisted", 50, [], VoteNotPersisted, crashes),
    Mutant("the term reverts on truncation", 200, [(Core, "truncate", revert_term(Core.truncate))], swarm=figure_eight),
    Mutant("votes for a log that is behind", 20, [(Log, "is_fresh", always_fresh)], swarm=figure_eight),
    Mutant("votes twice in a term", 20, [(Election, "answer", vote_again)], swarm=figure_eight),
    Mutant("commits entries of old terms by counting", 500, [(Replication, "advance_commit", commit_any_term)]),
    Mutant("cuts the log at the first bad checksum", 20, [], Cutting, damages),
    Mutant("takes damage for a torn tail", 20, [], Tearing, damages),
    Mutant("skips an unreadable record", 20, [], Skipping, damages),
    Mutant(
        "uses a snapshot without verifying it", 20, [(Disk, "found", found_unverified)], SnapshotUnverified, snapshots
    ),
    Mutant("ignores an fsync error", 20, [], SyncErrorIgnored, failing_disks),
    Mutant("acknowledges half a record when the disk is full", 20, [], HalfRecord, failing_disks),
    Mutant(
        "a configuration counts from its commit",
        100,
        [(Core, "membership", property(committed_membership))],
        swarm=changes,
    ),
    Mutant("two configurations at a time", 100, [(Core, "change_pending", never_pending)], swarm=changes),
    Mutant("a deposed leader serves reads", 50, [(Reads, "_admit", read_at_once)], swarm=pauses),
    Mutant("a snapshot may end early", 100, [], EarlyEnd, snapshots),
    Mutant("acknowledges its whole log", 50, [(Following, "_accept", accept_last)], swarm=figure_eight),
    Mutant(
        "takes the commit from any heartbeat",
        50,
        [(Following, "heartbeat", heartbeat_commits), (Replication, "heartbeat", heartbeat_tells_all)],
        swarm=figure_eight,
    ),
    Mutant("keeps conflicting entries", 50, [(Following, "_take", no_conflict_check)], swarm=figure_eight),
    Mutant(
        "does not check the entry before",
        50,
        [(Following, "append", no_prev_check(Following.append))],
        swarm=figure_eight,
    ),
    Mutant(
        "an amnesic replica goes on as if nothing were",
        50,
        [(Core, "__init__", starts_sound(Core.__init__))],
        swarm=amnesia,
    ),
    Mutant(
        "an amnesic replica is back with any configuration",
        200,
        [(Core, "membership_now", readmitted_at_once)],
        swarm=amnesia,
    ),
    Mutant("a dirty replica counts at once", 50, [(Relearning, "tick", sound_at_once)], swarm=lazy_power),
    Mutant("repairs by index alone", 100, [(Repair, "asked", repair_by_index)], swarm=damages),
    Mutant(
        "counts acknowledgements of the unsound",
        200,
        [(Replication, "advance_commit", commit_any_standing)],
        swarm=amnesia,
    ),
]
