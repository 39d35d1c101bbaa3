"""Messages found by patterns of subjects, whatever subjects come and go meanwhile, against a look at all of them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tnats.storage.index import MessageIndex
from tnats.storage.index_subjects import SubjectState
from tnats.subjects.matcher import Matcher
from tnats.subjects.tokens import subject_matches

TOKENS = st.sampled_from([b"a", b"ab", b"b", b"\xff", b"c*"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=3).map(b".".join)
PATTERN_TOKENS = st.one_of(TOKENS, st.just(b"*"))
PATTERNS = st.builds(
    lambda tokens, tail: b".".join([*tokens, *tail]),
    st.lists(PATTERN_TOKENS, min_size=1, max_size=3),
    st.sampled_from([[], [], [b">"]]),
)
Step = tuple[str, list[bytes]] | tuple[str, int] | tuple[str, list[bytes], int]
STEPS = st.one_of(
    st.tuples(st.just("put"), st.lists(SUBJECTS, min_size=1, max_size=12)),
    st.tuples(st.just("remove"), st.integers(0, 100)),
    st.tuples(st.just("ask"), st.lists(PATTERNS, min_size=1, max_size=4), st.integers(1, 60)),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=40))
def test_patterns_find_what_they_match(
    monkeypatch: pytest.MonkeyPatch,
    steps: list[tuple[str, list[bytes]] | tuple[str, int] | tuple[str, list[bytes], int]],
) -> None:
    """Last ones, counts, subjects and all messages of few: the same as by comparing every message, with the order of
    names made, added to, merged and made anew in between.
    """
    monkeypatch.setattr("tnats.storage.index_names.NEW_NAMES_MAX", 2)
    index = MessageIndex(1)
    live: dict[int, bytes] = {}
    for kind, *what in steps:
        if kind == "put":
            for subject in what[0]:  # type: ignore[union-attr]
                live[index.last + 1] = subject
                index.put_next(subject, 1, 5, 1)
        elif kind == "remove" and live:
            seq = sorted(live)[what[0] % len(live)]  # type: ignore[operator]
            index.remove(seq)
            del live[seq]
        elif kind == "ask":
            check(index, live, *what)  # type: ignore[arg-type]


def check(index: MessageIndex, live: dict[int, bytes], patterns: list[bytes], at: int) -> None:
    wanted = Matcher(patterns)
    fits = [seq for seq, subject in sorted(live.items()) if any(subject_matches(one, subject) for one in patterns)]
    assert index.last_of(wanted) == max(fits, default=0)
    assert index.last_of(wanted, at) == max((seq for seq in fits if seq <= at), default=0)
    assert index.count(wanted, at) == sum(seq >= at for seq in fits)
    assert index.few_from(wanted, at) == [seq for seq in fits if seq >= at]
    lasts = {live[seq]: seq for seq in fits if seq <= at}
    assert index.lasts(wanted, at) == sorted(lasts.values())
    states: dict[bytes, SubjectState] = {}
    for seq in fits:
        state = states.setdefault(live[seq], SubjectState(0, seq, seq))
        state.messages, state.last = state.messages + 1, seq
    assert index.subjects(wanted) == states


def test_a_pattern_is_compared_with_those_that_begin_like_it() -> None:
    """Of many subjects, those that stand apart for being new among them, but not all."""
    index = MessageIndex(1)
    looks = 0

    class Counting(Matcher):
        def __call__(self, subject: bytes) -> bool:
            nonlocal looks
            looks += 1
            return super().__call__(subject)

    for number in range(20_000):
        index.put_next(b"order.%d.made" % number, 1, 5, 1)
        if number % 1000 == 999:
            looks = 0
            assert index.last_of(Counting([b"order.77.*"])) == 78
            assert index.few_from(Counting([b"order.77.*"]), 1) == [78]
            assert index.lasts(Counting([b"order.77.*", b"order.7.>"])) == [8, 78]
            assert looks <= 3 * 1001 + 4
