"""The pull requests that wait at a consumer: who is let in, whose turn it is, and what they are told when they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tnats.jetstream.consumer import requests
from tnats.jetstream.consumer.ack_timers import AckTimers
from tnats.jetstream.consumer.ahead import Ahead
from tnats.jetstream.consumer.config import PriorityPolicy
from tnats.jetstream.consumer.core import Core
from tnats.jetstream.consumer.priority import PriorityGroups
from tnats.jetstream.consumer.requests import PullRequest, WaitQueue

CONSUMER_DELETED = "409 Consumer Deleted"
_IN_TURNS = (PriorityPolicy.NONE, PriorityPolicy.PRIORITIZED)


class WaitingRequests:
    """See the module's text."""

    def __init__(
        self, core: Core, ahead: Ahead, timers: AckTimers, groups: PriorityGroups, has_interest: Callable[[bytes], bool]
    ) -> None:
        """`has_interest`: whether anybody subscribes to a subject now."""
        self.groups = groups
        self._core = core
        self._ahead = ahead
        self._timers = timers
        self._has_interest = has_interest
        self._queue = WaitQueue()

    def __len__(self) -> int:
        return len(self._queue)

    def use(self, groups: PriorityGroups) -> None:
        """Take over the groups of another configuration, with the pins that it still knows."""
        if groups.policy == self.groups.policy:
            names = self._core.config.priority_groups
            groups.pins = {name: pin for name, pin in self.groups.pins.items() if name in names}
        self.groups = groups

    # ------------------------------------------------------------------ coming

    def take(self, reply: bytes, body: bytes, now_ns: int) -> None:
        """A request came; it waits now, or was answered."""
        if not reply:
            return
        core, wanted = self._core, requests.parse_body(body)
        line = requests.refusal(wanted, core.config, self.groups.pinned_ids())
        if line is not None:
            core.status(reply, line)
            return
        if wanted.id:
            self.groups.heard_from(wanted.group, wanted.id, now_ns)
        if len(self._queue) >= core.config.max_waiting:
            self.expire(now_ns)
        if len(self._queue) >= core.config.max_waiting:
            # With heartbeats the client notices by itself, and hammering it with errors would make it ask more.
            if wanted.idle_heartbeat_ns <= 0:
                core.status(reply, "409 Exceeded MaxWaiting")
            return
        if wanted.no_wait:
            left = self._to_be_had()
            if not left and wanted.expires_ns <= 0:
                core.status(reply, "404 No Messages")
                return
            if left and left < self._queue.messages_wanted():
                core.status(reply, "408 Requests Pending")
                return
        self._queue.add(requests.make_request(reply, wanted, core.config, now_ns))

    def _to_be_had(self) -> int:
        return self._ahead.undelivered() + len(self._timers.ready)

    # ------------------------------------------------------------------ turns

    def wanted_count(self) -> int:
        """How many messages can be of use at once: at least one."""
        turns = self.turns()
        return sum([request.messages_left for request in turns]) if turns is not None else 1

    def turns(self) -> deque[PullRequest] | None:
        """The requests that get the next messages in turns, if nothing but the number that each wants matters."""
        if self._queue.bounded_count or self.groups.policy not in _IN_TURNS:
            return None
        return self._queue.first_queue()

    def served_in_turns(self, turns: deque[PullRequest], count: int, now_ns: int) -> None:
        """`count` messages went to the requests of `turns`, beginning with the first, none getting too many."""
        size = len(turns)
        for place in range(min(size, count)):
            request = turns[place]
            got = (count - place + size - 1) // size
            request.sent += got
            request.messages_left -= got
            request.heartbeat_due_ns = now_ns + request.heartbeat_ns
        turns.rotate(-(count % size))
        for request in [request for request in turns if not request.messages_left]:
            self._queue.remove(request)

    def eligible(self) -> PullRequest | None:
        """The one request that may get the next message."""
        if self.groups.policy in _IN_TURNS:
            return self._queue.first()
        pending_count = self._to_be_had()
        for request in self._queue:
            if self.groups.is_eligible(request, pending_count, len(self._core.state.pending)):
                return request
        return None

    def served(self, request: PullRequest, size: int, now_ns: int) -> None:
        """A message of `size` bytes went to a request."""
        request.sent += 1
        request.messages_left -= 1
        request.heartbeat_due_ns = now_ns + request.heartbeat_ns
        if not request.messages_left:
            if request.bytes_left > size:
                request.bytes_left -= size
                self.end(request, "409 Batch Completed")
            else:
                self._queue.remove(request)
            return
        if request.bytes_left:
            request.bytes_left -= size
            if not request.bytes_left:
                self.end(request, "409 Message Size Exceeds MaxBytes")
                return
        self._queue.rotate(request)

    # ------------------------------------------------------------------ ending

    def end(self, request: PullRequest, line: str) -> None:
        """Answer a request with a status, and forget it."""
        self._queue.remove(request)
        self._core.status(
            request.reply,
            line,
            ("Nats-Pending-Messages", request.messages_left),
            ("Nats-Pending-Bytes", request.bytes_left),
        )

    def end_all(self, line: str) -> None:
        """Answer all with a status, and forget them."""
        for request in list(self._queue):
            if line == CONSUMER_DELETED:
                self._queue.remove(request)
                self._core.status(request.reply, line)
            else:  # worth asking again: what is missing is told
                self.end(request, line)

    def end_no_wait(self) -> None:
        """Nothing (more) can be had at once."""
        for request in list(self._queue):
            if request.no_wait and (request.sent or request.expires_ns is None):
                self._queue.remove(request)
                self._core.status(request.reply, "404 No Messages")

    def drop_deaf(self) -> None:
        """Forget those whose reply subject nobody listens to any more."""
        for request in list(self._queue):
            if not self._has_interest(request.reply):
                self._queue.remove(request)

    # ------------------------------------------------------------------ time

    def expire(self, now_ns: int) -> None:
        """End those whose time is over."""
        for request in list(self._queue):
            if request.expires_ns is not None and request.expires_ns <= now_ns:
                self.end(request, "408 Request Timeout")

    def send_heartbeats(self, now_ns: int, *headers: tuple[str, object]) -> None:
        """Tell those that asked for it that we live."""
        for request in self._queue:
            if request.heartbeat_ns and request.heartbeat_due_ns <= now_ns:
                self._core.status(request.reply, "100 Idle Heartbeat", *headers)
                request.heartbeat_due_ns = now_ns + request.heartbeat_ns

    def deadlines(self) -> list[int | None]:
        """When there is something to do, for each of several reasons; None: not by itself."""
        deadlines = [self.groups.next_deadline_ns()]
        if len(self._queue):
            for request in self._queue:
                deadlines.append(request.expires_ns)
                if request.heartbeat_ns:
                    deadlines.append(request.heartbeat_due_ns)
        return deadlines
