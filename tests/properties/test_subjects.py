"""Subjects against a dumb matcher that enumerates, and the sublist against a plain list."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from tnats.subjects import tokens
from tnats.subjects.draw import Draw
from tnats.subjects.sublist import Matches, Sublist
from tnats.subjects.transforms import Transform, with_placeholders

ALPHABET = [b"a", b"b", b"a*"]
TOKEN = st.sampled_from(ALPHABET)


@st.composite
def patterns(draw: st.DrawFn) -> bytes:
    head = draw(st.lists(st.one_of(TOKEN, st.just(b"*")), max_size=3))
    if not head or draw(st.booleans()):
        head.append(draw(st.sampled_from([b">", b"a", b"*"])))
    return b".".join(head)


SUBJECTS = st.lists(st.one_of(TOKEN, st.sampled_from([b"*", b">", b""])), min_size=1, max_size=5).map(b".".join)
UNIVERSE = [
    b".".join(combination)
    for length in range(1, 6)
    for combination in itertools.product([b"a", b"b", b"a*", b"other"], repeat=length)
]
"""Every literal over the alphabet and one token from outside it, longer than any pattern by one."""


def dumb_match(pattern: bytes, subject: bytes) -> bool:
    """Matching by regular expression, written without a look at the code under test."""
    if any(not token for token in subject.split(b".")):
        return False
    wild = {b"*": rb"[^.]+", b">": rb".+"}
    pieces = [wild.get(token, re.escape(token)) for token in pattern.split(b".")]
    return re.fullmatch(rb"\.".join(pieces), subject, re.DOTALL) is not None


@given(patterns(), SUBJECTS)
def test_matching_agrees_with_the_dumb_matcher(pattern: bytes, subject: bytes) -> None:
    """`subject_matches` says what a regular expression says."""
    assert tokens.is_valid_pattern(pattern)
    assert tokens.subject_matches(pattern, subject) is dumb_match(pattern, subject)


@given(patterns(), patterns())
def test_subset_and_overlap_agree_with_enumeration(first: bytes, second: bytes) -> None:
    """Over all literals of a small universe, subset and overlap are what the sets say."""
    one = {subject for subject in UNIVERSE if dumb_match(first, subject)}
    other = {subject for subject in UNIVERSE if dumb_match(second, subject)}
    assert tokens.subjects_overlap(first, second) is bool(one & other)
    assert tokens.is_subset(first, second) is (one <= other)


@given(st.binary(max_size=12))
def test_validity_of_any_bytes(subject: bytes) -> None:
    """A valid subject is a valid pattern; one without lone wildcards is a valid literal and matches itself."""
    if tokens.is_valid_subject(subject):
        assert tokens.is_valid_pattern(subject)
    if tokens.is_valid_pattern(subject):
        assert tokens.is_valid_literal(subject) is not tokens.has_wildcard(subject)
        assert tokens.subject_matches(subject, subject)


class Sub:
    def __init__(self, subject: bytes, queue: bytes | None) -> None:
        self.subject = subject
        self.queue = queue


INSERT = st.tuples(st.just("insert"), patterns(), st.sampled_from([None, None, b"q", b"r"]))
REMOVE = st.tuples(st.just("remove"), st.integers(0, 1000))
MATCH = st.tuples(st.just("match"), SUBJECTS)
STEPS = st.lists(st.one_of(INSERT, REMOVE, MATCH, MATCH), max_size=60)


def same(result: Matches[Sub], subs: list[Sub], subject: bytes) -> bool:
    expected = [sub for sub in subs if dumb_match(sub.subject, subject)]
    groups = {sub.queue for sub in expected if sub.queue is not None}
    return (
        len(result.plain) == len(set(result.plain))
        and set(result.plain) == {sub for sub in expected if sub.queue is None}
        and set(result.queues) == groups
        and all(
            len(members) == len(set(members)) and set(members) == {sub for sub in expected if sub.queue == queue}
            for queue, members in result.queues.items()
        )
    )


@given(STEPS)
def test_sublist_agrees_with_a_plain_list(steps: list[tuple[str, bytes, bytes | None]]) -> None:
    """Under any order of insert, remove and match, a match is what a linear scan finds."""
    sublist: Sublist[Sub] = Sublist()
    subs: list[Sub] = []
    for step in steps:
        if step[0] == "insert":
            sub = Sub(step[1], step[2])
            subs.append(sub)
            sublist.insert(sub)
        elif step[0] == "remove" and subs:
            assert sublist.remove(subs.pop(int(step[1]) % len(subs)))
        elif step[0] == "match":
            assert same(sublist.match(step[1]), subs, step[1])
        assert len(sublist) == len(subs)
    assert len(list(sublist)) == len(subs)
    assert set(sublist) == set(subs)
    for sub in subs:
        assert sublist.remove(sub)
    assert list(sublist) == []
    assert not sublist.match(b"a")


@given(st.lists(patterns(), max_size=12), patterns())
def test_overlapping_agrees_with_pairwise_overlap(stored: list[bytes], pattern: bytes) -> None:
    """The subscriptions that overlap a pattern are those that do so one by one."""
    sublist: Sublist[Sub] = Sublist()
    subs = [Sub(subject, None) for subject in stored]
    for sub in subs:
        sublist.insert(sub)
    found = sublist.overlapping(pattern)
    assert len(found) == len(set(found))
    assert set(found) == {sub for sub in subs if tokens.subjects_overlap(sub.subject, pattern)}


@given(patterns(), st.lists(TOKEN, min_size=1, max_size=5).map(b".".join))
def test_placeholders_are_the_identity(pattern: bytes, subject: bytes) -> None:
    """The transform from a pattern to its placeholders changes no subject within the pattern."""
    transform = Transform(pattern, with_placeholders(pattern), strict=True)
    if transform.matches(subject):
        assert transform.apply(subject, Draw(1)) == subject
        assert transform.reversed().apply(subject, Draw(1)) == subject
