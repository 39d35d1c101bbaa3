"""One stream: its administration, reading single messages, and its consumers."""

from __future__ import annotations

import attrs

from tnats.client.client import Client
from tnats.client.errors import TimedOut
from tnats.client.jetstream.api import Api, checked_name, encode_request
from tnats.client.jetstream.consumer import Consumer, heartbeat_ns
from tnats.client.jetstream.delivery import NOT_FOUND_STATUS, StoredMessage, from_answer, from_direct
from tnats.client.jetstream.ordered import OrderedMessages, create_consumer
from tnats.client.jetstream.snapshot import Snapshot
from tnats.client.options import nanoseconds
from tnats.jetstream.api.fields import INT, Record, row
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
    StreamState,
    Success,
)
from tnats.jetstream.consumer.config import Action, ConsumerConfig
from tnats.jetstream.consumer.requests import PullBody
from tnats.jetstream.stream.config import StreamConfig
from tnats.records import define

END_OF_BATCH_STATUS = 204


@define
class StreamInfoPage:
    """What an answer to STREAM.INFO says of one page of subjects."""

    state: StreamState = row("state", Record(StreamState))
    total: int = row("total", INT, default=0)


class Stream:
    """A handle on a stream, made of its name: whether it exists shows when it is used."""

    def __init__(self, api: Api, name: str) -> None:
        """Raises ClientError for what cannot be a name."""
        self._api = api
        self.name = checked_name(name, "stream")

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

    async def subject_counts(self, pattern: str = ">") -> dict[str, int]:
        """How many messages each subject holds that matches `pattern`: all of them, page after page."""
        counts: dict[str, int] = {}
        while True:
            request = JSApiStreamInfoRequest(offset=len(counts), subjects_filter=pattern)
            page = await self._api.ask(f"STREAM.INFO.{self.name}", request, StreamInfoPage)
            counts.update(page.state.subjects)
            if not page.state.subjects or len(counts) >= page.total:
                return counts

    async def update(self, config: StreamConfig) -> StreamInfo:
        """Change it to this configuration. Raises StreamNotFound, ApiError."""
        return await self._api.ask(f"STREAM.UPDATE.{self.name}", config, StreamInfo)

    async def seal(self) -> None:
        """Make it read-only, for good. Raises StreamNotFound, ApiError."""
        config = (await self.info()).config
        config.sealed = True
        await self.update(config)

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

    async def direct_get_batch(
        self,
        count_max: int,
        *,
        sequence: int = 0,
        next_on: str = ">",
        from_time_ns: int | None = None,
        bytes_max: int = 0,
    ) -> list[StoredMessage]:
        """Up to `count_max` messages on `next_on` from `sequence` or `from_time_ns` on, by one request (ADR-31).

        Fewer when there are no more, or when `bytes_max` is reached. Raises like `direct_get`, and TimedOut when the
        server falls silent before it said that this was all.
        """
        request = JSApiMsgGetRequest(
            0 if from_time_ns is not None else sequence or 1,
            next_by_subj=next_on,
            start_time_ns=from_time_ns,
            batch=count_max,
            max_bytes=bytes_max,
        )
        return await self._direct_get_many(request)

    async def direct_get_last(
        self, *subjects: str, up_to_sequence: int = 0, up_to_time_ns: int | None = None
    ) -> list[StoredMessage]:
        """The last message on each subject that matches one of `subjects`, as of then, by one request (ADR-31).

        Raises ApiError with code 413 for more than 1,024 subjects, and like `direct_get_batch`.
        """
        request = JSApiMsgGetRequest(multi_last=list(subjects), up_to_seq=up_to_sequence, up_to_time_ns=up_to_time_ns)
        return await self._direct_get_many(request)

    async def _direct_get_many(self, request: JSApiMsgGetRequest) -> list[StoredMessage]:
        subject = self._api.subject(f"DIRECT.GET.{self.name}")
        found: list[StoredMessage] = []
        async with self.client.request_many(subject, encode_request(request), timeout_s=self._api.timeout_s) as replies:
            async for reply in replies:
                if reply.status in (END_OF_BATCH_STATUS, NOT_FOUND_STATUS):
                    return found
                found.append(from_direct(reply))
        raise TimedOut(f"stream {self.name!r}: the server fell silent after {len(found)} messages")

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
        consumer = Consumer(self._api, self.name, config.durable_name or config.name)
        await create_consumer(self._api, self.name, config, action)
        return consumer

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
        wait_ns = nanoseconds(expires_s)
        body = PullBody(batch=count_max, expires_ns=wait_ns, idle_heartbeat_ns=heartbeat_ns(wait_ns))
        return OrderedMessages(self._api, self.name, config or ConsumerConfig(), body)
