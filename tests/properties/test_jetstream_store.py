"""What consumers ask of a stream's index, in runs, against the same asked message by message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tnats.jetstream.store import IndexedStore
from tnats.storage.memory_log import MemoryLog

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
    """A run begins with the next match and goes on with those behind it, none left out; its sizes and messages are
    theirs.
    """
    store = IndexedStore(MemoryLog())
    for place, (subject, count) in enumerate(stored):
        headers = b"NATS/1.0\r\n\r\n" if place % 3 == 0 else b""
        store.append_run(1000 + place, [(subject, headers, b"%d" % number) for number in range(count)])
        if place == 2:
            store.skip_to(max(skipped_to, store.last_seq + 1), 1000 + place)
    for one in removed:
        store.remove(one)
    run = store.next_run(filters, seq, count_max)
    singles = []
    at = store.next_matching(filters, seq)
    while at and len(singles) < len(run):
        singles.append(at)
        at = store.next_matching(filters, at + 1)
    assert list(run) == singles
    assert bool(run) is bool(store.next_matching(filters, seq))
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
