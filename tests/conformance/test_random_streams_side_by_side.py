"""Random operations on streams that use several features at once (sources, a mirror, transforms, republishing, batches,
roll-ups, counters, schedules, limits, and updates of all this), played to nats-server and ours: both answer the same,
hold the same, and republish the same.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import orjson
import pytest
from tests.conformance.jetstream_talk import Servers, Talk, Told, both_servers, without_varying
from tests.live.server_process import PATIENCE_S

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("TNATS_SEEDS", "12"))
SUBJECTS = ("s.a", "s.a", "s.b", "s.c.d", "s.a.x")
CHANGING = (
    "discard", "max_msgs_per_subject", "max_msgs", "subject_transform", "republish", "allow_atomic",
    "allow_msg_ttl", "deny_delete", "duplicate_window", "allow_rollup_hdrs",
)  # fmt: skip
"""Fields that updates change; the first only where there are no sources, all of whose messages are waited for."""
SCHEDULE = {"Nats-Schedule": "@at 2099-01-01T00:00:00Z", "Nats-Schedule-Target": "s.z"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


def comparable(told: Told) -> object:
    """A message without its time and the identity of its origin."""
    headers = {
        key: value for key, value in told.headers.items() if key not in ("Nats-Time-Stamp", "Nats-Stream-Source")
    }
    return told.subject, headers, told.data


class Player:
    """Carries out operations at one server."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        talk.listen("rep.>")

    def call(self, call: str, body: object) -> object:
        """What a call of the API comes to: its error, or what of the answer does not vary."""
        answer = without_varying(self.talk.api(call, body))
        for key in ("did_create", "sources", "mirror", "state"):
            answer.pop(key, None)
        return answer

    def publish(self, subject: str, data: bytes, headers: dict[str, str]) -> object:
        """The answer to a publish."""
        told = self.talk.ask(subject, data, headers)
        return told.status, told.data and orjson.loads(told.data)

    def state(self) -> list[object]:
        """All that the streams hold; of the mirror, which may have missed what went at once, what S holds still."""
        found: list[object] = []
        names = self.talk.done("STREAM.NAMES")["streams"]
        for name in names:
            body = {"subjects_filter": ">", "deleted_details": True}
            held = self.talk.done(f"STREAM.INFO.{name}", body)["state"]
            if name == "S" and "M" in names:
                found += [self._message("M", seq) for seq in self._seqs(held)]
            if held["last_seq"] and name != "M":
                keys = ("messages", "bytes", "first_seq", "last_seq", "deleted", "subjects")
                found.append((name, [held.get(key) for key in keys]))
                found += [self._message(name, seq) for seq in self._seqs(held)]
        return found

    def _seqs(self, held: dict[str, Any]) -> list[int]:
        gone = held.get("deleted") or []
        last = held["last_seq"] if held["messages"] else 0
        return [seq for seq in range(max(held["first_seq"], 1), last + 1) if seq not in gone]

    def has_copies_to_make(self) -> bool:
        """Whether S has not taken in all of O that it wants, or M all of S."""
        copied = self.talk.done("STREAM.INFO.S")
        for source in copied.get("sources", ()):
            transforms = source.get("subject_transforms") or [{"src": source.get("filter_subject", ">")}]
            last = self.talk.api("STREAM.MSG.GET.O", {"last_by_subj": transforms[0]["src"]}).get("message")
            if last is not None and source.get("seq", 0) < last["seq"]:
                return True
        mirror = self.talk.api("STREAM.INFO.M").get("state")
        if mirror is None or not copied["state"]["messages"]:
            return False
        return bool(mirror["last_seq"] < copied["state"]["last_seq"])

    def _message(self, name: str, seq: int) -> object:
        message = self.talk.api(f"STREAM.MSG.GET.{name}", {"seq": seq}).get("message")
        if message is None:
            return None
        lines = base64.b64decode(message.get("hdrs", "")).split(b"\r\n")
        headers = [line.rpartition(b" ")[0] if line.startswith(b"Nats-Stream-Source") else line for line in lines]
        return message["subject"], headers, message.get("data")

    def republished(self) -> list[object]:
        """What was republished since the last time, as far as it has come."""
        self.talk.fence()
        return [comparable(told) for told in self.talk.hear_all("rep.>", 0.02)]


