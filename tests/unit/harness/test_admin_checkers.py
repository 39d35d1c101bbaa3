"""Checkers of administration and of limits: each is quiet on a correct run and names what is planted in a wrong one."""

from __future__ import annotations

import pytest
from tests.unit.harness.test_checkers import Step, history
from tests.unit.harness.test_stream_checkers import evidence, held, pair, publish, words

from tnats.harness.checkers import advised, assets, dedup, full, removal, sourced
from tnats.harness.checkers.advised import Heard, Session
from tnats.harness.checkers.evidence import Evidence, Replica, Stored
from tnats.harness.checkers.removal import Limits
from tnats.harness.checkers.sourced import Origin
from tnats.harness.sim.jetstream_memory import of_life

PUT, AGAIN, DELETE = pair("put", ["d", "v1"]), pair("put", ["d", "v2"]), pair("delete", ["d", None])


def get(value: str | None, delivered: int = 0) -> list[Step]:
    return pair("get", ["d", None], ["d", value], told={"delivered": delivered})


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        ([PUT, get("v1"), AGAIN, get("v2"), DELETE, get(None)], ""),
        ([PUT, get(None)], "is None"),
        ([PUT, AGAIN, get("v1")], "is v1"),
        ([PUT, DELETE, get("v1")], "is v1"),
        ([PUT, AGAIN, get("v2 with max_msgs 1 in place of 2")], "in place of"),
        ([PUT, pair("take", ["d", 2]), get("v1", 2)], ""),
        ([PUT, pair("take", ["d", 2]), get("v1", 3)], "delivered 3"),
        ([PUT, pair("take", ["d", 2]), DELETE, AGAIN, get("v2", 1)], "delivered 1"),
        ([PUT, pair("take", ["d", 2], end="info"), DELETE, AGAIN, get("v2", 1)], ""),
    ],
)
def test_assets_are_as_they_were_made(steps: list[list[Step]], named: str) -> None:
    """What is missing, old, back, not as it was asked for, or has a past that is not its own is named."""
    found = assets.check(evidence(*steps))
    assert found.verdict == ("violated" if named else "ok")
    assert named in words(found)


@pytest.mark.parametrize(
    ("sessions", "named"),
    [
        ([Session(0, 9, [Heard("X", "1", "t")])], ""),
        ([Session(0, 9)], "X was heard 0 times"),
        ([Session(0, 1)], ""),
        ([Session(1, 9)], ""),
        ([Session(0, 9, [Heard("X", "1", "t"), Heard("X", "2", "t")])], "it was tried 1 times"),
        ([Session(0, 9, [Heard("X", "1", "t"), Heard("Y", "1", "t")])], "have the id 1"),
    ],
)
def test_who_listens_is_told(sessions: list[Session], named: str) -> None:
    """What was not told to a session that lasted, what was told twice, and an id that came twice are named."""
    delete = evidence(DELETE).history.operations("delete")
    found = advised.check(sessions, {"X": delete})
    assert found.verdict == ("violated" if named else "ok")
    assert named in words(found)


def test_what_is_refused_had_no_room() -> None:
    """A refusal is justified by messages that may be there: not by those that were removed before."""
    no_room = pair("publish", "w", end="fail", told={"error": "maximum messages exceeded"}, subject="a", stream="s")
    both, limits = [publish("u", 1), publish("v", 2)], Limits(messages_max=2, refuses_new=True)
    assert full.check(evidence(*both, no_room), limits).verdict == "ok"
    assert full.check(evidence(publish("u", 1), publish("v", None), no_room), limits).verdict == "ok"
    assert "at most 1 messages" in words(full.check(evidence(publish("u", 1), no_room), limits))
    assert "at most 1 messages" in words(full.check(evidence(*both, pair("remove", 1), no_room), limits))
    assert "holds nothing" in words(removal.check(evidence(*both, publish("w", 3), holds={2: "v", 3: "w"}), limits))


