"""JetStream is told nonsense on every subject that it listens on: it answers or stays silent, and goes on.

`TNATS_GARBAGE_COUNT` rounds of a hundred messages, from `TNATS_GARBAGE_SEED` on.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator

import pytest
from tests.conformance.jetstream_talk import Talk
from tests.conformance.test_publish_garbage import HEADERS, VALUES
from tests.live.server_process import ServerProcess, serve

COUNT = int(os.environ.get("TNATS_GARBAGE_COUNT", "60"))
SEED = int(os.environ.get("TNATS_GARBAGE_SEED", "1"))

CALLS = [
    "INFO", "STREAM.CREATE.{s}", "STREAM.UPDATE.{s}", "STREAM.INFO.{s}", "STREAM.NAMES", "STREAM.LIST",
    "STREAM.PURGE.{s}", "STREAM.MSG.GET.{s}", "STREAM.MSG.DELETE.{s}", "DIRECT.GET.{s}", "DIRECT.GET.{s}.{t}",
    "CONSUMER.CREATE.{s}", "CONSUMER.CREATE.{s}.{c}", "CONSUMER.CREATE.{s}.{c}.{t}", "CONSUMER.DURABLE.CREATE.{s}.{c}",
    "CONSUMER.NAMES.{s}", "CONSUMER.LIST.{s}", "CONSUMER.INFO.{s}.{c}", "CONSUMER.DELETE.{s}.{c}",
    "CONSUMER.PAUSE.{s}.{c}", "CONSUMER.RESET.{s}.{c}", "CONSUMER.UNPIN.{s}.{c}", "CONSUMER.MSG.NEXT.{s}.{c}",
    "STREAM.SNAPSHOT.{s}", "STREAM.RESTORE.{s}", "STREAM.LEADER.STEPDOWN.{s}", "STREAM.PEER.REMOVE.{s}", "{t}",
]  # fmt: skip
TOKENS = ["S", "T", "C", "a", "x", "*", ">", "\xff", "\xe9", "9" * 30, "9" * 3000, "a" * 300, "$", "", "s"]
KEYS = [
    "name", "subjects", "retention", "max_msgs", "max_age", "max_bytes", "discard", "storage", "mirror", "sources",
    "republish", "subject_transform", "metadata", "seq", "keep", "filter", "last_by_subj", "next_by_subj", "batch",
    "multi_last", "start_time", "up_to_time", "up_to_seq", "max_bytes", "no_hdr", "offset", "subject", "config",
    "stream_name", "durable_name", "deliver_policy", "opt_start_time", "opt_start_seq", "ack_policy", "ack_wait",
    "max_deliver", "backoff", "filter_subjects", "sample_freq", "pause_until", "priority_groups", "group", "expires",
    "no_wait", "idle_heartbeat", "min_pending", "id", "priority", "num_replicas", "compression", "first_seq", "delay",
    "deliver_subject", "placement", "consumer_limits", "duplicate_window", "subject_delete_marker_ttl", "src", "dest",
]  # fmt: skip
LEAVES = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1.5, -0.0, 1e308, "", "S", "s.>", ">",
    "s..x", "\u00e9", "x" * 5000, "9" * 5000, "9" * 5000 + "s", "1." + "9" * 5000 + "s", "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00Z", "2120-01-01T00:00:00Z", "limits", "memory", "new",
    "explicit", "all", "last_per_subject", "by_start_time", "{{wildcard(1)}}", "{{partition(9999999999,1)}}", "10%",
    "9" * 50 + "%",
]  # fmt: skip
WORDS = ["+ACK", "-NAK", "-NAK " + "9" * 5000 + "s", '-NAK {"delay":1e400}', '-NAK {"delay":[]}', "-NAK []",
         "+TERM \xff", "+NXT", '+NXT {"batch":-5}', "+WPI", "", "\xff", "+NXT " + "9" * 5000]  # fmt: skip
LONG_VALUES = [*VALUES, "9" * 5000, "9" * 5000 + "s", f"{'9' * 5000} * * * * *", f"*/{'9' * 5000} * * * * *",
               "\xff" * 70, f"@every {'9' * 5000}s", f"@at {'9' * 5000}",
               f"@at 9999-12-31T23:59:59.{'9' * 5000}-23:59"]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of this module."""
    with serve(
        tmp_path_factory.mktemp("server"), "jetstream { store_dir: store }\nmax_control_line: 100000"
    ) as running:
        yield running


