"""What `tnats.client.kv` must be able to do with any NATS server. See `jetstream_client_scenes` for how it is run.

Beside `server` it needs `hub`, a server with the JetStream domain `hub`.
"""

from __future__ import annotations

import pytest
import trio
from tests.live.jetstream_client_scenes import Target, fresh
from tests.live.patient_client import connect
from tests.live.server_process import PATIENCE_S

from tnats.client import ClientError, NoResponders
from tnats.client.jetstream import (
    AckPolicy,
    BucketNotFound,
    ConsumerConfig,
    JetStream,
    JetStreamUnavailable,
    NameInUse,
    Republish,
    StreamConfig,
    StreamSource,
    WrongLastSequence,
)
from tnats.client.kv import (
    BucketConfig,
    Entry,
    KeyDeleted,
    KeyExists,
    KeyNotFound,
    KeyValue,
    Operation,
    bucket_names,
    create_bucket,
    delete_bucket,
    open_bucket,
    update_bucket,
)
from tnats.client.object_store import StoreConfig, create_store


def brief(entry: Entry | None) -> tuple[str, bytes, int, str] | None:
    """What tests compare."""
    return entry and (entry.key, entry.value, entry.revision, entry.operation.value)


async def test_buckets_are_made_found_and_removed(server: Target) -> None:
    """A bucket keeps its settings, is found by name, and is gone after its removal."""
    async with fresh(server) as js:
        config = BucketConfig("b", history=3, ttl_s=60, value_bytes_max=100, bytes_max=10_000, description="d")
        await create_bucket(js, config)
        await create_bucket(js, config)
        with pytest.raises(NameInUse):
            await create_bucket(js, BucketConfig("b"))
        status = await (await open_bucket(js, "b")).status()
        assert (status.config.history, status.config.ttl_s, status.config.description) == (3, 60, "d")
        assert (status.config.value_bytes_max, status.config.bytes_max, status.value_count) == (100, 10_000, 0)
        await update_bucket(js, BucketConfig("b", history=5))
        assert (await (await open_bucket(js, "b")).status()).config.history == 5
        assert await bucket_names(js) == ["b"]
        await delete_bucket(js, "b")
        for call in (open_bucket(js, "b"), delete_bucket(js, "b")):
            with pytest.raises(BucketNotFound, match="there is no bucket 'b'"):
                await call
        for wrong in (BucketConfig("a.b"), BucketConfig("b", history=65), BucketConfig("b", limit_marker_ttl_s=0.5)):
            with pytest.raises(ClientError):
                await create_bucket(js, wrong)


async def test_values_by_key(server: Target) -> None:
    """Put, create, update and the two ways to remove: each returns its revision and refuses what it must."""
    async with fresh(server) as js:
        kv = await create_bucket(js, BucketConfig("b", history=5))
        with pytest.raises(KeyNotFound):
            await kv.get("a")
        assert await kv.put("a", b"1") == 1
        entry = await kv.get("a")
        assert (brief(entry), entry.bucket) == (("a", b"1", 1, "PUT"), "b")
        assert abs(entry.created_ns - js.client.runtime.clock.wall_ns()) < 60 * 10**9
        assert await kv.update("a", b"2", 1) == 2
        with pytest.raises(WrongLastSequence):
            await kv.update("a", b"3", 1)
        with pytest.raises(KeyExists):
            await kv.create("a", b"3")
        assert await kv.create("x/y=z.0-_", b"") == 3
        assert (await kv.get("a", revision=1)).value == b"1"
        with pytest.raises(KeyNotFound):
            await kv.get("a", revision=3)
        with pytest.raises(WrongLastSequence):
            await kv.delete("a", last_revision=1)
        assert await kv.delete("a", last_revision=2) == 4
        with pytest.raises(KeyDeleted) as deleted:
            await kv.get("a", from_leader=True)
        assert brief(deleted.value.entry) == ("a", b"", 4, "DEL")
        assert await kv.create("a", b"4") == 5
        assert [brief(entry) for entry in await kv.history("a")] == [
            ("a", b"1", 1, "PUT"),
            ("a", b"2", 2, "PUT"),
            ("a", b"", 4, "DEL"),
            ("a", b"4", 5, "PUT"),
        ]
        await kv.purge("a")
        assert [brief(entry) for entry in await kv.history("a")] == [("a", b"", 6, "PURGE")]
        with pytest.raises(KeyNotFound):
            await kv.history("nix")
        for wrong in ("", ".a", "a.", "a b", "a.*", "a..b"):
            with pytest.raises(ClientError):
                await kv.put(wrong, b"")


