"""Runs of messages in one entry: both builds of the loops give the messages back, and refuse what is none."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats import speedups
from tnats.storage import hot, record
from tnats.storage.message_run import MessageRun, subjects_of

INTERPRETED = speedups.load_source("tnats.storage.hot", "tnats_storage_hot_interpreted")
BUILDS = (hot, INTERPRETED)
CONTENTS = st.lists(
    st.tuples(st.sampled_from([b"a", b"a.b", b"c" * 300]), st.binary(max_size=5), st.binary(max_size=40))
)


@given(st.binary(max_size=9), CONTENTS)
def test_messages_come_back_as_they_were(front: bytes, contents: list[tuple[bytes, bytes, bytes]]) -> None:
    """Content, sizes and subjects of a run are those of the messages that were joined, in either build."""
    bodies = [build.join_messages(front, contents) for build in BUILDS]
    assert bodies[0] == bodies[1]
    run = MessageRun(bodies[0], len(front), len(contents))
    assert list(run) == contents
    assert [run[offset] for offset in range(len(run))] == contents
    assert subjects_of(run) == subjects_of(contents)
    assert run.has_headers == any(headers for _, headers, _ in contents)
    assert run.is_uniform == (len({subject for subject, _, _ in contents}) <= 1)
    sizes = [7 + sum(map(len, content)) + (3 if content[1] else 0) for content in contents]
    assert list(run.sizes(7, 3)) == sizes
    places = INTERPRETED.find_messages(bodies[0], len(front), len(contents))
    assert places == hot.find_messages(bodies[0], len(front), len(contents))
    assert list(INTERPRETED.measure_messages(bodies[0], places[0], 7, 3)) == sizes


@pytest.mark.parametrize("build", BUILDS, ids=["chosen", "interpreted"])
@given(CONTENTS.filter(len), st.data())
def test_bytes_that_are_no_such_run_are_refused(
    build: ModuleType, contents: list[tuple[bytes, bytes, bytes]], data: st.DataObject
) -> None:
    """A body cut short, or with more messages stated than it holds, or fewer, is a ValueError and nothing else."""
    body = build.join_messages(b"", contents)
    cut = data.draw(st.integers(0, len(body) - 1))
    for wrong, count in ((body[:cut], len(contents)), (body, len(contents) + 1), (body, len(contents) - 1)):
        with pytest.raises(ValueError, match=r"messages? "):
            build.find_messages(wrong, 0, count)


@given(st.integers(1, 2**40), CONTENTS, st.integers(0, 2**32 - 1), st.data())
def test_messages_of_a_segment_are_packed_and_found(
    first: int, contents: list[tuple[bytes, bytes, bytes]], seed: int, data: st.DataObject
) -> None:
    """A run packed at once has the bytes of records packed one by one, and is found up to the first wrong one."""
    base, place = 8192, 7 << 32
    times_ns = array("Q", [5 * number for number in range(len(contents))])
    records = [(record.MESSAGE, 0, first + n, times_ns[n], *content) for n, content in enumerate(contents)]
    packed, offsets = hot.pack(records, base, seed, base)
    for build in BUILDS:
        assert build.pack_messages(contents, first, times_ns, base, seed, place) == (
            packed,
            array("Q", [place + offset for offset in offsets]),
        )
    wrong = data.draw(st.integers(0, len(contents))) if contents else 0
    if wrong < len(contents):
        packed[offsets[wrong] - base + 30] ^= 1
    area = bytes(base) + bytes(packed)
    sizes = [30 + len(s) + len(p) + (4 + len(h) if h else 0) for s, h, p in contents]
    for build in BUILDS:
        found_first, end, subjects, found_sizes, places, found_times = build.scan_messages(area, base, seed, place)
        assert end == (offsets[wrong] if wrong < len(contents) else len(area))
        assert subjects == [content[0] for content in contents[:wrong]]
        assert list(found_sizes) == sizes[:wrong]
        assert list(places) == [place + offset for offset in offsets[:wrong]]
        assert found_times == times_ns[:wrong]
        assert found_first == (first if wrong else 0)