def test_bytes_and_roll_ups() -> None:
    """Too many bytes, a message that need not have gone, and one that a roll-up should have taken are named."""
    three = [publish(value, seq, bytes=40) for value, seq in (("u", 1), ("v", 2), ("w", 3))]
    limits = Limits(bytes_max=100)
    assert removal.check(evidence(*three, holds={2: "v", 3: "w"}), limits).verdict == "ok"
    assert "120 bytes" in words(removal.check(evidence(*three, holds={1: "u", 2: "v", 3: "w"}), limits))
    assert "v was acknowledged at 2" in words(removal.check(evidence(*three, holds={3: "w"}), limits))
    rolled = [publish("u", 1), publish("v", 2), publish("w", 3, rollup="sub")]
    assert removal.check(evidence(*rolled, holds={3: "w"})).verdict == "ok"
    assert "which rolled that up" in words(removal.check(evidence(*rolled, holds={2: "v", 3: "w"})))
    assert "w was acknowledged" in words(removal.check(evidence(*rolled, holds={})))


def test_the_window_of_ids() -> None:
    """An id that is known behind its window, and one that is forgotten within it, are named; where it ends is open."""
    again, anew = publish("v", 1, duplicate=True), publish("v", 2)
    steps = [step for each in (publish("v", 1), again) for step in each]
    late = [step for each in (publish("v", 1), anew) for step in each]
    assert dedup.check_window(Evidence(history(steps)), 10_000).verdict == "ok"
    assert "to be known" in words(dedup.check_window(Evidence(history(late)), 10_000))
    assert dedup.check_window(Evidence(history(late)), 2_000).verdict == "ok"
    slack = dedup.WINDOW_SLACK_NS // 1000
    idle = pair("info", None) * slack
    gap = [*publish("v", 1), *idle, *again]
    assert "to be forgotten" in words(dedup.check_window(Evidence(history(gap)), 10_000))


@pytest.mark.parametrize(
    ("sources", "named"),
    [
        ([("u", 1, "A"), ("v", 1, "B")], ""),
        ([("u", 1, "A"), ("v", 1, "B"), ("w", 2, "A")], "a life that was over"),
        ([("u", 1, "A"), ("v", 2, "A"), ("w", 2, "A")], "behind its 2"),
        ([("u", 1, "A"), ("u", 1, "B"), ("v", 2, "B")], "at 1 and at 2"),
        ([("u", 1, "A"), ("x", 1, "B"), ("v", 2, "B")], "nobody published"),
        ([("u", 1, "A")], "holds v at 1"),
    ],
)
def test_lives_of_an_origin(sources: list[tuple[str, int, str]], named: str) -> None:
    """Lives that mix, what turns back, comes twice, from nowhere, or not at all, is named."""
    stored = {
        seq: Stored(value, "a", seq, {sourced.HEADER: f"S {place} a a a {life}"})
        for seq, (value, place, life) in enumerate(sources, 1)
    }
    origin = evidence(publish("u", 1), publish("v", 1), publish("w", 2), holds={1: "v"})
    found = sourced.check({"S": Origin(origin, is_made_anew=True)}, [Replica("n1", stored, len(stored))])
    assert found.verdict == ("violated" if named else "ok")
    assert named in words(found)


def test_what_an_incarnation_may_hold() -> None:
    """What an earlier one acknowledged is none of its own, what was under way at its start may be, without an end."""
    steps = [
        *publish("u", 1, life=1),
        *pair("publish", "v", told={"seq": 1, "duplicate": False, "life": 2}, subject="a", stream="s", life=1),
        *pair("publish", "w", end="info", subject="a", stream="s", life=1),
        *publish("x", 2, life=2),
        *publish("y", 1, life=3),
    ]
    mine = of_life(history(steps), 2).operations("publish")
    assert [(each.value, each.is_ok) for each in mine] == [("v", False), ("w", False), ("x", True)]
    assert removal.check(Evidence(of_life(history(steps), 2), [held({1: "w", 2: "x"})])).verdict == "ok"
    assert "nobody published" in words(removal.check(Evidence(of_life(history(steps), 2), [held({1: "u", 2: "x"})])))