class Script:
    """Draws operations for one pair of streams: S, and O, which S may source; and perhaps M, a mirror of S."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._batches_count = 0
        self.config = self._stream()
        self.origin = {
            "name": "O",
            "subjects": ["o.>"],
            "allow_rollup_hdrs": True,
            "allow_msg_counter": self.config.get("allow_msg_counter", False),
        }

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _stream(self) -> dict[str, Any]:
        rng = self._rng
        config: dict[str, Any] = {"name": "S", "subjects": ["s.>"], "storage": rng.choice(["file", "memory"])}
        config["retention"] = rng.choice(["limits"] * 4 + ["interest", "workqueue"])
        config["allow_rollup_hdrs"] = self._chance(0.5)
        choices: dict[str, tuple[float, list[Any]]] = {
            "max_msgs_per_subject": (0.3, [1, 2, 3]),
            "max_msgs": (0.3, [3, 6, 10]),
            "discard": (0.3, ["new"]),
            "subject_transform": (
                0.25,
                [
                    {"src": "s.>", "dest": "t.>"},
                    {"src": "s.*", "dest": "u.{{wildcard(1)}}"},
                    {"src": "s.a", "dest": "s.b"},
                ],
            ),
            "republish": (
                0.25,
                [
                    {"src": ">", "dest": "rep.>"},
                    {"src": "s.a", "dest": "rep.a", "headers_only": True},
                    {"src": "t.>", "dest": "rep.>"},
                ],
            ),
            "allow_atomic": (0.4, [True]),
            "allow_batched": (0.3, [True]),
            "allow_msg_ttl": (0.3, [True]),
            "deny_delete": (0.1, [True]),
            "first_seq": (0.1, [5, 100]),
            "duplicate_window": (0.1, [3_600_000_000_000]),
        }
        for key, (probability, values) in choices.items():
            if self._chance(probability):
                config[key] = rng.choice(values)
        is_counter = config["retention"] == "limits" and not {"discard", "allow_msg_ttl"} & set(config)
        if is_counter and self._chance(0.2):
            config["allow_msg_counter"] = True
        if config["retention"] == "limits" and "discard" not in config and self._chance(0.4):
            renamed = {"subject_transforms": [{"src": "o.*", "dest": "s.{{wildcard(1)}}"}]}
            config["sources"] = [{"name": "O", **rng.choice([{}, {"filter_subject": "o.a"}, renamed])}]
        elif "discard" not in config and not config.get("allow_msg_counter") and self._chance(0.2):
            config["allow_msg_schedules"] = True
        if {"discard", "max_msgs_per_subject"} <= set(config) and "max_msgs" not in config and self._chance(0.6):
            config["discard_new_per_subject"] = True
        return config

    def mirror(self) -> dict[str, Any] | None:
        """The configuration of a mirror of S, in every third script whose stream keeps what was not acknowledged."""
        if self.config["retention"] != "limits" or self._chance(0.7):
            return None
        renamed = {"subject_transforms": [{"src": ">", "dest": "m.>"}]}
        return {"name": "M", "mirror": {"name": "S", **self._rng.choice([{}, renamed])}}

    def publish(self) -> list[tuple[str, bytes, dict[str, str]]]:
        """A publish to S."""
        return [self._message(self._headers())]

    def publish_to_origin(self) -> list[tuple[str, bytes, dict[str, str]]]:
        """A publish to O."""
        headers = {"Nats-Incr": "2"} if self.origin["allow_msg_counter"] else {}
        if self._may_roll_up() and self._chance(0.3):
            headers["Nats-Rollup"] = "sub"
        return [(self._rng.choice(["o.a", "o.b"]), b"" if "Nats-Incr" in headers else b"o", headers)]

    def batch(self) -> list[tuple[str, bytes, dict[str, str]]]:
        """An atomic batch to S."""
        self._batches_count += 1
        count = self._rng.randint(1, 4)
        batch = []
        for number in range(1, count + 1):
            headers = self._headers()
            for key in [key for key in headers if key.startswith("Nats-Expected-Last-")]:
                del headers[key]  # of two faults, a batch may be told another one
            headers |= {"Nats-Batch-Id": f"b{self._batches_count}", "Nats-Batch-Sequence": str(number)}
            if number == count:
                headers["Nats-Batch-Commit"] = self._rng.choice(["1", "1", "eob"])
            batch.append(self._message(headers))
        return batch

    def _message(self, headers: dict[str, str]) -> tuple[str, bytes, dict[str, str]]:
        is_empty = "Nats-Incr" in headers and (len(headers) > 1 or self._chance(0.9))
        return self._rng.choice(SUBJECTS), b"" if is_empty else b"x" * self._rng.choice([0, 3, 30]), headers

    def _headers(self) -> dict[str, str]:
        rng = self._rng
        drawn: dict[str, tuple[float, list[str]]] = {
            "Nats-Msg-Id": (0.15, list("abcdef")),
            "Nats-Rollup": (0.08 if self._may_roll_up() else 0.0, ["sub", "SUB", "x"]),
            "Nats-Expected-Last-Sequence": (0.06, [str(rng.randint(0, 12))]),
            "Nats-Expected-Last-Subject-Sequence": (0.06, [str(rng.randint(0, 12))]),
            "Nats-Expected-Last-Msg-Id": (0.03, list("abc")),
            "Nats-Expected-Stream": (0.03, ["S", "X"]),
            "Nats-TTL": (0.06, ["1h", "never", "3600"]),
            "Nats-Incr": (
                0.9 if self.config.get("allow_msg_counter") else 0.02,
                ["1", "-2", "1" + "0" * 20, "+3", "0"],
            ),
            "X-Y": (0.1, ["z", "z" * 50]),
        }
        headers = {key: rng.choice(values) for key, (probability, values) in drawn.items() if self._chance(probability)}
        if self.config.get("allow_msg_schedules") and self._may_roll_up() and self._chance(0.3):
            headers |= SCHEDULE
        return headers

    def _may_roll_up(self) -> bool:
        """In a stream that is full, nats-server takes the oldest message away with those that are rolled up."""
        return "max_msgs" not in self.config

    def call(self) -> tuple[str, object]:
        """A removal, or an update of S, which the caller tells whether it was granted."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.35:
            return "STREAM.MSG.DELETE.S", {"seq": rng.randint(1, 20), "no_erase": self._chance(0.5)}
        if kind < 0.65:
            pattern = rng.choice(["s.a", "s.*", "t.a", "s.>", "zz"])
            parts = [{"keep": rng.randint(1, 3)}, {"filter": pattern}, {"filter": pattern, "keep": 1}, None]
            return "STREAM.PURGE.S", rng.choice([*parts, {"filter": pattern, "seq": rng.randint(1, 12)}])
        other = self._stream()
        key = rng.choice(CHANGING if "sources" not in self.config else CHANGING[1:])
        wanted = {**self.config, key: other.get(key)}
        if wanted[key] is None:
            del wanted[key]
        if wanted.get("discard") != "new" or "max_msgs_per_subject" not in wanted or "max_msgs" in wanted:
            wanted.pop("discard_new_per_subject", None)
        return "STREAM.UPDATE.S", wanted


