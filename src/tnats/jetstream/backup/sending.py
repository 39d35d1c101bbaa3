"""Sending a backup: an archive of version 2 of one stream, in chunks, at the pace of who receives it.

Each full chunk has a reply subject, `$JS.SNAPSHOT.ACK.<stream>.<id>.<size>.<number>`; an answer there, whatever it
holds, lets so many more bytes follow. An empty message with a status ends it: 204 when all was sent, 408 when nobody
listens or answers, 500 when the stream could not be read. A message that is found damaged ends the backup: it would be
found out at the restore only. What is known to be lost stands in the state that the client is told, and is left out.

What is sent are the messages up to the last one at the start. What is removed meanwhile may be missing, and consumers
stand where they are when their turn comes, at the start or a little later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from tnats.errors import TnatsError
from tnats.jetstream.api.advisories import snapshot_completed, snapshot_created
from tnats.jetstream.api.messages import JSApiStreamSnapshotRequest, StreamState
from tnats.jetstream.backup import archive, s2
from tnats.jetstream.consumer.effects import status_block
from tnats.jetstream.host import Host
from tnats.jetstream.stream.ports import Inbound
from tnats.limits import (
    BACKUP_CHUNK_BYTES,
    BACKUP_CHUNK_BYTES_MAX,
    BACKUP_CHUNK_BYTES_MIN,
    BACKUP_INTEREST_NS_MAX,
    BACKUP_STALL_NS_MAX,
    BACKUP_WINDOW_BYTES,
    BACKUP_WINDOW_BYTES_MAX,
    BACKUP_WINDOW_BYTES_MIN,
    MIB,
)
from tnats.subjects.tokens import to_bytes

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService

READ_MSGS_MAX = 256
READ_BYTES_MAX = MIB
"""Messages that are read at a time, and their bytes."""

LOOK_NS = 50_000_000
"""Time between two looks for somebody who listens."""


class _GivenUp(Exception):
    """The other side is not there; the text is the status."""


class BackupSender:
    """One backup under way."""

    def __init__(
        self, host: Host, stream: StreamService, wanted: JSApiStreamSnapshotRequest, state: StreamState
    ) -> None:
        """`state`: what the stream holds, as the client was told."""
        self._host = host
        self._stream = stream
        self._with_consumers = not wanted.no_consumers
        self._state = state
        self._deliver = to_bytes(wanted.deliver_subject)
        self._chunk_bytes = _within(
            wanted.chunk_size, BACKUP_CHUNK_BYTES, BACKUP_CHUNK_BYTES_MIN, BACKUP_CHUNK_BYTES_MAX
        )
        self._window_bytes = _within(
            wanted.window_size, BACKUP_WINDOW_BYTES, BACKUP_WINDOW_BYTES_MIN, BACKUP_WINDOW_BYTES_MAX
        )
        self._compressor = s2.Writer()
        self._ready = bytearray()
        self._outstanding_bytes = 0
        self._chunk_count = 0
        self._answered = trio.Event()
        self._client = stream.account.bus.client(f"backup of {stream.name}", self._on_answers)
        self._reply_prefix = f"$JS.SNAPSHOT.ACK.{stream.name}.{host.nuid.next()}".encode()

    async def run(self) -> None:
        """Send it, and say how it ended."""
        stream, host = self._stream, self._host
        start_ns = host.wall_ns()
        account, domain = stream.account, host.options.domain
        account.advise([snapshot_created(account.name, stream.name, self._state, domain)])
        self._client.subscribe(self._reply_prefix + b".*.*")
        status = "500 the server has stopped it"
        try:
            await self._wait_for_subscriber()
            await self._send_all()
            status = "204"
        except _GivenUp as end:
            status = str(end)
        except TnatsError as failure:
            host.log.error(f"JetStream backup of stream '{stream.account.name} > {stream.name}' ended: {failure}")
            status = f"500 {failure}"
        finally:
            self._client.publish(self._deliver, b"", headers=status_block(status))
            self._client.close()
        error = None if status == "204" else status
        account.advise([snapshot_completed(account.name, stream.name, start_ns, host.wall_ns(), error, domain)])

    def _on_answers(self, batch: list[Inbound]) -> None:
        for message in batch:
            size = message.subject.rsplit(b".", 2)[1]
            if size.isdigit():
                self._outstanding_bytes = max(self._outstanding_bytes - int(size), 0)
        self._answered.set()
        self._answered = trio.Event()

    # ------------------------------------------------------------------ contents

    async def _send_all(self) -> None:
        stream, now_ns = self._stream, self._host.wall_ns()
        await self._put(archive.begin(self._state, now_ns))
        if self._with_consumers:
            for consumer in list(stream.consumers.values()):
                entry = archive.consumer(consumer.name, consumer.config, consumer.machine.state, now_ns)
                await self._put(entry)
        next_seq = 1
        while 0 < next_seq <= self._state.last_seq:
            messages, next_seq = await stream.store.load_some((), next_seq, READ_MSGS_MAX, READ_BYTES_MAX)
            for message in messages:
                if message[0] <= self._state.last_seq:
                    await self._put(archive.message(*message))
        await self._put(archive.end())
        self._ready += self._compressor.finish()
        while self._ready:
            await self._send_chunk()

    async def _put(self, entry: bytes) -> None:
        self._ready += self._compressor.write(entry)
        while len(self._ready) >= self._chunk_bytes:
            await self._send_chunk()

    # ------------------------------------------------------------------ chunks

    async def _send_chunk(self) -> None:
        chunk = bytes(self._ready[: self._chunk_bytes])
        del self._ready[: self._chunk_bytes]
        await self._wait_for_room()
        reply = b""
        if len(chunk) == self._chunk_bytes:
            self._chunk_count += 1
            self._outstanding_bytes += len(chunk)
            reply = b"%b.%d.%d" % (self._reply_prefix, len(chunk), self._chunk_count)
        if self._stream.account.streams.get(self._stream.name) is not self._stream:
            raise _GivenUp("500 the stream was deleted")
        if not self._client.publish(self._deliver, chunk, reply=reply):
            raise _GivenUp("408 No Interest")
        await trio.lowlevel.checkpoint()

    async def _wait_for_room(self) -> None:
        clock = self._host.runtime.clock
        while self._outstanding_bytes + self._chunk_bytes > self._window_bytes and self._outstanding_bytes:
            with clock.deadline(clock.mono_ns() + BACKUP_STALL_NS_MAX) as scope:
                await self._answered.wait()
            if scope.cancelled_caught:
                raise _GivenUp("408 No Flow Response")

    async def _wait_for_subscriber(self) -> None:
        # Clients subscribe when they have the answer, often to what a pattern of theirs matches already.
        clock = self._host.runtime.clock
        until_ns = clock.mono_ns() + BACKUP_INTEREST_NS_MAX
        while not self._stream.account.bus.is_subscribed(self._deliver):
            if clock.mono_ns() >= until_ns:
                raise _GivenUp("408 No Interest")
            await clock.sleep_ns(LOOK_NS)


def _within(value: int, default: int, low: int, high: int) -> int:
    """A wanted size, kept within bounds; none is wanted below 1."""
    return min(max(value, low), high) if value > 0 else default
