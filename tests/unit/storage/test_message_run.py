"""Runs of messages in one entry: both builds of the loops give the messages back, and refuse what is none."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats import speedups
from tnats.storage import hot
from tnats.storage.message_run import HeldRun, MessageRun, subjects_of

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
    held = HeldRun(5, run, len(run))
    assert [held.content(sequence) for sequence in held.sequences] == contents


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
