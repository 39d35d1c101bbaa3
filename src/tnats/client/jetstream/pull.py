"""Pulling messages from a consumer: single requests, and a stream of them that keeps itself supplied.

Theory of operation
-------------------
* A pull request names a subject of its own, on which messages come under their own subjects, and statuses without a
  message (ADR-13). One subscription serves one `fetch` or one `MessageStream`.
* `MessageStream` asks for as many messages as its bound leaves room for, and asks again when half of that has been
  taken. `_outstanding_count` is what was asked for and neither was taken nor given up by a status.
* The server sends heartbeats while it has nothing else to send. When two in a row fail to come, or the connection was
  lost, what was asked for is given up and asked for anew. Nothing is lost by that: what an old request still brings
  is handed out like the rest.
* A consumer that is gone and a request against its rules raise out of the iteration; everything else is only the end
  of one request, and an outage lasts as long as it lasts.
"""

from __future__ import annotations

from types import TracebackType

import attrs

from tnats import limits
from tnats.client.client import Client
from tnats.client.errors import ClientError, ConnectionClosed, ConnectionLost, NoResponders, TimedOut
from tnats.client.jetstream.api import Api, encode_request
from tnats.client.jetstream.delivery import NAK, NOT_FOUND_STATUS, Delivery
from tnats.client.jetstream.errors import OUTAGE, ConsumerDeleted, PullRefused
from tnats.client.message import Message
from tnats.client.requests import NO_RESPONDERS_STATUS
from tnats.client.subscription import Subscription
from tnats.jetstream.api.messages import ConsumerInfo
from tnats.jetstream.consumer.requests import PullBody
from tnats.records import frozen

HEARTBEAT_STATUS = 100
TIMEOUT_STATUS = 408
CONFLICT_STATUS = 409
PIN_STATUS = 423

RECONNECTED = b"NATS/1.0 408 Reconnected\r\n\r\n"
"""The status by which a subscription tells its reader that requests of the last connection have ended."""

ENDS_OF_REQUEST = ("Batch Completed", "Message Size Exceeds MaxBytes", "Leadership Change", "Server Shutdown")
"""A status 409 with one of these ends a request and says nothing against the next one (ADR-13)."""

CONSUMER_DELETED = "Consumer Deleted"

HEARTBEATS_MISSED = 2
"""So many intervals without a word give a request up."""


class PullSubscription(Subscription):
    """The answers to pull requests, and the news that a connection was lost with the requests on it."""

    __slots__ = ()

    def __init__(self, client: Client, count_max: int) -> None:
        """`count_max`: messages that may be asked for at a time. Twice as many can come after a reconnect."""
        pending_count_max = 2 * count_max + limits.CLIENT_PULL_STATUSES_MAX
        pending_bytes_max = pending_count_max * client.server_info.max_payload
        super().__init__(client, client.new_inbox(), "", 0, pending_count_max, pending_bytes_max)

    def renewed(self) -> None:
        """Requests end with their connection."""
        self.deliver(Message(self._client, self.subject, "", RECONNECTED, b""))


@frozen
class Source:
    """A consumer to pull from."""

    api: Api
    stream: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.consumer!r} of stream {self.stream!r}"

    async def ask(self, subscription: Subscription, body: PullBody) -> None:
        """Send a pull request whose answers come to `subscription`."""
        subject = self.api.subject(f"CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}")
        await self.api.client.publish(subject, encode_request(body), reply=subscription.subject)

    async def info(self) -> ConsumerInfo:
        """What the server knows of the consumer."""
        return await self.api.ask(f"CONSUMER.INFO.{self.stream}.{self.consumer}", None, ConsumerInfo)

    def raise_for(self, message: Message) -> None:
        """Raise what a status says against the request or its consumer; nothing where it only ends the request."""
        status, description = message.status, message.description
        if status == NO_RESPONDERS_STATUS:
            raise NoResponders(f"nobody answers for consumer {self}: it does not exist, or has no leader now")
        if status == CONFLICT_STATUS and description.startswith(CONSUMER_DELETED):
            raise ConsumerDeleted(str(self), status, description)
        if status in (NOT_FOUND_STATUS, TIMEOUT_STATUS):
            return
        if status == CONFLICT_STATUS and description.startswith(ENDS_OF_REQUEST):
            return
        raise PullRefused(str(self), status, description)


