"""Request and reply over one muxed inbox.

One wildcard subscription `<prefix>.<unique>.*` serves every request of a client; the last token of a reply's subject
names the request it answers. A reply whose request is over is dropped. Status 503 on a reply is the server's word
that nobody listens (client protocol, "Delivery rules"): it becomes `NoResponders`.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import trio

from tnats import limits
from tnats.client.errors import ClientError, ConnectionClosed, NoResponders
from tnats.client.message import Message
from tnats.client.table import Denial

if TYPE_CHECKING:
    from tnats.client.client import Client
    from tnats.client.message import HeadersLike

NO_RESPONDERS_STATUS = 503


class ReplyTaker(Protocol):
    """Who waits on a reply subject."""

    @property
    def subject(self) -> str:
        """Where the request went."""

    def take(self, message: Message) -> None:
        """A message arrived on it."""

    def fail(self, error: ClientError) -> None:
        """Nothing will arrive. Idempotent."""


class Inbox:
    """Hands out reply subjects and takes what arrives on them; one entry of the subscription table."""

    __slots__ = ("_error", "_last_number", "_prefix", "_waiting")

    queue = ""
    left_count = None

    def __init__(self, prefix: str) -> None:
        """`prefix`: a subject that is this client's own, and that nobody can guess."""
        self._last_number = 0
        self._prefix = f"{prefix}."
        self._waiting: dict[str, ReplyTaker] = {}
        self._error: ClientError | None = None

    @property
    def subject(self) -> str:
        """What the client subscribes to."""
        return f"{self._prefix}*"

    def open(self, taker: ReplyTaker) -> str:
        """A fresh reply subject; `taker` gets each message that arrives on it, until `close`.

        Raises PermissionsViolation when the server refused the inbox itself.
        """
        if self._error is not None:
            raise self._error
        self._last_number += 1
        reply = f"{self._prefix}{self._last_number}"
        self._waiting[reply] = taker
        return reply

    def close(self, reply: str) -> None:
        """Forget `reply`."""
        del self._waiting[reply]

    def deliver(self, message: Message) -> None:
        """Take a message from the protocol loop."""
        taker = self._waiting.get(message.subject)
        if taker is not None:
            taker.take(message)

    def denied(self, denial: Denial) -> bool:
        """Fail the requests whose publish was refused; True when the inbox itself was."""
        if not denial.publish:
            return denial.subject == self.subject
        for taker in list(self._waiting.values()):  # one that fails closes its subject
            if taker.subject == denial.subject:
                taker.fail(denial.error)
        return False

    def renewed(self) -> None:
        """Requests that were on their way may still be answered: nothing changes."""

    def end(self, error: ClientError | None) -> None:
        """Everybody who waits gets `error`."""
        self._error = error or ConnectionClosed("the client was closed while a request waited for its reply")
        for taker in list(self._waiting.values()):  # one that fails closes its subject
            taker.fail(self._error)


class Reply:
    """The first answer to one request."""

    __slots__ = ("arrived", "error", "message", "subject")

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.arrived = trio.Event()
        self.message: Message | None = None
        self.error: ClientError | None = None

    def take(self, message: Message) -> None:
        if self.message is None:
            self.message = message
            self.arrived.set()

    def fail(self, error: ClientError) -> None:
        self.error = error
        self.arrived.set()


def raise_for_status(message: Message, subject: str) -> Message:
    """`message`, unless it says that nobody listens on `subject`."""
    if message.status == NO_RESPONDERS_STATUS and not message.data:
        raise NoResponders(f"nobody listens on {subject!r}")
    return message


class ReplyStream:
    """Several answers to one request: made by `Client.request_many`, used as an async context manager and iterated.

    Iteration ends, without an error, at the first of: `count_max` replies, no further reply for `stall_ns` after
    one, the deadline. If nobody listens, the first step raises NoResponders (ADR-47, "Request Many").
    """

    __slots__ = (
        "_client",
        "_count_left",
        "_data",
        "_deadline_ns",
        "_error",
        "_headers",
        "_last_ns",
        "_lot",
        "_replies",
        "_reply",
        "_stall_ns",
        "_timeout_ns",
        "dropped_count",
        "subject",
    )

    def __init__(
        self,
        client: Client,
        subject: str,
        data: bytes,
        headers: HeadersLike | None,
        *,
        count_max: int | None,
        stall_ns: int | None,
        timeout_ns: int,
    ) -> None:
        self._client = client
        self.subject = subject
        self._data = data
        self._headers = headers
        self._count_left = count_max
        self._stall_ns = stall_ns
        self._timeout_ns = timeout_ns
        self._deadline_ns = 0
        self._last_ns: int | None = None
        self._reply = ""
        self._replies: deque[Message] = deque()
        self._lot = trio.lowlevel.ParkingLot()
        self._error: ClientError | None = None
        self.dropped_count = 0
        """Replies that found the queue full (see limits.CLIENT_REPLIES_PENDING_MAX)."""

    async def __aenter__(self) -> ReplyStream:
        self._deadline_ns = self._client.runtime.clock.mono_ns() + self._timeout_ns
        self._reply = self._client.open_reply(self)
        try:
            await self._client.publish(self.subject, self._data, reply=self._reply, headers=self._headers)
        except BaseException:
            self._client.close_reply(self._reply)
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close_reply(self._reply)

    def __aiter__(self) -> ReplyStream:
        return self

    async def __anext__(self) -> Message:
        if self._count_left == 0:
            raise StopAsyncIteration
        clock = self._client.runtime.clock
        while not self._replies:
            if self._error is not None:
                raise self._error
            deadline_ns = self._deadline_ns
            if self._stall_ns is not None and self._last_ns is not None:
                deadline_ns = min(deadline_ns, self._last_ns + self._stall_ns)
            with clock.deadline(deadline_ns) as scope:
                await self._lot.park()
            if scope.cancelled_caught:
                raise StopAsyncIteration
        message = self._replies.popleft()
        if self._last_ns is None:
            raise_for_status(message, self.subject)
        self._last_ns = clock.mono_ns()
        if self._count_left is not None:
            self._count_left -= 1
        return message

    def take(self, message: Message) -> None:
        if len(self._replies) >= limits.CLIENT_REPLIES_PENDING_MAX:
            self.dropped_count += 1
            return
        self._replies.append(message)
        self._lot.unpark()

    def fail(self, error: ClientError) -> None:
        self._error = error
        self._lot.unpark_all()
