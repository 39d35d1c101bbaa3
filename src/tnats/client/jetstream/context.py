"""JetStream as seen from one client: publishing with acknowledgement, and the way to streams.

`JetStream(client)` costs nothing and asks the server nothing; several may stand side by side, one per domain. Streams
and consumers are handles made of names.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Unpack

from tnats.client.client import Client
from tnats.client.jetstream.answers import PubAck
from tnats.client.jetstream.api import Api
from tnats.client.jetstream.batch import AtomicBatch
from tnats.client.jetstream.fast_batch import FastBatch
from tnats.client.jetstream.publish import NO_RESPONDERS_RETRIES, Conditions, publish, with_conditions
from tnats.client.jetstream.publisher import Publisher
from tnats.client.jetstream.snapshot import restore
from tnats.client.jetstream.stream import Stream
from tnats.client.message import HeadersLike
from tnats.client.options import nanoseconds
from tnats.jetstream.api.messages import (
    AccountInfo,
    JSApiStreamNamesRequest,
    StreamInfo,
    StreamList,
    StreamNames,
    StreamState,
)
from tnats.jetstream.stream.config import StreamConfig


class JetStream:
    """JetStream of the client's account, or of another domain, or of another account through an import."""

    def __init__(self, client: Client, *, domain: str = "", api_prefix: str = "", timeout_s: float = 5.0) -> None:
        """`domain` is short for the API prefix `$JS.<domain>.API`. `timeout_s` bounds each request to the server."""
        self.api = Api(client, domain=domain, prefix=api_prefix, timeout_s=timeout_s)

    @property
    def client(self) -> Client:
        """The connection it uses."""
        return self.api.client

    async def account_info(self) -> AccountInfo:
        """What the account uses and may use. Raises JetStreamUnavailable, ApiError."""
        return await self.api.ask("INFO", None, AccountInfo)

    async def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        timeout_s: float | None = None,
        retries: int = NO_RESPONDERS_RETRIES,
        **conditions: Unpack[Conditions],
    ) -> PubAck:
        """Publish and wait until the stream has stored it.

        Conditions: `message_id` is remembered for the stream's duplicate window, publishing it again stores nothing;
        `ttl_s`, at least 1, or `math.inf` for never, is how long the message lives (ADR-43); what is expected and
        does not hold refuses the message: `expected_stream` its name, `expected_last_sequence` its last sequence,
        `expected_last_subject_sequence` the last sequence on this subject (or on `expected_last_subject`, with
        wildcards), `expected_last_message_id`.

        Raises WrongLastSequence and other ApiErrors (nothing was stored), NoResponders when no stream listens even
        after `retries` (nothing was stored), TimedOut and ConnectionLost (whether it was stored is unknown; publish
        again with the same `message_id`).
        """
        timeout_s = self.api.timeout_s if timeout_s is None else timeout_s
        merged = with_conditions(headers, conditions)
        return await publish(self.client, subject, data, merged, timeout_s, retries)

    def publisher(self, *, pending_count_max: int = 256, timeout_s: float | None = None) -> Publisher:
        """For throughput: publishes up to `pending_count_max` messages ahead of their acknowledgements."""
        return Publisher(
            self.client, pending_count_max, nanoseconds(self.api.timeout_s if timeout_s is None else timeout_s)
        )

    def atomic_batch(self) -> AtomicBatch:
        """A batch that is stored whole or not at all; the stream's configuration must say `allow_atomic` (ADR-50)."""
        return AtomicBatch(self.client, self.api.timeout_s)

    def fast_batch(self, *, step_count: int = 100, fails_on_gap: bool = True) -> FastBatch:
        """A batch at the pace of the server; the stream's configuration must say `allow_batched` (ADR-50).

        `step_count`: messages between two answers, as a wish; the server decides. A message that is lost on the way
        ends the batch, or with `fails_on_gap=False` is only counted.
        """
        return FastBatch(self.client, step_count, nanoseconds(self.api.timeout_s), fails_on_gap=fails_on_gap)

    # ---------------------------------------------------------------- streams

    def stream(self, name: str) -> Stream:
        """A handle; whether there is such a stream shows when it is used."""
        return Stream(self.api, name)

    async def create_stream(self, config: StreamConfig) -> Stream:
        """Make a stream; the same configuration once more is no error. Raises NameInUse, ApiError."""
        stream = Stream(self.api, config.name)
        await self.api.ask(f"STREAM.CREATE.{stream.name}", config, StreamInfo)
        return stream

    async def restore_stream(
        self, config: StreamConfig, state: StreamState, chunks: AsyncIterable[bytes]
    ) -> StreamInfo:
        """Make a stream out of what a `Snapshot` gave: its chunks, its state, and its configuration or a changed one.

        Raises NameInUse when there is a stream of this name, ApiError.
        """
        return await restore(self.api, config, state, chunks)

    async def stream_names(self, *, subject: str = "") -> list[str]:
        """The names of all streams, or of those that listen on subjects which overlap `subject`."""
        return await self.api.pages("STREAM.NAMES", JSApiStreamNamesRequest(subject=subject), StreamNames, "streams")

    async def stream_infos(self, *, subject: str = "") -> list[StreamInfo]:
        """All streams, or those that listen on subjects which overlap `subject`."""
        return await self.api.pages("STREAM.LIST", JSApiStreamNamesRequest(subject=subject), StreamList, "streams")
