"""Reading an object: a stream of bytes whose digest is checked at its end."""

from __future__ import annotations

from types import TracebackType

import trio

from tnats.client.jetstream.ordered import OrderedMessages
from tnats.client.object_store.info import Digest, ObjectDamaged, ObjectInfo


class ObjectReader(trio.abc.ReceiveStream):
    """Made by `ObjectStore.get`: `async with store.get(name) as reader: async for data in reader`.

    The pieces come in the sizes in which they were put. The end, an empty one, comes only when everything was there
    and the digest is right; otherwise ObjectDamaged is raised instead.
    """

    def __init__(self, info: ObjectInfo, chunks: OrderedMessages) -> None:
        self.info = info
        self._chunks = chunks
        self._digest = Digest()
        self._chunk_count = 0
        self._byte_count = 0
        self._rest = b""

    async def __aenter__(self) -> ObjectReader:
        if self.info.chunks:
            await self._chunks.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.info.chunks:
            await self._chunks.__aexit__(exc_type, exc, trace)

    async def aclose(self) -> None:
        """As leaving the block."""
        await self.__aexit__(None, None, None)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next piece, at most `max_bytes` of it; empty at the end. Raises ObjectDamaged."""
        if not self._rest:
            if self._chunk_count == self.info.chunks:
                self._check()
                return b""
            self._rest = await self._next_chunk()
        if max_bytes is None or len(self._rest) <= max_bytes:
            data, self._rest = self._rest, b""
        else:
            data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def _next_chunk(self) -> bytes:
        message = await self._chunks.next_present()
        if message is None:
            raise self._damaged(f"only {self._chunk_count} of its {self.info.chunks} chunks are there")
        self._chunk_count += 1
        self._byte_count += len(message.data)
        self._digest.update(message.data)
        return message.data

    def _check(self) -> None:
        if self._byte_count != self.info.size:
            raise self._damaged(f"it has {self._byte_count} bytes, its record says {self.info.size}")
        if self.info.digest and self._digest.text() != self.info.digest:
            raise self._damaged(f"its digest is {self._digest.text()}, its record says {self.info.digest}")

    def _damaged(self, what: str) -> ObjectDamaged:
        return ObjectDamaged(f"object {self.info.name!r} of store {self.info.bucket!r}: {what}")
