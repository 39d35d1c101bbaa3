"""Mirrors and sources whose origins are reached by messages: streams of other accounts or domains (`external`).

Theory of operation
-------------------
A `RemoteIntake` has a consumer made at the origin, through the API under the prefix that the configuration names, and
stores what that sends: a push consumer without acknowledgements, with heartbeats and flow control (ADR-15, ADR-28). A
session ends, and the next begins where the stream left off, when the consumer's own count has a gap, when nothing is
heard for a while, or when storing fails.

Flow control is answered when everything before it is stored, so what waits here is bounded by the origin's window; who
sends more than any window allows is cut off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson
import trio

from tnats.jetstream.consumer.acks import place_at
from tnats.jetstream.ports import Client
from tnats.jetstream.stream.config import StreamSource
from tnats.jetstream.stream.headers import STREAM_IDENTITY
from tnats.jetstream.stream.ports import Inbound
from tnats.jetstream.stream.sourcing import RETRY_NS, Intake
from tnats.limits import (
    SECOND_NS,
    SOURCING_BATCH_BYTES_MAX,
    SOURCING_BATCH_MSGS_MAX,
    SOURCING_WAITING_BYTES_MAX,
    STREAM_SEQUENCE_MAX,
)
from tnats.notation import format_time
from tnats.records import frozen
from tnats.runtime.api import DiskError
from tnats.storage.errors import StorageError
from tnats.storage.message_log import Stored
from tnats.subjects.tokens import to_bytes
from tnats.wire.headers import get_header

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService

HEARTBEAT_NS = SECOND_NS
SILENCE_NS_MAX = 3 * HEARTBEAT_NS
"""A consumer that is not heard for so long is gone."""
ANSWER_NS_MAX = 5 * SECOND_NS
INACTIVE_NS = 10 * SECOND_NS
"""The consumer goes by itself when nobody has listened for so long."""

_STATUS = b"NATS/1.0 100"
_LAST_CONSUMER = b"Nats-Last-Consumer"
_STALLED = b"Nats-Consumer-Stalled"


_Waiting = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, header block and payload of what came."""


class _Ended(Exception):
    """The session cannot go on; `error`: what the origin's API has said."""

    def __init__(self, error: dict[str, object] | None = None) -> None:
        super().__init__()
        self.error = error


@frozen
class _Place:
    """What the reply subject of a delivered message tells, in its order; `pending`: how many are behind it."""

    stream_seq: int
    consumer_seq: int
    time_ns: int
    pending: int


