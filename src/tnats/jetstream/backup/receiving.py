"""Receiving a backup: a restore, from the first chunk to the stream that is there, or to nothing.

Theory of operation
-------------------
Chunks come to a subject of this restore's own and are answered one by one, when their messages are in the new
stream's store. That stream has a log and files like any other, and nobody sees it: the catalogue does not name it. A
restore that fails takes them away again; after a crash the next start does, as with any log that the catalogue does not
name. When the archive is complete, one entry of the catalogue makes the stream and all its consumers exist.

A chunk is decompressed and taken apart off the reactor, its messages are stored by it.

*Bounds.* What has come and is not stored; messages that are not in their files yet; time without a chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import attrs
import trio

from tnats.errors import TnatsError
from tnats.jetstream.api import errors
from tnats.jetstream.api.advisories import restore_completed, restore_created
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.backup import s2
from tnats.jetstream.backup.archive import MAGIC, ArchiveReader
from tnats.jetstream.backup.contents import (
    ArchivedConsumer,
    ArchivedMessage,
    BadArchive,
    Bounds,
    Item,
    Removal,
)
from tnats.jetstream.backup.directory import DirectoryReader
from tnats.jetstream.consumer.state import ConsumerState
from tnats.jetstream.host import Host
from tnats.jetstream.meta.catalogue import StreamRecord, encode_config
from tnats.jetstream.store import IndexedStore
from tnats.jetstream.stream.config import StreamConfig
from tnats.jetstream.stream.entries import Configure, Remove
from tnats.jetstream.stream.open import open_stream
from tnats.jetstream.stream.ports import Inbound
from tnats.jetstream.stream.service import StreamService
from tnats.limits import (
    BACKUP_STALL_NS_MAX,
    MESSAGE_HEADERS_BYTES_MAX,
    RESTORE_CONSUMERS_MAX,
    RESTORE_UNWRITTEN_BYTES_MAX,
    RESTORE_WAITING_BYTES_MAX,
    STREAM_SEQUENCE_MAX,
)
from tnats.records import define
from tnats.storage.errors import StoreFull
from tnats.subjects.tokens import is_valid_literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tnats.jetstream.account import AccountService

TIME_NS_MAX = 2**63 - 1
ITEMS_PER_STEP = 512
"""Items that are taken apart, and then stored, in one go."""
CHUNK_COST_BYTES = 300
"""Memory that a chunk which waits takes beside its bytes."""


class _Stalled(Exception):
    """No chunk came for too long."""


class Unpacker:
    """From chunks to items: decompression, and the form of the archive."""

    def __init__(self) -> None:
        self._decompressor = s2.Reader()
        self._reader: ArchiveReader | DirectoryReader | None = None
        self._head = b""

    def feed(self, chunk: bytes) -> Iterator[list[Item]]:
        """The items that are complete with `chunk`, a few at a time. Raises BadArchive."""
        try:
            for block in self._decompressor.feed(chunk):
                items = self._take_apart(block)
                while some := list(islice(items, ITEMS_PER_STEP)):
                    yield some
        except s2.CorruptInput as error:
            raise BadArchive(f"corrupt input: {error}") from None

    def _take_apart(self, plain: bytes) -> Iterator[Item]:
        plain = self._head + plain
        if self._reader is None:
            if len(plain) < len(MAGIC):
                self._head = plain
                return iter(())
            self._head = b""
            self._reader = ArchiveReader() if plain.startswith(MAGIC) else DirectoryReader()
        return self._reader.feed(plain)

    def finish(self) -> None:
        """Nothing more comes. Raises BadArchive."""
        if self._reader is None or not self._reader.is_complete or not self._decompressor.is_complete:
            raise BadArchive("the archive ends too early")


class Filler:
    """Puts the items of an archive into a new stream."""

    def __init__(self, stream: StreamService) -> None:
        self.stream = stream
        self.consumers: dict[str, ArchivedConsumer] = {}
        self._bounds: Bounds | None = None

    @property
    def _store(self) -> IndexedStore:
        return self.stream.store

    def put(self, item: Item) -> None:
        """Raises BadArchive."""
        if isinstance(item, ArchivedMessage):
            self._put_message(item)
        elif isinstance(item, Removal):
            self.stream.machine.apply(Remove((item.seq,)))
        elif isinstance(item, ArchivedConsumer):
            if item.name in self.consumers:
                raise BadArchive(f"consumer {item.name!r} stands there twice")
            if len(self.consumers) >= RESTORE_CONSUMERS_MAX:
                raise BadArchive(f"more than {RESTORE_CONSUMERS_MAX} consumers")
            self.consumers[item.name] = item
        else:
            if item.last_seq > STREAM_SEQUENCE_MAX or item.first_seq > item.last_seq + 1:
                raise BadArchive("the stream's state holds impossible sequences")
            self._bounds = item

    def _put_message(self, item: ArchivedMessage) -> None:
        store, bounds = self._store, self._bounds
        if not store.last_seq and bounds is not None:
            store.remove_before(bounds.first_seq)
        last = bounds.last_seq if bounds is not None else STREAM_SEQUENCE_MAX
        if not store.last_seq < item.seq <= last:
            raise BadArchive(f"message {item.seq} does not follow on {store.last_seq}")
        if not is_valid_literal(item.subject) or not 0 <= item.time_ns <= TIME_NS_MAX:
            raise BadArchive(f"message {item.seq} has no valid subject or time")
        if item.headers and (len(item.headers) > MESSAGE_HEADERS_BYTES_MAX or not _is_header_block(item.headers)):
            raise BadArchive(f"message {item.seq} has no valid headers")
        if item.seq > store.last_seq + 1:
            store.skip_to(item.seq, item.time_ns)
        content = (item.subject, item.headers, item.payload)
        store.append(item.seq, item.time_ns, *content)
        self.stream.machine.observe(item.seq, item.time_ns, content)

    def finish(self) -> None:
        """Everything was put: count the sequences that had no message as used."""
        store, bounds = self._store, self._bounds
        if bounds is not None:
            if bounds.first_seq > store.first_seq:
                store.remove_before(bounds.first_seq)
            if bounds.last_seq > store.last_seq:
                store.skip_to(bounds.last_seq + 1, bounds.last_time_ns)

    def states(self) -> dict[str, ConsumerState]:
        """Where the consumers stand in the stream as it is now."""
        return {name: self._fitted(consumer.state) for name, consumer in self.consumers.items()}

    def _fitted(self, state: ConsumerState) -> ConsumerState:
        last = self._store.last_seq
        if state.delivered_stream_seq > last:  # it had gone on when its turn came
            state.delivered_stream_seq = last
            state.floor_stream_seq = min(state.floor_stream_seq, last)
        for seq in [*state.pending.seqs(), *state.held]:
            if self._store.subject_of(seq) is None:
                state.skip(seq)
        return state


def _is_header_block(block: bytes) -> bool:
    return block.startswith(b"NATS/1.0") and block.endswith(b"\r\n\r\n")


@define
class _Chunk:
    data: bytes
    reply: bytes

    @property
    def cost_bytes(self) -> int:
        return len(self.data) + CHUNK_COST_BYTES


class Restore:
    """One restore under way. `run` answers everything."""

    def __init__(
        self,
        host: Host,
        account: AccountService,
        config: StreamConfig,
        answer: Callable[[StreamService | None, ApiError | None], bytes],
    ) -> None:
        """`config` is checked. `answer` makes the last answer, of the stream that is there or of what went wrong."""
        self._host = host
        self._account = account
        self._config = config
        self._answer = answer
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{host.nuid.next()}"
        self._chunks: deque[_Chunk] = deque()
        self._waiting_bytes = 0
        self._has_too_much = False
        self._came = trio.Event()
        self._received_bytes = 0
        self._client = account.bus.client(f"restore of {config.name}", self._deliver)
        self._client.subscribe(self.subject.encode())

    def _deliver(self, batch: list[Inbound]) -> None:
        for message in batch:
            chunk = _Chunk(bytes(message.data[message.header_size :]), message.reply)
            if self._waiting_bytes + chunk.cost_bytes > RESTORE_WAITING_BYTES_MAX:
                self._has_too_much = True
                continue
            self._waiting_bytes += chunk.cost_bytes
            self._chunks.append(chunk)
        self._came.set()

    async def _next_chunk(self) -> _Chunk:
        clock = self._host.runtime.clock
        if not self._chunks:
            self._came = trio.Event()
            with clock.deadline(clock.mono_ns() + BACKUP_STALL_NS_MAX) as scope:
                await self._came.wait()
            if scope.cancelled_caught:
                raise _Stalled
        if self._has_too_much:
            raise BadArchive("chunks came faster than they were confirmed")
        chunk = self._chunks.popleft()
        self._waiting_bytes -= chunk.cost_bytes
        self._received_bytes += len(chunk.data)
        return chunk

    async def run(self) -> None:
        """From the first chunk to the end."""
        host, account, name = self._host, self._account, self._config.name
        start_ns = host.wall_ns()
        domain = host.options.domain
        account.advise([restore_created(account.name, name, domain)])
        host.log.info(f"Starting restore for stream '{account.name} > {name}'")
        try:
            await self._receive()
        finally:
            self._client.close()
        end_ns = host.wall_ns()
        account.advise([restore_completed(account.name, name, start_ns, end_ns, self._received_bytes, domain)])

    async def _receive(self) -> None:
        host, account = self._host, self._account
        record = StreamRecord(account.name, host.catalogue.next_number(), host.wall_ns(), attrs.evolve(self._config))
        record.config.first_seq = 0  # the archive tells where it begins
        stream: StreamService | None = None
        error: ApiError | None = None
        last: _Chunk | None = None
        try:
            last = await self._next_chunk()
            stream = await open_stream(host, account, record)
            await self._make_known(stream)
            filler = Filler(stream)
            unpacker = Unpacker()
            while last.data:
                steps = unpacker.feed(last.data)
                while (items := await host.runtime.processor.offload(partial(next, steps, None))) is not None:
                    await self._store(filler, items)
                if last.reply:
                    self._client.publish(last.reply, b"")
                last = await self._next_chunk()
            unpacker.finish()
            filler.finish()
            record.config = self._config
            stream.machine.apply(Configure(encode_config(self._config)))
            stream.leader.reset()
            error = await account.adopt_stream(stream, list(filler.consumers.values()), filler.states())
        except BadArchive as bad:
            error = errors.STREAM_RESTORE(err=str(bad))
        except TnatsError as failure:
            error = errors.STREAM_RESTORE(err=str(failure))
        except _Stalled:
            error = errors.STREAM_RESTORE(err="no chunk came for too long")
            last = None
        finally:
            if stream is not None and account.streams.get(record.name) is not stream:
                host.spawn(account.discard_stream, stream)  # may have to wait; at the end of the server a start does it
        if error is not None:
            host.log.warn(f"JetStream restore of stream '{account.name} > {record.name}': {error.description}")
        if last is not None and last.reply:
            self._client.publish(last.reply, self._answer(stream if error is None else None, error))

    async def _make_known(self, stream: StreamService) -> None:
        """Let the journal know of the stream before it has files, so that a start can tell what they are. Raises
        StorageError.
        """
        clock = self._host.runtime.clock
        with clock.deadline(clock.mono_ns() + BACKUP_STALL_NS_MAX) as scope:
            await stream.checkpoint(anyway=True)
            await self._host.store.journal.flush()
        if scope.cancelled_caught:
            raise StoreFull("the store takes no writes")

    async def _store(self, filler: Filler, items: list[Item]) -> None:
        """Raises BadArchive, StorageError."""
        for item in items:
            filler.put(item)
        error = self._host.refusal(self._account, self._config)
        if error is not None:
            raise StoreFull(error.description)
        log = filler.stream.store.log
        if log.unwritten_bytes > RESTORE_UNWRITTEN_BYTES_MAX:
            await log.write()
        if log.trouble is not None:
            raise log.trouble
