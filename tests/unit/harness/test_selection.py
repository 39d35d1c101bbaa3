"""Whom faults hit, and between whom partitions run."""

from __future__ import annotations

import random

import pytest

from tnats.harness.faults import FaultError
from tnats.harness.selection import check, choose, described, minority_count, partition, ring, split

NAMES = ["n1", "n2", "n3", "n4", "n5"]


@pytest.mark.parametrize(
    ("targets", "counts"),
    [("one", {1}), ("minority", {2}), ("majority", {3}), ("all", {5}), ("one|all", {1, 5}), ("n2,n5", {2})],
)
def test_words_mean_so_many_nodes(targets: str, counts: set[int]) -> None:
    """Distinct ones, in order, and every alternative is drawn at some time."""
    rng = random.Random(1)
    drawn = [choose(targets, NAMES, ["n2", "n3"], rng) for _ in range(50)]
    assert {len(nodes) for nodes in drawn} == counts
    assert all(nodes == sorted(set(nodes)) for nodes in drawn)


def test_victims_are_some_of_the_minority_that_was_drawn() -> None:
    """Never anybody else; each of them and both together at some time."""
    rng = random.Random(1)
    drawn = {tuple(choose("victims", NAMES, ["n2", "n4"], rng)) for _ in range(50)}
    assert drawn == {("n2",), ("n4",), ("n2", "n4")}


@pytest.mark.parametrize("targets", ["n6", "some", "one|n1,n9"])
def test_words_that_mean_nobody_are_refused(targets: str) -> None:
    """When the file is read, whichever alternative would be drawn."""
    with pytest.raises(FaultError, match="no node"):
        check(targets, NAMES)


def test_a_minority_leaves_a_majority() -> None:
    """And one more would not."""
    for count in range(1, 10):
        assert count - minority_count(count) > count / 2
        assert count - (minority_count(count) + 1) <= count / 2


def test_a_partition_is_mutual_and_spares_nobody_on_the_other_side() -> None:
    """`complete` keeps the targets together, `isolate` does not."""
    for kind in ("complete", "isolate", "ring"):
        pairs = partition(kind, ["n1", "n2"], NAMES)
        assert sorted(pairs) == sorted((b, a) for a, b in pairs)
        assert len(set(pairs)) == len(pairs)
    assert ("n1", "n2") not in partition("complete", ["n1", "n2"], NAMES)
    assert {("n1", "n2"), ("n1", "n5")} <= set(partition("isolate", ["n1", "n2"], NAMES))
    assert ("n3", "n4") not in partition("isolate", ["n1", "n2"], NAMES)
    with pytest.raises(FaultError, match="complete, isolate, ring"):
        partition("bridge", ["n1"], NAMES)


@pytest.mark.parametrize("count", [3, 5, 7, 9])
def test_on_a_ring_everybody_sees_a_majority_and_no_two_the_same(count: int) -> None:
    """With itself counted; of three, everybody sees all."""
    names = [f"n{number}" for number in range(count)]
    cut = set(ring(names))
    seen = {tuple(other for other in names if (name, other) not in cut) for name in names}
    assert all(len(others) > count / 2 for others in seen)
    assert len(seen) == (1 if count == 3 else count)


def test_pairs_are_described_by_their_source() -> None:
    """One line a node, not one a pair."""
    assert described(split([["n1"], ["n2", "n3"]])) == ["n1 to n2 n3", "n2 to n1", "n3 to n1"]
