"""The verdicts of a start: what is torn goes, what is damaged keeps its place, what is forgotten is known."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.raft.disk import POLICIES, Disk

from tnats.raft import codec
from tnats.raft.codec import Identity, NewerFormat
from tnats.raft.effects import HardState, Persist, Tick
from tnats.raft.log import FaultyRange
from tnats.raft.machine import Machine
from tnats.raft.membership import EMPTY, Member, Membership
from tnats.raft.messages import Entry, SnapshotMeta, Standing
from tnats.raft.options import Options
from tnats.raft.recovery import Found, founding, recover

BOOT = 3 << 16
MEMBERS = Membership(0, (Member(1), Member(2), Member(3)))


def written(*terms: int, hard_term: int = 9, promised: int | None = None) -> Disk:
    """A disk with a founding snapshot, a hard state, these entries, all synced, and a promise."""
    disk = Disk(b"g", 1)
    disk.store_snapshot(SnapshotMeta(0, 0, MEMBERS), b"", BOOT)
    log = [Entry(index, term, 1, b"e%d" % index) for index, term in enumerate(terms, 1)]
    hard = HardState(version=4, term=hard_term, incarnation=BOOT)
    disk.persist(Persist(1, hard=hard, entries=log, membership=MEMBERS), BOOT, b"")
    disk.sync()
    end = len(terms) if promised is None else promised
    disk.promise(end, terms[end - 1] if end else 0, BOOT)
    return disk


def test_a_clean_disk_is_sound() -> None:
    """Everything that was written is there again."""
    restored = recover(b"g", 1, written(1, 1, 2).found(dirty=False))
    assert (restored.memory, restored.terms, restored.faulty, restored.verdicts) == (
        Standing.SOUND,
        [0, 1, 1, 2],
        [],
        [],
    )
    assert restored.memberships == [MEMBERS]


def test_nothing_at_all_is_amnesia() -> None:
    """A replica whose disk is empty cannot know what it promised. A new one is founded, not recovered."""
    restored = recover(b"g", 1, Found())
    assert (restored.memory, restored.memberships) == (Standing.AMNESIC, [EMPTY])
    assert founding(EMPTY).memory is Standing.SOUND


@given(st.sampled_from(POLICIES), st.integers(0, 2**32), st.integers(1, 6), st.booleans())
def test_power_loss_never_looks_like_damage(policy: str, seed: int, count: int, overwrite: bool) -> None:
    """Whatever a power cut leaves of unsynced writes: all that was promised is there, and nothing is called faulty."""
    rng = random.Random(seed)
    disk = written(1, 1, 2)
    first = rng.randint(1, 3) if overwrite else 4
    new = [Entry(first + k, 3, 1, b"new") for k in range(count)]
    prev = [0, 1, 1, 2][first - 1]
    hard = HardState(version=5, term=9, incarnation=BOOT)
    disk.persist(Persist(2, hard=hard, prev_term=prev, entries=new), BOOT, b"")
    disk.power_cut(policy, rng)
    restored = recover(b"g", 1, disk.found(dirty=False))
    assert restored.memory is Standing.SOUND
    assert restored.faulty == []
    survived = restored.terms[1:]
    if not overwrite:
        assert survived[:3] == [1, 1, 2]
    assert survived == sorted(survived, key=lambda term: term or 0)


@given(st.integers(1, 5), st.integers(0, 2**32), st.sampled_from(("flip", "lose", "swap")))
def test_one_damaged_record_is_one_faulty_entry(index: int, seed: int, how: str) -> None:
    """A promised record that is damaged keeps its place, under the identity that its neighbour or the promise names."""
    terms = (1, 1, 2, 3, 3)
    disk = written(*terms)
    data = disk.durable.entries[index]
    assert data is not None
    at = random.Random(seed).randrange(8 * len(data))
    flipped = bytearray(data)
    flipped[at // 8] ^= 1 << at % 8
    other = disk.durable.entries[index % 5 + 1]
    disk.durable.entries[index] = {"flip": bytes(flipped), "lose": None, "swap": other}[how]
    restored = recover(b"g", 1, disk.found(dirty=False))
    assert restored.memory is Standing.SOUND
    assert restored.faulty == [FaultyRange(index, index, terms[index - 1])]
    assert [term for at, term in enumerate(restored.terms[1:], 1) if at != index] == [
        term for at, term in enumerate(terms, 1) if at != index
    ]


def test_a_stale_record_is_known_by_its_successor() -> None:
    """An older write left in place verifies, but the next record names another term before it."""
    disk = written(1, 2, 2)
    stale = codec.encode_entry(Identity(b"g", 1, BOOT), Entry(2, 1, 1, b"old"), 1)
    disk.durable.entries[2] = stale
    assert recover(b"g", 1, disk.found(dirty=False)).faulty == [FaultyRange(2, 2, 2)]


def test_a_missing_tail_is_missed() -> None:
    """The promise knows of entries that are not there: they are faulty, and their last one is named."""
    disk = written(1, 1, 2)
    del disk.durable.entries[2], disk.durable.entries[3]
    restored = recover(b"g", 1, disk.found(dirty=False))
    assert restored.faulty == [FaultyRange(2, 3, 2)]


def test_without_a_promise_nothing_is_cut() -> None:
    """If even the promise is lost, every hole before an intact record is damage, and the end is in doubt."""
    disk = written(1, 1, 2)
    disk.durable.promises = [None, codec.encode_promise(Identity(b"g", 2, BOOT), codec.Promise(1, 1, 1))]
    disk.durable.entries[2] = None
    restored = recover(b"g", 1, disk.found(dirty=False))
    assert restored.memory is Standing.SHORT
    assert restored.faulty == [FaultyRange(2, 2, 1)]


@pytest.mark.parametrize("how", ["lost", "older version", "older term", "older incarnation"])
def test_a_hard_state_that_cannot_be_the_last_is_amnesia(how: str) -> None:
    """Missing, or older than what lies beside it: the replica does not know what it voted."""
    disk = written(1, 4)
    own = Identity(b"g", 1, BOOT)
    disk.durable.hard = {
        "lost": None,
        "older version": codec.encode_hard_state(own, HardState(version=3, term=9, incarnation=BOOT)),
        "older term": codec.encode_hard_state(own, HardState(version=4, term=3, incarnation=BOOT)),
        "older incarnation": codec.encode_hard_state(own, HardState(version=4, term=9, incarnation=2 << 16)),
    }[how]
    restored = recover(b"g", 1, disk.found(dirty=False))
    assert restored.memory is Standing.AMNESIC
    assert restored.hard.term >= 4
    assert restored.hard.incarnation >> 16 >= 3
    assert restored.hard.version >= 4


def test_standing_is_remembered_across_starts() -> None:
    """A replica that had not learned again when it stopped still has not."""
    disk = written(1)
    hard = HardState(version=4, term=9, incarnation=BOOT, standing=Standing.AMNESIC, since=BOOT)
    disk.durable.hard = codec.encode_hard_state(Identity(b"g", 1, BOOT), hard)
    restored = recover(b"g", 1, disk.found(dirty=False))
    assert (restored.memory, restored.hard.since) == (Standing.AMNESIC, BOOT)


def test_a_lost_snapshot_is_a_faulty_range() -> None:
    """An older verified snapshot is the base then, and what lies between it and the log is to be repaired."""
    disk = written(1, 1, 2, 2, 3)
    for index, term in ((2, 1), (4, 2)):
        disk.store_snapshot(SnapshotMeta(index, term, MEMBERS, 1, 0), b"?", BOOT)
    disk.sync()
    for index in (1, 2, 3, 4):
        del disk.durable.entries[index]
    found = disk.found(dirty=False)
    found.snapshots = [disk.durable.snapshots[2][0]]
    restored = recover(b"g", 1, found)
    assert (restored.snapshot.index, restored.base, restored.applied) == (2, 2, 2)
    assert restored.faulty == [FaultyRange(3, 4, 2)]
    assert restored.terms == [1, None, 2, 3]


def test_the_membership_has_three_homes() -> None:
    """Snapshot, log, and a copy: any one of them is enough; with none, the replica says so."""
    disk = written(1)
    disk.durable.snapshots.clear()
    assert recover(b"g", 1, disk.found(dirty=False)).memberships == [MEMBERS]
    disk.durable.membership = None
    restored = recover(b"g", 1, disk.found(dirty=False))
    assert (restored.memberships, restored.memory) == ([EMPTY], Standing.SHORT)


def test_dirty_is_the_hosts_word() -> None:
    """Only the host knows that the machine lost power while the sync was lazy."""
    assert recover(b"g", 1, written(1).found(dirty=True)).memory is Standing.DIRTY


def test_a_newer_format_is_refused() -> None:
    """A record of a later release is no damage: the start is refused."""
    from crc32c import crc32c

    disk = written(1)
    assert disk.durable.hard is not None
    body = bytes([codec.VERSION + 1]) + disk.durable.hard[5:]
    disk.durable.hard = crc32c(body).to_bytes(4, "little") + body
    with pytest.raises(NewerFormat):
        recover(b"g", 1, disk.found(dirty=False))


@given(st.integers(0, 2**32), st.integers(0, 8))
def test_no_damage_is_too_much(seed: int, count: int) -> None:
    """However much of a disk is gone, the start has a verdict, and a machine can be made from it; if it claims to be
    sound, then everything that was promised is in its log or known to be faulty."""
    rng = random.Random(seed)
    disk = written(1, 1, 2, 2, 3, 3, 4)
    if rng.random() < 0.6:
        at = rng.randint(1, 6)
        disk.store_snapshot(SnapshotMeta(at, (0, 1, 1, 2, 2, 3, 3)[at], MEMBERS, 1, 0), b"?", BOOT)
        disk.sync()
        for index in range(1, rng.randint(0, at) + 1):
            del disk.durable.entries[index]
    for _ in range(count):
        what = rng.choice(("entry", "entry", "entry", "hard", "membership", "promise", "snapshot"))
        if what == "entry" and disk.durable.entries:
            index = rng.choice(sorted(disk.durable.entries))
            choice = rng.random()
            if choice < 0.4:
                disk.durable.entries[index] = None
            elif choice < 0.7:
                del disk.durable.entries[index]
            else:
                disk.durable.entries[index] = disk.durable.entries[rng.choice(sorted(disk.durable.entries))]
        elif what == "promise":
            disk.durable.promises[rng.randrange(2)] = None
        elif what == "snapshot" and disk.durable.snapshots:
            del disk.durable.snapshots[rng.choice(sorted(disk.durable.snapshots))]
        elif what in ("hard", "membership"):
            setattr(disk.durable, what, None)
    found = disk.found(dirty=False)
    found.snapshots = [meta for meta, _ in disk.durable.snapshots.values()]
    restored = recover(b"g", 1, found)
    made = Machine(1, restored, Options(), rng)
    for _ in range(50):
        made.step(Tick())
    if restored.memory is Standing.SOUND:
        assert made.log.last_index >= 7
        assert made.standing in (Standing.SOUND, Standing.FAULTY)
