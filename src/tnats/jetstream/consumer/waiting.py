"""The pull requests that wait at a consumer: who is let in, whose turn it is, and what they are told when they end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from tnats.jetstream.api import advisories
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
        self,
        core: Core,
        ahead: Ahead,
        timers: AckTimers,
        groups: PriorityGroups,
        room: Callable[[bytes], int | None],
    ) -> None:
        """`room`: how many bytes may be sent to a subject now (`Bus.room`)."""
        self.groups = groups
        self._core = core
        self._ahead = ahead
        self._timers = timers
        self._room = room
        self._queue = WaitQueue()

    def __len__(self) -> int:
        return self._queue.count

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
        if self._queue.count >= core.config.max_waiting:
            self.tick(now_ns)
        if self._queue.count >= core.config.max_waiting:
            # With heartbeats the client notices by itself, and hammering it with errors would make it ask more.
            if wanted.idle_heartbeat_ns <= 0:
                core.status(reply, "409 Exceeded MaxWaiting")
            return
        if wanted.no_wait:
            left = self._to_be_had()
            if not left and wanted.expires_ns <= 0:
                core.status(reply, "404 No Messages")
                return
            if left and left < self._queue.messages_wanted:
                core.status(reply, "408 Requests Pending")
                return
        request = requests.make_request(reply, wanted, core.config, now_ns)
        if wanted.expires_ns < 0:
            self._tell_end(request, "408 Request Timeout")
            return
        self._queue.add(request)
        self._set_due(request)

    def _to_be_had(self) -> int:
        return self._ahead.undelivered() + len(self._timers.ready)

    # ------------------------------------------------------------------ turns

    @property
    def are_in_turns(self) -> bool:
        """Whether nothing matters but how many messages each wants."""
        return not self._queue.bounded_count and self.groups.policy in _IN_TURNS

    def wanted_count(self) -> int:
        """How many messages can be of use at once: at least one."""
        return self._queue.messages_wanted if self.are_in_turns else 1

    def turns(self, count: int) -> tuple[list[PullRequest], int]:
        """Those that get the next `count` messages in turns, if they are in turns, and how many bytes that may be."""
        found: list[PullRequest] = []
        rooms: list[int] = []
        while len(found) < count and (turns := list(islice(self._queue.first(), len(found), count))):
            for request in turns:
                room = self._look(request)
                if room:
                    found.append(request)
                    rooms.append(room)
        return found, min(rooms, default=0)

    def served_in_turns(self, turns: list[PullRequest], count: int, now_ns: int) -> None:
        """`count` messages went to the requests of `turns`, beginning with the first, none getting too many."""
        size = min(len(turns), count)
        after = count % size
        for place in (*range(after, size), *range(after)):  # who gets the last one has its next turn last
            request = turns[place]
            self._queue.got(request, (count - place + len(turns) - 1) // len(turns))
            request.heartbeat_due_ns = now_ns + request.heartbeat_ns
            if not request.messages_left:
                self._queue.remove(request)

    def eligible(self) -> PullRequest | None:
        """The one request that may get the next message, if its reader is not behind."""
        if self.groups.policy in _IN_TURNS:
            return next(iter(self._queue.first()), None)
        pending_count, ack_pending_count = self._to_be_had(), len(self._core.state.pending)
        return self._queue.first_of(lambda wish: self.groups.may_be_served(wish, pending_count, ack_pending_count))

    def next_request(self) -> tuple[PullRequest | None, int]:
        """The one request that gets the next message, and how many bytes that may be; None, 0 if there is none."""
        while (request := self.eligible()) is not None:
            room = self._look(request)
            if room:
                return request, room
        return None, 0

    def pin(self, request: PullRequest, now_ns: int) -> str:
        """The pin id that a message for a request carries, empty for none; its client is pinned if none is yet."""
        core, group = self._core, request.wish.group
        pin_id, is_new = self.groups.serve(group, now_ns + core.wall_offset_ns, now_ns)
        if is_new:
            self._queue.wish_otherwise(request, request.wish._replace(pin_id=pin_id))
            core.advise(advisories.group_pinned(core.identity, group, pin_id))
        return pin_id

    def served(self, request: PullRequest, size: int, now_ns: int) -> None:
        """A message of `size` bytes went to a request."""
        self._queue.got(request, 1)
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

    # ------------------------------------------------------------------ ending

    def end(self, request: PullRequest, line: str) -> None:
        """Answer a request with a status, and forget it."""
        self._queue.remove(request)
        self._tell_end(request, line)

    def _tell_end(self, request: PullRequest, line: str) -> None:
        self._core.status(
            request.reply,
            line,
            ("Nats-Pending-Messages", request.batch - request.sent),
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

    def end_no_wait(self, *, held_up: bool) -> None:
        """Nothing (more) can be had at once; `held_up`: by those that are held up neither."""
        for request in list(self._queue.impatient):
            if held_up or not self._queue.is_held_up(request):
                self._queue.remove(request)
                self._core.status(request.reply, "404 No Messages")

    # ------------------------------------------------------------------ readers

    def release(self, reply: bytes) -> None:
        """Let those have their turns again that were held up on a reply subject."""
        self._queue.release(reply)

    def _look(self, request: PullRequest) -> int:
        """How many bytes the reader of one that is not held up may be sent. If none: it is now, or is forgotten."""
        reply = request.reply
        is_behind = reply in self._queue.held_up
        room = 0 if is_behind else self._room(reply)
        if room is None:
            self._queue.remove(request)
        elif not room:
            self._queue.hold_up(request)
            if not is_behind:
                self._core.effects.behind.append(reply)
        return room or 0

    # ------------------------------------------------------------------ time

    def tick(self, now_ns: int) -> None:
        """End those whose time is over; tell others that we live, if they asked for it."""
        while (request := self._queue.due.pop_due(now_ns)) is not None:
            if request.expires_ns is not None and request.expires_ns <= now_ns:
                self.end(request, "408 Request Timeout")
                continue
            if request.heartbeat_ns and request.heartbeat_due_ns <= now_ns:
                self._core.heartbeat(request.reply)
                request.heartbeat_due_ns = now_ns + request.heartbeat_ns
            self._set_due(request)

    def _set_due(self, request: PullRequest) -> None:
        """Look at a request that waits when time may do something to it."""
        moments_ns = [request.expires_ns, request.heartbeat_due_ns if request.heartbeat_ns else None]
        due_ns = min((moment_ns for moment_ns in moments_ns if moment_ns is not None), default=None)
        if due_ns is not None:
            self._queue.due.set(request, due_ns)

    def deadlines(self) -> list[int | None]:
        """When there may be something to do, for each of several reasons; None: not by itself."""
        return [self.groups.next_deadline_ns(), self._queue.due.next_ns()]
