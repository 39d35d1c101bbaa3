"""Starting and following with damage in the log, or with an admission that was not noted yet."""

from __future__ import annotations

import random

from tnats.raft import messages as m
from tnats.raft.effects import HardState, Persisted, Receive, Tick
from tnats.raft.log import FaultyRange
from tnats.raft.machine import Machine
from tnats.raft.membership import Member, Membership
from tnats.raft.messages import Entry, SnapshotMeta, Standing
from tnats.raft.options import Options
from tnats.raft.recovery import Restored

BOOT = 1 << 16
MEMBERS = Membership(0, (Member(1), Member(2), Member(3)))


def damaged(commit: int) -> Machine:
    """A replica with a snapshot at 5 and entries 6 to 9, of which it cannot read 6 and 7, and knows only 7 by name."""
    restored = Restored(
        HardState(term=3),
        SnapshotMeta(5, 2, MEMBERS),
        5,
        [2, None, 3, 3, 3],
        [FaultyRange(6, 7, 3)],
        [MEMBERS],
        commit,
        5,
        Standing.SOUND,
    )
    machine = Machine(1, restored, Options(), random.Random(1))
    machine.step(Tick())
    machine.step(Persisted(1))
    return machine


def append(prev: tuple[int, int], first: int, *terms: int) -> Receive:
    entries = [Entry(first + k, term, 1, b"") for k, term in enumerate(terms)]
    return Receive(m.Append(2, 1, 3, BOOT, prev[1], prev[0], 0, entries))


def test_an_append_from_before_the_snapshot_does_not_overwrite_what_cannot_be_read() -> None:
    """Entries that reach into the hidden range but not to its name are left alone: nothing is cut, nothing is filled,
    even where the range is committed."""
    machine = damaged(commit=9)
    machine.step(append((2, 3), 4, 2, 2, 2))
    assert machine.log.faulty == [FaultyRange(6, 7, 3)]
    assert machine.log.last_index == 9


def test_an_append_that_reaches_the_name_repairs_the_range() -> None:
    """If the leader's entry at the range's last index is the one that was lost, all before it are."""
    machine = damaged(commit=5)
    ready = machine.step(append((2, 3), 4, 2, 2, 3, 3, 3))
    assert machine.log.faulty == []
    assert machine.log.terms == [2, 3, 3, 3, 3]
    assert ready.persist is not None
    assert [[entry.index for entry in rewrite.entries] for rewrite in ready.persist.repairs] == [[6, 7]]
    assert machine.standing is Standing.SOUND


def test_an_append_that_contradicts_the_name_replaces_what_was_never_committed() -> None:
    """If the leader has another entry there, the range and what follows it were never committed, and go."""
    machine = damaged(commit=5)
    machine.step(append((2, 5), 6, 2, 2))
    assert machine.log.faulty == []
    assert machine.log.terms == [2, 2, 2]


def test_an_admission_in_the_log_counts_at_the_next_start() -> None:
    """A replica that stopped between the entry that admits it again and noting so is sound when it starts; one whose
    amnesia is later than that entry is not."""
    since = 5 << 16
    members = Membership(4, (Member(1, since), Member(2), Member(3)))
    for own, expected in ((since, Standing.SOUND), (since + (1 << 16), Standing.AMNESIC)):
        hard = HardState(term=3, incarnation=own, standing=Standing.AMNESIC, since=own)
        restored = Restored(hard, SnapshotMeta(5, 2, members), 5, [2], [], [members], 5, 5, Standing.AMNESIC)
        machine = Machine(1, restored, Options(), random.Random(1))
        assert machine.standing is expected


def test_what_is_committed_is_not_given_up_whatever_a_peer_says() -> None:
    """The leader denies a range that is committed here: it stays, damaged, for someone who still has it."""
    machine = damaged(commit=9)
    machine.step(Receive(m.Heartbeat(2, 1, 3, BOOT, 0, 0, False, False)))
    for holding in (m.Holding.CONFLICT, m.Holding.ABSENT):
        machine.step(Receive(m.RepairReply(2, 1, 3, BOOT, 6, 7, 3, holding, 0, True, [])))
    assert machine.standing is Standing.FAULTY
    assert (machine.log.last_index, machine.log.faulty) == (9, [FaultyRange(6, 7, 3)])
