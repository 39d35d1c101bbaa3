"""One consumer of a stream: its administration, and the ways to get messages out of it."""

from __future__ import annotations

from tnats.client.errors import TimedOut
from tnats.client.jetstream.api import Api, checked_name
from tnats.client.jetstream.delivery import Delivery
from tnats.client.jetstream.pull import MessageStream, Source, fetch
from tnats.client.jetstream.push import PushedMessages
from tnats.client.options import nanoseconds
from tnats.jetstream.api.messages import (
    ConsumerInfo,
    ConsumerPaused,
    Empty,
    JSApiConsumerPauseRequest,
    JSApiConsumerResetRequest,
    JSApiConsumerUnpinRequest,
    Success,
)
from tnats.jetstream.consumer.requests import PullBody
from tnats.limits import SECOND_NS

HEARTBEAT_NS_MAX = 30 * SECOND_NS
HEARTBEAT_FROM_NS = 10 * SECOND_NS
"""A single pull request that may wait longer than this asks for heartbeats."""


def heartbeat_ns(wait_ns: int) -> int:
    """How often the server is to show that a pull request still waits, one that may wait for `wait_ns`.

    Servers refuse more than half of that.
    """
    return min(wait_ns // 2, HEARTBEAT_NS_MAX)


class Consumer:
    """A handle on a consumer, made of names: whether it exists shows when it is used."""

    def __init__(self, api: Api, stream: str, name: str) -> None:
        """Raises ClientError for what cannot be a name."""
        self._api = api
        self._source = Source(api, stream, name)
        self._path = f"{stream}.{name}"
        self.stream = stream
        self.name = checked_name(name, "consumer")

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of stream {self.stream!r}>"

    # ---------------------------------------------------------------- administration

    async def info(self) -> ConsumerInfo:
        """Configuration and state. Raises ConsumerNotFound, StreamNotFound."""
        return await self._source.info()

    async def delete(self) -> None:
        """Remove it with its state. Raises ConsumerNotFound."""
        await self._api.ask(f"CONSUMER.DELETE.{self._path}", None, Success)

    async def pause(self, until_ns: int) -> ConsumerPaused:
        """Deliver nothing until then (nanoseconds since the Unix epoch)."""
        return await self._api.ask(f"CONSUMER.PAUSE.{self._path}", JSApiConsumerPauseRequest(until_ns), ConsumerPaused)

    async def resume(self) -> ConsumerPaused:
        """End a pause."""
        return await self._api.ask(f"CONSUMER.PAUSE.{self._path}", JSApiConsumerPauseRequest(), ConsumerPaused)

    async def reset(self, sequence: int = 0) -> ConsumerInfo:
        """Deliver again from this stream sequence on; 0: from the first message that was not acknowledged."""
        return await self._api.ask(f"CONSUMER.RESET.{self._path}", JSApiConsumerResetRequest(sequence), ConsumerInfo)

    async def unpin(self, group: str) -> None:
        """Let another client of the priority group take its place (ADR-42)."""
        await self._api.ask(f"CONSUMER.UNPIN.{self._path}", JSApiConsumerUnpinRequest(group), Empty)

    # ---------------------------------------------------------------- pulling

    async def fetch(
        self,
        count_max: int,
        *,
        timeout_s: float = 5.0,
        no_wait: bool = False,
        bytes_max: int = 0,
        group: str = "",
        priority: int = 0,
    ) -> list[Delivery]:
        """Up to `count_max` messages: returns when there are so many, or after `timeout_s` with what has come.

        Earlier where the server ends the request: it shuts down, the leader changes, the connection was lost. With
        `no_wait` only what is there already. `bytes_max` bounds the messages together. An empty list says that
        there was nothing. Raises NoResponders (no such consumer, or no leader), PullRefused, TimedOut when the server
        does not answer.
        """
        wait_ns = nanoseconds(timeout_s)
        body = PullBody(
            batch=count_max,
            expires_ns=0 if no_wait else wait_ns,
            no_wait=no_wait,
            max_bytes=bytes_max,
            idle_heartbeat_ns=heartbeat_ns(wait_ns) if not no_wait and wait_ns >= HEARTBEAT_FROM_NS else 0,
            group=group,
            priority=priority,
        )
        return await fetch(self._source, body, timeout_ns=nanoseconds(self._api.timeout_s))

    async def next(self, *, timeout_s: float = 5.0) -> Delivery:
        """One message. Raises TimedOut when none comes in time, and like `fetch`."""
        clock = self._api.client.runtime.clock
        deadline_ns = clock.mono_ns() + nanoseconds(timeout_s)
        while (left_ns := deadline_ns - clock.mono_ns()) > 0:
            found = await self.fetch(1, timeout_s=left_ns / SECOND_NS)
            if found:
                return found[0]
        raise TimedOut(f"consumer {self._source}: no message within {timeout_s:g} s")

    def messages(
        self,
        *,
        count_max: int = 500,
        bytes_max: int = 0,
        expires_s: float = 30.0,
        heartbeat_s: float | None = None,
        group: str = "",
        priority: int = 0,
        min_pending: int = 0,
        min_ack_pending: int = 0,
    ) -> MessageStream:
        """Messages as they come, at most `count_max` fetched ahead: see `MessageStream`.

        `expires_s` is how long one request waits at the server; `heartbeat_s`, half of that by default, how often the
        server shows that it still waits. The rest belongs to priority groups (ADR-42). The iteration raises
        ConsumerDeleted, ConsumerNotFound, PullRefused; it outlives lost connections and absent leaders.
        """
        wait_ns = nanoseconds(expires_s)
        body = PullBody(
            batch=count_max,
            expires_ns=wait_ns,
            max_bytes=bytes_max,
            idle_heartbeat_ns=nanoseconds(heartbeat_s) if heartbeat_s else heartbeat_ns(wait_ns),
            group=group,
            min_pending=min_pending,
            min_ack_pending=min_ack_pending,
            priority=priority,
        )
        return MessageStream(self._source, body)

    # ---------------------------------------------------------------- push

    def pushed(self) -> PushedMessages:
        """What a push consumer sends to its deliver subject, with flow control: see `PushedMessages`."""
        return PushedMessages(self._source)
