"""The sublist by example: groups, figures, and what it keeps in memory."""

from __future__ import annotations

import sys
import tracemalloc

import pytest

from tnats.subjects.sublist import Sublist


class Sub:
    __slots__ = ("queue", "subject")

    def __init__(self, subject: bytes, queue: bytes | None = None) -> None:
        self.subject = subject
        self.queue = queue


def filled(*subs: Sub) -> Sublist[Sub]:
    sublist: Sublist[Sub] = Sublist()
    for sub in subs:
        sublist.insert(sub)
    return sublist


def test_plain_and_queue_subscriptions_side_by_side() -> None:
    """A match lists every plain subscription, and members by group."""
    plain, other = Sub(b"a.b"), Sub(b"a.*")
    first, second, third = Sub(b"a.b", b"q"), Sub(b"a.b", b"q"), Sub(b">", b"r")
    result = filled(plain, other, first, second, third).match(b"a.b")
    assert set(result.plain) == {plain, other}
    assert result.queues == {b"q": [first, second], b"r": [third]}


def test_one_group_across_patterns() -> None:
    """Members of one queue name share messages though they subscribed different patterns."""
    literal, star, tail = Sub(b"a.b", b"q"), Sub(b"a.*", b"q"), Sub(b"a.>", b"q")
    result = filled(literal, star, tail).match(b"a.b")
    assert list(result.queues) == [b"q"]
    assert set(result.queues[b"q"]) == {literal, star, tail}


@pytest.mark.parametrize("subject", [b"a..b", b".a", b"a.", b"", b"."])
def test_empty_tokens_match_nothing(subject: bytes) -> None:
    """A published subject with an empty token reaches nobody."""
    sublist = filled(Sub(b">"), Sub(b"*.*.*"), Sub(b"*"), Sub(b"*.*"))
    assert not sublist.match(subject)


def test_wildcards_in_a_published_subject_are_opaque() -> None:
    """Publishing on `a.*` reaches the patterns that hold one more token, not the literal `a.b`."""
    literal, star, tail = Sub(b"a.b"), Sub(b"a.*"), Sub(b"a.>")
    assert set(filled(literal, star, tail).match(b"a.*").plain) == {star, tail}


def test_many_members_and_back() -> None:
    """Groups and fan-outs of any size lose exactly the member that leaves, and end empty."""
    for pattern in (b"a.b", b"a.*", b"a.>"):
        subs = [Sub(pattern, queue) for queue in (None, b"q") for _ in range(40)]
        sublist = filled(*subs)
        for left, sub in enumerate(reversed(subs)):
            assert sublist.remove(sub)
            result = sublist.match(b"a.b")
            remaining = subs[: len(subs) - left - 1]
            assert result.plain == [one for one in remaining if one.queue is None]
            assert result.queues.get(b"q", []) == [one for one in remaining if one.queue is not None]
        assert len(sublist) == 0
        assert list(sublist) == []


def test_removing_a_stranger_changes_nothing() -> None:
    """Removal goes by identity: an equal subject alone is not the subscription."""
    sublist = filled(Sub(b"a.*"), Sub(b"a.b", b"q"), Sub(b"x.>"))
    before = list(sublist), sublist.remove_count
    for stranger in (Sub(b"a.*"), Sub(b"a.b"), Sub(b"a.b", b"q"), Sub(b"a.b", b"z"), Sub(b"x.y.>"), Sub(b"n")):
        assert not sublist.remove(stranger)
    assert (list(sublist), sublist.remove_count) == before


def test_inserts_removes_and_matches_are_counted() -> None:
    """Each of them once, whatever it found."""
    subs = [Sub(b"a"), Sub(b"a"), Sub(b"a", b"q"), Sub(b"b.*")]
    sublist = filled(*subs)
    sublist.remove(subs[3])
    for _ in range(4):
        sublist.match(b"a")
        sublist.match(b"nobody")
    assert (len(sublist), sublist.insert_count, sublist.remove_count, sublist.match_count) == (3, 4, 1, 8)


def test_churn_leaves_no_memory() -> None:
    """Ten thousand queue subscriptions that come and go leave the sublist as it was."""
    sublist = filled(Sub(b"x"))
    tracemalloc.start()
    try:
        for pattern in (b"foo", b"foo.*", b"foo.>"):
            for number in range(3500):
                sub = Sub(b"%d." % number + pattern, b"g")
                sublist.insert(sub)
                sublist.remove(sub)
            del sub
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert left < 4096
    assert len(sublist) == 1


@pytest.mark.parametrize(("pattern", "bound"), [(b"_INBOX.%d", 300), (b"load.%d.>", 450)])
def test_memory_per_subscription(pattern: bytes, bound: int) -> None:
    """One subscription to a subject of its own costs a few hundred bytes of index."""
    subs = [Sub(pattern % number) for number in range(5000)]
    sublist = filled()
    tracemalloc.start()
    try:
        for sub in subs:
            sublist.insert(sub)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / len(subs) < bound
    assert sys.getsizeof(subs[0]) < 100