async def fetch(source: Source, body: PullBody, *, timeout_ns: int) -> list[Delivery]:
    """Send one pull request and gather its messages, at most `body.batch`, until the server ends it.

    `timeout_ns` bounds the wait for each word of the server beyond what `body` lets it wait. Raises NoResponders,
    PullRefused, TimedOut when the server stays silent; all of them only while no message has come.
    """
    client = source.api.client
    clock = client.runtime.clock
    deliveries: list[Delivery] = []
    patience_ns = timeout_ns + body.expires_ns
    if body.idle_heartbeat_ns:
        patience_ns = min(patience_ns, HEARTBEATS_MISSED * body.idle_heartbeat_ns)
    async with client.open(PullSubscription(client, body.batch)) as subscription:
        await source.ask(subscription, body)
        while len(deliveries) < body.batch:
            with clock.deadline(clock.mono_ns() + patience_ns) as scope:
                message = await subscription.next_message()
            if scope.cancelled_caught:
                if deliveries:
                    break
                raise TimedOut(f"consumer {source}: the server does not answer a pull request")
            status = message.status
            if not status:
                deliveries.append(Delivery(client, message))
            elif status != HEARTBEAT_STATUS:
                if not deliveries:
                    source.raise_for(message)
                break
    return deliveries


class MessageStream:
    """Messages of a consumer as they come: `async with consumer.messages() as messages: async for m in messages`.

    Made by `Consumer.messages`. One task iterates it. What was fetched ahead and not taken is given back to the
    consumer at the end of the block, for delivery to somebody else.
    """

    def __init__(self, source: Source, body: PullBody, *, gives_back: bool = True) -> None:
        """`body` is the request to repeat; its `batch` bounds what is fetched ahead."""
        self._source = source
        self._client = source.api.client
        self._body = body
        self._gives_back = gives_back
        self._outstanding_count = 0
        self._subscription: Subscription

    async def __aenter__(self) -> MessageStream:
        self._subscription = self._client.open(PullSubscription(self._client, self._body.batch))
        try:
            await self._top_up()
        except BaseException:
            self._subscription.unsubscribe()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        subscription = self._subscription
        clock = self._client.runtime.clock
        try:
            if self._gives_back:
                with clock.deadline(clock.mono_ns() + limits.CLIENT_CLOSE_GRACE_NS):
                    await subscription.drain()
        except (ConnectionLost, ConnectionClosed, TimedOut):
            pass
        finally:
            if self._gives_back:
                self._give_back(subscription.take_pending())
            subscription.unsubscribe()

    def _give_back(self, untaken: list[Message]) -> None:
        for message in untaken:
            if message.reply and not message.status:
                try:
                    self._client.publish_nowait(message.reply, NAK)
                except ClientError:
                    return

    def __aiter__(self) -> MessageStream:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            await self._top_up()
            message = await self._next()
            if message is None:
                continue
            if not message.status:
                self._outstanding_count -= 1
                if self._body.group:
                    self._note_pin(message)
                return Delivery(self._client, message)
            await self._take_status(message)

    async def _top_up(self) -> None:
        """Ask for more when half of what is allowed has been taken."""
        batch = self._body.batch
        if self._outstanding_count > batch // 2:
            return
        request = attrs.evolve(self._body, batch=batch - max(self._outstanding_count, 0))
        await self._source.ask(self._subscription, request)
        self._outstanding_count = batch

    async def _next(self) -> Message | None:
        """The next message or status; None when the server fell silent."""
        if self._subscription.pending_count:
            return await anext(self._subscription)
        clock = self._client.runtime.clock
        silence_ns = HEARTBEATS_MISSED * self._body.idle_heartbeat_ns
        message: Message | None = None
        with clock.deadline(clock.mono_ns() + silence_ns):
            message = await anext(self._subscription)
        if message is None:
            await self._look_after()
        return message

    async def _take_status(self, message: Message) -> None:
        status = message.status
        if status == HEARTBEAT_STATUS:
            return
        if status == NO_RESPONDERS_STATUS:
            self._outstanding_count = 0
            await self._client.runtime.clock.sleep_ns(limits.CLIENT_PULL_RETRY_NS)
            await self._look_after()
            return
        if status == PIN_STATUS:
            self._body = attrs.evolve(self._body, id="")
        else:
            self._source.raise_for(message)
        left = (message.headers or {}).get("Nats-Pending-Messages", [""])[0]
        self._outstanding_count = max(self._outstanding_count - int(left), 0) if left.isdecimal() else 0

    async def _look_after(self) -> None:
        """The server is silent: ask anew, unless the consumer is gone. Raises NotFound."""
        self._outstanding_count = 0
        try:
            await self._source.info()
        except OUTAGE:
            await self._client.runtime.clock.sleep_ns(limits.CLIENT_PULL_RETRY_NS)

    def _note_pin(self, message: Message) -> None:
        """Remember the id by which the server knows the client that a priority group is pinned to (ADR-42)."""
        pin = (message.headers or {}).get("Nats-Pin-Id")
        if pin:
            self._body = attrs.evolve(self._body, id=pin[0])
