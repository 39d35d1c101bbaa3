"""Consumers and what their streams keep, over kills and orderly ends of a real process."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.consumer_talk import S, ack, counts, delivered, floor, info, make, pull, seqs, take
from tests.conformance.jetstream_talk import Talk
from tests.live.server_process import PATIENCE_S, ServerProcess, serve

CONFIG = "jetstream { store_dir: store }"


class Restarted:
    """A server that can end and begin again, and a connection to it."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.talk = Talk(server.port)

    def again(self, number: signal.Signals = signal.SIGKILL) -> Talk:
        """End the process by a signal, start it, and connect anew."""
        self.talk.close()
        self.server.signal(number)
        self.server.wait()
        self.server.start()
        self.talk = Talk(self.server.port)
        return self.talk


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Restarted]:
    with serve(tmp_path, CONFIG) as server:
        restarted = Restarted(server)
        yield restarted
        restarted.talk.close()


BOTH = pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])


@BOTH
def test_places_of_a_consumer(running: Restarted, end: signal.Signals) -> None:
    """Pending is what limits left; confirmed acks stay, what was not acknowledged comes again, held back naks too."""
    talk = running.talk
    talk.create("S", max_msgs=100)
    talk.flood(["s.x"] * 300)
    make(talk, ack_wait=2 * S)
    assert counts(talk) == (100, 0, 0)
    talk = running.again(end)
    assert counts(talk) == (100, 0, 0)
    found = take(talk, 10)
    for one in found[:5]:
        ack(talk, one)
    ack(talk, found[7])
    talk = running.again(end)
    assert floor(talk) == (5, 205)
    assert delivered(talk)[1] >= 208
    assert info(talk)["num_pending"] <= 92
    left: set[int] = set()
    while len(left) < 94:
        left.update(seqs(pull(talk, {"batch": 100, "expires": 3 * S})))
    assert sorted(left) == [206, 207, *range(209, 301)]


@BOTH
def test_everything_up_to_a_message(running: Restarted, end: signal.Signals) -> None:
    """With ack policy all: the floor stands, three are awaited."""
    talk = running.talk
    talk.create("S")
    talk.flood(["s.x"] * 10)
    make(talk, ack_policy="all", ack_wait=60 * S)
    ack(talk, take(talk, 10)[6])
    talk = running.again(end)
    assert (floor(talk), counts(talk)) == ((7, 7), (0, 3, 0))


@BOTH
def test_exhausted_messages_of_a_work_queue(running: Restarted, end: signal.Signals) -> None:
    """They stay, and are neither delivered nor announced again; what comes later is."""
    talk = running.talk
    advisory = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C"
    talk.listen(advisory)
    talk.create("S", retention="workqueue")
    talk.flood(["s.x"] * 3)
    make(talk, max_deliver=2, ack_wait=S // 2)
    for _ in range(2):
        take(talk, 3)
    for _ in range(3):
        talk.hear(advisory)
    talk.flood(["s.x"])
    talk = running.again(end)
    talk.listen(advisory)
    [fourth] = take(talk, 1)
    assert seqs([fourth]) == [4]
    ack(talk, fourth)
    assert (floor(talk)[1], counts(talk)[:2], talk.state("S")) == (4, (0, 0), (3, 1, 4))
    assert talk.hear_all(advisory, 1) == []


@BOTH
def test_an_interest_stream_becomes_empty(running: Restarted, end: signal.Signals) -> None:
    """Two consumers acknowledge everything while the server is restarted in between: nothing is left hanging."""
    talk = running.talk
    talk.create("LOGS", retention="interest")
    for name in ("A", "B"):
        make(talk, name, stream="LOGS", ack_wait=S)
    talk.flood(f"logs.{number % 7}" for number in range(400))
    for _ in range(4):
        for name in ("A", "B"):
            for one in pull(talk, {"batch": 60, "no_wait": True}, name, "LOGS"):
                if not one.status:
                    ack(talk, one)
        talk = running.again(end)
    deadline = time.monotonic() + PATIENCE_S
    while talk.state("LOGS")[0]:
        assert time.monotonic() < deadline, talk.state("LOGS")
        for name in ("A", "B"):
            for one in pull(talk, {"batch": 100, "expires": S // 2}, name, "LOGS"):
                if not one.status:
                    ack(talk, one)


@BOTH
def test_what_an_end_takes_with_it(running: Restarted, end: signal.Signals) -> None:
    """Memory streams are empty and their consumers gone; consumers in memory too; paused ones stay paused."""
    talk = running.talk
    talk.create("M", storage="memory")
    talk.create("S")
    talk.flood(["m.x", "s.x"] * 3)
    make(talk, "M", stream="M")
    make(talk, "K")
    make(talk, "L", mem_storage=True)
    talk.done("CONSUMER.PAUSE.S.K", {"pause_until": "2099-01-01T00:00:00Z"})
    talk = running.again(end)
    assert talk.state("M") == (0, 0, 0)
    assert talk.done("CONSUMER.NAMES.M")["consumers"] in (None, [])
    assert talk.done("CONSUMER.NAMES.S")["consumers"] == ["K"]
    assert info(talk, "K")["paused"]


@BOTH
def test_settings_survive(running: Restarted, end: signal.Signals) -> None:
    """The whole configuration of streams and consumers, updates among it."""
    talk = running.talk
    talk.create("S", description="one")
    make(talk, filter_subjects=["s.a", "s.b"], backoff=[S, 2 * S], max_deliver=5, metadata={"k": "v"}, max_batch=7)
    make(
        talk,
        "P",
        deliver_subject="d",
        deliver_group="q",
        idle_heartbeat=5 * S,
        flow_control=True,
        rate_limit_bps=8_000_000,
        sample_freq="50%",
        headers_only=True,
        replay_policy="original",
        ack_policy="all",
    )
    make(talk, "G", priority_policy="pinned_client", priority_groups=["g"], priority_timeout=7 * S)
    make(talk, filter_subjects=["s.c"], backoff=[S, 2 * S], max_deliver=6, metadata={"k": "w"}, max_batch=7)
    before = [info(talk, name)["config"] for name in "CPG"]
    talk = running.again(end)
    assert [info(talk, name)["config"] for name in "CPG"] == before


@pytest.mark.slow
def test_ten_thousand_consumers(running: Restarted) -> None:
    """Each with a filter of its own: made, told of messages, back after a kill; a publish does not walk them all."""
    talk = running.talk
    talk.create("S", subjects=["s.>"])

    def publish(count: int) -> float:
        """The processor time that the server took for it."""
        start = running.server.processor_seconds()
        talk.flood(f"s.{number % 10_000}" for number in range(count))
        return running.server.processor_seconds() - start

    alone = publish(5000)
    for first in range(0, 10_000, 500):
        inboxes = []
        for number in range(first, first + 500):
            inboxes.append(talk.new_inbox())
            body = (
                b'{"stream_name":"S","config":{"durable_name":"c%d","ack_policy":"explicit","filter_subject":"s.%d"}}'
            )
            talk.say(f"$JS.API.CONSUMER.CREATE.S.c{number}", body % (number, number), reply=inboxes[-1])
        for inbox in inboxes:
            assert "error" not in talk.hear(inbox).json
    crowded = publish(5000)
    assert crowded < 20 * alone + 5, (alone, crowded)
    assert counts(talk, "c7")[0] == 2
    memory = running.server.memory_bytes()
    assert memory < 1 << 30, memory
    talk = running.again()
    assert talk.done("CONSUMER.NAMES.S", {"offset": 9999})["total"] == 10_000
    assert seqs(take(talk, 2, "c4999")) == [5000, 10_000]