async def test_keys_and_the_removal_of_marks(server: Target) -> None:
    """Keys are those with a value, by filter; old marks of removal go, young ones stay without their history."""
    async with fresh(server) as js:
        kv = await create_bucket(js, BucketConfig("b", history=5))
        assert await kv.keys() == []
        for key in ("a.x", "a.y", "b.x", "c"):
            await kv.put(key, b"1")
        await kv.delete("a.y")
        assert await kv.keys() == ["a.x", "b.x", "c"]
        assert await kv.keys("a.*") == ["a.x"]
        assert await kv.keys("*.x", "c") == ["a.x", "b.x", "c"]
        assert await kv.keys("nix.>") == []
        with trio.fail_after(PATIENCE_S):
            # Nothing is left of the listings.
            while (await js.stream("KV_b").info()).state.consumer_count:  # noqa: ASYNC110 - the server is another process
                await trio.sleep(0.05)
        assert await kv.purge_deletes() == 1
        assert (await kv.status()).value_count == 4
        assert await kv.purge_deletes(older_than_s=0) == 1
        assert (await kv.status()).value_count == 3


@pytest.mark.slow
async def test_many_keys_are_listed(server: Target) -> None:
    """Thousands of keys come whole and in order, by name and by filter."""
    async with fresh(server) as js:
        kv = await create_bucket(js, BucketConfig("b"))
        async with js.publisher(pending_count_max=500) as publisher:
            for number in range(5000):
                await publisher.publish(f"$KV.b.{number % 7}.{number}", b"")
        keys = await kv.keys()
        assert keys == [f"{number % 7}.{number}" for number in range(5000)]
        assert await kv.keys("3.*") == [key for key in keys if key.startswith("3.")]


async def watch_put(kv: KeyValue) -> None:
    for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        await kv.put(key, value)
    await kv.delete("b")


async def test_watching(server: Target) -> None:
    """What is there, then a None, then what happens: with each option what it says."""
    a1, b2, a3, b4 = ("a", b"1", 1, "PUT"), ("b", b"2", 2, "PUT"), ("a", b"3", 3, "PUT"), ("b", b"", 4, "DEL")
    c5, a6 = ("c", b"5", 5, "PUT"), ("a", b"", 6, "PURGE")
    async with fresh(server) as js:
        kv = await create_bucket(js, BucketConfig("b", history=5))
        async with kv.watch() as empty:
            assert await empty.present() == []
        await watch_put(kv)
        plain, history, live, updates = (
            kv.watch(),
            kv.watch(include_history=True),
            kv.watch(ignore_deletes=True),
            kv.watch(updates_only=True),
        )
        resumed, only_a, bare = kv.watch(from_revision=3), kv.watch("a", "z.>"), kv.watch(headers_only=True)
        async with plain, history, live, updates, resumed, only_a, bare:
            present = [
                (plain, [a3, b4, None]),
                (history, [a1, b2, a3, b4, None]),
                (live, [a3, None]),
                (resumed, [a3, b4, None]),
                (only_a, [a3, None]),
                (bare, [("a", b"", 3, "PUT"), b4, None]),
            ]
            later = [
                (plain, [c5, a6]),
                (history, [c5, a6]),
                (live, [c5]),
                (updates, [c5, a6]),
                (resumed, [c5, a6]),
                (only_a, [a6]),
                (bare, [("c", b"", 5, "PUT"), a6]),
            ]
            for entries, wanted in present:
                assert [brief(await anext(entries)) for _ in wanted] == wanted
            await kv.put("c", b"5")
            await kv.purge("a")
            for entries, wanted in later:
                assert [brief(await anext(entries)) for _ in wanted] == wanted
                with trio.move_on_after(0.05) as scope:
                    await anext(entries)
                assert scope.cancelled_caught


