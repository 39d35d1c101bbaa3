"""What `tnats.client.object_store` must be able to do with any NATS server.

See `jetstream_client_scenes` for how it is run.
"""

from __future__ import annotations

import hashlib
import random
from base64 import urlsafe_b64encode

import pytest
import trio
import trio.testing
from tests.live.jetstream_client_scenes import Target, fresh

from tnats.client import ClientError
from tnats.client.jetstream import ApiError, BucketNotFound
from tnats.client.object_store import (
    ObjectDamaged,
    ObjectExists,
    ObjectInfo,
    ObjectMeta,
    ObjectNotFound,
    StoreConfig,
    create_store,
    delete_store,
    open_store,
    store_names,
)

CONTENT = random.Random(1).randbytes(700_001)


async def test_stores_are_made_found_and_removed(server: Target) -> None:
    """A store keeps its settings, is found by name, and is gone after its removal."""
    async with fresh(server) as js:
        await create_store(js, StoreConfig("files", description="d", ttl_s=3600, bytes_max=1_000_000))
        status = await (await open_store(js, "files")).status()
        assert (status.config.description, status.config.ttl_s, status.config.bytes_max) == ("d", 3600, 1_000_000)
        assert not status.is_sealed
        assert await store_names(js) == ["files"]
        await delete_store(js, "files")
        with pytest.raises(BucketNotFound):
            await open_store(js, "files")
        with pytest.raises(ClientError):
            await create_store(js, StoreConfig("a.b"))


