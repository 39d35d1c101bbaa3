"""Consumers whose readers are behind: nothing is sent to them, and nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import pytest
import trio
from tests.unit.jetstream.consumers import Rig, Sent
from tests.unit.jetstream.stores import SECOND

from tnats.jetstream.consumer.config import AckPolicy
from tnats.jetstream.room import load_for

PUSHED = {"deliver_subject": "R", "ack_policy": AckPolicy.NONE}


def sent_to(rig: Rig, target: bytes) -> list[int]:
    return [send.seq for send in rig.sent if isinstance(send, Sent) and send.target == target]


def rig_of(kind: str) -> Rig:
    """A consumer that R wants all messages from."""
    rig = Rig(**PUSHED) if kind == "push" else Rig()
    ask(rig, kind)
    return rig


def ask(rig: Rig, kind: str) -> None:
    if kind == "push":
        rig.take(rig.machine.set_bound(True, rig.now_ns))
    elif kind == "pull":
        rig.pull('{"batch":100,"expires":300000000000}')
    elif kind == "bytes":
        rig.pull('{"batch":100,"expires":300000000000,"max_bytes":100000}')
    else:
        rig.pull('{"batch":100,"expires":300000000000,"no_wait":true}')


@pytest.mark.parametrize("kind", ["push", "pull", "bytes"])
def test_who_is_behind_gets_it_later(kind: str) -> None:
    """Nothing goes to a reader without room; what has come meanwhile follows at once, in order, when there is some."""
    rig = rig_of(kind)
    rig.rooms[b"R"] = 0
    rig.store(count=3)
    rig.sleep(5)
    rig.store(count=2)
    assert rig.sent == []
    rig.read_on(b"R", 1000)
    assert sent_to(rig, b"R") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["push", "pull", "bytes"])
def test_what_waits_for_a_reader_costs_nothing_meanwhile(kind: str) -> None:
    """The consumer asks once to be told, and has no deadline of its own for it; told in vain, it asks again."""
    rig = rig_of(kind)
    rig.rooms[b"R"] = 0
    rig.store(count=3)
    rig.store()
    assert [subject for effects in rig.log for subject in effects.behind] == [b"R"]
    assert rig.machine.next_deadline_ns() == (None if kind == "push" else 300 * SECOND)
    rig.take(rig.machine.caught_up(b"R", rig.now_ns))
    assert rig.log[-1].behind == [b"R"]
    assert rig.sent == []


def test_requests_with_one_reply_subject_are_held_up_together() -> None:
    """One answer is enough for all of them, and all have their turns again, before others."""
    rig = Rig(max_ack_pending=-1)
    asked: list[bytes] = []
    rooms = rig.rooms

    class Asked(dict[bytes, int]):
        def get(self, target: bytes, default: int = 0) -> int:  # type: ignore[override]
            asked.append(target)
            return rooms.get(target, default)

    rig.rooms = Asked()
    rooms[b"R"] = 0
    for _ in range(3):
        rig.pull('{"batch":2,"expires":300000000000}')
    rig.store(count=3)
    assert asked == [b"R"]
    rig.pull('{"batch":1,"expires":300000000000}', "other")
    rig.store(count=2)
    assert sent_to(rig, b"other") == [1]
    rooms[b"R"] = 1000
    rig.pull('{"batch":1,"expires":300000000000}', "last")
    assert sent_to(rig, b"last") == [2]
    rig.pull('{"batch":1,"expires":300000000000}', "last")
    rig.take(rig.machine.caught_up(b"R", rig.now_ns))
    assert (sent_to(rig, b"R"), sent_to(rig, b"last")) == ([4, 5], [2, 3])
    rig.store(count=4)
    assert sent_to(rig, b"R") == [4, 5, 6, 7, 8, 9]


def test_a_push_consumer_that_sends_elsewhere_waits_no_more() -> None:
    """Whoever was behind at the old deliver subject: the new one has room, and news of the old one is none."""
    rig = rig_of("push")
    rig.rooms[b"R"] = 0
    rig.store()
    rig.config = rig.check(attrs.evolve(rig.config, deliver_subject="N"))
    rig.take(rig.machine.reconfigure(rig.config, rig.now_ns))
    assert sent_to(rig, b"N") == [1]
    assert rig.read_on(b"R") == []


def test_others_get_what_one_has_no_room_for() -> None:
    """Requests of readers that are behind are passed over until they have caught up."""
    rig = Rig()
    rig.rooms[b"late"] = 0
    rig.pull('{"batch":10,"expires":300000000000}', "late")
    rig.pull('{"batch":4,"expires":300000000000}', "R")
    rig.store(count=6)
    rig.sleep(1)
    assert (sent_to(rig, b"late"), sent_to(rig, b"R")) == ([], [1, 2, 3, 4])
    rig.read_on(b"late", 1000)
    assert sent_to(rig, b"late") == [5, 6]


def test_who_does_not_want_to_wait_waits_for_room() -> None:
    """A request without waiting is told of the end when there is nothing more, not when there is no room."""
    rig = Rig()
    rig.store(count=2)
    rig.rooms[b"R"] = 0
    assert rig.pull('{"batch":5,"no_wait":true}') == []
    assert rig.sleep(1) == []
    assert rig.read_on(b"R", 1000) == ["R 1/1 c1 p1", "R 2/1 c2 p0", "R 404 No Messages"]
    rig.store()
    rig.rooms[b"R"] = 0
    assert rig.pull('{"batch":5,"no_wait":true}') == []
    rig.index.remove(3)
    assert rig.told(rig.machine.stream_removed([(3, b"s.a")], rig.now_ns)) == ["R 404 No Messages"]


@pytest.mark.parametrize("kind", ["push", "pull", "bytes", "no_wait"])
def test_what_is_being_read_comes_first(kind: str) -> None:
    """Nothing is added to what has yet to be read; when that is sent, the next follows at once."""
    rig = Rig(**PUSHED) if kind == "push" else Rig()
    rig.is_sending = True
    rig.store(count=3)
    ask(rig, kind)
    rig.sleep(5)
    assert rig.sent == []
    rig.is_sending = False
    rig.take(rig.machine.stream_advanced(rig.now_ns))
    assert sent_to(rig, b"R") == [1, 2, 3]


def test_a_pass_fits_the_room() -> None:
    """No more is sent at once than the reader with the least room may be sent, but for the rest of one message."""
    rig = rig_of("pull")
    rig.rooms[b"R"] = 10000
    for seq in range(1, 11):
        rig.index.append(seq, 0, b"s.a", b"", bytes(3000))
    rig.take(rig.machine.stream_advanced(rig.now_ns))
    assert sent_to(rig, b"R") == [1, 2, 3, 4]


class Scene:
    """A bus that answers as told, a clock, and something to load. Who waits for room waits for a second."""

    def __init__(self, rooms: list[int | None]) -> None:
        self.now_ns = 0
        self.rooms = rooms
        self.loads = 0
        self.waits: dict[Callable[[bytes], None], None] = {}

    def mono_ns(self) -> int:
        return self.now_ns

    @contextmanager
    def deadline(self, when_ns: int) -> Iterator[None]:
        for told in self.waits:
            told(b"R")
        self.now_ns += SECOND
        yield

    def room(self, subject: bytes) -> int | None:
        return self.rooms.pop(0) if len(self.rooms) > 1 else self.rooms[0]

    def on_room(self, subject: bytes, told: Callable[[bytes], None]) -> None:
        self.waits[told] = None

    def forget_room(self, subject: bytes, told: Callable[[bytes], None]) -> None:
        del self.waits[told]

    async def load(self) -> int:
        self.loads += 1
        return self.loads


@pytest.mark.parametrize(
    ("rooms", "load_count", "wait_count"),
    [([None], 1, 0), ([1], 1, 0), ([0, 0, 1], 1, 2), ([1, 0, 0, 1], 2, 1), ([0], 1, 10)],
)
def test_what_is_loaded_is_given_when_there_is_room_for_it(
    rooms: list[int | None], load_count: int, wait_count: int
) -> None:
    """Who took the room while it was loaded goes first; in the end it is given all the same, and to nobody at once."""
    scene = Scene(rooms)
    found = trio.run(load_for, b"R", scene.load, scene, scene, 10 * SECOND)
    assert (found, scene.loads, scene.now_ns // SECOND) == (load_count, load_count, wait_count)
    assert not scene.waits
