"""Backups of streams over the connection (JetStream wire API reference, "Stream snapshots").

The server sends the archive in chunks, a window of them ahead of our word that they were taken; a restore is the same
the other way round, one chunk at a time. What is in the archive is the server's business.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from types import TracebackType

import attrs

from tnats.client.errors import TimedOut
from tnats.client.jetstream.answers import answer_object, decode_object
from tnats.client.jetstream.api import Api
from tnats.client.jetstream.errors import JetStreamError
from tnats.client.options import nanoseconds
from tnats.client.subscription import Subscription
from tnats.jetstream.api.fields import Record, row
from tnats.jetstream.api.messages import (
    JSApiStreamSnapshotRequest,
    RestoreAnswer,
    SnapshotAnswer,
    StreamInfo,
    StreamState,
)
from tnats.jetstream.stream.config import StreamConfig
from tnats.records import define

END_STATUS = 204


@define
class RestoreRequest:
    """STREAM.RESTORE."""

    config: StreamConfig = row("config", Record(StreamConfig))
    state: StreamState = row("state", Record(StreamState))


class Snapshot:
    """The archive of a stream as it comes: made by `Stream.snapshot`.

    `async with stream.snapshot() as snapshot: async for chunk in snapshot`. `config` and `state` are the stream's,
    and are wanted again for the restore.
    """

    def __init__(self, api: Api, stream: str, request: JSApiStreamSnapshotRequest) -> None:
        self._api = api
        self._stream = stream
        self._request = request
        self._subscription: Subscription
        self.config: StreamConfig
        self.state: StreamState

    async def __aenter__(self) -> Snapshot:
        """Raises StreamNotFound, ApiError."""
        client = self._api.client
        request = attrs.evolve(self._request, deliver_subject=client.new_inbox())
        self._subscription = client.subscribe(request.deliver_subject)
        try:
            answer = await self._api.ask(f"STREAM.SNAPSHOT.{self._stream}", request, SnapshotAnswer)
        except BaseException:
            self._subscription.unsubscribe()
            raise
        if answer.config is None or answer.state is None:
            self._subscription.unsubscribe()
            raise JetStreamError(f"backup of stream {self._stream!r}: the server does not say what it sends")
        self.config, self.state = answer.config, answer.state
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._subscription.unsubscribe()

    def __aiter__(self) -> Snapshot:
        return self

    async def __anext__(self) -> bytes:
        """The next chunk. Raises JetStreamError when the server gives up, TimedOut when it falls silent."""
        clock = self._api.client.runtime.clock
        with clock.deadline(clock.mono_ns() + nanoseconds(self._api.timeout_s)) as scope:
            message = await self._subscription.next_message()
        if scope.cancelled_caught:
            raise TimedOut(f"backup of stream {self._stream!r}: the server fell silent")
        if message.data:
            if message.reply:
                await message.respond()
            return message.data
        if message.status not in (0, END_STATUS):
            raise JetStreamError(f"backup of stream {self._stream!r}: {message.status} {message.description}")
        raise StopAsyncIteration


async def restore(api: Api, config: StreamConfig, state: StreamState, chunks: AsyncIterable[bytes]) -> StreamInfo:
    """Make the stream `config.name` out of an archive. Raises NameInUse, ApiError, TimedOut."""
    call = f"STREAM.RESTORE.{config.name}"
    answer = await api.ask(call, RestoreRequest(config, state), RestoreAnswer)
    client, subject = api.client, answer.deliver_subject
    async for chunk in chunks:
        reply = await client.request(subject, chunk, timeout_s=api.timeout_s)
        if reply.data:
            answer_object(reply, call)
    reply = await client.request(subject, timeout_s=api.timeout_s)
    return decode_object(answer_object(reply, call), StreamInfo, reply)