class Babbler:
    """A generator of nonsense; equal seeds give equal nonsense."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def token(self) -> str:
        return self.random.choice(TOKENS)

    def value(self, depth: int = 0) -> object:
        kind = self.random.random()
        if depth < 3 and kind < 0.25:
            return {self.random.choice(KEYS): self.value(depth + 1) for _ in range(self.random.randint(0, 4))}
        if depth < 3 and kind < 0.4:
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 3))]
        return self.random.choice(LEAVES)

    def body(self) -> bytes:
        kind = self.random.random()
        if kind < 0.1:
            return self.random.randbytes(self.random.randint(0, 40))
        if kind < 0.13:
            return b"[" * 2000 + b"]" * 2000
        fields = {self.random.choice(KEYS): self.value(1) for _ in range(self.random.randint(0, 5))}
        if kind < 0.6:
            fields |= {"name": self.random.choice(["S", "T"]), "config": {"name": "C", **fields}, "stream_name": "S"}
        text = json.dumps(fields).encode()
        return text if kind < 0.9 else text.replace(b'"', self.random.choice([b"'", b"\xff", b'"\\ud800']), 3)

    def message(self, inbox: str) -> tuple[str, bytes, list[tuple[str, str]], str]:
        """Subject, body, headers and reply subject."""
        kind = self.random.random()
        headers = []
        if kind < 0.55:
            call = self.random.choice(CALLS).format(s=self.token(), c=self.token(), t=self.token())
            return f"$JS.API.{call}".replace("..", "."), self.body(), headers, inbox
        if kind < 0.65:
            place = ".".join(self.random.choice(["S", "C", "1", "9" * 30, "\xff", "9" * 5000]) for _ in range(7))
            return f"$JS.ACK.{place}", self.random.choice(WORDS).encode("latin-1"), headers, inbox
        if kind < 0.75:
            place = f"{self.token() or 'x'}.{''.join(self.random.choice(VALUES).split()).strip('.') or 'y'}"
            return "s.f", b"", headers, f"{inbox}.{place}.fail.{self.random.choice(['1', '9' * 5000, 'x'])}.0.$FI"
        headers = [
            (self.random.choice(HEADERS), self.random.choice(LONG_VALUES)) for _ in range(self.random.randint(1, 4))
        ]
        return f"s.{self.token() or 'y'}", b"\xff", headers, inbox


@pytest.mark.slow
def test_nonsense(server: ServerProcess) -> None:
    """After each round the server is there, answers, and has met no fault of its own."""
    talk = Talk(server.port)
    config = {"allow_direct": True, "allow_msg_ttl": True, "allow_atomic": True, "allow_batched": True}
    for seed in range(SEED, SEED + COUNT):
        babbler = Babbler(seed)
        answer = talk.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True, **config})
        assert "error" not in answer or answer["error"]["err_code"] == 10058, answer
        consumer = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 10**9, "max_deliver": 3}
        talk.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": consumer})
        said = [babbler.message(talk.new_inbox()) for _ in range(100)]
        talk.send(b"".join(packed(*message) for message in said))
        talk.fence()
        assert "streams" in talk.api("STREAM.NAMES"), seed
        assert server.process.poll() is None, (seed, said)
        assert "Traceback" not in server.log, (seed, server.log[-3000:])
        talk.api("STREAM.DELETE.S")
        talk.forget()
    talk.close()


def packed(subject: str, data: bytes, headers: list[tuple[str, str]], reply: str) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    block = f"NATS/1.0\r\n{lines}\r\n".encode("latin-1", "replace") if headers else b""
    to = f"{subject} {reply}".encode("latin-1", "replace")
    if block:
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (to, len(block), len(block) + len(data), block, data)
    return b"PUB %b %d\r\n%b\r\n" % (to, len(data), data)
