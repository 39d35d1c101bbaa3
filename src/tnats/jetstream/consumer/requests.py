"""Pull requests: their body, the rules they must obey, and the queue they wait in (ADR-13, ADR-42)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from heapq import merge
from itertools import chain
from typing import NamedTuple

import attrs

from tnats.jetstream.api.fields import BOOL, DURATION, INT, TEXT, decode, row
from tnats.jetstream.api.json_text import DecodeError
from tnats.jetstream.consumer.config import ConsumerConfig, PriorityPolicy
from tnats.limits import PULL_BODIES_KNOWN, PULL_BODY_BYTES_KNOWN
from tnats.moments import Moments
from tnats.notation import format_duration
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


class Wish(NamedTuple):
    """On what it depends whether a request may be served, and before whom: few differ, however many requests wait.

    `group` and `pin_id` are those of consumers that pin clients, and empty for others.
    """

    priority: int = 0
    group: str = ""
    pin_id: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0


@define(eq=False)
class PullRequest:
    """A waiting request. `batch`: messages, as asked for; none or fewer asks for one.

    `messages_left`, `bytes_left` (0: no bound): what it may still get.
    """

    reply: bytes
    batch: int
    bytes_left: int
    expires_ns: int | None
    no_wait: bool
    heartbeat_ns: int
    heartbeat_due_ns: int
    wish: Wish
    turn: int = 0
    """Lower ones come first."""
    sent: int = 0
    is_bounded: bool = attrs.field(init=False)
    """It began with a bound on bytes."""
    messages_left: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.messages_left = max(self.batch, 1)
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
    heartbeat_ns = max(body.idle_heartbeat_ns, 0)
    return PullRequest(
        reply=reply,
        batch=body.batch,
        bytes_left=max(body.max_bytes, 0),
        expires_ns=now_ns + body.expires_ns if body.expires_ns else None,
        no_wait=body.no_wait,
        heartbeat_ns=heartbeat_ns,
        heartbeat_due_ns=now_ns + heartbeat_ns,
        wish=Wish(
            body.priority,
            body.group if config.priority_policy == PriorityPolicy.PINNED_CLIENT else "",
            body.id,
            max(body.min_pending, 0),
            max(body.min_ack_pending, 0),
        ),
    )


class WaitQueue:
    """Waiting requests: lower priority numbers first, within one number in turns, a message each.

    Those whose readers are behind are held up, aside from the others, and come first when they are released.
    """

    def __init__(self) -> None:
        self._by_wish: dict[Wish, OrderedDict[PullRequest, None]] = {}
        """Each in the order of their turns. None is empty: of a thousand consumers most wait for nothing."""
        self._last_turn = 0
        self._first_turn = 0
        self.held_up: dict[bytes, dict[PullRequest, None]] = {}
        """By reply subject."""
        self.impatient: dict[PullRequest, None] = {}
        """Those that end when nothing (more) is to be had at once."""
        self.due: Moments[PullRequest] = Moments()
        """When time may do something to a request, at the earliest."""
        self.count = 0
        """Of all."""
        self.bounded_count = 0
        """Of those that may get so many bytes and no more."""
        self.messages_wanted = 0
        """What all together may still get."""

    def __iter__(self) -> Iterator[PullRequest]:
        yield from sorted(chain.from_iterable(self._by_wish.values()), key=_place)
        for held_up in self.held_up.values():
            yield from held_up

    def first(self) -> Iterable[PullRequest]:
        """Those of the lowest number that are not held up, in the order of their turns."""
        if len(self._by_wish) <= 1:
            return next(iter(self._by_wish.values()), ())
        lowest = min(self._by_wish).priority
        return merge(*(turns for wish, turns in self._by_wish.items() if wish.priority == lowest), key=_place)

    def first_of(self, may: Callable[[Wish], bool]) -> PullRequest | None:
        """The first one that is not held up and may be served by what it wishes for."""
        return min((next(iter(turns)) for wish, turns in self._by_wish.items() if may(wish)), key=_place, default=None)

    def add(self, request: PullRequest) -> None:
        """A request waits."""
        self._put_last(request)
        if request.no_wait and request.expires_ns is None:
            self.impatient[request] = None
        self.count += 1
        self.bounded_count += request.is_bounded
        self.messages_wanted += request.messages_left

    def got(self, request: PullRequest, count: int) -> None:
        """A request gets so many messages: the others of its priority come next."""
        request.sent += count
        request.messages_left -= count
        if request.no_wait:
            self.impatient[request] = None
        self.messages_wanted -= count
        self._put_last(request)

    def wish_otherwise(self, request: PullRequest, wish: Wish) -> None:
        """A request that is not held up has another wish now: it comes last."""
        self._take_out(request)
        request.wish = wish
        self._put_last(request)

    def remove(self, request: PullRequest) -> None:
        """A request is done."""
        if self.is_held_up(request):
            held_up = self.held_up[request.reply]
            del held_up[request]
            if not held_up:
                del self.held_up[request.reply]
        else:
            self._take_out(request)
        self.impatient.pop(request, None)
        self.due.forget(request)
        self.count -= 1
        self.bounded_count -= request.is_bounded
        self.messages_wanted -= request.messages_left

    def hold_up(self, request: PullRequest) -> None:
        """A request gets nothing until it is released."""
        self._take_out(request)
        self.held_up.setdefault(request.reply, {})[request] = None

    def is_held_up(self, request: PullRequest) -> bool:
        """Whether a request that waits is held up."""
        return request in self.held_up.get(request.reply, ())

    def release(self, reply: bytes) -> None:
        """Let those with a reply subject have their turns again, before the others."""
        for request in reversed(self.held_up.pop(reply, {})):
            self._first_turn -= 1
            request.turn = self._first_turn
            turns = self._by_wish.setdefault(request.wish, OrderedDict())
            turns[request] = None
            turns.move_to_end(request, last=False)

    def _put_last(self, request: PullRequest) -> None:
        self._last_turn += 1
        request.turn = self._last_turn
        turns = self._by_wish.get(request.wish)
        if turns is None:
            turns = self._by_wish[request.wish] = OrderedDict()
        turns[request] = None
        turns.move_to_end(request)

    def _take_out(self, request: PullRequest) -> None:
        turns = self._by_wish[request.wish]
        del turns[request]
        if not turns:
            del self._by_wish[request.wish]


def _place(request: PullRequest) -> tuple[int, int]:
    return request.wish.priority, request.turn
