"""Account mappings: weights, clusters, order."""

from __future__ import annotations

from collections import Counter

import pytest

from tnats.subjects.draw import Draw
from tnats.subjects.mappings import DROPPED, Destination, Mapping, find_mapping
from tnats.subjects.transforms import TransformError


def shares(mapping: Mapping, subject: bytes, draws: int = 20_000) -> dict[bytes, float]:
    draw = Draw(7)
    counts = Counter(mapping.apply(subject, draw) for _ in range(draws))
    return {mapped: count / draws for mapped, count in counts.items()}


def test_weights_split_within_one_percent() -> None:
    """Messages split by weight; what is left of 100 stays on the source subject."""
    mapping = Mapping(b"a.*", [Destination(b"b.$1", 50), Destination(b"c.$1", 30)])
    found = shares(mapping, b"a.x")
    assert found == {
        b"b.x": pytest.approx(0.5, abs=0.01),
        b"c.x": pytest.approx(0.3, abs=0.01),
        b"a.x": pytest.approx(0.2, abs=0.01),
    }
    assert not mapping.is_fixed


def test_listing_the_source_means_loss() -> None:
    """With the source among the destinations, what is left of 100 is dropped."""
    found = shares(Mapping(b"a", [Destination(b"a", 60)]), b"a")
    assert found == {b"a": pytest.approx(0.6, abs=0.01), DROPPED: pytest.approx(0.4, abs=0.01)}


def test_full_weight_is_fixed() -> None:
    """One destination at 100 percent maps every message alike and may be cached."""
    mapping = Mapping(b"a", [Destination(b"b")])
    assert mapping.is_fixed
    assert shares(mapping, b"a", 10) == {b"b": 1.0}


def test_cluster_scoped() -> None:
    """A server takes the destinations of its own cluster, one of another cluster those without."""
    destinations = [Destination(b"b"), Destination(b"c", 100, "west")]
    assert Mapping(b"a", destinations, "west").apply(b"a", Draw(1)) == b"c"
    assert Mapping(b"a", destinations, "east").apply(b"a", Draw(1)) == b"b"
    assert Mapping(b"a", destinations).apply(b"a", Draw(1)) == b"b"


def test_only_foreign_cluster_destinations() -> None:
    """Where no destination is meant for this server the subject stays, or is lost if the source is listed."""
    assert Mapping(b"a", [Destination(b"c", 100, "west")]).apply(b"a", Draw(1)) == b"a"
    assert Mapping(b"a", [Destination(b"a", 100, "west")]).apply(b"a", Draw(1)) == DROPPED


@pytest.mark.parametrize(
    ("destinations", "text"),
    [
        ([Destination(b"b", 101)], "individual weights need to be <= 100"),
        ([Destination(b"b", 50), Destination(b"c", 51)], "total weight needs to be <= 100"),
        ([Destination(b"b", 10), Destination(b"b", 10)], 'duplicate entry for "b"'),
        ([Destination(b"b", 60, "x"), Destination(b"b", 60, "y")], 'duplicate entry for "b"'),
        ([Destination(b"b.*")], "invalid subject"),
        ([Destination(b"b.$1", 100, "elsewhere")], "wildcard index out of range"),
    ],
)
def test_faults(destinations: list[Destination], text: str) -> None:
    """Bad weights and destinations are refused, also those meant for another cluster."""
    with pytest.raises(TransformError) as caught:
        Mapping(b"a", destinations)
    assert text in str(caught.value)


def test_weights_count_per_cluster() -> None:
    """The sum of weights is bounded for each cluster by itself, and what it leaves of 100 stays in each."""
    destinations = [Destination(b"b", 60, "x"), Destination(b"c", 60, "y"), Destination(b"d", 100)]
    draw = Draw(1)
    for cluster, reached in (("x", {b"a", b"b"}), ("y", {b"a", b"c"}), ("", {b"d"}), ("elsewhere", {b"d"})):
        mapping = Mapping(b"a", destinations, cluster)
        assert {mapping.apply(b"a", draw) for _ in range(100)} == reached


def test_first_match_wins() -> None:
    """Mappings are tried in the order of configuration."""
    first = Mapping(b"a.*", [Destination(b"x.$1")])
    second = Mapping(b"a.b", [Destination(b"y")])
    assert find_mapping([first, second], b"a.b") is first
    assert find_mapping([second, first], b"a.b") is second
    assert find_mapping([first, second], b"b") is None