@pytest.mark.parametrize("size", [0, 1, 1000, 1001, len(CONTENT)])
async def test_an_object_comes_back_as_it_was_put(server: Target, size: int) -> None:
    """Of any size, put whole or in pieces of other sizes than its chunks; the record counts and digests it."""
    data = CONTENT[:size]
    async with fresh(server) as js:
        store = await create_store(js, StoreConfig("files"))
        info = await store.put(ObjectMeta("a b/ü", "text", {"H": ["1", "2"]}, {"k": "v"}, chunk_bytes=1000), data)
        assert (info.size, info.chunks) == (size, -(-size // 1000))
        assert info.digest == "SHA-256=" + urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
        found = await store.info("a b/ü")
        assert (found.description, found.headers, found.metadata) == ("text", {"H": ["1", "2"]}, {"k": "v"})
        assert (found.nuid, found.digest, found.bucket) == (info.nuid, info.digest, "files")
        assert found.mtime_ns is not None
        assert abs(found.mtime_ns - (info.mtime_ns or 0)) < 10 * 10**9
        assert await store.get_bytes("a b/ü") == data
        sender, receiver = trio.testing.memory_stream_one_way_pair()
        async with trio.open_nursery() as nursery:

            async def feed() -> None:
                for start in range(0, size, 70_000):
                    await sender.send_all(data[start : start + 70_000])
                await sender.aclose()

            nursery.start_soon(feed)
            assert (await store.put("piped", receiver)).digest == info.digest
        async with store.get("piped") as reader:
            pieces = []
            while piece := await reader.receive_some(777):
                assert len(piece) <= 777
                pieces.append(piece)
        assert b"".join(pieces) == data


async def test_a_new_object_takes_the_place_of_the_old(server: Target) -> None:
    """Its chunks go, and so do those of an object whose putting failed or was cancelled."""
    async with fresh(server) as js:
        store = await create_store(js, StoreConfig("files"))
        await store.put("a", CONTENT)
        await store.put("a", b"new")
        assert await store.get_bytes("a") == b"new"
        stream = js.stream("OBJ_files")
        assert (await stream.info()).state.messages == 2
        sender, receiver = trio.testing.memory_stream_one_way_pair()
        await sender.send_all(CONTENT[:300_000])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.put, "a", receiver)
            while (await stream.info()).state.messages < 2 + 300_000 // (128 * 1024):
                pass
            nursery.cancel_scope.cancel()
        with pytest.raises(ClientError):
            await store.put(ObjectMeta("a", chunk_bytes=10_000_000), b"")
        assert (await stream.info()).state.messages == 2
        assert await store.get_bytes("a") == b"new"


async def test_listing_watching_and_removing(server: Target) -> None:
    """A watch gives what there is, a None, and what changes; a removed object is listed only on demand."""

    def brief(info: ObjectInfo | None) -> tuple[str, bool] | None:
        return info and (info.name, info.deleted)

    async with fresh(server) as js:
        store = await create_store(js, StoreConfig("files"))
        assert await store.list() == []
        for name in ("a", "b"):
            await store.put(name, b"1")
        async with store.watch() as infos, store.watch(updates_only=True, ignore_deletes=True) as updates:
            assert [brief(await anext(infos)) for _ in range(3)] == [("a", False), ("b", False), None]
            await store.delete("a")
            await store.put("c", b"3")
            assert [brief(await anext(infos)) for _ in range(2)] == [("a", True), ("c", False)]
            assert brief(await anext(updates)) == ("c", False)
        assert [brief(info) for info in await store.list()] == [("b", False), ("c", False)]
        assert len(await store.list(include_deleted=True)) == 3
        for call in (store.info("a"), store.get_bytes("a"), store.delete("a"), store.info("nix")):
            with pytest.raises(ObjectNotFound):
                await call
        assert (await store.info("a", include_deleted=True)).size == 0
        await store.put("a", b"again")
        assert await store.get_bytes("a") == b"again"


async def test_links(server: Target) -> None:
    """A link leads to an object of its own store or another one; one to a store is not read."""
    async with fresh(server) as js:
        store, other = await create_store(js, StoreConfig("files")), await create_store(js, StoreConfig("other"))
        target = await other.put("target", CONTENT[:1000])
        link = await store.add_link("link", target)
        assert link.link is not None
        assert await store.get_bytes("link") == CONTENT[:1000]
        await store.add_link("link", await other.put("second", b"2"))
        assert await store.get_bytes("link") == b"2"
        await store.add_store_link("whole", "other")
        with pytest.raises(ClientError, match="other"):
            await store.get_bytes("whole")
        await store.put("plain", b"1")
        with pytest.raises(ObjectExists):
            await store.add_link("plain", target)
        with pytest.raises(ClientError):
            await store.add_link("double", await store.info("link"))


async def test_renaming_and_sealing(server: Target) -> None:
    """The content stays with the new name, a taken name is refused; a sealed store takes nothing more."""
    async with fresh(server) as js:
        store = await create_store(js, StoreConfig("files"))
        await store.put("a", b"content")
        await store.put("b", b"other")
        await store.update_meta("a", ObjectMeta("c", "renamed"))
        assert (await store.info("c")).description == "renamed"
        assert await store.get_bytes("c") == b"content"
        with pytest.raises(ObjectNotFound):
            await store.info("a")
        with pytest.raises(ObjectExists):
            await store.update_meta("c", ObjectMeta("b"))
        await store.seal()
        assert (await store.status()).is_sealed
        with pytest.raises(ApiError):
            await store.put("d", b"")
        assert await store.get_bytes("c") == b"content"


async def test_damage_shows(server: Target) -> None:
    """A missing chunk, and one whose bytes are others, are told and not handed out as the object's end."""
    async with fresh(server) as js:
        store = await create_store(js, StoreConfig("files"))
        stream = js.stream("OBJ_files")
        await store.put(ObjectMeta("a", chunk_bytes=10), bytes(50))
        await stream.delete_message(3)
        with pytest.raises(ObjectDamaged, match="4 of its 5"):
            await store.get_bytes("a")
        info = await store.put("b", b"good")
        await stream.purge(subject=f"$O.files.C.{info.nuid}")
        await js.publish(f"$O.files.C.{info.nuid}", b"evil")
        with pytest.raises(ObjectDamaged, match="digest"):
            await store.get_bytes("b")
