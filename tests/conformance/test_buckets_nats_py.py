"""Buckets, object stores and consumers as the official Python client has them, unmodified, against `tnats serve`."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    KeyValueConfig,
    ObjectMeta,
    ObjectStoreConfig,
    StorageType,
    StoreCompression,
    StreamConfig,
    StreamSource,
)
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NoKeysError, ObjectNotFoundError
from tests.conformance.test_jetstream_nats_py import play
from tests.live.server_process import PATIENCE_S, ServerProcess, serve

MIB = 1 << 20

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of this module."""
    folder: Path = tmp_path_factory.mktemp("server")
    with serve(folder, "jetstream { store_dir: store }") as running:
        yield running


def test_history_deletion_and_purge(server: ServerProcess) -> None:
    """Each revision in order; a deleted key can be created again; purged ones leave a marker, then nothing."""

    async def scene(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(KeyValueConfig(bucket="H", history=4))
        for number in range(6):
            await bucket.put("a", b"%d" % number)
        assert [one.value for one in await bucket.history("a")] == [b"2", b"3", b"4", b"5"]
        await bucket.delete("a")
        with pytest.raises(KeyNotFoundError):
            await bucket.get("a")
        revision = await bucket.create("a", b"again")
        assert (await bucket.get("a")).revision == revision
        with pytest.raises(KeyWrongLastSequenceError):
            await bucket.create("a", b"twice")
        await bucket.purge("a")
        assert [(one.operation, one.value) for one in await bucket.history("a")] == [("PURGE", b"")]
        await bucket.put("b", b"x")
        await bucket.purge_deletes(olderthan=0)
        assert await bucket.keys() == ["b"]
        status = await bucket.status()
        assert (status.bucket, status.history, status.values) == ("H", 4, 1)

    play(server, scene)


def test_keys_and_watching(server: ServerProcess) -> None:
    """Keys, and a watch by pattern with its end mark; afterwards nobody listens any more."""

    async def scene(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(KeyValueConfig(bucket="L"))
        with pytest.raises(NoKeysError):
            await bucket.keys()
        for key in ("a.1", "a.2", "b.1"):
            await bucket.put(key, b"x")
        assert sorted(await bucket.keys()) == ["a.1", "a.2", "b.1"]
        watcher = await bucket.watch("a.*")
        seen = [await watcher.updates(timeout=PATIENCE_S) for _ in range(3)]
        assert ([one.key for one in seen[:2] if one], seen[2]) == (["a.1", "a.2"], None)
        await watcher.stop()
        # The client leaves its consumers to their threshold of five minutes; nobody is bound to them.
        assert not any(one.push_bound for one in await js.consumers_info("KV_L"))

    play(server, scene)


def test_keys_that_end(server: ServerProcess) -> None:
    """A bucket's time to live holds for each key; a mirror follows."""

    async def scene(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(KeyValueConfig(bucket="T", ttl=3))
        watcher = await bucket.watch("a")
        assert await watcher.updates(timeout=PATIENCE_S) is None
        await js.add_stream(StreamConfig(name="KV_M", mirror=StreamSource(name="KV_T"), max_msgs_per_subject=1))
        await bucket.put("a", b"x")
        assert (await watcher.updates(timeout=PATIENCE_S)).value == b"x"
        while True:
            try:
                assert (await bucket.get("a")).value == b"x"
            except KeyNotFoundError:
                break
            await asyncio.sleep(0.05)

    play(server, scene)


def test_a_hundred_megabytes(server: ServerProcess, tmp_path: Path) -> None:
    """An object of a hundred megabytes in chunks of a quarter comes back whole, and its digest is right."""

    async def scene(js: JetStreamContext) -> None:
        store = await js.create_object_store(bucket="BIG", config=ObjectStoreConfig(storage=StorageType.FILE))
        piece = os.urandom(MIB)
        content = piece * 100
        info = await store.put("big", io.BytesIO(content))
        assert (info.size, info.digest) == (len(content), f"SHA-256={urlsafe(content)}")
        with (tmp_path / "out").open("w+b") as out:
            await store.get("big", writeinto=out)
            out.seek(0)
            assert hashlib.file_digest(out, "sha256").digest() == hashlib.sha256(content).digest()
        status = await store.status()
        assert status.size > len(content)
        await store.delete("big")
        with pytest.raises(ObjectNotFoundError):
            await store.get("big")
        assert (await js.stream_info("OBJ_BIG")).state.messages == 1
        await js.delete_object_store("BIG")

    play(server, scene)


def urlsafe(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()


@pytest.mark.parametrize("compression", [StoreCompression.NONE, StoreCompression.S2])
def test_objects_written_at_once(server: ServerProcess, compression: StoreCompression) -> None:
    """Many uploads of many sizes beside each other: each is read back as it was, from a packed store too."""

    async def scene(js: JetStreamContext) -> None:
        await js.create_object_store(bucket="MANY")
        stream = (await js.stream_info("OBJ_MANY")).config
        stream.compression = compression
        await js.update_stream(stream)
        store = await js.object_store("MANY")
        rng = random.Random(1)
        sizes = [rng.choice([0, 10_000, 131_072, 131_073, 2_000_000]) for _ in range(30)] + [20_000_000]
        contents = {f"o{number}": rng.randbytes(size) for number, size in enumerate(sizes)}
        await asyncio.gather(*(store.put(name, content) for name, content in contents.items()))
        for name, content in contents.items():
            assert (await store.get(name)).data == content, name
        assert sorted(one.name for one in await store.list()) == sorted(contents)
        for _ in range(2):
            await store.put("o1", b"new")
        assert (await store.get("o1")).data == b"new"
        await store.update_meta("o1", ObjectMeta(name="o1", description="d"))
        assert (await store.get_info("o1")).description == "d"
        await store.seal()
        assert (await store.status()).sealed
        await js.delete_stream("OBJ_MANY")

    play(server, scene)


def test_ways_to_take_messages(server: ServerProcess) -> None:
    """Push with a queue group, ordered reading, fetching, and each word of an acknowledgement."""

    async def scene(js: JetStreamContext) -> None:
        await js.add_stream(name="WAYS", subjects=["ways.>"])
        for number in range(20):
            await js.publish(f"ways.{number % 2}", b"%d" % number)
        members = [await js.subscribe("ways.>", queue="q", durable="q") for _ in range(2)]
        taken = []
        while len(taken) < 20:
            for member in members:
                try:
                    message = await member.next_msg(timeout=0.2)
                except TimeoutError:
                    continue
                await message.ack_sync(timeout=PATIENCE_S)
                taken.append(int(message.data))
        assert sorted(taken) == list(range(20))
        ordered = await js.subscribe("ways.1", ordered_consumer=True)
        assert [int((await ordered.next_msg(timeout=PATIENCE_S)).data) for _ in range(10)] == list(range(1, 20, 2))
        config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=60, max_deliver=3)
        pull = await js.pull_subscribe("ways.0", durable="pull", config=config)
        one, two, three = await pull.fetch(3, timeout=PATIENCE_S)
        await one.ack_sync(timeout=PATIENCE_S)
        await two.nak(delay=0.1)
        await three.in_progress()
        await three.term()
        [again] = await pull.fetch(1, timeout=PATIENCE_S)
        assert again.metadata.sequence.stream in (two.metadata.sequence.stream, 7)
        info = await pull.consumer_info()
        assert info.num_ack_pending is not None

    play(server, scene)
