"""What the API tells those who listen: advisories of streams, the audit of requests, dropped requests."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.unit.jetstream.service_world import Stage, call, play, publish
from tests.unit.jetstream.test_limits import limit, open_client

from tnats.client import Subscription

PREFIX = "io.nats.jetstream.advisory.v1."


async def hear(advisories: Subscription, count: int) -> list[tuple[str, dict[str, Any]]]:
    """(subject behind the prefix, body) of the next advisories."""
    found = []
    for _ in range(count):
        message = await anext(advisories)
        body = orjson.loads(message.data)
        assert body["type"].startswith(PREFIX)
        assert {"id", "timestamp"} <= body.keys()
        found.append((message.subject.removeprefix("$JS.EVENT.ADVISORY."), body))
    return found


def test_streams_and_consumers_come_and_go() -> None:
    """Each change of a stream or a consumer is told once, with what was done."""

    async def scene(stage: Stage) -> None:
        async with (
            open_client(stage) as client,
            client.subscribe("$JS.EVENT.ADVISORY.STREAM.>") as streams,
            client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.>") as consumers,
        ):
            await call(client, "STREAM.CREATE.S", {"name": "S"})
            await call(client, "STREAM.CREATE.S", {"name": "S"})
            await call(client, "STREAM.UPDATE.S", {"name": "S", "description": "x"})
            await call(client, "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"name": "c"}})
            await call(client, "CONSUMER.DELETE.S.c")
            await call(client, "CONSUMER.CREATE.S.d", {"stream_name": "S", "config": {"name": "d"}})
            await call(client, "STREAM.DELETE.S")
            told = [(where, body["action"]) for where, body in await hear(streams, 3)]
            changes = (("CREATED", "create"), ("UPDATED", "modify"), ("DELETED", "delete"))
            assert told == [(f"STREAM.{word}.S", action) for word, action in changes]
            told = [(where, body["action"]) for where, body in await hear(consumers, 4)]
            ends = (("CREATED", "create"), ("DELETED", "delete"))
            assert told == [(f"CONSUMER.{word}.S.{name}", action) for name in "cd" for word, action in ends]

    play(1, scene).unwrap()


def test_the_audit_of_requests() -> None:
    """Every answer of the API is told to who listens, but not the messages that are read."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client, client.subscribe("$JS.EVENT.ADVISORY.API") as audit:
            await call(client, "STREAM.CREATE.S", {"name": "S"})
            await publish(client, "S", b"x")
            await call(client, "STREAM.MSG.GET.S", {"seq": 1})
            answer = await call(client, "STREAM.INFO.NONE")
            told = await hear(audit, 2)
            assert [body["subject"] for _, body in told] == ["$JS.API.STREAM.CREATE.S", "$JS.API.STREAM.INFO.NONE"]
            assert orjson.loads(told[0][1]["request"]) == {"name": "S"}
            assert orjson.loads(told[1][1]["response"]) == answer
            info: Any = await call(client, "INFO")
            assert (info["api"]["total"], info["api"]["errors"]) == (3, 1)

    play(1, scene).unwrap()


def test_a_queue_of_requests_that_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests beyond the bound are dropped with all that wait, which is told; later ones are served."""
    limit(monkeypatch, requests_max=10)

    async def scene(stage: Stage) -> None:
        async with (
            open_client(stage) as client,
            client.subscribe("$JS.EVENT.ADVISORY.API.LIMIT_REACHED") as advisories,
            client.subscribe("answers") as answers,
        ):
            for number in range(40):
                body = orjson.dumps({"name": f"S{number}"})
                client.publish_nowait(f"$JS.API.STREAM.CREATE.S{number}", body, reply="answers")
            await client.flush()
            (where, told), *_ = await hear(advisories, 1)
            assert where == "API.LIMIT_REACHED"
            assert told["dropped"] >= 10
            await stage.sleep(1)
            made: Any = (await call(client, "STREAM.NAMES"))["streams"]
            assert 0 < len(made) < 40
            assert len([await anext(answers) for _ in made]) == len(made)

    play(1, scene).unwrap()


def test_a_read_waits_for_the_changes_before_it() -> None:
    """Asked for in one breath with the stream's making, or right behind it, stream info comes second and finds it."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client, client.subscribe("answers") as answers:
            for number, pause_s in enumerate((0, 0.000_1, 0.001)):
                name = f"S{number}"
                body = orjson.dumps({"name": name})
                client.publish_nowait(f"$JS.API.STREAM.CREATE.{name}", body, reply="answers")
                if pause_s:
                    await stage.sleep(pause_s)
                client.publish_nowait(f"$JS.API.STREAM.INFO.{name}", b"", reply="answers")
                first, second = [orjson.loads((await anext(answers)).data) for _ in range(2)]
                assert (first["type"].rpartition(".")[2], first["did_create"]) == ("stream_create_response", True)
                assert (second["type"].rpartition(".")[2], second["config"]["name"]) == ("stream_info_response", name)

    play(1, scene).unwrap()
