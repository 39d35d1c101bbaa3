"""Publish headers with values that mean nothing: an answer to each, the same refusals as nats-server's, and nothing
stored of what was refused.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from tests.conformance.jetstream_talk import Headers, Servers, Talk, both_servers, play

pytestmark = pytest.mark.slow

VALUES = [
    "", " ", "0", "1", "-1", "+1", "01", "1.0", "1e3", "0x1", "x", "true", "never", "Never", "1s", "1h", "0s", "-5s",
    "999ms", "1.5s", "10", "  5", "5  ", "5\t", "18446744073709551615", "9223372036", "sub", "all", "ALL", "s", "s.a",
    "s.*", ">", "s..a", "s.", "S", "T", "\xe9", "1 2", "@at 2030-01-01T00:00:00Z", "@at 2030-01-01 00:00:00Z", "@at x",
    "@every 1s", "@every 1ms", "@every x", "@daily", "@never", "* * * * * *", "* * * * *", "0 0 0 31 2 *",
    "0 0 0 29 2 *", "60 * * * * *", "*/0 * * * * *", "*/90 * * * * *", "1-0 * * * * *", "? * * * * ?",
    "0 0 0 1 JAN MON", "0 0 0 L * *", "0 0 0 * * 7", "0 0 24 * * *", "1,2,3 * * * * *", "1-5/2 * * * * *",
    "5/10 * * * * *", "1,,2 * * * * *", "@Daily", "UTC", "Local", "Europe/Berlin", "europe/berlin", "Nowhere/Else",
    "../x", "purge", "PURGE", "2030-01-01T00:00:00Z", "eob", "1d", "1us", "1h1m1s", ".5s", "5.s", "1 s", "+5s", "1_0",
]  # fmt: skip
HEADERS = [
    "Nats-Msg-Id", "Nats-Expected-Stream", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence",
    "Nats-Expected-Last-Subject-Sequence-Subject", "Nats-Expected-Last-Msg-Id", "Nats-Rollup", "Nats-TTL", "Nats-Incr",
    "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit", "Nats-Required-Api-Level", "Nats-Stream-Source",
    "Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-Source", "Nats-Schedule-TTL", "Nats-Schedule-Rollup",
    "Nats-Schedule-Time-Zone", "Nats-Scheduler", "Nats-Schedule-Next", "Nats-Marker-Reason", "Nats-Request-Info",
]  # fmt: skip
FEATURES = {
    "plain": {},
    "everything": {
        "allow_msg_ttl": True, "allow_rollup_hdrs": True, "allow_atomic": True, "allow_msg_schedules": True,
        "allow_batched": True,
    },
    "counter": {"allow_msg_counter": True, "allow_atomic": True},
}  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


def companions(name: str, features: str) -> dict[str, str]:
    """What makes a message of which this header is the only odd thing."""
    if features == "counter":
        return {} if name == "Nats-Incr" else {"Nats-Incr": "1"}
    if name == "Nats-Schedule":
        return {"Nats-Schedule-Target": "s.t"}
    if name == "Nats-Schedule-Time-Zone":
        return {"Nats-Schedule": "0 0 0 * * *", "Nats-Schedule-Target": "s.t"}
    if name == "Nats-Schedule-Next":
        return {"Nats-Scheduler": "s.q"}
    if name == "Nats-Scheduler":
        return {"Nats-Schedule-Next": "purge"}
    if name.startswith("Nats-Schedule-"):
        return {"Nats-Schedule": "@at 2031-01-01T00:00:00Z", "Nats-Schedule-Target": "s.t"}
    if name.startswith("Nats-Batch-"):
        return {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    return {}


def outcomes(talk: Talk, messages: list[Headers]) -> list[object]:
    """For each message the error code, or what became of it. All are sent before the first answer is read."""
    inboxes = [talk.new_inbox() for _ in messages]
    parts = [talk.packed("s.b", b"", headers, inbox) for headers, inbox in zip(messages, inboxes, strict=True)]
    for at in range(0, len(parts), 500):
        talk.send(b"".join(parts[at : at + 500]))
    found: list[object] = []
    for inbox in inboxes:
        answer = talk.hear(inbox).data
        code = re.search(rb'"err_code":(\d+)', answer)  # nats-server's answers are not always JSON
        found.append(int(code[1]) if code else "duplicate" if b"duplicate" in answer else "taken")
    return found


@pytest.mark.parametrize("features", FEATURES)
def test_one_odd_header(servers: Servers, features: str) -> None:
    """Every header with every value: refused with the code that nats-server refuses it with, or stored as there."""
    cases = [(name, value) for name in HEADERS for value in VALUES]
    messages: list[Headers] = [companions(name, features) | {name: value} for name, value in cases]

    def scene(talk: Talk) -> None:
        talk.create("S", **FEATURES[features])
        if features == "counter":
            talk.publish("s.a", b"", {"Nats-Incr": "5"})
        else:
            talk.flood(["s.a"])
        talk.log.clear()
        for case, outcome in zip(cases, outcomes(talk, messages), strict=True):
            talk.log.append((case, outcome))

    servers.play(scene)


def random_messages(chooser: random.Random, count: int) -> list[Headers]:
    """Messages with two to five headers each, in any order, some twice."""
    return [
        [(chooser.choice(HEADERS), chooser.choice(VALUES)) for _ in range(chooser.randint(2, 5))] for _ in range(count)
    ]


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("seed", range(3))
def test_many_odd_headers(servers: Servers, features: str, seed: int) -> None:
    """Whatever comes together is answered, and only what was taken is stored; nats-server takes no less and no more.

    Which of several faults is named is not compared.
    """
    messages = random_messages(random.Random(seed), 400)

    def scene(talk: Talk) -> None:
        talk.create("S", **FEATURES[features])
        told = outcomes(talk, messages)
        talk.log.clear()
        for message, outcome in zip(messages, told, strict=True):
            is_batch = any(name == "Nats-Batch-Id" and value.strip() for name, value in message)
            talk.log.append((message, outcome if isinstance(outcome, str) or is_batch else "refused"))
        if talk.is_ours and features == "plain":
            assert talk.state("S")[2] == told.count("taken")
            talk.log.pop()

    with ThreadPoolExecutor(2) as pool:
        logs = pool.map(partial(play, scene), (servers.real, servers.ours), (servers.real_streams, None))
    differing = [pair for pair in zip(*logs, strict=True) if pair[0] != pair[1]]
    assert not differing, differing[:5]