def same(players: list[Player], of: str, *arguments: Any) -> Any:
    """What both say to something, which must be the same."""
    wanted, got = (getattr(player, of)(*arguments) for player in players)
    assert got == wanted
    return got


@pytest.mark.parametrize("seed", range(SEEDS))
def test_features_together(servers: Servers, seed: int) -> None:
    """After each operation both have answered the same, hold the same messages with the same headers, and have
    republished the same.
    """
    rng = Random(seed)
    script = Script(rng)
    with Talk(servers.real, streams=servers.real_streams) as real, Talk(servers.ours) as ours:
        players = [Player(talk) for talk in (real, ours)]
        history: list[object] = [script.config]
        try:
            same(players, "call", "STREAM.CREATE.O", script.origin)
            answer = same(players, "call", "STREAM.CREATE.S", script.config)
            mirror = script.mirror()
            if mirror is not None and "error" not in answer:
                history.append(same(players, "call", "STREAM.CREATE.M", mirror))
            for _ in range(18 if "error" not in answer else 0):
                kind = rng.random()
                if kind < 0.3:
                    name, body = script.call()
                    history.append((name, body))
                    answer = same(players, "call", name, body)
                    if name == "STREAM.UPDATE.S" and "error" not in answer:
                        script.config = dict(body)
                else:
                    draw = script.publish_to_origin if kind < 0.45 else script.batch if kind < 0.6 else script.publish
                    for message in draw():
                        history.append(message)
                        same(players, "publish", *message)
                wait_alike(players)
                wait_republished(players)
        except AssertionError as fault:
            fault.add_note(f"after {history}")
            raise
        finally:
            for player in players:
                for name in player.talk.done("STREAM.NAMES")["streams"] or []:
                    player.talk.done(f"STREAM.DELETE.{name}")


def wait_alike(players: list[Player]) -> None:
    """Until both hold the same."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        wanted, got = (player.state() for player in players)
        if got == wanted and not any(player.has_copies_to_make() for player in players):
            return
        assert time.monotonic() < deadline, f"\ntnats:       {got}\nnats-server: {wanted}"
        time.sleep(0.05)


def wait_republished(players: list[Player]) -> None:
    """Until both have republished the same since the last time: nats-server does it behind its answers."""
    deadline = time.monotonic() + PATIENCE_S
    wanted, got = (player.republished() for player in players)
    while got != wanted:
        assert time.monotonic() < deadline, f"\ntnats:       {got}\nnats-server: {wanted}"
        for found, player in zip((wanted, got), players, strict=True):
            found += player.republished()
