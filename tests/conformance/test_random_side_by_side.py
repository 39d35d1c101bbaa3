"""Random operations on a stream and its consumers, played to nats-server and ours: both hold and deliver the same."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.conformance.consumer_talk import ask, place
from tests.conformance.jetstream_talk import Servers, Talk, both_servers
from tests.jetstream_operations import ENDING, Call, Fetch, Operation, Operations, Publish, Say
from tests.live.server_process import PATIENCE_S

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("TNATS_SEEDS", "12"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


class Player:
    """Carries out operations at one server."""

    def __init__(self, talk: Talk, stream: str) -> None:
        self.talk = talk
        self._stream = stream
        self._taken: dict[str, dict[int, str]] = {}
        """By consumer: reply subjects by sequence."""

    def carry_out(self, operation: Operation) -> object:
        """What can be compared of the outcome."""
        if isinstance(operation, Call):
            answer = self.talk.api(operation.call, operation.body)
            words = operation.call.split(".")
            if words[:2] == ["CONSUMER", "DELETE"]:
                self._taken.pop(words[-1], None)
            return "error" in answer, answer.get("purged")
        if isinstance(operation, Publish):
            told = self.talk.ask(operation.subject, operation.data, operation.headers)
            if told.status:
                return told.status
            return told.json.get("error", {}).get("err_code"), told.json["seq"], told.json.get("duplicate")
        if isinstance(operation, Fetch):
            return self._fetch(operation)
        return self._say(operation)

    def _fetch(self, fetch: Fetch) -> list[tuple[int, int, int]]:
        inbox = ask(self.talk, {"batch": fetch.count, "expires": 200_000_000}, fetch.consumer, self._stream)
        found = []
        for _ in range(fetch.count):
            message = self.talk.hear(inbox)
            if message.status:
                break
            deliveries, seq, consumer_seq, _ = place(message)
            found.append((deliveries, seq, consumer_seq))
            self._taken.setdefault(fetch.consumer, {})[seq] = message.reply
        return found

    def _say(self, say: Say) -> object:
        taken = self._taken.get(say.consumer, {})
        if not taken:
            return None
        seq = say.choose(sorted(taken))
        self.talk.say(taken[seq], say.word)
        self.talk.fence()
        if say.word in ENDING:
            del taken[seq]
        return seq

    def state(self, consumers: list[str]) -> list[Any]:
        """What the stream holds, and where its consumers stand."""
        body = {"subjects_filter": ">", "deleted_details": True}
        held = self.talk.done(f"STREAM.INFO.{self._stream}", body)["state"]
        found: list[Any] = [held["last_seq"]]
        if held["last_seq"]:
            found += [held["messages"], held["first_seq"], held["bytes"], held.get("deleted"), held.get("subjects")]
        for name in consumers:
            info = self.talk.api(f"CONSUMER.INFO.{self._stream}.{name}")
            counts = [info.get("num_redelivered"), info.get("num_pending")]
            if info.get("config", {}).get("max_deliver", -1) < 0:
                counts.append(info.get("num_ack_pending"))
            found.append((name, info.get("delivered", {}).get("consumer_seq"), *counts))
        return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_do_the_same(servers: Servers, seed: int) -> None:
    """After each operation both say the same of the stream and its consumers, and what is fetched is the same.

    Left out is where they differ: acks of all, the last of each subject, roll-ups, purges of a part, limits in bytes,
    changes of the retention, and whether a message that was given back after its last delivery is pending until
    somebody asks.
    """
    stream = f"S{seed}"
    operations = Operations(
        Random(seed),
        stream,
        ack_policies=["explicit", "explicit", "none"],
        deliver_policies=["all", "all", "new", "last", "by_start_sequence"],
        is_plain=True,
    )
    with Talk(servers.real, streams=servers.real_streams) as real, Talk(servers.ours) as ours:
        players = [Player(talk, stream) for talk in (real, ours)]
        history = []
        try:
            for operation in operations.draw(30):
                history.append(operation)
                wanted, got = (player.carry_out(operation) for player in players)
                assert got == wanted, history
                deadline = time.monotonic() + PATIENCE_S
                while True:  # nats-server lets go of messages, and counts what is pending, a moment after its answer
                    wanted, got = (player.state(sorted(operations.consumers)) for player in players)
                    if got == wanted or time.monotonic() > deadline:
                        break
                    time.sleep(0.02)
                assert got == wanted, history
        finally:
            for player in players:
                player.talk.done(f"STREAM.DELETE.{stream}")
