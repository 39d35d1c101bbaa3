"""The message index against a plain dictionary."""

from __future__ import annotations

import random
from array import array
from itertools import pairwise

import pytest
from tests.unit.storage.patterns import Such

from tnats.storage.index import MessageIndex
from tnats.storage.index_columns import CHUNK_SIZE, LOST, PLACE_MIN, REMOVED, Columns
from tnats.storage.index_subjects import SubjectState


class Model:
    """Sequence -> (subject, size); everything else used is removed, but for the lost ones."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.last = start - 1
        self.live: dict[int, tuple[bytes, int]] = {}
        self.lost: set[int] = set()


def compare(index: MessageIndex, model: Model, rng: random.Random) -> None:
    live = sorted(model.live)
    assert (index.start, index.last, index.messages) == (model.start, model.last, len(live))
    assert index.bytes == sum(size for _, size in model.live.values())
    assert index.first == (live[0] if live else model.last + 1)
    expected: dict[bytes, SubjectState] = {}
    for sequence in live:
        subject = model.live[sequence][0]
        state = expected.setdefault(subject, SubjectState(0, sequence, sequence))
        state.messages += 1
        state.last = sequence
    assert index.subjects() == expected
    assert index.subject_count == len(expected)
    for _ in range(5):
        at = rng.randint(model.start, model.last + 2)
        for wanted in (None, b"a", b"c", Such(lambda name: name < b"c"), Such(lambda name: False)):
            fits = [
                s
                for s in live
                if wanted is None
                or (model.live[s][0] == wanted if isinstance(wanted, bytes) else wanted(model.live[s][0]))
            ]
            if isinstance(wanted, bytes):
                assert index.next(wanted, at) == next((s for s in fits if s >= at), 0)
            elif wanted is not None:
                assert index.few_from(wanted, at) in (None, [s for s in fits if s >= at])
            assert index.last_of(wanted, at) == next((s for s in reversed(fits) if s <= at), 0)
            assert index.last_of(wanted) == (fits[-1] if fits else 0)
            assert index.count(wanted, at) == sum(s >= at for s in fits)
            heads = {model.live[s][0]: s for s in fits if s <= at}
            assert index.lasts(wanted, at) == sorted(heads.values())
    for place in (LOST, REMOVED):
        absent = [
            s
            for s in range(model.start, model.last + 1)
            if s not in model.live and (s in model.lost) == (place == LOST)
        ]
        assert [s for first, last in index.absent(0, model.last + 9, place) for s in range(first, last + 1)] == absent


@pytest.mark.parametrize("seed", range(12))
def test_the_index_answers_like_a_dictionary(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appending, removing, skipping, losing, finding again and cutting the front, over many small chunks."""
    for module in ("index", "index_columns", "index_subjects"):
        monkeypatch.setattr(f"tnats.storage.{module}.CHUNK_BITS", 4)
        monkeypatch.setattr(f"tnats.storage.{module}.CHUNK_SIZE", 16)
    rng = random.Random(seed)
    start = rng.choice((1, 1, 40, 10**12))
    index, model = MessageIndex(start), Model(start)
    steps = rng.choice((100, 300))
    for step in range(steps):
        choice = rng.random()
        if choice < 0.6:
            for _ in range(rng.choice((1, 1, 1, 5, 50))):
                if model.live and rng.random() < 0.02:
                    model.last += 1
                    model.lost.add(model.last)
                model.last += 1
                subject, size = rng.choice((b"a", b"b", b"c", b"d%d" % rng.randrange(50))), rng.randrange(100)
                model.live[model.last] = (subject, size)
                index.put(model.last, subject, size, PLACE_MIN + model.last)
        elif choice < 0.8 and model.live:
            for sequence in rng.sample(sorted(model.live), min(len(model.live), rng.choice((1, 1, 9, 80)))):
                assert index.place(sequence) == PLACE_MIN + sequence
                assert index.subject(sequence) == model.live[sequence][0]
                assert index.size(sequence) == model.live[sequence][1]
                assert index.remove(sequence)
                assert not index.remove(sequence)
                del model.live[sequence]
        elif choice < 0.85 and model.lost:
            sequence = rng.choice(sorted(model.lost))
            model.lost.discard(sequence)
            if rng.random() < 0.5:
                assert not index.remove(sequence)
            else:
                index.put(sequence, b"a", 7, PLACE_MIN + sequence)
                model.live[sequence] = (b"a", 7)
        elif choice < 0.9:
            count = rng.choice((1, 10, 100))
            index.add_gap(model.last + 1, model.last + count)
            model.last += count
        elif choice < 0.95:
            start = rng.randint(model.start, min(model.last + 3, model.start + rng.choice((3, 90))))
            gone = [s for s in sorted(model.live) if s < start]
            assert index.raise_start(start) == [(s, PLACE_MIN + s, model.live[s][1]) for s in gone]
            for sequence in gone:
                del model.live[sequence]
            model.lost = {s for s in model.lost if s >= start}
            model.start = start
            model.last = max(model.last, start - 1)
        if step % 10 == 0 or step == steps - 1:
            compare(index, model, rng)


