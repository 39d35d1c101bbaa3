"""Pull requests: their body, the rules they must obey, and the queue they wait in (ADR-13, ADR-42)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import attrs

from tnats.jetstream.api.fields import BOOL, DURATION, INT, TEXT, DecodeError, decode, row
from tnats.jetstream.api.times import format_duration
from tnats.jetstream.consumer.config import ConsumerConfig, PriorityPolicy
from tnats.limits import PULL_BODIES_KNOWN, PULL_BODY_BYTES_KNOWN
from tnats.records import define, frozen

PRIORITY_MAX = 9


@frozen
class PullBody:
    """The JSON of a pull request; unknown keys are passed over."""

    batch: int = row("batch", INT, default=0)
    expires_ns: int = row("expires", DURATION, default=0)
    no_wait: bool = row("no_wait", BOOL, default=False)
    max_bytes: int = row("max_bytes", INT, default=0)
    idle_heartbeat_ns: int = row("idle_heartbeat", DURATION, default=0)
    group: str = row("group", TEXT, default="")
    min_pending: int = row("min_pending", INT, default=0)
    min_ack_pending: int = row("min_ack_pending", INT, default=0)
    id: str = row("id", TEXT, default="")
    priority: int = row("priority", INT, default=0)


class Asked(NamedTuple):
    """A pull request as it came. `is_supported`: this server offers the API level that it requires."""

    reply: bytes
    body: bytes
    is_supported: bool = True


@define(eq=False)
class PullRequest:
    """A waiting request. `messages_left`, `bytes_left` (0: no bound): what it may still get."""

    reply: bytes
    messages_left: int
    bytes_left: int
    expires_ns: int | None
    no_wait: bool
    heartbeat_ns: int
    heartbeat_due_ns: int
    group: str
    min_pending: int
    min_ack_pending: int
    pin_id: str
    priority: int
    sent: int = 0
    is_bounded: bool = attrs.field(init=False)
    """It began with a bound on bytes."""

    def __attrs_post_init__(self) -> None:
        self.is_bounded = self.bytes_left > 0


def parse_body(body: bytes) -> PullBody:
    """What a request asks for: JSON, a number, or nothing, which means one message; so does what cannot be read.

    Clients ask for the same again and again: what short bodies say is remembered.
    """
    return _parse_known(body) if len(body) <= PULL_BODY_BYTES_KNOWN else _parse_body(body)


def _parse_body(body: bytes) -> PullBody:
    text = body.strip()
    if text.isascii() and text.isdigit():
        return PullBody(batch=min(int(text[:19]), 2**62))
    if not text.startswith(b"{"):
        return PullBody(batch=1)
    try:
        return decode(PullBody, text, strict=False)
    except DecodeError:
        return PullBody(batch=1)


_parse_known = lru_cache(PULL_BODIES_KNOWN)(_parse_body)


def refusal(body: PullBody, config: ConsumerConfig, pins: dict[str, str]) -> str | None:
    """The status line ("409 ...") that answers a request against the rules, or None.

    `pins`: id of the client that each priority group is pinned to.
    """
    if config.max_batch and body.batch > config.max_batch:
        return f"409 Exceeded MaxRequestBatch of {config.max_batch}"
    if config.max_expires_ns and body.expires_ns > config.max_expires_ns:
        return f"409 Exceeded MaxRequestExpires of {format_duration(config.max_expires_ns)}"
    if config.max_bytes and body.max_bytes > config.max_bytes:
        return f"409 Exceeded MaxRequestMaxBytes of {config.max_bytes}"
    if body.idle_heartbeat_ns > 0 and body.idle_heartbeat_ns * 2 > body.expires_ns:
        return "400 Bad Request - heartbeat value too large"
    if not 0 <= body.priority <= PRIORITY_MAX:
        return f"400 Bad Request - Priority must be between 0 and {PRIORITY_MAX}"
    policy = config.priority_policy
    if policy != PriorityPolicy.NONE:
        if not body.group:
            return "400 Bad Request - Priority Group missing"
        if body.group not in config.priority_groups:
            return "400 Bad Request - Invalid Priority Group"
    if policy != PriorityPolicy.OVERFLOW and (body.min_pending > 0 or body.min_ack_pending > 0):
        return "400 Bad Request - Not a Overflow Priority consumer"
    if body.id:
        if policy != PriorityPolicy.PINNED_CLIENT:
            return "400 Bad Request - Not a Pinned Client Priority consumer"
        if pins.get(body.group) != body.id:
            return "423 Nats-Pin-Id mismatch"
    return None


def make_request(reply: bytes, body: PullBody, config: ConsumerConfig, now_ns: int) -> PullRequest:
    """The waiting request that an accepted body becomes."""
    expires_ns: int | None = None
    if body.expires_ns > 0:
        expires_ns = now_ns + body.expires_ns
    elif config.max_expires_ns and not body.no_wait:
        expires_ns = now_ns + config.max_expires_ns
    elif body.expires_ns < 0:
        expires_ns = now_ns
    heartbeat_ns = max(body.idle_heartbeat_ns, 0)
    return PullRequest(
        reply=reply,
        messages_left=max(body.batch, 1),
        bytes_left=max(body.max_bytes, 0),
        expires_ns=expires_ns,
        no_wait=body.no_wait,
        heartbeat_ns=heartbeat_ns,
        heartbeat_due_ns=now_ns + heartbeat_ns,
        group=body.group,
        min_pending=max(body.min_pending, 0),
        min_ack_pending=max(body.min_ack_pending, 0),
        pin_id=body.id,
        priority=body.priority,
    )


class WaitQueue:
    """Waiting requests: lower priority numbers first, within one number in turns, a message each."""

    def __init__(self) -> None:
        self._by_priority: dict[int, deque[PullRequest]] = {}
        """None of them empty: of a thousand consumers most wait for nothing."""
        self._count = 0
        self.bounded_count = 0
        """Of those that may get so many bytes and no more."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PullRequest]:
        for number in sorted(self._by_priority):
            yield from self._by_priority[number]

    def add(self, request: PullRequest) -> None:
        """A request waits."""
        queue = self._by_priority.get(request.priority)
        if queue is None:
            queue = self._by_priority[request.priority] = deque()
        queue.append(request)
        self._count += 1
        self.bounded_count += request.is_bounded

    def first_queue(self) -> deque[PullRequest] | None:
        """The requests of the lowest number, in the order of their turns."""
        return self._by_priority[min(self._by_priority)] if self._by_priority else None

    def first(self) -> PullRequest | None:
        """The request whose turn it is."""
        queue = self.first_queue()
        return queue[0] if queue is not None else None

    def rotate(self, request: PullRequest) -> None:
        """A request got a message: the others of its priority come next."""
        queue = self._by_priority[request.priority]
        if queue[0] is request:
            queue.rotate(-1)
        else:
            queue.remove(request)
            queue.append(request)

    def remove(self, request: PullRequest) -> None:
        """A request is done."""
        queue = self._by_priority[request.priority]
        if queue[0] is request:
            queue.popleft()
        else:
            queue.remove(request)
        if not queue:
            del self._by_priority[request.priority]
        self._count -= 1
        self.bounded_count -= request.is_bounded

    def messages_wanted(self) -> int:
        """What all requests together may still get."""
        return sum(request.messages_left for request in self)
