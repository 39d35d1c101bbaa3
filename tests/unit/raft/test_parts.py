"""The leaves: quorum arithmetic, incarnations, memberships, progress, the log, node liveness, options."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats.errors import InvariantBroken, TnatsError
from tnats.raft.identity import contradicts, following, supersedes
from tnats.raft.liveness import PeerLiveness
from tnats.raft.log import ENTRY_OVERHEAD_BYTES, FaultyRange, Log
from tnats.raft.membership import EMPTY, Change, ChangeKind, Member, Membership, MembershipLog, changed
from tnats.raft.messages import Entry, SnapshotMeta
from tnats.raft.options import Options
from tnats.raft.progress import Flow, Progress
from tnats.raft.quorum import committed_index, majority

# Quorum


def committed_by_counting(matches: list[int]) -> int:
    """The dumb way: try every index."""
    return max(
        (index for index in [0, *matches] if 2 * sum(match >= index for match in matches) > len(matches)), default=0
    )


@given(st.lists(st.integers(0, 9), max_size=9))
def test_committed_index_is_what_a_majority_holds(matches: list[int]) -> None:
    """The clever and the dumb way agree for every group."""
    assert committed_index(list(matches)) == committed_by_counting(matches)


def test_majorities_of_neighbouring_groups_meet() -> None:
    """Any quorum of n voters meets any quorum of the n + 1 that it changes to: what one change at a time rests on."""
    for count in range(1, 7):
        before, after = range(count), range(count + 1)
        for one in itertools.combinations(before, majority(count)):
            for other in itertools.combinations(after, majority(count + 1)):
                assert set(one) & set(other)


# Incarnations


@given(st.integers(0, 2**40), st.integers(0, 2**32))
def test_the_next_boot_supersedes_and_a_double_contradicts(incarnation: int, seed: int) -> None:
    """A later boot is later; two boots that both follow the same one contradict each other, unless by a chance of
    one in 65,536 they are equal."""
    one = following(incarnation, random.Random(seed))
    other = following(incarnation, random.Random(seed + 1))
    assert supersedes(one, incarnation)
    assert not contradicts(one, incarnation)
    assert contradicts(one, other) is (one != other)
    assert not contradicts(one, one)
    assert contradicts(one, following(one, random.Random(1)))


# Memberships

THREE = Membership(0, (Member(1), Member(2), Member(3)))


@given(st.lists(st.tuples(st.sampled_from(ChangeKind), st.integers(1, 5), st.integers(0, 3)), max_size=30))
def test_changes_move_one_voter_at_most(wishes: list[tuple[ChangeKind, int, int]]) -> None:
    """Whatever is asked for, two neighbours in the chain differ by one voter at most, and one voter is left."""
    membership = THREE
    for index, (kind, node, incarnation) in enumerate(wishes, 1):
        after = changed(membership, Change(kind, node, incarnation), index)
        if isinstance(after, str):
            continue
        assert len(set(after.voters) ^ set(membership.voters)) <= 1
        assert after.voters
        assert list(after.by_node) == sorted(after.by_node)
        membership = after


def test_a_returning_member_counts_from_its_admission() -> None:
    """One that forgot counts again when it is admitted by its new incarnation, and not while it is returning."""
    demoted = changed(THREE, Change(ChangeKind.DEMOTE, 3, 70, returning=True), 1)
    assert isinstance(demoted, Membership)
    assert not demoted.counts_again(3, 70)
    promoted = changed(demoted, Change(ChangeKind.PROMOTE, 3), 2)
    assert isinstance(promoted, Membership)
    assert promoted.counts_again(3, 70)
    assert not promoted.counts_again(3, 71)
    assert not THREE.counts_again(3, 0)


def test_the_chain_of_memberships() -> None:
    """What is in force at an index, what truncation takes back, what a snapshot lets go."""
    chain = MembershipLog([THREE])
    second, third = Membership(4, THREE.members[:2]), Membership(9, THREE.members[:1])
    chain.append(second)
    chain.append(third)
    chain.append(second)
    assert chain.at(8) is second
    assert chain.truncate(9)
    assert chain.current is second
    assert not chain.truncate(5)
    chain.release(4)
    assert chain.at(3) is None
    assert chain.current is second
    hidden = MembershipLog([THREE, third])
    hidden.append(second)
    assert hidden.chain == [THREE, second, third]  # found again behind a later one, it takes its place
    hidden.append(Membership(0, THREE.members[:1]))
    assert hidden.chain == [THREE, second, third]  # what the base replaced is no news
    unknown = MembershipLog([EMPTY])
    unknown.append(THREE)
    assert unknown.chain == [THREE]


# Progress


def test_progress_windows_and_forgetting() -> None:
    """Acknowledgements free the window up to them; who forgot starts from nothing."""
    progress = Progress(1)
    progress.acknowledged(3)
    progress.replicate()
    assert (progress.flow, progress.next) == (Flow.REPLICATE, 4)
    progress.sent(6, 100)
    progress.sent(9, 50)
    assert progress.acknowledged(7)
    assert (list(progress.inflight), progress.inflight_bytes) == ([(9, 50)], 50)
    assert not progress.acknowledged(5)
    progress.probe(2)
    assert progress.next == 8
    progress.forget(2, 77)
    assert (progress.match, progress.next, progress.incarnation, progress.inflight_bytes) == (0, 2, 77, 0)


# The log


def entries(first: int, *terms: int) -> list[Entry]:
    return [Entry(first + k, term, 1, b"x" * term) for k, term in enumerate(terms)]


def log_of(*terms: int, commit: int = 0) -> Log:
    log = Log(SnapshotMeta(0, 0, THREE), [0], base=0, commit=0, applied=0, faulty=[])
    if terms:
        log.append(entries(1, *terms))
        log.take_unstable()
        log.persisted(len(terms), terms[-1])
    log.commit = commit
    return log


@given(st.data())
def test_the_log_equals_a_list(data: st.DataObject) -> None:
    """Appending, truncating, releasing and evicting in any order: terms and slices are those of a plain list."""
    log = log_of()
    model: list[int] = []
    for _ in range(data.draw(st.integers(1, 20))):
        match data.draw(st.sampled_from(("append", "truncate", "evict", "persist", "release"))):
            case "append":
                low = model[-1] if model else 1
                terms = sorted(data.draw(st.lists(st.integers(low, low + 3), min_size=1, max_size=5)))
                log.append(entries(log.last_index + 1, *terms))
                model += terms
            case "truncate" if log.last_index > log.commit:
                index = data.draw(st.integers(log.commit + 1, log.last_index))
                log.truncate(index)
                del model[index - 1 :]
            case "persist" if model:
                log.take_unstable()
                assert log.persisted(log.last_index, model[-1]) or log.stable == log.last_index
                log.commit = log.applied = log.applying = log.last_index
            case "evict":
                log.evict_to(min(log.applied, log.stable))
            case "release" if log.applied > log.snapshot.index:
                log.snapshot = SnapshotMeta(log.applied, model[log.applied - 1], THREE)
                log.release(data.draw(st.integers(0, log.applied)))
        assert log.last_index == len(model)
        assert [log.term(index) for index in range(log.base + 1, len(model) + 1)] == model[log.base :]
        if log.cache_first <= log.last_index:
            some, size = log.slice(log.cache_first, 3 * ENTRY_OVERHEAD_BYTES)
            assert [entry.term for entry in some] == model[log.cache_first - 1 :][: len(some)]
            assert size == sum(len(entry.data) + ENTRY_OVERHEAD_BYTES for entry in some)
            assert len(some) == 1 or size <= 3 * ENTRY_OVERHEAD_BYTES
            assert log.bytes_after(log.cache_first - 1) == sum(
                len(entry.data) + ENTRY_OVERHEAD_BYTES for entry in log.cache
            )


def test_hints_skip_whole_terms() -> None:
    """The place where logs may meet is the last one whose term is not above the other's."""
    log = log_of(1, 1, 2, 2, 5, 5)
    assert log.hint(6, 4) == (4, 2)
    assert log.hint(3, 9) == (3, 2)
    assert log.hint(6, 0) == (0, 0)


