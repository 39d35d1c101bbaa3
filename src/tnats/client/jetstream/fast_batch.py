"""Fast batches: many messages for one stream at the pace that the server sets, without an answer to each (ADR-50).

Every message carries a reply subject that says which one of which batch it is. The server answers with how far it has
come and how many messages it wants to take between two answers; the client stays two such steps ahead at most. The
messages are stored as they come: unlike an atomic batch, what was stored stays when the batch fails.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from tnats.client.errors import ClientError, NoResponders, TimedOut
from tnats.client.jetstream.answers import PubAck, answer_object, decode_object
from tnats.client.jetstream.errors import JetStreamError
from tnats.client.jetstream.publish import Conditions, no_stream, publish_call, with_conditions
from tnats.client.message import HeadersLike, Message
from tnats.client.requests import raise_for_status
from tnats.client.subscription import Subscription

if TYPE_CHECKING:
    from tnats.client.client import Client

START, APPEND, COMMIT_END, PING = 0, 1, 3, 4
"""Operations, as the reply subject names them."""

STEPS_AHEAD_MAX = 2


class FastBatch:
    """Made by `JetStream.fast_batch`: `async with js.fast_batch() as batch`, `publish` any number, then `commit`.

    A block that ends without a commit leaves the batch to the server's time limit; what was stored stays.
    """

    def __init__(self, client: Client, step_count: int, timeout_ns: int, *, fails_on_gap: bool) -> None:
        self._client = client
        self._clock = client.runtime.clock
        self._timeout_ns = timeout_ns
        self._step_count = step_count
        self._gap_mode = "fail" if fails_on_gap else "ok"
        self._subscription: Subscription
        self._flow = step_count
        self._subject = ""
        self._answered = False
        self._ack: PubAck | None = None
        self._asked_at = -1
        """How much the server had stored when it was last asked where it stands."""
        self.id = client.new_id()
        self.count = 0
        """Messages published."""
        self.stored_count = 0
        """Of those, how many the server has taken, as far as it has told."""
        self.lost_count = 0
        """Messages that did not reach the server, where gaps are allowed."""

    async def __aenter__(self) -> FastBatch:
        self._prefix = self._client.new_inbox()
        self._subscription = self._client.subscribe(f"{self._prefix}.>")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._subscription.unsubscribe()

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: HeadersLike | None = None, **conditions: Unpack[Conditions]
    ) -> None:
        """Add a message; waits while the server is two steps behind.

        Raises ApiError for an earlier message that was refused, JetStreamError for a gap, NoResponders, TimedOut.
        """
        self._check()
        self._subject = subject
        self.count += 1
        operation = APPEND if self.count > 1 else START
        await self._send(operation, self.count, data, with_conditions(headers, conditions))
        self._take_answers()
        while not self._answered or self.count - self.stored_count >= STEPS_AHEAD_MAX * self._step_count:
            await self._wait_answer()

    async def commit(self) -> PubAck:
        """End the batch; returns when all of it is stored. Raises like `publish`."""
        self._check()
        if not self.count:
            raise ClientError(f"batch {self.id}: it has no message to commit")
        await self._send(COMMIT_END, self.count + 1, b"", None)
        while self._ack is None:
            await self._wait_answer()
        return self._ack

    def _check(self) -> None:
        if self._ack is not None:
            raise ClientError(f"batch {self.id}: it has ended")

    async def _send(self, operation: int, number: int, data: bytes, headers: HeadersLike | None) -> None:
        reply = f"{self._prefix}.{self.id}.{self._flow}.{self._gap_mode}.{number}.{operation}.$FI"
        await self._client.publish(self._subject, data, reply=reply, headers=headers)

    async def _wait_answer(self) -> None:
        """Take the next answer; asks where the server stands if none comes.

        Raises TimedOut if none comes then, or if it stands where it stood when it was last asked: what it waits for,
        the commit perhaps, went down with a connection.
        """
        while True:
            with self._clock.deadline(self._clock.mono_ns() + self._timeout_ns):
                self._take(await self._subscription.next_message())
                return
            if self._asked_at == self.stored_count:
                raise TimedOut(f"batch {self.id}: the server does not answer, or waits for what it was sent")
            self._asked_at = self.stored_count
            await self._send(PING, self.count, b"", None)

    def _take_answers(self) -> None:
        for message in self._subscription.take_pending():
            self._take(message)

    def _take(self, message: Message) -> None:
        try:
            raise_for_status(message, self._subject)
        except NoResponders:
            raise no_stream(self._subject) from None
        answer = answer_object(message, publish_call(self._subject))
        kind = answer.get("type")
        self._answered = True
        if kind == "ack":
            self.stored_count = max(self.stored_count, answer["seq"])
            self._step_count = max(answer["msgs"], 1)
        elif kind == "gap":
            self._take_gap(answer)
        else:
            self._ack = decode_object(answer, PubAck, message)

    def _take_gap(self, answer: dict[str, Any]) -> None:
        lost_count = answer["seq"] - answer["last_seq"]
        self.lost_count += lost_count
        if self._gap_mode == "fail":
            raise JetStreamError(f"batch {self.id}: {lost_count} messages before number {answer['seq']} were lost")
