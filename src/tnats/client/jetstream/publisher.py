"""Many publishes on their way at a time, each with its own acknowledgement, and never more than a window of them.

One request at a time is bound by the round trip and the disk of the server; a window lets both work on a batch. Order
is kept as long as nothing fails. What fails is not published again: the ids of the messages make that safe where it
is wanted.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

import trio

from tnats.client.errors import ClientError, NoResponders, TimedOut
from tnats.client.jetstream.answers import PubAck, decode_answer
from tnats.client.jetstream.publish import Conditions, no_stream, publish_call, with_conditions
from tnats.client.message import HeadersLike, Message
from tnats.client.requests import raise_for_status

if TYPE_CHECKING:
    from tnats.client.client import Client


class PendingAck:
    """The acknowledgement of one publish, which has come or will."""

    __slots__ = ("_ack", "_asked", "_error", "_publisher", "deadline_ns", "published_count", "reply", "subject")

    def __init__(self, publisher: Publisher, subject: str, deadline_ns: int) -> None:
        self._publisher = publisher
        self.subject = subject
        self.reply = ""
        self.published_count = 0
        """Messages of the client up to and with this one."""
        self.deadline_ns = deadline_ns
        self._ack: PubAck | None = None
        self._error: ClientError | None = None
        self._asked = False

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._ack is not None or self._error is not None

    async def wait(self) -> PubAck:
        """The acknowledgement. Raises what `JetStream.publish` raises."""
        self._asked = True
        await self._publisher.wait_done(self)
        return self.result()

    def result(self) -> PubAck:
        """The acknowledgement of one that is done. Raises like `wait`."""
        self._asked = True
        if self._error is not None:
            raise self._error
        assert self._ack is not None
        return self._ack

    @property
    def unheard_error(self) -> ClientError | None:
        """Why it failed, unless somebody has asked."""
        return None if self._asked else self._error

    def take(self, message: Message) -> None:
        """The answer came."""
        self._publisher.heard(self)
        try:
            self._ack = decode_answer(raise_for_status(message, self.subject), PubAck, publish_call(self.subject))
        except NoResponders:
            self._error = no_stream(self.subject)
        except ClientError as exc:
            self._error = exc
        self._publisher.settled(self)

    def fail(self, error: ClientError) -> None:
        """No answer will come. Idempotent."""
        if not self.done:
            self._error = error
            self._publisher.settled(self)


class Publisher:
    """Made by `JetStream.publisher`: `async with js.publisher() as publisher: await publisher.publish(...)`.

    The end of the block waits for every acknowledgement. An error that nobody asked the `PendingAck` for is raised by
    the next `publish` or by the end of the block.
    """

    def __init__(self, client: Client, pending_count_max: int, timeout_ns: int) -> None:
        self._client = client
        self._clock = client.runtime.clock
        self._pending_count_max = pending_count_max
        self._timeout_ns = timeout_ns
        self._pending: deque[PendingAck] = deque()
        self._pending_count = 0
        self._error: ClientError | None = None
        self._lot = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if exc is None:
                await self.wait_all()
        finally:
            for pending in self._pending:
                if not pending.done:
                    self._client.close_reply(pending.reply)
            self._pending.clear()

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: HeadersLike | None = None, **conditions: Unpack[Conditions]
    ) -> PendingAck:
        """Send a message; waits only while `pending_count_max` acknowledgements are outstanding.

        Raises the error of an earlier publish that nobody asked for, and like `Client.publish`.
        """
        while self._pending_count >= self._pending_count_max:
            await self.wait_done(self._oldest())
        self._raise_unheard()
        pending = PendingAck(self, subject, self._clock.mono_ns() + self._timeout_ns)
        pending.reply = self._client.open_reply(pending)
        try:
            await self._client.publish(subject, data, reply=pending.reply, headers=with_conditions(headers, conditions))
        except BaseException:
            self._client.close_reply(pending.reply)
            raise
        pending.published_count = self._client.statistics.messages_out
        self._pending_count += 1
        self._pending.append(pending)
        return pending

    async def wait_all(self) -> None:
        """Return when every acknowledgement has come. Raises the first error that nobody asked for."""
        while self._pending_count:
            await self.wait_done(self._oldest())
        self._raise_unheard()

    async def wait_done(self, pending: PendingAck) -> None:
        """Return when the outcome of `pending` is known, at its deadline at the latest."""
        while not pending.done:
            with self._clock.deadline(pending.deadline_ns) as scope:
                await self._lot.park()
            if scope.cancelled_caught:
                pending.fail(TimedOut(f"publish on {pending.subject!r}: no acknowledgement in time"))

    def heard(self, pending: PendingAck) -> None:
        """Its answer came, whatever it says."""
        self._client.confirmed(pending.published_count)

    def settled(self, pending: PendingAck) -> None:
        """`pending` is done."""
        self._client.close_reply(pending.reply)
        self._pending_count -= 1
        self._lot.unpark_all()

    def _oldest(self) -> PendingAck:
        while self._pending[0].done:
            self._forget(self._pending.popleft())
        return self._pending[0]

    def _raise_unheard(self) -> None:
        while self._pending and self._pending[0].done:
            self._forget(self._pending.popleft())
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _forget(self, pending: PendingAck) -> None:
        self._error = self._error or pending.unheard_error