def test_what_is_committed_does_not_go() -> None:
    """Truncating a committed entry is a contradiction."""
    log = log_of(1, 1, 1, commit=2)
    with pytest.raises(InvariantBroken):
        log.truncate(2)
    log.truncate(3)


def test_persisting_what_was_replaced_is_no_news() -> None:
    """A completion for entries that were truncated meanwhile does not make their successors stable."""
    log = log_of(1)
    log.append(entries(2, 1, 1))
    log.take_unstable()
    log.truncate(3)
    log.append(entries(3, 2))
    assert not log.persisted(3, 1)
    assert log.stable == 1
    log.take_unstable()
    assert log.persisted(3, 2)


def test_faulty_ranges_merge_fill_and_end_reading() -> None:
    """Neighbouring damage is one range, named by its last entry; filling goes from the front."""
    log = log_of(1, 1, 2, 2, 3)
    log.mark_faulty(2, 2)
    log.mark_faulty(3, 4)
    assert log.faulty == [FaultyRange(2, 4, 2)]
    assert (log.readable_to(1), log.readable_to(2), log.readable_to(5)) == (1, 1, 5)
    log.fill(log.faulty[0], entries(2, 1, 2))
    assert log.faulty == [FaultyRange(4, 4, 2)]
    log.truncate(4)
    assert log.faulty == []


