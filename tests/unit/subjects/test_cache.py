"""The match cache: who is admitted, who stays, and its bound."""

from __future__ import annotations

from tnats.subjects.cache import MatchCache


def test_a_subject_is_admitted_on_its_second_use() -> None:
    """Subjects used once never enter the cache, so that they push nothing out."""
    cache: MatchCache[int] = MatchCache(1024)
    for _ in range(2):
        cache.offer(b"hot", 1)
    for number in range(5000):
        cache.offer(b"inbox.%d" % number, 2)
    assert len(cache) == 1
    assert cache.get(b"hot") == 1


def test_cache_is_bounded() -> None:
    """However many subjects are in steady use, the cache holds no more than its bound."""
    cache: MatchCache[int] = MatchCache(8)
    for turn in range(3):
        for number in range(100):
            cache.offer(b"%d" % number, number + turn)
            cache.offer(b"%d" % number, number + turn)
            assert len(cache) <= 8
    assert cache.get(b"99") == 101
    cache.clear()
    assert len(cache) == 0
    cache.offer(b"99", 5)
    assert cache.get(b"99") == 5  # known as used: admitted at once


def test_who_asks_is_told_what_is_pushed_out() -> None:
    """Each value that is no longer there has been told, once, and none that is."""
    gone: list[int] = []
    cache: MatchCache[int] = MatchCache(8, gone.extend)
    for number in range(100):
        cache.offer(b"%d" % number, number)
        cache.offer(b"%d" % number, number)
    assert sorted([*gone, *cache.values()]) == list(range(100))


def test_recently_used_stays() -> None:
    """An entry that is hit between others survives them."""
    cache: MatchCache[int] = MatchCache(8)
    cache.offer(b"keep", 1)
    cache.offer(b"keep", 1)
    for number in range(100):
        cache.offer(b"%d" % number, number)
        cache.offer(b"%d" % number, number)
        assert cache.get(b"keep") == 1
