"""Atomic batches: messages for one stream that are stored all together or not at all (ADR-50).

The messages go out as they are added, the last one when the batch is committed, for it carries the word that commits.
The server answers the first, so that a stream which takes no batches shows at once, and the last, for all of them.
A batch that is not committed is forgotten by the server after its own time limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from tnats.client.errors import ClientError
from tnats.client.jetstream.answers import PubAck, answer_object
from tnats.client.jetstream.publish import Conditions, ask_stream, publish_call, publish_once, with_conditions
from tnats.client.message import HeadersLike

if TYPE_CHECKING:
    from tnats.client.client import Client

COUNT_MAX = 1000
"""Messages that a server takes in one batch."""


class AtomicBatch:
    """Made by `JetStream.atomic_batch`: `publish` any number of messages, then `commit`."""

    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._held: tuple[str, bytes, dict[str, str | list[str]]] | None = None
        """The newest message: the last one says so, which shows only at the commit."""
        self._ended = False
        self.id = client.new_id()
        self.count = 0

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: HeadersLike | None = None, **conditions: Unpack[Conditions]
    ) -> None:
        """Add a message. Raises ApiError where the stream takes no batches, NoResponders, TimedOut; that ends it."""
        self._check()
        if self.count == COUNT_MAX:
            raise ClientError(f"batch {self.id}: {COUNT_MAX} messages are the most that one batch can have")
        previous, self.count = self._held, self.count + 1
        merged: dict[str, str | list[str]] = {
            name: value if isinstance(value, str) else list(value)
            for name, value in (with_conditions(headers, conditions) or {}).items()
        }
        merged["Nats-Batch-Id"] = self.id
        merged["Nats-Batch-Sequence"] = str(self.count)
        self._held = (subject, data, merged)
        if previous is not None:
            await self._send(*previous, is_first=self.count == 2)

    async def commit(self) -> PubAck:
        """Store the messages; the acknowledgement has the sequence of the last one and their `count`.

        Raises WrongLastSequence and other ApiErrors (nothing was stored), TimedOut and ConnectionLost (it is unknown
        whether all of it or nothing was stored).
        """
        self._check()
        if self._held is None:
            raise ClientError(f"batch {self.id}: it has no message to commit")
        self._ended = True
        subject, data, headers = self._held
        return await publish_once(self._client, subject, data, {**headers, "Nats-Batch-Commit": "1"}, self._timeout_s)

    def _check(self) -> None:
        if self._ended:
            raise ClientError(f"batch {self.id}: it has ended")

    async def _send(self, subject: str, data: bytes, headers: HeadersLike, *, is_first: bool) -> None:
        if not is_first:
            await self._client.publish(subject, data, headers=headers)
            return
        self._ended = True
        answer = await ask_stream(self._client, subject, data, headers, self._timeout_s)
        if answer.data:
            answer_object(answer, publish_call(subject))
        self._ended = False
