"""Buckets and objects that `tnats.client` writes, other clients read, and the other way round, on both servers.

The others are the official Python client and, where it is installed, the `nats` command line (the Go client).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from nats.js import JetStreamContext
from nats.js import api as nats_api
from nats.js.errors import KeyNotFoundError
from tests.conformance.nats_server import RealServer, real_server
from tests.conformance.programs import NATS_CLI, needs_nats_cli
from tests.conformance.test_nats_py import connect as connect_nats_py
from tests.conformance.test_nats_py import run
from tests.live.patient_client import connect
from tests.live.server_process import PATIENCE_S, ServerProcess, serve

from tnats.cli.app import main
from tnats.client.jetstream import JetStream
from tnats.client.kv import BucketConfig, Operation, create_bucket, open_bucket
from tnats.client.object_store import ObjectMeta, StoreConfig, create_store, open_store

T = TypeVar("T")
CONTENT = hashlib.sha256(b"seed").digest() * 20_000


@pytest.fixture(scope="module", params=["nats-server", "tnats"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealServer | ServerProcess]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    config = f'jetstream {{ store_dir: "{folder}/store" }}'
    if request.param == "tnats":
        with serve(folder, config) as ours:
            yield ours
    else:
        with real_server(folder, config) as real:
            yield real


def ours(server: RealServer | ServerProcess, scene: Callable[[JetStream], Awaitable[T]]) -> T:
    """Run a scene with our client."""

    async def main() -> T:
        with trio.fail_after(PATIENCE_S):
            async with connect(server.url) as client:
                return await scene(JetStream(client, timeout_s=PATIENCE_S))

    return trio.run(main)


def theirs(server: RealServer | ServerProcess, scene: Callable[[JetStreamContext], Awaitable[None]]) -> None:
    """Run a scene with the official Python client."""

    async def main() -> None:
        client = await connect_nats_py(server.url)
        try:
            await scene(client.jetstream(timeout=PATIENCE_S))
        finally:
            await client.close()

    run(main)


def cli(server: RealServer | ServerProcess, *arguments: str, stdin: bytes = b"") -> str:
    """Run the `nats` command line; its standard output."""
    done = subprocess.run(
        [NATS_CLI, "-s", server.url, *arguments], input=stdin, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    return done.stdout.decode()


def test_a_bucket_of_ours_read_by_nats_py(server: RealServer | ServerProcess) -> None:
    """Values, revisions, removals and history are the same there; what it writes on top is the same here."""

    async def write(js: JetStream) -> None:
        kv = await create_bucket(js, BucketConfig("mine", history=5))
        await kv.put("a.b", b"1")
        await kv.update("a.b", b"2", 1)
        await kv.create("gone", b"x")
        await kv.delete("gone")

    async def read(js: JetStreamContext) -> None:
        kv = await js.key_value("mine")
        entry = await kv.get("a.b")
        assert (entry.value, entry.revision) == (b"2", 2)
        with pytest.raises(KeyNotFoundError):
            await kv.get("gone")
        assert [(entry.value, entry.revision) for entry in await kv.history("a.b")] == [(b"1", 1), (b"2", 2)]
        assert await kv.keys() == ["a.b"]
        assert (await kv.status()).history == 5
        assert await kv.update("a.b", b"3", 2) == 5
        await kv.create("gone", b"back")
        await kv.purge("a.b")

    async def read_again(js: JetStream) -> None:
        kv = await open_bucket(js, "mine")
        assert (await kv.get("gone")).value == b"back"
        (mark,) = await kv.history("a.b")
        assert (mark.operation, mark.revision) == (Operation.PURGE, 7)

    ours(server, write)
    theirs(server, read)
    ours(server, read_again)


def test_a_bucket_of_nats_py_read_by_ours(server: RealServer | ServerProcess) -> None:
    """A bucket made there has here the settings, values and keys that it was given."""

    async def write(js: JetStreamContext) -> None:
        kv = await js.create_key_value(
            nats_api.KeyValueConfig(bucket="theirs", history=3, ttl=60, max_value_size=1000, description="d")
        )
        await kv.put("x", b"1")
        await kv.put("y", b"2")
        await kv.delete("y")

    async def read(js: JetStream) -> None:
        kv = await open_bucket(js, "theirs")
        config = (await kv.status()).config
        assert (config.history, config.ttl_s, config.value_bytes_max, config.description) == (3, 60, 1000, "d")
        async with kv.watch() as entries:
            assert [(entry.key, entry.operation) for entry in await entries.present()] == [
                ("x", Operation.PUT),
                ("y", Operation.DELETE),
            ]
        assert await kv.create("y", b"3") == 4

    theirs(server, write)
    ours(server, read)


def test_objects_both_ways_with_nats_py(server: RealServer | ServerProcess) -> None:
    """Content, digest and what is said of an object pass unchanged in both directions, removals too."""

    async def write(js: JetStream) -> None:
        store = await create_store(js, StoreConfig("files"))
        await store.put(ObjectMeta("ours/ä", "text", {"H": ["v"]}, chunk_bytes=50_000), CONTENT)
        await store.put("empty", b"")
        await store.add_link("link", await store.info("empty"))

    async def exchange(js: JetStreamContext) -> None:
        store = await js.object_store("files")
        found = await store.get("ours/ä")
        assert found.data == CONTENT
        assert (found.info.description, found.info.headers) == ("text", {"H": ["v"]})
        assert (await store.get("empty")).data == b""
        assert sorted(info.name for info in await store.list()) == ["empty", "link", "ours/ä"]
        await store.put("theirs", CONTENT)
        await store.delete("empty")

    async def read(js: JetStream) -> None:
        store = await open_store(js, "files")
        assert await store.get_bytes("theirs") == CONTENT
        info = await store.info("theirs")
        assert (info.size, info.bucket) == (len(CONTENT), "files")
        assert sorted(info.name for info in await store.list()) == ["link", "ours/ä", "theirs"]

    ours(server, write)
    theirs(server, exchange)
    ours(server, read)


@needs_nats_cli
def test_buckets_with_the_nats_command_line(server: RealServer | ServerProcess) -> None:
    """What the Go client makes and writes is read here, and what is written here is read there."""
    cli(server, "kv", "add", "go", "--history=4", "--ttl=1h", "--description=by go")
    cli(server, "kv", "put", "go", "a", "1")
    cli(server, "kv", "put", "go", "b", "2")
    cli(server, "kv", "del", "go", "b", "-f")

    async def exchange(js: JetStream) -> None:
        kv = await open_bucket(js, "go")
        config = (await kv.status()).config
        assert (config.history, config.ttl_s, config.description) == (4, 3600, "by go")
        assert (await kv.get("a")).value == b"1"
        assert await kv.keys() == ["a"]
        await kv.update("a", b"one", 1)
        await create_bucket(js, BucketConfig("trio", history=2, ttl_s=60, limit_marker_ttl_s=120, compressed=True))
        await (await open_bucket(js, "trio")).put("k", b"v")

    ours(server, exchange)
    assert cli(server, "kv", "get", "go", "a", "--raw").strip() == "one"
    assert "trio" in cli(server, "kv", "ls", "--names")
    assert cli(server, "kv", "get", "trio", "k", "--raw").strip() == "v"
    status = cli(server, "kv", "info", "trio")
    assert "History Kept: 2" in status
    assert "TTL: 1m0s" in status.replace("Maximum Age", "TTL")


@needs_nats_cli
def test_objects_with_the_nats_command_line(server: RealServer | ServerProcess, tmp_path: Path) -> None:
    """Objects of the Go client come out here with their digest right, and ours there."""
    cli(server, "object", "add", "goods")
    cli(server, "object", "put", "goods", "--name", "from go", "--no-progress", "-f", stdin=CONTENT)

    async def exchange(js: JetStream) -> None:
        store = await open_store(js, "goods")
        assert await store.get_bytes("from go") == CONTENT
        await store.put("from trio", CONTENT)

    ours(server, exchange)
    target = tmp_path / "out"
    cli(server, "object", "get", "goods", "from trio", "--output", str(target), "--no-progress", "-f")
    assert target.read_bytes() == CONTENT
    assert "from trio" in cli(server, "object", "ls", "goods")


@needs_nats_cli
def test_streams_with_the_nats_command_line(server: RealServer | ServerProcess) -> None:
    """A stream made by the Go client is used here, configuration included."""
    cli(server, "stream", "add", "GO", "--subjects=go.>", "--defaults", "--max-age=1h")

    async def use(js: JetStream) -> None:
        await js.publish("go.a", b"1", headers={"A": "b"})
        info = await js.stream("GO").info()
        assert (info.config.max_age_ns, info.config.subjects) == (3600 * 10**9, ["go.>"])

    ours(server, use)
    assert json.loads(cli(server, "stream", "info", "GO", "--json"))["state"]["messages"] == 1


@needs_nats_cli
def test_backups_with_the_nats_command_line(server: RealServer | ServerProcess, tmp_path: Path) -> None:
    """A backup of ours is restored by the `nats` tool, and one of it by ours."""
    cli(server, "stream", "add", "KEEP", "--subjects=keep.>", "--defaults")

    async def fill(js: JetStream) -> None:
        async with js.publisher() as publisher:
            for number in range(1000):
                await publisher.publish(f"keep.{number % 10}", b"%d" % number, headers={"N": str(number)})

    async def check(js: JetStream) -> None:
        stream = js.stream("KEEP")
        state = (await stream.info()).state
        assert (state.messages, state.last_seq) == (1000, 1000)
        assert (await stream.get(500)).headers == {"N": ["499"]}

    ours(server, fill)
    first, second = str(tmp_path / "ours"), str(tmp_path / "theirs")
    assert main(["stream", "backup", "KEEP", first, "-s", server.url]) == 0
    cli(server, "stream", "rm", "KEEP", "-f")
    cli(server, "stream", "restore", first, "--no-progress")
    ours(server, check)
    cli(server, "stream", "backup", "KEEP", second, "--no-progress")
    assert main(["stream", "rm", "KEEP", "-f", "-s", server.url]) == 0
    assert main(["stream", "restore", second, "-s", server.url]) == 0
    ours(server, check)
