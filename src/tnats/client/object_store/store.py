"""One object store: objects by name, each a record and its chunks in one stream (ADR-20)."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from tnats import limits
from tnats.client.errors import ClientError, NoResponders
from tnats.client.jetstream.delivery import Delivery
from tnats.client.jetstream.errors import ApiError, MessageNotFound
from tnats.client.jetstream.watch import Watch
from tnats.client.object_store.config import StoreConfig, from_stream, stream_name
from tnats.client.object_store.info import (
    Digest,
    ObjectExists,
    ObjectInfo,
    ObjectLink,
    ObjectMeta,
    ObjectNotFound,
    ObjectOptions,
    decode_info,
    encode_info,
    encode_name,
)
from tnats.client.object_store.reader import ObjectReader
from tnats.jetstream.api.messages import StreamInfo
from tnats.jetstream.consumer.config import ConsumerConfig, DeliverPolicy
from tnats.records import frozen

if TYPE_CHECKING:
    from tnats.client.jetstream.context import JetStream

ROLLUP = {"Nats-Rollup": "sub"}
"""A new record takes the place of the one before."""

Content = bytes | AsyncIterable[bytes]
"""What can be put: bytes, or pieces of any size, as a trio stream gives them."""


@frozen
class Status:
    """A store's settings and size."""

    config: StoreConfig
    bytes: int
    is_sealed: bool
    info: StreamInfo


