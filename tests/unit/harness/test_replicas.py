"""How each replica of a cluster is found and read, on consumers that only pretend."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tnats.client import TimedOut
from tnats.client.jetstream import StreamInfo
from tnats.harness.checkers.evidence import Replica
from tnats.harness.real.aftermath import behind
from tnats.harness.real.replicas import place_consumers, read_through
from tnats.harness.workloads.jetstream import LOG_CONFIG, encode
from tnats.jetstream.api.messages import ClusterInfo, PeerInfo
from tnats.limits import SECOND_NS


def delivery(seq: int, pending_count: int) -> Any:
    about = SimpleNamespace(stream_sequence=seq, pending_count=pending_count, time_ns=seq * 10)
    return SimpleNamespace(data=encode(f"0-{seq}"), subject="jepsen.0", metadata=about)


class FakeConsumer:
    """Lives on `leader` and holds the sequences given; of the last `mute_count` it delivers nothing."""

    def __init__(self, leader: str = "n1-0", seqs: tuple[int, ...] = (), mute_count: int = 0) -> None:
        self.leader = leader
        self.left = list(seqs)
        self.mute_count = mute_count

    async def info(self) -> Any:
        return SimpleNamespace(cluster=SimpleNamespace(leader=self.leader), num_pending=len(self.left))

    async def fetch(self, count: int, *, no_wait: bool) -> list[Any]:
        ready = self.left[: max(0, min(count, len(self.left) - self.mute_count))]
        del self.left[: len(ready)]
        return [delivery(seq, len(self.left)) for seq in ready]


class FakeStream:
    """Places one consumer after the other on the servers named; None: the request is not answered."""

    def __init__(self, places: list[str | None]) -> None:
        self.places = places
        self.slept_ns = 0
        self.client = SimpleNamespace(runtime=SimpleNamespace(clock=self))

    async def sleep_ns(self, duration_ns: int) -> None:
        self.slept_ns += duration_ns

    def stream(self, name: str) -> FakeStream:
        return self

    async def create_consumer(self, config: Any) -> FakeConsumer:
        assert config.num_replicas == 1
        place = self.places.pop(0)
        if place is None:
            raise TimedOut("no answer")
        return FakeConsumer(place)


async def test_consumers_are_made_until_every_node_has_one() -> None:
    """Those on a node that has one already, on nobody's, and those that failed are no reason to stop."""
    js: Any = FakeStream(["n2-0", None, "n2-0", "n9-0", "n1-1", "n1-1"])
    placed = await place_consumers(js, {"n1-1": "n1", "n2-0": "n2"})
    assert {node: consumer.leader for node, consumer in placed.items()} == {"n1": "n1-1", "n2": "n2-0"}  # type: ignore[attr-defined]
    assert js.places == ["n1-1"]


async def test_where_none_can_be_made_the_reason_is_told() -> None:
    """And where some nodes never get one the others are read all the same."""
    silent: Any = FakeStream([None] * 100)
    with pytest.raises(TimedOut):
        await place_consumers(silent, {"n1-0": "n1", "n2-0": "n2"})
    assert silent.slept_ns > 5 * SECOND_NS  # an election would have been over
    partial: Any = FakeStream(["n1-0"] * 100)
    assert list(await place_consumers(partial, {"n1-0": "n1", "n2-0": "n2"})) == ["n1"]


async def test_everything_that_is_pending_is_read() -> None:
    """By sequence, holes included; over more than one batch."""
    seqs = (1, 2, 5, *range(7, 1600))
    replica = Replica("n1", {})
    consumer: Any = FakeConsumer(seqs=seqs)
    await read_through(consumer, replica)
    assert (tuple(replica.messages), replica.last_seq, replica.failure) == (seqs, 1599, "")
    assert replica.messages[5].value == "0-5"


async def test_messages_that_are_pending_and_never_come_are_a_failure() -> None:
    """What came before them counts."""
    replica = Replica("n1", {})
    consumer: Any = FakeConsumer(seqs=(1, 2, 3), mute_count=1)
    await read_through(consumer, replica)
    assert list(replica.messages) == [1, 2]
    assert "delivers none" in replica.failure


def told(*peers: PeerInfo, leader: str = "n1-0") -> StreamInfo:
    return StreamInfo(LOG_CONFIG, cluster=ClusterInfo(leader=leader, replicas=list(peers)))


def test_replicas_that_are_behind_are_named() -> None:
    """Whether they are offline, behind, or not there at all; and a stream that nobody leads."""
    good, late = PeerInfo("n2-0", current=True), PeerInfo("n3-0", lag=7)
    gone = PeerInfo("n3-0", current=False, offline=True)
    assert behind(told(good, PeerInfo("n3-0", current=True)), 3) == ""
    assert behind(told(good, late), 3) == "n3-0 (7 entries behind)"
    assert behind(told(good, gone), 3) == "n3-0 (offline)"
    assert behind(told(good), 3) == "the stream has 2 replicas of 3"
    assert behind(told(good, leader=""), 2) == "the stream has no leader"
