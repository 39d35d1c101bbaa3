"""The queue of pull requests against lists, and what time does to requests against each of them alone."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.jetstream.consumers import Rig
from tests.unit.jetstream.stores import SECOND

from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.jetstream.consumer.requests import PullBody, PullRequest, WaitQueue, Wish, make_request
from tnats.moments import HEAP_COUNT_MIN

CONFIG = ConsumerConfig(name="C")
REPLIES = st.sampled_from([b"R1", b"R2"])


class QueueAgainstLists(RuleBasedStateMachine):
    """Order, counts and who is where, whatever comes, is served, held up, released and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WaitQueue()
        self.ready: list[PullRequest] = []
        self.held_up: dict[bytes, list[PullRequest]] = {}
        self.gone: list[PullRequest] = []

    @property
    def all(self) -> list[PullRequest]:
        return [*self.ready, *(request for held_up in self.held_up.values() for request in held_up)]

    @property
    def first(self) -> list[PullRequest]:
        lowest = min((request.wish.priority for request in self.ready), default=0)
        return [request for request in self.ready if request.wish.priority == lowest]

    @property
    def sorted(self) -> list[PullRequest]:
        """Those that are ready, by priority; in turns within each."""
        return sorted(self.ready, key=lambda request: request.wish.priority)

    @rule(
        batch=st.integers(1, 3),
        priority=st.integers(0, 2),
        no_wait=st.booleans(),
        expires_ns=st.sampled_from([0, SECOND]),
        max_bytes=st.sampled_from([0, 10]),
        min_pending=st.integers(0, 2),
        reply=REPLIES,
    )
    def add(self, reply: bytes, **body: Any) -> None:
        request = make_request(reply, PullBody(**body), CONFIG, 0)
        self.queue.add(request)
        self.ready.append(request)

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def serve(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.ready))
        self.queue.got(request, 1)
        self.ready.remove(request)
        self.ready.append(request)
        if not request.messages_left:
            self.end(request)

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def wish_otherwise(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.ready))
        self.queue.wish_otherwise(request, request.wish._replace(pin_id="other"))
        self.ready.remove(request)
        self.ready.append(request)

    @rule(pending_count=st.integers(0, 2))
    def look_for_one(self, pending_count: int) -> None:
        """The first that may be served is found by a look at each wish there is, not at each request."""
        asked: list[Wish] = []

        def may(wish: Wish) -> bool:
            asked.append(wish)
            return wish.min_pending <= pending_count

        wanted = [request for request in self.sorted if request.wish.min_pending <= pending_count]
        assert self.queue.first_of(may) is (wanted[0] if wanted else None)
        assert sorted(asked) == sorted({request.wish for request in self.ready})

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def end_any(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(self.all)))

    def end(self, request: PullRequest) -> None:
        self.queue.remove(request)
        if request in self.ready:
            self.ready.remove(request)
        else:
            self.held_up[request.reply].remove(request)
            if not self.held_up[request.reply]:
                del self.held_up[request.reply]
        self.gone.append(request)

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def hold_up(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.ready))
        self.queue.hold_up(request)
        self.ready.remove(request)
        self.held_up.setdefault(request.reply, []).append(request)

    @rule(reply=REPLIES)
    def release(self, reply: bytes) -> None:
        self.queue.release(reply)
        self.ready = self.held_up.pop(reply, []) + self.ready

    @invariant()
    def the_same_are_in_it_in_the_same_order(self) -> None:
        queue = self.queue
        assert list(queue) == [*self.sorted, *self.all[len(self.ready) :]]
        assert list(queue.first()) == self.first
        assert {reply: list(held_up) for reply, held_up in queue.held_up.items()} == self.held_up
        assert [request for request in self.all if queue.is_held_up(request)] == self.all[len(self.ready) :]
        assert queue.count == len(self.all)
        assert all(request in queue for request in self.all)
        assert not any(request in queue for request in self.gone)
        assert queue.bounded_count == sum(1 for request in self.all if request.bytes_left)
        assert queue.messages_wanted == sum(request.messages_left for request in self.all)
        ends = {request for request in self.all if request.no_wait and (request.sent or request.expires_ns is None)}
        assert set(queue.impatient) == ends


TestQueueAgainstLists = QueueAgainstLists.TestCase


@attrs.frozen
class InVain:
    """A request that nothing comes for. In tenths of seconds; 0: none."""

    after: int
    expires: int
    heartbeat: int

    def told(self, begin: int) -> list[tuple[int, str]]:
        """When it is told what."""
        end = begin + self.expires
        beats = range(begin + self.heartbeat, end, self.heartbeat) if self.heartbeat else ()
        return [*((at, "100 Idle Heartbeat") for at in beats), (end, "408 Request Timeout")]


IN_VAIN = st.tuples(st.integers(0, 9), st.integers(1, 60), st.integers(0, 30)).map(
    lambda drawn: InVain(drawn[0], drawn[1], drawn[2] if drawn[2] * 2 <= drawn[1] else 0)
)
TENTH = SECOND // 10


@given(st.lists(IN_VAIN, max_size=20), st.booleans())
def test_time_does_to_each_what_it_would_do_to_it_alone(asked: list[InVain], are_behind: bool) -> None:
    """Heartbeats and ends come when they are due, to whoever waits in turn or for room, and at no other time."""
    rig = Rig()
    heard: dict[str, list[tuple[int, str]]] = {}

    def pass_time(until_ns: int) -> None:
        while (deadline_ns := rig.machine.next_deadline_ns()) is not None and deadline_ns <= until_ns:
            rig.now_ns = max(rig.now_ns, deadline_ns)
            for line in rig.told(rig.machine.tick(rig.now_ns)):
                reply, _, status = line.partition(" ")
                assert not rig.now_ns % TENTH
                heard.setdefault(reply, []).append((rig.now_ns // TENTH, " ".join(status.split()[:3])))
        rig.now_ns = until_ns

    expected: dict[str, list[tuple[int, str]]] = {}
    if are_behind:
        rig.rooms.update({f"R{number}".encode(): 0 for number in range(len(asked))})
        rig.store()
    for number, one in enumerate(asked):
        pass_time(rig.now_ns + one.after * TENTH)
        expected[f"R{number}"] = one.told(rig.now_ns // TENTH)
        rig.pull(
            f'{{"batch":2,"expires":{one.expires * TENTH},"idle_heartbeat":{one.heartbeat * TENTH}}}', f"R{number}"
        )
    pass_time(rig.now_ns + 100 * SECOND)
    assert heard == expected
    assert rig.machine.next_deadline_ns() is None


def test_requests_that_are_done_are_forgotten() -> None:
    """However many were served, time has to do with those that wait, and with few others."""
    rig = Rig(max_ack_pending=-1)
    rig.pull('{"batch":1000000,"expires":300000000000}', "other")
    for number in range(1000):
        rig.pull('{"batch":1,"expires":30000000000}', f"R{number}")
        rig.store(count=2)
    assert len(rig.machine._waiting) == 1
    assert len(rig.machine._waiting._queue.due._heap) <= HEAP_COUNT_MIN + 3