def test_a_snapshot_keeps_the_suffix_that_continues_it() -> None:
    """Restoring keeps entries that follow the snapshot's last one, and drops a log that went another way."""
    log = log_of(1, 1, 2, 2)
    assert log.restore(SnapshotMeta(3, 2, THREE))
    assert (log.base, log.last_index, log.commit) == (3, 4, 3)
    assert not log.restore(SnapshotMeta(4, 3, THREE))
    assert (log.base, log.last_index, log.last_term) == (4, 4, 3)
    with pytest.raises(InvariantBroken):
        log.restore(SnapshotMeta(4, 3, THREE))


# Liveness of nodes


def test_one_beat_per_pair_and_a_loss_is_told_once() -> None:
    """A peer that falls silent is lost once; its return, or another boot, is noticed."""
    liveness = PeerLiveness(beat_ticks=2, silence_ticks=3)
    assert not liveness.heard(2, 10)
    assert [liveness.tick() for _ in range(4)] == [(False, []), (True, []), (False, [2]), (True, [])]
    assert not liveness.heard(2, 10)
    assert [liveness.tick()[1] for _ in range(3)] == [[], [], [2]]
    assert liveness.heard(2, 11)


# Options


@pytest.mark.parametrize("wrong", [{"heartbeat_ticks": 10}, {"heartbeat_ticks": 0}, {"apply_bytes_max": 0}])
def test_options_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    """A heartbeat slower than the election timeout, or a bound that lets nothing through, is an operating error."""
    with pytest.raises(TnatsError, match="raft"):
        Options(**wrong)


def test_only_the_entries_that_are_there_become_durable() -> None:
    """A write that was overtaken by a truncation makes nothing of what replaced it durable."""
    log = Log(SnapshotMeta(0, 0, THREE), [0], base=0, commit=0, applied=0, faulty=[])
    log.append([Entry(1, 1, 1, b"")])
    log.take_unstable()
    log.truncate(1)
    log.append([Entry(1, 2, 1, b"")])
    log.take_unstable()
    assert not log.persisted(1, 1)
    assert log.stable == 0
    assert log.persisted(1, 2)
    assert log.stable == 1