@pytest.mark.slow
async def test_lifetimes_and_their_marks(server: Target) -> None:
    """A key with a lifetime ends and leaves a mark that watchers see; the mark of a purge can end too (ADR-48)."""
    async with fresh(server) as js:
        kv = await create_bucket(js, BucketConfig("b", limit_marker_ttl_s=60))
        async with kv.watch() as entries:
            assert await anext(entries) is None
            await kv.put("b", b"2")
            assert brief(await anext(entries)) == ("b", b"2", 1, "PUT")
            await kv.purge("b", ttl_s=1)
            assert brief(await anext(entries)) == ("b", b"", 2, "PURGE")
            await kv.create("a", b"1", ttl_s=1)
            assert brief(await anext(entries)) == ("a", b"1", 3, "PUT")
            assert brief(await anext(entries)) == ("a", b"", 4, "PURGE")
        with pytest.raises(KeyDeleted):
            await kv.get("a")
        assert await kv.create("a", b"3") >= 5
        with trio.fail_after(PATIENCE_S):
            while (await kv.status()).value_count > 1:  # noqa: ASYNC110 - it happens in the server
                await trio.sleep(0.05)


async def test_mirrors_and_sources(server: Target) -> None:
    """A mirror reads like its origin and writes through to it; sources bring other buckets' keys under their own."""
    async with fresh(server) as js:
        origin = await create_bucket(js, BucketConfig("origin"))
        await origin.put("a", b"1")
        mirror = await create_bucket(js, BucketConfig("copy", mirror=StreamSource("origin")))
        both = await create_bucket(js, BucketConfig("both", sources=[StreamSource("origin")]))
        mirror = await open_bucket(js, "copy")
        assert await mirror.put("b", b"2") == 2
        for bucket in (mirror, both):
            with trio.fail_after(PATIENCE_S):
                while (await bucket.status()).value_count < 2:  # noqa: ASYNC110 - it happens in the server
                    await trio.sleep(0.02)
            assert (await bucket.get("b")).value == b"2"
            assert await bucket.keys() == ["a", "b"]
        status = await both.status()
        assert [source.name for source in status.config.sources] == ["origin"]
        assert (mirror_config := (await mirror.status()).config).mirror is not None
        assert mirror_config.mirror.name == "origin"


async def test_republishing(server: Target) -> None:
    """What is put is published again where the bucket says."""
    async with fresh(server) as js:
        kv = await create_bucket(js, BucketConfig("b", republish=Republish(">", "copies.>")))
        copies = js.client.subscribe("copies.>")
        await kv.put("a", b"1")
        copy = await copies.next_message(PATIENCE_S)
        assert (copy.subject, copy.data) == ("copies.$KV.b.a", b"1")


def test_operations_by_header() -> None:
    """Marks of the server and of other clients are read as what they mean."""
    from tnats.client.kv.entry import operation_of

    assert operation_of({"Nats-Marker-Reason": ["Remove"]}) is Operation.DELETE
    assert operation_of({"Nats-Marker-Reason": ["MaxAge"]}) is Operation.PURGE
    assert operation_of({"KV-Operation": ["DEL"]}) is Operation.DELETE
    assert operation_of({"Other": ["x"]}) is Operation.PUT


async def test_a_domain_is_reached_by_its_name(hub: Target) -> None:
    """Buckets, objects and streams of the domain `hub`; another domain is told to be nowhere."""
    async with connect(hub.url) as client:
        js = JetStream(client, domain="hub", timeout_s=PATIENCE_S)
        kv = await create_bucket(js, BucketConfig("b"))
        assert await kv.put("a", b"1") == 1
        assert await kv.update("a", b"2", 1) == 2
        assert (await kv.get("a")).value == b"2"
        assert await kv.keys() == ["a"]
        await delete_bucket(js, "b")
        with pytest.raises(NoResponders):
            await js.publish("$JS.hub.API.$KV.b.a", b"3", retries=0)
        store = await create_store(js, StoreConfig("o"))
        await store.put("x", bytes(1000))
        assert await store.get_bytes("x") == bytes(1000)
        stream = await js.create_stream(StreamConfig("S", subjects=["s"]))
        assert (await js.publish("s", b"1")).domain == "hub"
        consumer = await stream.create_consumer(ConsumerConfig(ack_policy=AckPolicy.EXPLICIT))
        await (await consumer.next()).ack_sync()
        with pytest.raises(JetStreamUnavailable):
            await JetStream(client, domain="nowhere").account_info()