class ObjectStore:
    """A store: made by `create_store` and `open_store`."""

    def __init__(self, js: JetStream, bucket: str) -> None:
        self._js = js
        self._stream = js.stream(stream_name(bucket))
        self.bucket = bucket

    def __repr__(self) -> str:
        return f"<ObjectStore {self.bucket!r}>"

    def _record_subject(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{encode_name(name)}"

    def _chunk_subject(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"

    # ---------------------------------------------------------------- putting

    async def put(self, what: str | ObjectMeta, content: Content) -> ObjectInfo:
        """Store an object under its name, in place of one that has it; readers see either the old or the new one.

        Raises what `JetStream.publish` raises. Then nothing of it is left, as far as the server can be reached; except
        where the last step, its record, was sent and not answered: then it is there whole or not at all.
        """
        meta = ObjectMeta(what) if isinstance(what, str) else what
        if not 0 < meta.chunk_bytes <= self._js.client.server_info.max_payload:
            raise ClientError(
                f"object {meta.name!r}: its chunks are to have {meta.chunk_bytes} bytes, the server's max_payload is "
                f"{self._js.client.server_info.max_payload}"
            )
        previous = await self._find(meta.name)
        info = ObjectInfo(
            meta.name,
            meta.description,
            meta.headers,
            meta.metadata,
            ObjectOptions(max_chunk_size=meta.chunk_bytes),
            self.bucket,
            self._js.client.new_id(),
        )
        try:
            await self._publish_chunks(info, content, meta.chunk_bytes)
        except BaseException:
            await self._clear_away(info)
            raise
        try:
            await self._publish_info(info)
        except (ApiError, NoResponders):  # anything else may come after the record is stored: then it needs its chunks
            await self._clear_away(info)
            raise
        if previous is not None and previous.nuid and not previous.deleted:
            await self._stream.purge(subject=self._chunk_subject(previous.nuid))
        return info

    async def _publish_chunks(self, info: ObjectInfo, content: Content, chunk_bytes: int) -> None:
        """Publish the content in pieces of `chunk_bytes`, and count it into `info`."""
        subject = self._chunk_subject(info.nuid)
        digest = Digest()
        window = max(limits.CLIENT_OBJECT_WINDOW_BYTES // chunk_bytes, 1)
        pieces = Pieces(content, chunk_bytes)
        async with self._js.publisher(pending_count_max=window) as publisher:
            while chunk := await pieces.next():
                digest.update(chunk)
                await publisher.publish(subject, chunk)
                info.size += len(chunk)
                info.chunks += 1
        info.digest = digest.text()

    async def _clear_away(self, info: ObjectInfo) -> None:
        """Remove the chunks of an object that did not get its record."""
        clock = self._js.client.runtime.clock
        with trio.CancelScope(shield=True), clock.deadline(clock.mono_ns() + limits.CLIENT_CLOSE_GRACE_NS):
            try:
                await self._stream.purge(subject=self._chunk_subject(info.nuid))
            except ClientError:
                pass

    async def _publish_info(self, info: ObjectInfo) -> None:
        await self._js.publish(self._record_subject(info.name), encode_info(info), headers=ROLLUP)
        info.mtime_ns = self._js.client.runtime.clock.wall_ns()

    async def add_link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """Make `name` stand for another object, of this store or another one. Raises ObjectExists, ClientError."""
        if target.deleted or target.link is not None:
            raise ClientError(f"object {target.name!r}: a link cannot lead to what is removed or a link itself")
        return await self._put_link(name, ObjectLink(target.bucket, target.name))

    async def add_store_link(self, name: str, store: str) -> ObjectInfo:
        """Make `name` stand for a whole store. Raises ObjectExists."""
        return await self._put_link(name, ObjectLink(store))

    async def _put_link(self, name: str, link: ObjectLink) -> ObjectInfo:
        present = await self._find(name)
        if present is not None and not present.deleted and present.link is None:
            raise ObjectExists(f"object store {self.bucket!r}: object {name!r} is there and no link")
        info = ObjectInfo(name, options=ObjectOptions(link), bucket=self.bucket, nuid=self._js.client.new_id())
        await self._publish_info(info)
        return info

    # ---------------------------------------------------------------- getting

    @asynccontextmanager
    async def get(self, name: str) -> AsyncIterator[ObjectReader]:
        """Read an object piece by piece; links are followed. Raises ObjectNotFound, ObjectDamaged."""
        info = await self.info(name)
        if info.link is None:
            config = ConsumerConfig(filter_subject=self._chunk_subject(info.nuid))
            window = max(limits.CLIENT_OBJECT_WINDOW_BYTES // max(info.size // max(info.chunks, 1), 1), 1)
            chunks = self._stream.ordered(config, count_max=min(window, limits.CLIENT_OBJECT_CHUNKS_AHEAD_MAX))
            async with ObjectReader(info, chunks) as reader:
                yield reader
            return
        if not info.link.name:
            raise ClientError(f"object {name!r} is a link to the object store {info.link.bucket!r}: open that")
        async with ObjectStore(self._js, info.link.bucket).get(info.link.name) as reader:
            yield reader

    async def get_bytes(self, name: str) -> bytes:
        """A whole object. Raises like `get`."""
        async with self.get(name) as reader:
            return b"".join([data async for data in reader])

    async def info(self, name: str, *, include_deleted: bool = False) -> ObjectInfo:
        """The record of an object. Raises ObjectNotFound."""
        info = await self._find(name)
        if info is None or (info.deleted and not include_deleted):
            raise ObjectNotFound(f"object store {self.bucket!r}: no object {name!r}")
        return info

    async def _find(self, name: str) -> ObjectInfo | None:
        try:
            message = await self._stream.direct_get(last_on=self._record_subject(name))
        except MessageNotFound:
            return None
        return decode_info(message.data, message.time_ns, self.bucket)

    async def list(self, *, include_deleted: bool = False) -> list[ObjectInfo]:
        """The records of all objects, in the order in which they were changed last."""
        async with self.watch(ignore_deletes=not include_deleted) as infos:
            return await infos.present()

    def watch(
        self, *, include_history: bool = False, ignore_deletes: bool = False, updates_only: bool = False
    ) -> Watch[ObjectInfo]:
        """The records there are, and then those that change: see `Watch`."""
        policy = DeliverPolicy.LAST_PER_SUBJECT
        if updates_only:
            policy = DeliverPolicy.NEW
        elif include_history:
            policy = DeliverPolicy.ALL
        config = ConsumerConfig(deliver_policy=policy, filter_subject=f"$O.{self.bucket}.M.>")

        def convert(message: Delivery) -> ObjectInfo | None:
            info = decode_info(message.data, message.metadata.time_ns, self.bucket)
            return None if info.deleted and ignore_deletes else info

        return Watch(self._stream.ordered(config), convert, tells_caught_up=not updates_only)

    # ---------------------------------------------------------------- changing

    async def update_meta(self, name: str, meta: ObjectMeta) -> ObjectInfo:
        """Change what is said of an object, its name too; the content stays. Raises ObjectNotFound, ObjectExists."""
        info = await self.info(name)
        if meta.name != name:
            present = await self._find(meta.name)
            if present is not None and not present.deleted:
                raise ObjectExists(f"object store {self.bucket!r}: object {meta.name!r} is there already")
        info.name, info.description = meta.name, meta.description
        info.headers, info.metadata = meta.headers, meta.metadata
        await self._publish_info(info)
        if meta.name != name:
            await self._stream.purge(subject=self._record_subject(name))
        return info

    async def delete(self, name: str) -> None:
        """Remove an object; a record that says so stays. Raises ObjectNotFound."""
        info = await self.info(name)
        info.deleted, info.size, info.chunks, info.digest = True, 0, 0, ""
        await self._publish_info(info)
        await self._stream.purge(subject=self._chunk_subject(info.nuid))

    # ---------------------------------------------------------------- administration

    async def seal(self) -> None:
        """Make the store read-only, for good."""
        await self._stream.seal()

    async def status(self) -> Status:
        """Settings and size."""
        info = await self._stream.info()
        return Status(from_stream(info.config), info.state.bytes, info.config.sealed, info)


class Pieces:
    """Content cut anew into pieces of one size; the last one may be smaller."""

    def __init__(self, content: Content, size: int) -> None:
        self._size = size
        self._buffer = bytearray()
        self._rest = memoryview(content) if isinstance(content, bytes) else None
        self._parts = None if isinstance(content, bytes) else aiter(content)

    async def next(self) -> bytes:
        """The next piece; empty at the end."""
        if self._rest is not None:
            piece, self._rest = bytes(self._rest[: self._size]), self._rest[self._size :]
            return piece
        while self._parts is not None and len(self._buffer) < self._size:
            part = await anext(self._parts, None)
            if part is None:
                self._parts = None
            else:
                self._buffer += part
        piece = bytes(self._buffer[: self._size])
        del self._buffer[: self._size]
        return piece
