"""Configurations and what becomes of them: jetstream/stream_config.jsonl and consumer_config.jsonl.

One case a line: what is created (and then updated), and the configuration that results or the error. The answers
were given by nats-server 2.15.1, without the server's own metadata.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.fields import decode, to_object
from tnats.jetstream.api.json_text import DecodeError
from tnats.jetstream.consumer import rules as consumer_rules
from tnats.jetstream.consumer.config import ConsumerConfig, CreateConsumerRequest
from tnats.jetstream.stream import rules
from tnats.jetstream.stream.config import StreamConfig, StreamConfigRequest

FOLDER = Path(__file__).parent / "jetstream"


def cases(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (FOLDER / name).read_bytes().splitlines()]


def told(answer: StreamConfig | ConsumerConfig | ApiError) -> dict[str, Any]:
    if isinstance(answer, ApiError):
        return {"error": [answer.err_code, answer.description]}
    return {"config": to_object(answer)}


def wanted(case: dict[str, Any]) -> dict[str, Any]:
    return {key: case[key] for key in ("error", "config") if key in case}


def stream_answer(request: dict[str, Any], old: StreamConfig | None) -> StreamConfig | ApiError:
    try:
        decoded = decode(StreamConfigRequest, orjson.dumps(request))
    except DecodeError as error:
        return errors.INVALID_JSON(err=error)
    if decoded.name != "T":
        return errors.STREAM_MISMATCH()
    around = rules.Surroundings()
    if old is None:
        return rules.check_create(decoded.config(), around, pedantic=decoded.pedantic)
    return rules.check_update(old, decoded.config(), around, pedantic=decoded.pedantic)


@pytest.mark.parametrize("case", cases("stream_config.jsonl"), ids=lambda case: case["title"])
def test_stream_configurations(case: dict[str, Any]) -> None:
    """A stream's configuration is completed, refused or updated exactly as nats-server does it."""
    answer = stream_answer(case["create"], None)
    if "update" in case:
        assert isinstance(answer, StreamConfig)
        answer = stream_answer(case["update"], answer)
    assert told(answer) == wanted(case)


class Account:
    """Streams T, W, I and L with the consumers made so far."""

    def __init__(self) -> None:
        self.streams: dict[str, StreamConfig] = {}
        for name, fields in {
            "T": {"subjects": ["a.>", "b"]},
            "W": {"subjects": ["w.>"], "retention": "workqueue"},
            "I": {"subjects": ["i.>"], "retention": "interest"},
            "L": {
                "subjects": ["l.>"],
                "consumer_limits": {"inactive_threshold": 10**9, "max_ack_pending": 5},
                "max_consumers": 1,
            },
        }.items():
            config = decode(StreamConfig, orjson.dumps({"name": name, **fields}))
            checked = rules.check_create(config, rules.Surroundings())
            assert isinstance(checked, StreamConfig)
            self.streams[name] = checked
        self.consumers: dict[tuple[str, str], ConsumerConfig] = {}

    def answer(self, stream: str, body: dict[str, Any]) -> ConsumerConfig | ApiError:
        try:
            request = decode(CreateConsumerRequest, orjson.dumps(body))
        except DecodeError as error:
            return errors.INVALID_JSON(err=error)
        name = body["config"].get("name", "c")
        error = consumer_rules.check_request_names(request.config, subject_name=name)
        if error is not None:
            return error
        others = [config for key, config in self.consumers.items() if key[0] == stream and key[1] != name]
        answer = consumer_rules.check_create(
            request.config,
            consumer_rules.Surroundings(self.streams[stream], others),
            old=self.consumers.get((stream, name)),
            action=request.action,
            pedantic=request.pedantic,
        )
        if isinstance(answer, ConsumerConfig):
            self.consumers[stream, name] = answer
        return answer


def test_consumer_configurations() -> None:
    """A consumer's configuration is completed, refused or updated exactly as nats-server does it."""
    account = Account()
    for case in cases("consumer_config.jsonl"):
        stream = case["stream"]
        if not case.get("keep"):
            account.consumers = {key: one for key, one in account.consumers.items() if key[0] != stream}
        if "create" in case:
            assert isinstance(account.answer(stream, case["create"]), ConsumerConfig), case["title"]
        assert told(account.answer(stream, case["request"])) == wanted(case), case["title"]
