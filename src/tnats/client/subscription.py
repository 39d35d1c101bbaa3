"""A subscription: a bounded queue of messages between the protocol loop and the tasks that iterate it.

Policy when the queue is full: the newest message is dropped and counted in `dropped_count`, the connection and all
other subscriptions go on, and one `SlowConsumer` event is reported until the queue has been emptied once. A message
that alone is larger than the byte bound is still taken by an empty queue.

Iteration waits only when the queue is empty, so that a burst is consumed without a scheduler step per message.

A message taken by iteration or in a batch counts as being handled until the same task comes back for more: a drain of
the client waits for that, so that the answer to the last message still goes out. Who leaves a loop early unsubscribes,
most simply by `async with`.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

import trio

from tnats.client.errors import ClientError, SubscriptionClosed, TimedOut
from tnats.client.events import SlowConsumer
from tnats.client.message import Message
from tnats.client.options import nanoseconds
from tnats.client.table import Denial

if TYPE_CHECKING:
    from tnats.client.client import Client


class Subscription:
    """Made by `Client.subscribe`. Iterate it, or call `next_message` or `next_batch`; several tasks may share one.

    As an async context manager it unsubscribes at the end of the block.
    """

    __slots__ = (
        "_client",
        "_ended",
        "_error",
        "_handling",
        "_lot",
        "_messages",
        "_slow",
        "dropped_count",
        "max_messages",
        "pending_bytes",
        "pending_bytes_max",
        "pending_count_max",
        "queue",
        "received_count",
        "sid",
        "subject",
    )

    def __init__(
        self,
        client: Client,
        subject: str,
        queue: str,
        max_messages: int,
        pending_count_max: int,
        pending_bytes_max: int,
    ) -> None:
        self._client = client
        self.sid = b""
        self.subject = subject
        self.queue = queue
        self.max_messages = max_messages
        """Ends after this many messages; 0 for no end."""
        self.pending_count_max = pending_count_max
        self.pending_bytes_max = pending_bytes_max
        self.pending_bytes = 0
        self.received_count = 0
        """Messages that arrived, the dropped ones included."""
        self.dropped_count = 0
        self._messages: deque[Message] = deque()
        self._lot = trio.lowlevel.ParkingLot()
        self._handling: dict[trio.lowlevel.Task, None] = {}
        self._slow = False
        self._ended = False
        self._error: ClientError | None = None

    def __repr__(self) -> str:
        queue = f" queue={self.queue!r}" if self.queue else ""
        return f"<Subscription {self.subject!r}{queue} pending={self.pending_count}{' ended' if self._ended else ''}>"

    @property
    def pending_count(self) -> int:
        """Messages that wait to be taken."""
        return len(self._messages)

    @property
    def ended(self) -> bool:
        """No further message will arrive; what is pending can still be taken."""
        return self._ended

    # ---------------------------------------------------------------- taking messages

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Message:
        if not self._messages and not await self._wait_pending():
            raise StopAsyncIteration
        self._handling[trio.lowlevel.current_task()] = None
        return self._take()

    async def next_message(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises TimedOut, SubscriptionClosed at the end, or the error that ended it."""
        if self._messages:
            return self._take()
        if timeout_s is None:
            return await self._wait_message()
        clock = self._client.runtime.clock
        with clock.deadline(clock.mono_ns() + nanoseconds(timeout_s)):
            return await self._wait_message()
        raise TimedOut(f"subscription {self.subject!r}: no message within {timeout_s:g} s")

    async def next_batch(self, count_max: int = 1024) -> list[Message]:
        """All that is pending, at least one and at most `count_max`; an empty list at the end.

        The fastest way to consume. Raises the error that ended the subscription.
        """
        if not self._messages and not await self._wait_pending():
            return []
        self._handling[trio.lowlevel.current_task()] = None
        if len(self._messages) <= count_max:
            return self.take_pending()
        return [self._take() for _ in range(count_max)]

    def take_pending(self) -> list[Message]:
        """What is pending, without waiting; perhaps nothing."""
        messages = list(self._messages)
        self._messages.clear()
        self.pending_bytes = 0
        self._slow = False
        if self._ended:
            self._client.subscription_progress()
        return messages

    async def _wait_message(self) -> Message:
        if not self._messages and not await self._wait_pending():
            raise SubscriptionClosed(f"subscription {self.subject!r} has ended")
        return self._take()

    async def _wait_pending(self) -> bool:
        """Whether a message is pending, or else the end has come. Raises the error that ended the subscription."""
        self._handling.pop(trio.lowlevel.current_task(), None)
        while not self._messages:
            if self._ended:
                self._client.subscription_progress()
                if self._error is not None:
                    raise self._error
                return False
            await self._lot.park()
        return True

    def _take(self) -> Message:
        message = self._messages.popleft()
        self.pending_bytes -= message.size
        if not self._messages:
            self._slow = False
            if self._ended:
                self._client.subscription_progress()
        return message

    # ---------------------------------------------------------------- ending

    def unsubscribe(self) -> None:
        """Stop at once: pending messages are discarded, waiting tasks see the end. Idempotent."""
        self._client.unsubscribe(self)
        self._messages.clear()
        self.pending_bytes = 0
        self._handling.clear()
        self._client.subscription_progress()

    async def drain(self) -> None:
        """Stop the flow but keep what was sent: returns when everything the server sent before it stopped is pending.

        Iteration then ends by itself after the last pending message. Raises ConnectionLost, TimedOut.
        """
        await self._client.drain_subscription(self)

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unsubscribe()

    # ---------------------------------------------------------------- called by the client

    def deliver(self, message: Message) -> None:
        """Take a message from the protocol loop."""
        self.received_count += 1
        messages = self._messages
        size = message.size
        if messages and (len(messages) >= self.pending_count_max or self.pending_bytes + size > self.pending_bytes_max):
            self.dropped_count += 1
            if not self._slow:
                self._slow = True
                self._client.report(SlowConsumer(self.subject, len(messages), self.pending_bytes))
        else:
            messages.append(message)
            self.pending_bytes += size
            if self._lot:
                self._lot.unpark()
        if self.received_count == self.max_messages:
            self._client.subscription_complete(self)

    def renewed(self) -> None:
        """A fresh connection carries it on."""

    @property
    def left_count(self) -> int | None:
        """Messages until its end; None for no end."""
        return self.max_messages - self.received_count if self.max_messages else None

    def denied(self, denial: Denial) -> bool:
        """Whether `denial` is about this subscription."""
        return not denial.publish and (denial.subject, denial.queue) == (self.subject, self.queue)

    def busy(self, except_task: trio.lowlevel.Task) -> bool:
        """Whether messages are pending, or are being handled by a task other than `except_task`."""
        return bool(self._messages) or any(task is not except_task for task in self._handling)

    def end(self, error: ClientError | None) -> None:
        """No further message will come, because of `error` or by the user's wish. Idempotent."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._lot.unpark_all()
