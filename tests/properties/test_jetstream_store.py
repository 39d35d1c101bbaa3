"""What consumers ask of a stream's index, in runs, against a look at every message."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tnats.jetstream.store import IndexedStore
from tnats.storage.index_subjects import SubjectPattern
from tnats.storage.memory_log import MemoryLog
from tnats.subjects.tokens import subject_matches

SUBJECTS = [b"a", b"b.c", b"b.d", b"e.f.g"]
FILTERS = [(), (b"a",), (b"b.*",), (b">",), (b"a", b"b.c"), (b"nothing",), (b"e.>", b"b.d")]


@given(
    st.lists(st.tuples(st.sampled_from(SUBJECTS), st.integers(1, 40)), min_size=1, max_size=12),
    st.lists(st.integers(1, 300), max_size=60),
    st.integers(1, 1300),
    st.sampled_from(FILTERS),
    st.integers(1, 400),
    st.integers(1, 200),
)
def test_runs_are_what_single_searches_find(
    stored: list[tuple[bytes, int]],
    removed: list[int],
    skipped_to: int,
    filters: tuple[bytes, ...],
    seq: int,
    count_max: int,
) -> None:
    """A run is the next matches, none left out; its sizes and messages are theirs. A single search finds the first."""
    store = IndexedStore(MemoryLog())
    for place, (subject, count) in enumerate(stored):
        headers = b"NATS/1.0\r\n\r\n" if place % 3 == 0 else b""
        store.append_run(1000 + place, [(subject, headers, b"%d" % number) for number in range(count)])
        if place == 2:
            store.skip_to(max(skipped_to, store.last_seq + 1), 1000 + place)
    for one in removed:
        store.remove(one)
    run = store.next_run(filters, seq, count_max)
    matching = [
        one
        for one in range(seq, store.last_seq + 1)
        if (subject := store.subject_of(one)) is not None
        and (not filters or any(subject_matches(pattern, subject) for pattern in filters))
    ]
    assert list(run) == matching[: len(run)]
    assert bool(run) is bool(matching)
    assert store.next_matching(filters, seq) == (matching[0] if matching else 0)
    if len(filters) == 1:
        assert list(store.seqs_of(filters[0])) == list(store.next_run(filters, 1, store.last_seq + 1))
    assert len(run) <= count_max
    if not run:
        return
    messages = [store.load_nowait(one) for one in run]
    assert [message is not None for message in messages] == [True] * len(run)
    found = [(one.sequence, one.time_ns, one.subject, one.headers, one.payload) for one in messages if one is not None]
    assert store.load_run_nowait(run) == found
    assert list(store.sizes_of(run)) == [len(one[2]) + len(one[3]) + len(one[4]) for one in found]
    whole = range(1, store.last_seq + 1)
    live = [one is not None for one in store.load_run_nowait(whole)]
    assert live == [store.subject_of(one) is not None for one in whole]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(SUBJECTS), st.integers(1, 10)), min_size=1, max_size=12),
    st.lists(st.integers(1, 100), max_size=20),
    st.sampled_from(FILTERS),
    st.integers(1, 100),
    st.integers(1, 20),
    st.booleans(),
)
def test_what_is_near_and_what_is_far_are_found_alike(
    monkeypatch: pytest.MonkeyPatch,
    stored: list[tuple[bytes, int]],
    removed: list[int],
    filters: tuple[bytes, ...],
    seq: int,
    near: int,
    has_few: bool,
) -> None:
    """Wherever the look at what is near ends, and whether or not there are few behind it: none is left out."""
    monkeypatch.setattr("tnats.jetstream.store.NEAR_RANGE", near)
    if not has_few:
        monkeypatch.setattr("tnats.storage.index_subjects.FEW_MESSAGES_MAX", 0)
    store = IndexedStore(MemoryLog())
    for place, (subject, count) in enumerate(stored):
        store.append_run(1000 + place, [(subject, b"", b"")] * count)
    for one in removed:
        store.remove(one)
    matching = [
        one
        for one in range(seq, store.last_seq + 1)
        if (subject := store.subject_of(one) or b"") and store.wants(filters, subject)
    ]
    assert list(store.matching(filters, seq)) == matching
    assert store.next_matching(filters, seq) == (matching[0] if matching else 0)


def test_message_after_message_is_found_without_a_look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by asking for all messages of the wanted subjects each time, of which there are thousands: only one that is
    far away is found so.
    """
    store = IndexedStore(MemoryLog())
    subjects = [b"a.1" if number % 50 == 0 else b"b" for number in range(10_000)]
    store.append_run(1000, [(subject, b"", b"") for subject in [*subjects, *[b"b"] * 10_000, b"a.2"]])
    asked_from: list[int] = []
    few_from = store.index.few_from

    def counted(wanted: SubjectPattern, sequence: int) -> list[int] | None:
        asked_from.append(sequence)
        return few_from(wanted, sequence)

    monkeypatch.setattr(store.index, "few_from", counted)
    found, seq = [], 0
    while seq := store.next_matching((b"a.*",), seq + 1):
        found.append(seq)
    assert found == [*range(1, 10_000, 50), 20_001]
    assert len(asked_from) == 1
    assert 9951 < asked_from[0] <= 20_001


@given(st.sampled_from(FILTERS), st.sampled_from([*SUBJECTS, b"b", b"e", b"e.f"]))
def test_what_filters_want_is_what_one_of_them_matches(filters: tuple[bytes, ...], subject: bytes) -> None:
    """However many there are; without any, everything."""
    wanted = not filters or any(subject_matches(pattern, subject) for pattern in filters)
    assert IndexedStore(MemoryLog()).wants(filters, subject) is wanted


def test_messages_on_a_pattern_are_found_in_one_pass() -> None:
    """Not in one over all subjects for each message: a purge by pattern goes through them, and nobody is served."""
    store = IndexedStore(MemoryLog())
    store.append_run(1000, [(b"a.%d" % number, b"", b"") for number in range(20_000)])
    assert list(store.seqs_of(b"a.*")) == list(range(1, 20_001))
