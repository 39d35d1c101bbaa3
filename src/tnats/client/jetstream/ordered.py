"""Reading a stream in order, without gaps and without acknowledgements (ADR-17).

Every message carries its number in the consumer's deliveries. Where a number is missing, or the consumer is gone (it
lives in the server's memory), another one is made that goes on after the last message that was handed out; before the
first one, where the lost one had nothing to deliver yet, so that what came since is not passed over.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType

import attrs

from tnats import limits
from tnats.client.errors import ClientError
from tnats.client.jetstream.api import Api
from tnats.client.jetstream.delivery import Delivery
from tnats.client.jetstream.errors import OUTAGE, ConsumerNotFound, PullRefused
from tnats.client.jetstream.pull import MessageStream, Source
from tnats.jetstream.api.messages import ConsumerInfo
from tnats.jetstream.consumer.config import (
    AckPolicy,
    Action,
    ConsumerConfig,
    CreateConsumerRequest,
    DeliverPolicy,
)
from tnats.jetstream.consumer.requests import PullBody
from tnats.limits import SECOND_NS

INACTIVE_THRESHOLD_NS = 300 * SECOND_NS


class OrderedMessages:
    """The messages of a stream in order: made by `Stream.ordered`, used like `MessageStream`.

    `pending_count` is how many messages there were to be read when reading began: at the entry of the block, or later
    if the consumer was lost before it had delivered anything.
    """

    def __init__(self, api: Api, stream: str, config: ConsumerConfig, body: PullBody) -> None:
        """`config`: where to begin and what to filter; the rest is set here."""
        self._api = api
        self._stream = stream
        self._body = body
        self._id = api.client.new_id()
        self._serial = 0
        self._config = attrs.evolve(
            config,
            ack_policy=AckPolicy.NONE,
            max_deliver=1,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold_ns=config.inactive_threshold_ns or INACTIVE_THRESHOLD_NS,
        )
        self._next_stream_sequence = 0
        """Where another consumer goes on; 0: where the configuration says."""
        self._last_consumer_sequence = 0
        self._source: Source
        self._messages: MessageStream
        self._broken = False
        """Another consumer is needed: remembered here, for a caller may be cancelled while it is made."""
        self._stack = AsyncExitStack()
        self.pending_count = 0
        self.reset_count = 0
        """How often another consumer had to be made."""

    async def __aenter__(self) -> OrderedMessages:
        await self._create()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self._forget()

    def __aiter__(self) -> OrderedMessages:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            if self._broken:
                await self._recreate()
            try:
                delivery = await anext(self._messages)
            except (ConsumerNotFound, PullRefused):
                self._broken = True
                continue
            metadata = delivery.metadata
            if metadata.consumer_sequence != self._last_consumer_sequence + 1:
                self._broken = True
                continue
            self._last_consumer_sequence = metadata.consumer_sequence
            self._next_stream_sequence = metadata.stream_sequence + 1
            return delivery

    async def next_present(self) -> Delivery | None:
        """The next message, or None when there is none: where it is not to come soon the server is asked."""
        clock = self._api.client.runtime.clock
        is_suspect = False
        while True:
            with clock.deadline(clock.mono_ns() + limits.CLIENT_PRESENT_LOOK_NS):
                return await anext(self)
            try:
                info = await self._source.info()
            except (ConsumerNotFound, *OUTAGE):
                continue  # reading on finds out
            delivered = info.delivered.consumer_seq
            if info.num_pending + delivered <= self._last_consumer_sequence:
                return None
            # What is delivered and does not come was removed on its way, or lost with a connection.
            self._broken |= is_suspect and delivered > self._last_consumer_sequence
            is_suspect = delivered > self._last_consumer_sequence

    async def _create(self) -> None:
        """Make the next consumer and begin to pull from it. Raises like `Stream.create_consumer`."""
        self._serial += 1
        config = attrs.evolve(self._config, name=f"{self._id}_{self._serial}")
        goes_on = self._next_stream_sequence > 0
        if goes_on:
            config.deliver_policy = DeliverPolicy.BY_START_SEQUENCE
            config.opt_start_seq = self._next_stream_sequence
            config.opt_start_time_ns = None
        info = await create_consumer(self._api, self._stream, config, Action.CREATE)
        if not goes_on:
            self.pending_count = info.num_pending + info.delivered.consumer_seq
            if not self.pending_count:
                self._next_stream_sequence = info.delivered.stream_seq + 1
        self._last_consumer_sequence = 0
        self._source = Source(self._api, self._stream, config.name)
        stream = MessageStream(self._source, self._body, gives_back=False)
        self._messages = await self._stack.enter_async_context(stream)

    async def _recreate(self) -> None:
        """Go on with another consumer; waits out an outage. Raises StreamNotFound, ApiError."""
        await self._stack.aclose()
        self._forget()
        while self._broken:
            try:
                await self._create()
                self._broken = False
            except OUTAGE:
                await self._api.client.runtime.clock.sleep_ns(limits.CLIENT_PULL_RETRY_NS)
        self.reset_count += 1

    def _forget(self) -> None:
        """Ask the server to remove the consumer that is no longer needed; if that fails, inactivity does it."""
        name = f"{self._id}_{self._serial}"
        client = self._api.client
        try:
            client.publish_nowait(self._api.subject(f"CONSUMER.DELETE.{self._stream}.{name}"), reply=client.new_inbox())
        except ClientError:
            pass


async def create_consumer(api: Api, stream: str, config: ConsumerConfig, action: Action) -> ConsumerInfo:
    """Make or change a consumer by its name. Raises ApiError and its kin."""
    name = config.durable_name or config.name
    call = f"CONSUMER.CREATE.{stream}.{name}"
    if config.filter_subject:
        call += f".{config.filter_subject}"
    return await api.ask(call, CreateConsumerRequest(stream, config, action), ConsumerInfo)
