"""What must not leave, count or be applied before the disk has it."""

from __future__ import annotations

import random

from tnats.raft.effects import HardState, Persisted, Ready, Receive, Tick
from tnats.raft.machine import Machine
from tnats.raft.membership import Member, Membership
from tnats.raft.messages import Append, AppendReply, Entry, EntryKind, Heartbeat, RelearnReply, SnapshotMeta, Standing
from tnats.raft.options import Options
from tnats.raft.recovery import Restored

BOOT = 1 << 16
MEMBERS = Membership(0, (Member(1), Member(2), Member(3)))


def started(memory: Standing = Standing.SOUND) -> Machine:
    """Replica 1 in term 4, with an empty log, its incarnation durable."""
    restored = Restored(HardState(term=4), SnapshotMeta(0, 0, MEMBERS), 0, [0], [], [MEMBERS], 0, 0, memory)
    machine = Machine(1, restored, Options(), random.Random(1))
    machine.step(Tick())
    machine.step(Persisted(1))
    return machine


def append(machine: Machine, leader: int, term: int, *terms: int, commit: int = 0) -> Ready:
    """The leader's log, from its beginning."""
    entries = [Entry(index, own, EntryKind.DATA, b"") for index, own in enumerate(terms, 1)]
    return machine.step(Receive(Append(leader, 1, term, BOOT, 0, 0, commit, entries)))


def number(ready: Ready) -> int:
    assert ready.persist is not None
    return ready.persist.number


def test_an_acknowledgement_of_replaced_entries_never_leaves() -> None:
    """Two entries wait for the disk when another leader replaces them by one: only that one is acknowledged."""
    machine = started()
    first = number(append(machine, 2, 5, 5, 5))
    second = number(append(machine, 3, 6, 6))
    messages = [*machine.step(Persisted(first)).messages, *machine.step(Persisted(second)).messages]
    acknowledged = [(m.target, m.index) for m in messages if isinstance(m, AppendReply) and not m.rejected]
    assert acknowledged == [(3, 1)]


def test_what_is_committed_is_applied_when_it_is_durable_here() -> None:
    """A restart would restore a state ahead of its log."""
    machine = started()
    ready = append(machine, 2, 5, 5, commit=1)
    assert machine.log.commit == 1
    assert not ready.committed
    assert [entry.index for entry in machine.step(Persisted(number(ready))).committed] == [1]


def test_what_matched_the_last_leader_need_not_match_this_one() -> None:
    """A commit that a new leader tells says nothing of entries that it has not compared yet."""
    machine = started()
    machine.step(Persisted(number(append(machine, 2, 5, 5, 5))))
    machine.step(Receive(Heartbeat(2, 1, 5, BOOT, 1, 0, False, False)))
    assert machine.log.commit == 1
    machine.step(Receive(Heartbeat(3, 1, 6, BOOT, 2, 0, False, False)))
    assert machine.log.commit == 1


def test_a_dirty_replica_counts_when_its_own_boot_was_told_the_end_and_that_is_durable() -> None:
    """An answer to an earlier boot names too early an end; what only memory holds may be lost once more."""
    machine = started(Standing.DIRTY)
    machine.step(Receive(Heartbeat(2, 1, 5, BOOT, 0, 0, False, False)))
    own = machine.core.incarnation
    machine.step(Receive(RelearnReply(2, 1, 5, BOOT, own - BOOT, 0, True, MEMBERS)))
    assert machine.standing is Standing.DIRTY
    machine.step(Receive(RelearnReply(2, 1, 5, BOOT, own, 1, True, MEMBERS)))
    ready = append(machine, 2, 5, 5)
    assert machine.standing is Standing.DIRTY
    machine.step(Persisted(number(ready)))
    assert machine.standing is Standing.SOUND