def test_whole_chunks_leave_memory() -> None:
    """A chunk without live messages is dropped, and its sequences still count as removed."""
    index = MessageIndex()
    for sequence in range(1, 3 * CHUNK_SIZE):
        index.put(sequence, b"s", 1, PLACE_MIN)
    for sequence in range(CHUNK_SIZE, 2 * CHUNK_SIZE):
        index.remove(sequence)
    assert len(index._chunks) == 2
    assert index.place(CHUNK_SIZE + 5) == REMOVED
    assert index.next_live(CHUNK_SIZE) == 2 * CHUNK_SIZE
    assert index.previous_live(2 * CHUNK_SIZE - 1) == CHUNK_SIZE - 1


def test_behind_the_last_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers ask for it with every message: it does not cost the rest of a chunk."""
    index = MessageIndex()
    index.put(7, b"s", 1, PLACE_MIN)
    monkeypatch.setattr(Columns, "next_live", lambda columns, sequence: sequence)
    assert [index.next_live(sequence) for sequence in (7, 8, 9)] == [7, 0, 0]


def test_a_long_range_is_skipped_as_one() -> None:
    """The cost does not grow with the range (a loop over it would run into the time-out); what is live in it stays."""
    index = MessageIndex()
    index.put(5, b"a", 50, PLACE_MIN + 1, 1)
    index.extend(10**9)
    index.skip(2, 10**9)
    assert index.absent(1, 10**9, LOST) == [(1, 1)]
    assert index.place(5) == PLACE_MIN + 1
    assert index.place(10**8) == REMOVED


@pytest.mark.parametrize("subjects", [(b"a",), (b"a", b"b", b"c")])
def test_runs_that_are_found_are_as_single_ones(subjects: tuple[bytes, ...]) -> None:
    """A run of messages put at once, between, before or behind others, answers as if each had been put alone."""
    for seed in range(20):
        rng = random.Random(seed)
        single, shared = MessageIndex(5), MessageIndex(5)
        model = Model(5)
        edges = sorted(rng.sample(range(5, 3 * CHUNK_SIZE), 5))
        runs = list(pairwise(edges))
        rng.shuffle(runs)
        for first, end in runs:
            if rng.random() < 0.3:
                single.extend(end - 1)
                shared.extend(end - 1)
            names = [rng.choice(subjects) for _ in range(first, end)]
            sizes = array("I", [rng.randrange(9) for _ in names])
            places = array("Q", range(PLACE_MIN + first, PLACE_MIN + end))
            times = array("Q", range(first, end))
            shared.put_found(first, names, sizes, places, times)
            for sequence in reversed(range(first, end)):
                at = sequence - first
                single.put(sequence, names[at], sizes[at], places[at], times[at])
                model.live[sequence] = (names[at], sizes[at])
        for index in (single, shared):
            index.settle()
        model.last = single.last
        model.lost = set(range(5, model.last + 1)) - model.live.keys()
        for sequence in rng.sample(sorted(model.live), 50):
            assert shared.time_ns(sequence) == sequence
            assert shared.place(sequence) == PLACE_MIN + sequence
            shared.remove(sequence)
            del model.live[sequence]
        compare(shared, model, rng)


def test_ranges_that_nobody_could_count() -> None:
    """What is absent between messages that lie far apart is told at once, lost and removed."""
    index = MessageIndex()
    far = 2**61
    for sequence in (1, far, 2 * far):
        index.put(sequence, b"s", 1, 7)
    assert index.absent(1, 2**63, LOST) == [(2, far - 1), (far + 1, 2 * far - 1)]
    index.skip(2, far - 1)
    assert index.absent(1, 2**63, LOST) == [(far + 1, 2 * far - 1)]
    index.skip(far + 1, 3 * far)
    assert index.absent(1, 2**63, LOST) == []
    assert index.absent(1, 2**63, REMOVED) == [(2, far - 1), (far + 1, 2 * far - 1), (2 * far + 1, 3 * far)]


def test_what_stands_in_one_file_is_found_while_it_changes() -> None:
    """Messages of one number are told in order, within the bounds; what is removed in chunks to come is not told."""
    rng = random.Random(1)
    index = MessageIndex()
    places = {}
    for sequence in range(1, 5 * CHUNK_SIZE):
        places[sequence] = rng.choice((3, 4)) << 32 | sequence
        index.put(sequence, b"s", 1, places[sequence])
    first, last = 700, 4 * CHUNK_SIZE + 5
    wanted = [(sequence, place) for sequence, place in places.items() if place >> 32 == 3 and first <= sequence <= last]
    assert list(index.standing(3, first, last)) == wanted
    assert list(index.standing(5, first, last)) == []
    told = []
    for sequence, place in index.standing(3, first, last):
        if not told:
            for removed in range(2 * CHUNK_SIZE, 3 * CHUNK_SIZE + 9):
                index.remove(removed)
        told.append((sequence, place))
    assert told == [each for each in wanted if not 2 * CHUNK_SIZE <= each[0] < 3 * CHUNK_SIZE + 9]


@pytest.mark.parametrize("seed", range(5))
def test_two_indexes_share_names(seed: int) -> None:
    """One index has messages of the same and of other subjects beside the other: neither shows in the answers of the
    other, through removals of the last message of a subject; at the end nothing of the one is left.
    """
    rng = random.Random(seed)
    index, alone = MessageIndex(), MessageIndex()
    other = MessageIndex(10 * CHUNK_SIZE, beside=index)
    kept = {}
    for step in range(400):
        subject = b"s%d" % rng.randrange(12)
        if rng.random() < 0.5:
            kept[other.last + 1] = subject
            if rng.random() < 0.5:
                other.put(other.last + 1, subject, 1, 5, step)
            else:
                one = array("I", [1]), array("Q", [5]), array("Q", [step])
                other.put_found(other.last + 1, [subject], *one)
        elif rng.random() < 0.4 and alone.messages:
            sequence = alone.next_live(rng.randint(1, alone.last)) or alone.first
            assert index.remove(sequence) == alone.remove(sequence) is True
        else:
            for each in (index, alone):
                each.put_next(subject, 1, 5, step)
        assert index.subjects() == alone.subjects()
        assert index.subject_count == alone.subject_count
        for wanted in (subject, Such(lambda name: name < b"s5")):
            at = rng.randint(1, alone.last + 1)
            assert index.next(subject, at) == alone.next(subject, at)
            assert index.count(wanted, at) == alone.count(wanted, at)
            assert index.last_of(wanted) == alone.last_of(wanted)
            assert index.lasts(None) == alone.lasts(None)
        assert all(other.subject(sequence) == name for sequence, name in list(kept.items())[-3:])
    assert all(other.subject(sequence) == name for sequence, name in kept.items())
    index.end_sharing()
    assert index.subjects() == alone.subjects()
    assert index.subject_count == alone.subject_count
    for sequence in range(1, alone.last + 1):
        index.remove(sequence)
    assert index.subject_count == 0
