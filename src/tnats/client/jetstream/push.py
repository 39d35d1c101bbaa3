"""Messages of a push consumer: the server sends them unasked to the consumer's deliver subject (ADR-15).

With flow control the server stops after a window of bytes and asks for a word; the word is given when the reader has
come as far as the question, so the server never runs ahead of the reader by more than the window. Of the readers that
share a deliver group each gets a part.
"""

from __future__ import annotations

from types import TracebackType

from tnats.client.errors import ClientError
from tnats.client.jetstream.delivery import Delivery
from tnats.client.jetstream.errors import OUTAGE
from tnats.client.jetstream.pull import HEARTBEATS_MISSED, Source
from tnats.client.message import Message
from tnats.client.subscription import Subscription


class PushedMessages:
    """Made by `Consumer.pushed`: `async with consumer.pushed() as messages: async for message in messages`.

    The bounds of its queue are those of a subscription: what finds it full is dropped and, unless acknowledgements
    are explicit, lost; a consumer with flow control does not get there.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._client = source.api.client
        self._subscription: Subscription
        self._silence_ns = 0

    async def __aenter__(self) -> PushedMessages:
        """Raises ConsumerNotFound, and ClientError when the consumer is none of push."""
        config = (await self._source.info()).config
        if config is None or not config.deliver_subject:
            raise ClientError(f"consumer {self._source}: it does not push, fetch from it")
        self._silence_ns = HEARTBEATS_MISSED * config.idle_heartbeat_ns
        self._subscription = self._client.subscribe(config.deliver_subject, queue=config.deliver_group)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._subscription.unsubscribe()

    def __aiter__(self) -> PushedMessages:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            message = await self._next()
            if not message.status:
                return Delivery(self._client, message)
            stalled = (message.headers or {}).get("Nats-Consumer-Stalled")
            if message.reply:
                await message.respond()
            elif stalled:
                await self._client.publish(stalled[0])

    async def _next(self) -> Message:
        """The next message or status. Raises ConsumerNotFound when the server fell silent and the consumer is gone."""
        if not self._silence_ns:
            return await anext(self._subscription)
        clock = self._client.runtime.clock
        while True:
            with clock.deadline(clock.mono_ns() + self._silence_ns):
                return await anext(self._subscription)
            try:
                await self._source.info()
            except OUTAGE:
                continue
