"""The client as its users see it: publish, subscribe, request, flush, drain."""

from __future__ import annotations

from typing import TypeVar

import trio

from tnats import limits
from tnats.client.connection import Connection, Statistics, Status
from tnats.client.errors import BadSubject, ClientError, ConnectionClosed, ConnectionLost, PayloadTooLarge, TimedOut
from tnats.client.events import Event
from tnats.client.message import HeadersLike, Message, encode_headers
from tnats.client.options import nanoseconds
from tnats.client.requests import Inbox, Reply, ReplyStream, ReplyTaker, raise_for_status
from tnats.client.subscription import Subscription
from tnats.client.table import Interest, subscribe_operation
from tnats.ids import Nuid
from tnats.subjects.tokens import has_space, is_valid_subject, to_bytes
from tnats.wire.client import encode_pub, encode_unsub
from tnats.wire.info import ServerInfo

S = TypeVar("S", bound=Subscription)


class Client:
    """A connection to NATS that survives the loss of servers. Made by `connect`.

    Every call may be made from any task of the same trio run. Subjects are str, payloads bytes.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        connection.client = self
        self.runtime = connection.runtime
        self._statistics = connection.statistics
        self._yield_bytes = min(limits.CLIENT_YIELD_BYTES, connection.options.pending_bytes_max)
        self._pending_bytes_max = connection.options.pending_bytes_max
        self._inbox: Inbox | None = None
        self._nuid = Nuid(self.runtime.chance.rng("client.inbox"))
        self._subjects: dict[str, bytes] = {}
        self._draining = False
        self._progress = trio.lowlevel.ParkingLot()

    def __repr__(self) -> str:
        return f"<tnats.client.Client {self.status.value} {self._connection.servers[:1]}>"

    # ---------------------------------------------------------------- what there is to know

    @property
    def status(self) -> Status:
        """Whether the client is connected, on its way back, or closed."""
        return self._connection.status

    @property
    def statistics(self) -> Statistics:
        """Counters since the client was made; the object is live."""
        return self._statistics

    @property
    def servers(self) -> list[str]:
        """URLs of every known server, most preferred first."""
        return self._connection.servers

    @property
    def server_info(self) -> ServerInfo:
        """What the server said of itself last; while disconnected, the one before."""
        return self._connection.server_info

    # ---------------------------------------------------------------- publish

    def publish_nowait(
        self, subject: str, data: bytes = b"", *, reply: str = "", headers: HeadersLike | None = None
    ) -> None:
        """Queue a message without waiting: for batches, and from synchronous code.

        The bytes leave when other tasks run next. Raises PendingBufferFull, PayloadTooLarge, BadSubject or
        ConnectionClosed; then nothing was queued.
        """
        connection = self._connection
        if not connection.accepting or connection.outbound.byte_count >= self._pending_bytes_max:
            connection.raise_no_room()
        self._queue(subject, data, reply, headers)

    async def publish(
        self, subject: str, data: bytes = b"", *, reply: str = "", headers: HeadersLike | None = None
    ) -> None:
        """Queue a message; waits while the outgoing buffer is full, so that a producer cannot outrun the network.

        Returning says nothing about arrival; `flush` does. Raises PayloadTooLarge, BadSubject, ConnectionClosed.
        """
        connection = self._connection
        if not connection.accepting or connection.outbound.byte_count >= self._yield_bytes:
            await connection.wait_room()
        self._queue(subject, data, reply, headers)

    async def answer(self, reply: str, data: bytes, headers: HeadersLike | None) -> None:
        """`Message.respond`: as `publish`, on a subject that came from a server and is not used again."""
        connection = self._connection
        if not connection.accepting or connection.outbound.byte_count >= self._yield_bytes:
            await connection.wait_room()
        self._queue_on(to_bytes(reply), reply, data, "", headers)

    def _queue(self, subject: str, data: bytes, reply: str, headers: HeadersLike | None) -> None:
        """Queue one message on a subject that is checked unless it is known."""
        self._queue_on(self._subjects.get(subject) or self._wire_subject(subject), subject, data, reply, headers)

    def _queue_on(
        self, wire_subject: bytes, subject: str, data: bytes, reply: str, headers: HeadersLike | None
    ) -> None:
        """The hot path of publishing: encode one message into the outgoing buffer."""
        connection = self._connection
        wire_reply = checked_subject(reply, "reply") if reply else b""
        block = encode_headers(headers) if headers else b""
        size = len(block) + len(data)
        if size > connection.payload_max:
            raise PayloadTooLarge(
                f"publish on {subject!r}: {size} bytes of headers and payload, the server's max_payload is "
                f"{connection.payload_max}"
            )
        connection.outbound.append(encode_pub(wire_subject, data, wire_reply, block))
        statistics = self._statistics
        statistics.messages_out += 1
        statistics.bytes_out += size
        connection.wake_writer()

    def _wire_subject(self, subject: str) -> bytes:
        """Check a publish subject and keep its encoded form: most clients use few."""
        encoded = checked_subject(subject, "subject")
        if len(self._subjects) >= limits.CLIENT_SUBJECTS_CACHED_MAX:
            self._subjects.clear()
        self._subjects[subject] = encoded
        return encoded

    # ---------------------------------------------------------------- subscribe

    def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        max_messages: int = 0,
        pending_count_max: int = limits.CLIENT_SUBSCRIPTION_PENDING_COUNT_MAX,
        pending_bytes_max: int = limits.CLIENT_SUBSCRIPTION_PENDING_BYTES_MAX,
    ) -> Subscription:
        """Receive what is published on `subject`, which may hold wildcards, from now on.

        Of the subscribers with the same `queue`, one gets each message. With `max_messages` the subscription ends
        by itself after so many. The bounds and what happens beyond them: `tnats.client.subscription`. The server
        knows the subscription once everything queued has left; `flush` makes sure. Raises BadSubject,
        ConnectionClosed.
        """
        if max_messages < 0:
            raise ClientError(f"subscription {subject!r}: max_messages is {max_messages}, it cannot be negative")
        return self.open(Subscription(self, subject, queue, max_messages, pending_count_max, pending_bytes_max))

    def open(self, subscription: S) -> S:
        """Make a subscription known to the server: `subscribe` for classes derived from `Subscription`."""
        self._connection.check_open()
        if self._draining:
            raise ConnectionClosed("the client is draining: nothing can be subscribed any more")
        checked_subject(subscription.subject, "subject")
        if subscription.queue:
            checked_queue(subscription.queue)
        subscription.sid = self._add(subscription)
        return subscription

    def _add(self, interest: Interest) -> bytes:
        sid = self._connection.table.add(interest)
        self._connection.send(subscribe_operation(sid, interest))
        return sid

    def unsubscribe(self, subscription: Subscription) -> None:
        """`Subscription.unsubscribe`."""
        if self._connection.table.remove(subscription.sid):
            self._connection.send(encode_unsub(subscription.sid))
        subscription.end(None)

    def subscription_complete(self, subscription: Subscription) -> None:
        """`subscription` received its last message; the server counted along and has forgotten it."""
        self._connection.table.remove(subscription.sid)
        subscription.end(None)

    def subscription_progress(self) -> None:
        """An ended subscription may have been consumed to its end: `drain` waits for that."""
        self._progress.unpark_all()

    async def drain_subscription(self, subscription: Subscription) -> None:
        """`Subscription.drain`."""
        if subscription.ended:
            return
        self._connection.send(encode_unsub(subscription.sid))
        try:
            await self._round_trip(self._connection.options.drain_timeout_s, f"drain of {subscription.subject!r}")
        finally:
            self._connection.table.remove(subscription.sid)
            subscription.end(None)

    # ---------------------------------------------------------------- request

    def new_id(self) -> str:
        """A short text that no other call of this or any other client gives: for inboxes, names, message ids."""
        return self._nuid.next()

    def new_inbox(self) -> str:
        """A subject of one's own to receive answers on, under the option `inbox_prefix`."""
        return f"{self._connection.options.inbox_prefix}.{self.new_id()}"

    async def request(
        self, subject: str, data: bytes = b"", *, headers: HeadersLike | None = None, timeout_s: float = 5.0
    ) -> Message:
        """Publish and wait for the first reply.

        Raises NoResponders when nobody listens, TimedOut, PermissionsViolation, and what `publish` raises.
        """
        answer = Reply(subject)
        reply = self.open_reply(answer)
        clock = self.runtime.clock
        try:
            with clock.deadline(clock.mono_ns() + nanoseconds(timeout_s)):
                await self.publish(subject, data, reply=reply, headers=headers)
                published_count = self._statistics.messages_out
                self._connection.write_nowait()
                await answer.arrived.wait()
        finally:
            self.close_reply(reply)
        if answer.message is not None:
            self.confirmed(published_count)
            return raise_for_status(answer.message, subject)
        raise answer.error or TimedOut(f"request on {subject!r}: no reply within {timeout_s:g} s")

    def request_many(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        count_max: int | None = None,
        stall_s: float | None = None,
        timeout_s: float = 5.0,
    ) -> ReplyStream:
        """Publish and take several replies: `async with nc.request_many(...) as replies: async for reply in replies`.

        Ends at the first of: `count_max` replies, `stall_s` without a further reply after one, `timeout_s`.
        """
        return ReplyStream(
            self,
            subject,
            data,
            headers,
            count_max=count_max,
            stall_ns=None if stall_s is None else nanoseconds(stall_s),
            timeout_ns=nanoseconds(timeout_s),
        )

    def open_reply(self, taker: ReplyTaker) -> str:
        """A reply subject whose messages `taker` gets, until `close_reply`."""
        self._connection.check_accepting()
        if self._inbox is None:
            self._inbox = Inbox(self.new_inbox())
            self._add(self._inbox)
        return self._inbox.open(taker)

    def confirmed(self, published_count: int) -> None:
        """An answer proves that the server has handled the first `published_count` messages."""
        self._connection.confirmed(published_count)

    def close_reply(self, reply: str) -> None:
        """Forget a subject of `open_reply`."""
        assert self._inbox is not None
        self._inbox.close(reply)

    # ---------------------------------------------------------------- flush, drain, close

    async def flush(self, *, timeout_s: float = 10.0) -> None:
        """Return when the server has handled everything published before; while disconnected, wait for a connection.

        Returning is proof. Raises ConnectionLost when messages since the last proof were on their way as a connection
        broke, now or earlier: they may not have arrived. Raises TimedOut, ConnectionClosed.
        """
        self._connection.raise_unconfirmed()
        await self._round_trip(timeout_s, "flush")
        # A connection may have come and gone with messages while we waited for one.
        self._connection.raise_unconfirmed()

    async def round_trip_ns(self, *, timeout_s: float = 10.0) -> int:
        """How long the server takes to answer a PING now. Raises like `flush`."""
        return await self._round_trip(timeout_s, "round trip")

    async def _round_trip(self, timeout_s: float, purpose: str) -> int:
        clock = self.runtime.clock
        with clock.deadline(clock.mono_ns() + nanoseconds(timeout_s)):
            return await self._connection.round_trip()
        raise TimedOut(f"{purpose}: no answer from the server within {timeout_s:g} s")

    async def drain(self) -> None:
        """End in order: stop all subscriptions, let what was sent be handled, flush, close.

        Answers can be published meanwhile. When a message counts as handled: `tnats.client.subscription`. Bounded by
        the option `drain_timeout_s`, after which the client is closed and TimedOut raised. Raises ConnectionLost.
        """
        self._connection.check_open()
        self._draining = True
        clock = self.runtime.clock
        timeout_s = self._connection.options.drain_timeout_s
        try:
            with clock.deadline(clock.mono_ns() + nanoseconds(timeout_s)) as scope:
                await self._drain_subscriptions()
                self._connection.accepting = False
                await self._connection.round_trip()
        finally:
            self._connection.stop()
        await self._connection.ended.wait()
        if scope.cancelled_caught:
            raise TimedOut(f"drain: not done within {timeout_s:g} s, the limit drain_timeout_s; the client is closed")

    async def _drain_subscriptions(self) -> None:
        table = self._connection.table
        subscriptions = {
            sid: interest for sid, interest in table.interests.items() if isinstance(interest, Subscription)
        }
        for sid in subscriptions:
            self._connection.send(encode_unsub(sid))
        await self._connection.round_trip()
        for sid, subscription in subscriptions.items():
            table.remove(sid)
            subscription.end(None)
        task = trio.lowlevel.current_task()
        while any(subscription.busy(task) for subscription in subscriptions.values()):
            await self._progress.park()

    async def close(self) -> None:
        """End: flush what is queued for up to two seconds if connected, then disconnect. Idempotent.

        Waiting calls get ConnectionClosed, iterations end; pending messages can still be taken.
        """
        connection = self._connection
        connection.accepting = False
        if connection.status is Status.CONNECTED:
            clock = self.runtime.clock
            with clock.deadline(clock.mono_ns() + limits.CLIENT_CLOSE_GRACE_NS):
                try:
                    await connection.round_trip()
                except (ConnectionLost, ConnectionClosed):
                    pass
        connection.stop()
        await connection.ended.wait()

    def report(self, event: Event) -> None:
        """Hand an event to the user's callback."""
        self._connection.report(event)


def checked_subject(text: str, what: str) -> bytes:
    """The encoded form of a subject; raises BadSubject when it cannot stand on the wire as one."""
    if not is_valid_subject(text):
        raise BadSubject(f"{what} {text!r}: a subject has no empty tokens and no white space, and > only at its end")
    return to_bytes(text)


def checked_queue(text: str) -> bytes:
    """The encoded form of a queue group name; raises BadSubject."""
    if not text or has_space(text):
        raise BadSubject(f"queue group {text!r}: a queue group has no white space")
    return to_bytes(text)
