"""One stream: its administration, reading single messages, and its consumers."""

from __future__ import annotations

import attrs

from tnats.client.client import Client
from tnats.client.jetstream.api import Api
from tnats.client.jetstream.consumer import HEARTBEAT_S_MAX, Consumer
from tnats.client.jetstream.delivery import StoredMessage, from_answer, from_direct
from tnats.client.jetstream.ordered import OrderedMessages, create_consumer
from tnats.client.jetstream.snapshot import Snapshot
from tnats.client.options import nanoseconds
from tnats.jetstream.api.messages import (
    ConsumerInfo,
    ConsumerList,
    ConsumerNames,
    JSApiConsumersRequest,
    JSApiMsgDeleteRequest,
    JSApiMsgGetRequest,
    JSApiStreamInfoRequest,
    JSApiStreamPurgeRequest,
    JSApiStreamSnapshotRequest,
    MsgGetAnswer,
    StreamInfo,
    StreamPurged,
    Success,
)
from tnats.jetstream.consumer.config import Action, ConsumerConfig
from tnats.jetstream.consumer.requests import PullBody
from tnats.jetstream.stream.config import StreamConfig


class Stream:
    """A handle on a stream, made of its name: whether it exists shows when it is used."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self.name = name

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    @property
    def client(self) -> Client:
        """The connection it is used over."""
        return self._api.client

    # ---------------------------------------------------------------- administration

    async def info(self, *, subjects_filter: str = "", deleted_details: bool = False) -> StreamInfo:
        """Configuration and state; with `subjects_filter` the message count of each matching subject.

        Raises StreamNotFound.
        """
        request = JSApiStreamInfoRequest(deleted_details=deleted_details, subjects_filter=subjects_filter)
        return await self._api.ask(f"STREAM.INFO.{self.name}", request, StreamInfo)

    async def update(self, config: StreamConfig) -> StreamInfo:
        """Change it to this configuration. Raises StreamNotFound, ApiError."""
        return await self._api.ask(f"STREAM.UPDATE.{self.name}", config, StreamInfo)

    async def delete(self) -> None:
        """Remove it with all its messages and consumers. Raises StreamNotFound."""
        await self._api.ask(f"STREAM.DELETE.{self.name}", None, Success)

    async def purge(self, *, subject: str = "", below_sequence: int = 0, keep: int = 0) -> int:
        """Remove messages: on `subject`, before `below_sequence`, or all but the newest `keep`; returns how many."""
        request = JSApiStreamPurgeRequest(seq=below_sequence, keep=keep, filter=subject)
        return (await self._api.ask(f"STREAM.PURGE.{self.name}", request, StreamPurged)).purged

    def snapshot(
        self, *, consumers: bool = True, check: bool = False, chunk_bytes: int = 0, window_bytes: int = 0
    ) -> Snapshot:
        """A backup of it, in chunks: see `Snapshot`. `check` lets the server look for damage first."""
        request = JSApiStreamSnapshotRequest(
            no_consumers=not consumers, chunk_size=chunk_bytes, window_size=window_bytes, jsck=check
        )
        return Snapshot(self._api, self.name, request)

    # ---------------------------------------------------------------- single messages

    async def get(
        self, sequence: int = 0, *, last_on: str = "", next_on: str = "", from_time_ns: int | None = None
    ) -> StoredMessage:
        """One message, from the stream's leader: what was acknowledged before is seen.

        By its sequence; the last one on the subject `last_on`; or the first one on `next_on`, which may hold
        wildcards, from `sequence` or `from_time_ns` on. Raises MessageNotFound, StreamNotFound.
        """
        request = JSApiMsgGetRequest(sequence, last_on, next_on, start_time_ns=from_time_ns)
        return from_answer((await self._api.ask(f"STREAM.MSG.GET.{self.name}", request, MsgGetAnswer)).message)

    async def direct_get(
        self, sequence: int = 0, *, last_on: str = "", next_on: str = "", from_time_ns: int | None = None
    ) -> StoredMessage:
        """As `get`, from any replica or mirror, faster but perhaps a little behind (ADR-31).

        The stream's configuration must say `allow_direct`, otherwise nobody answers: JetStreamUnavailable.
        """
        request = JSApiMsgGetRequest(sequence, last_on, next_on, start_time_ns=from_time_ns)
        return from_direct(await self._api.exchange(f"DIRECT.GET.{self.name}", request))

    async def delete_message(self, sequence: int, *, erase: bool = True) -> None:
        """Remove one message; with `erase` its bytes are overwritten too. Raises ApiError when there is none."""
        request = JSApiMsgDeleteRequest(sequence, no_erase=not erase)
        await self._api.ask(f"STREAM.MSG.DELETE.{self.name}", request, Success)

    # ---------------------------------------------------------------- consumers

    def consumer(self, name: str) -> Consumer:
        """A handle; whether there is such a consumer shows when it is used."""
        return Consumer(self._api, self.name, name)

    async def create_consumer(self, config: ConsumerConfig, *, action: Action = Action.CREATE_OR_UPDATE) -> Consumer:
        """Make a consumer, or change it to this configuration; `action` can rule out one of both.

        Without a name it gets a unique one. Raises NameInUse, ConsumerNotFound, ApiError.
        """
        if not (config.durable_name or config.name):
            config = attrs.evolve(config, name=self.client.new_id())
        await create_consumer(self._api, self.name, config, action)
        return Consumer(self._api, self.name, config.durable_name or config.name)

    async def consumer_names(self) -> list[str]:
        """The names of all its consumers."""
        return await self._api.pages(f"CONSUMER.NAMES.{self.name}", JSApiConsumersRequest(), ConsumerNames, "consumers")

    async def consumer_infos(self) -> list[ConsumerInfo]:
        """All its consumers."""
        return await self._api.pages(f"CONSUMER.LIST.{self.name}", JSApiConsumersRequest(), ConsumerList, "consumers")

    def ordered(
        self, config: ConsumerConfig | None = None, *, count_max: int = 500, expires_s: float = 30.0
    ) -> OrderedMessages:
        """Its messages in order, as `config` says where to begin and which subjects: see `OrderedMessages`."""
        body = PullBody(
            batch=count_max,
            expires_ns=nanoseconds(expires_s),
            idle_heartbeat_ns=nanoseconds(min(expires_s / 2, HEARTBEAT_S_MAX)),
        )
        return OrderedMessages(self._api, self.name, config or ConsumerConfig(), body)
