"""What monitoring says of JetStream: the fields of /jsz and the answers of /healthz, as nats-server has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tests.conformance.jetstream_talk import CONFIG, Talk
from tests.conformance.nats_server import real_server
from tests.live.server_process import PATIENCE_S, serve

NOT_THERE = {".limits.default_max_consumers", ".config.sync_always", ".config.sync_interval", ".config.compress_ok"}
"""nats-server has a bound on consumers that nobody asked for; the rest depends on the configuration."""
OPTIONS = [
    "", "acc=$G", "acc=NONE", "accounts=true", "streams=true", "consumers=true", "consumers=true&config=true",
    "config=true", "raft=true", "accounts=true&raft=true", "leader-only=true", "stream-leader-only=true&streams=true",
    "offset=5&accounts=true", "limit=0&accounts=true", "offset=-1", "acc=$G&streams=1",
]  # fmt: skip
WRONG = ["offset=x", "limit=x", "accounts=x", "consumers=7"]
HEALTH = [
    "", "js-enabled-only=true", "js-server-only=true", "js-enabled=true", "stream=A", "account=$G",
    "account=$G&stream=A", "account=$G&stream=NO", "account=NO", "account=NO&stream=A",
    "account=$G&stream=A&consumer=c", "account=$G&stream=A&consumer=no", "account=$G&consumer=c",
    "stream=A&consumer=c", "details=true", "details=true&account=$G&stream=NO", "js-enabled-only=x",
]  # fmt: skip


@pytest.fixture(scope="module")
def monitors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Monitoring ports of nats-server and of ours, each with a few streams and consumers."""
    folder: Path = tmp_path_factory.mktemp("servers")
    more = '\nhttp: "127.0.0.1:-1"'
    config = CONFIG % json.dumps(str(folder / "real")) + more
    with real_server(folder, config) as real, serve(folder, CONFIG % "store" + more) as ours:
        for one in (real.port, ours.port):
            talk = Talk(one)
            talk.create("A", max_bytes=100_000)
            talk.create("M", storage="memory", subjects=["m"])
            talk.create("S", sources=[{"name": "A"}], subjects=["s"])
            talk.flood(["a"] * 3, b"x")
            talk.done("CONSUMER.CREATE.A.c", {"stream_name": "A", "config": {"durable_name": "c"}})
            while talk.state("S")[0] < 3:
                pass
            talk.close()
        yield real.logged_port("Starting http monitor"), ours.monitoring_port


def fetch(port: int, path: str) -> tuple[int, Any]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refused:
        body = refused.read()
        return refused.code, json.loads(body) if body.startswith(b"{") else body


def fields(found: Any, place: str = "") -> dict[str, None]:
    """The places of all members."""
    if isinstance(found, dict):
        named = dict.fromkeys(f"{place}.{key}" for key in found)
        return {**named, **{key: None for name, value in found.items() for key in fields(value, f"{place}.{name}")}}
    if isinstance(found, list):
        return {key: None for value in found for key in fields(value, f"{place}[]")}
    return {}


@pytest.mark.parametrize("option", OPTIONS)
def test_jsz_has_the_fields(monitors: tuple[int, int], option: str) -> None:
    """The same members stand in the same places, and the figures of streams are the same."""
    (real_status, real), (status, ours) = (fetch(port, f"/jsz?{option}") for port in monitors)
    assert status == real_status == 200
    assert set(fields(ours)) - NOT_THERE == set(fields(real)) - NOT_THERE
    same = ("memory", "storage", "reserved_memory", "reserved_storage", "streams", "consumers", "messages", "bytes")
    assert [ours[key] for key in same] == [real[key] for key in same]


@pytest.mark.parametrize("option", WRONG)
def test_jsz_refuses(monitors: tuple[int, int], option: str) -> None:
    """Options that are none are refused with the same status and text."""
    assert fetch(monitors[1], f"/jsz?{option}") == fetch(monitors[0], f"/jsz?{option}")


@pytest.mark.parametrize("option", HEALTH)
def test_healthz(monitors: tuple[int, int], option: str) -> None:
    """Status and body of each health check are the same."""
    assert fetch(monitors[1], f"/healthz?{option}") == fetch(monitors[0], f"/healthz?{option}")