class RemoteIntake(Intake):
    """See the module's text."""

    def __init__(self, stream: StreamService, source: StreamSource, *, is_mirror: bool) -> None:
        super().__init__(stream, source, is_mirror=is_mirror)
        self._lag = 0
        self._consumer_seq = 0
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._answer: tuple[bytes, bytes] | None = None
        """Header block and payload of what the origin's API has said."""
        self._heard = trio.Event()
        self._client: Client

    def lag(self) -> int:
        return self._lag

    # ------------------------------------------------------------------ sessions

    async def run(self) -> None:
        """Until cancelled."""
        stream = self._stream
        clock = stream.host.runtime.clock
        self._client = stream.account.bus.client(f"origin of {stream.name}", self._deliver)
        try:
            while True:
                try:
                    if not self._is_early():
                        await self._session()
                except _Ended as end:
                    self._error = end.error
                except (StorageError, DiskError) as failure:
                    stream.host.log.warn(f"{stream.record.label} cannot source: {failure}")
                await clock.sleep_ns(RETRY_NS)
        finally:
            self._client.close()

    async def _session(self) -> None:
        """One consumer, from its making to its end. Raises _Ended, StorageError, DiskError."""
        external = self.source.external
        assert external is not None
        mark = self._stream.host.nuid.next()
        deliver = f"{external.deliver or '$JS'}.{'M' if self._is_mirror else 'S'}.{mark}"
        inbox = f"_INBOX.{mark}"
        self._waiting.clear()
        self._waiting_bytes = self._consumer_seq = 0
        self._answer = None
        subscriptions = [self._client.subscribe(to_bytes(subject)) for subject in (deliver, inbox)]
        try:
            body = orjson.dumps({"stream_name": self.source.name, "config": self._consumer_config(mark, deliver)})
            subject = f"{external.api}.CONSUMER.CREATE.{self.source.name}"
            self._client.publish(to_bytes(subject), body, reply=to_bytes(inbox))
            begun_behind = self._last_taken()
            await self._wait_answer()
            if self._last_taken() != begun_behind:
                raise _Ended  # it is another stream of that name
            while True:
                await self._store_some()
        finally:
            for subscription in subscriptions:
                self._client.end_subscription(subscription)

    def _consumer_config(self, mark: str, deliver: str) -> dict[str, Any]:
        config: dict[str, Any] = {
            "deliver_subject": deliver,
            "deliver_policy": "all",
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "idle_heartbeat": HEARTBEAT_NS,
            "flow_control": True,
            "inactive_threshold": INACTIVE_NS,
            "mem_storage": True,
            "num_replicas": 1,
            "direct": True,
        }
        filters = [pattern.decode() for pattern in self.filters if pattern != b">"]
        if len(filters) == 1:
            config["filter_subject"] = filters[0]
        elif filters and len(filters) == len(self.filters):
            config["filter_subjects"] = filters
        last = self._last_taken()
        if last or self.source.opt_start_seq:
            start_seq = last + 1 if last else self.source.opt_start_seq
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": start_seq}
        elif self.source.opt_start_time_ns is not None:
            start = format_time(self.source.opt_start_time_ns)
            config |= {"deliver_policy": "by_start_time", "opt_start_time": start}
        return config

    async def _wait_answer(self) -> None:
        await self._wait(lambda: self._answer is not None, ANSWER_NS_MAX)
        block, payload = self._answer or (b"", b"")
        try:
            answer = orjson.loads(payload)
            error = answer.get("error")
            self._lag = int(answer.get("num_pending", 0))
        except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError):
            raise _Ended from None
        if error is not None:
            raise _Ended(error)
        self._error = None
        self._identity = get_header(block, STREAM_IDENTITY) or b""
        self._last_active_ns = self._stream.host.mono_ns()

    # ------------------------------------------------------------------ what comes

    def _deliver(self, batch: list[Inbound]) -> None:
        for message in batch:
            size = message.header_size
            block, payload = bytes(message.data[:size]), bytes(message.data[size:])
            if message.subject.startswith(b"_INBOX."):
                self._answer = (block, payload)
                continue
            if self._waiting_bytes > SOURCING_WAITING_BYTES_MAX:
                continue  # the session ends for it, and what is left out comes in the next one
            waiting = (message.subject, message.reply, block, payload)
            self._waiting_bytes += _size_of(waiting)
            self._waiting.append(waiting)
        self._heard.set()

    async def _wait(self, condition: Callable[[], bool], wait_ns_max: int) -> None:
        """Return when `condition` holds. Raises _Ended when that takes too long."""
        clock = self._stream.host.runtime.clock
        with clock.deadline(clock.mono_ns() + wait_ns_max) as scope:
            while not condition():
                self._heard = trio.Event()
                await self._heard.wait()
        if scope.cancelled_caught:
            raise _Ended

    async def _store_some(self) -> None:
        """Wait for something, and store what is there. Raises _Ended, StorageError, DiskError."""
        await self._wait(lambda: bool(self._waiting), SILENCE_NS_MAX)
        if self._waiting_bytes > SOURCING_WAITING_BYTES_MAX:
            raise _Ended
        stored, flow_reply, is_missing = self._take()
        if stored:
            await self._put(stored)
            self.next_seq = stored[-1][0] + 1
        self._last_active_ns = self._stream.host.mono_ns()
        if is_missing:
            raise _Ended
        if flow_reply:
            self._client.publish(flow_reply, b"")

    def _take(self) -> tuple[list[Stored], bytes, bool]:
        """What came: messages in order, where flow control wants an answer, and whether something is missing."""
        stored: list[Stored] = []
        size = 0
        while self._waiting and len(stored) < SOURCING_BATCH_MSGS_MAX and size < SOURCING_BATCH_BYTES_MAX:
            waiting = self._waiting.popleft()
            subject, reply, block, payload = waiting
            size += len(block) + len(payload)
            self._waiting_bytes -= _size_of(waiting)
            if block.startswith(_STATUS) and not payload:
                last = get_header(block, _LAST_CONSUMER) or b""
                is_missing = last.isdigit() and int(last) > self._consumer_seq
                flow_reply = reply or get_header(block, _STALLED) or b""
                if is_missing or flow_reply:
                    return stored, flow_reply, is_missing
                continue
            place = _parse_reply(reply)
            if place is None or place.consumer_seq != self._consumer_seq + 1:
                return stored, b"", True
            self._consumer_seq, self._lag = place.consumer_seq, place.pending
            stored.append((place.stream_seq, place.time_ns, subject, block, payload))
        return stored, b"", False


def _size_of(waiting: _Waiting) -> int:
    return sum(map(len, waiting))


def _parse_reply(reply: bytes) -> _Place | None:
    """The place in the reply subject of a delivered message (`consumer.acks` has both forms), None if there is none."""
    tokens = reply.split(b".")
    at = place_at(tokens)
    if at is None:
        return None
    digits = tokens[at + 3 : at + 7]
    if not all(each.isdigit() for each in digits):
        return None
    numbers = [int(each) for each in digits]
    return _Place(*numbers) if max(numbers) <= STREAM_SEQUENCE_MAX else None
