"""What time removes and brings, and fast batches: the checker is quiet on a correct run and names what is planted."""

from __future__ import annotations

import pytest
from tests.unit.harness.test_checkers import Step, history
from tests.unit.harness.test_stream_checkers import pair

from tnats.harness.checkers import timed
from tnats.harness.checkers.evidence import Evidence, Replica, Stored
from tnats.limits import SECOND_NS

EARLY, LATE = (10_000, 11_000), (9 * SECOND_NS, 10 * SECOND_NS)
"""When a replica was read."""


def publish(value: str, seq: int | None, **extra: object) -> list[Step]:
    """Published within the first microseconds."""
    keys = {"subject": "t.a", **extra}
    if seq is None:
        return pair("publish", value, end="info", **keys)
    return pair("publish", value, told={"seq": seq, "acked_ns": 1000}, **keys)


def schedule(seq: int | None = 1) -> list[Step]:
    return publish("v", seq, subject="plan.v", target="fired.a", at_ns=SECOND_NS)


def fast(seq: int | None, count: int = 2) -> list[Step]:
    told = {"seq": seq, "count": count} if seq else {}
    return pair("fast", ["a", "b"], end="ok" if seq else "info", told=told, subject="t.a")


TTL = publish("v", 1, ttl_ns=SECOND_NS)


@pytest.mark.parametrize(
    ("steps", "holds", "read_ns", "named"),
    [
        (TTL, {1: "v"}, EARLY, ""),
        (TTL, {}, EARLY, "has time left"),
        (TTL, {}, LATE, ""),
        (TTL, {1: "v"}, LATE, "whose time is over"),
        (TTL, {2: "v"}, EARLY, "holds it at 2"),
        (publish("v", None, ttl_ns=SECOND_NS), {1: "v"}, LATE, ""),
        (publish("v", 1), {}, LATE, "has time left"),
        (publish("v", 1), {1: "v", 2: "x"}, EARLY, "nobody published"),
        (publish("v", 1), {1: "v", 2: "v"}, EARLY, "at 1 and at 2"),
        (schedule(), {1: "v plan.v"}, EARLY, ""),
        (schedule(), {2: "v fired.a"}, LATE, ""),
        (schedule(), {2: "v fired.a"}, EARLY, "before its time"),
        (schedule(), {1: "v plan.v"}, LATE, "whose time is over"),
        (schedule(), {1: "v plan.v", 2: "v fired.a"}, LATE, "and its message"),
        (schedule(), {2: "v fired.a", 3: "v fired.a"}, LATE, "at 2 and at 3"),
        (schedule(), {}, LATE, "neither it nor its message"),
        (schedule(None), {}, LATE, ""),
        (schedule(), {2: "v fired.b"}, LATE, "published on plan.v"),
        (fast(2), {1: "a", 2: "b"}, EARLY, ""),
        (fast(2), {1: "b", 2: "a"}, EARLY, "members of"),
        (fast(2), {2: "b"}, EARLY, "members of"),
        (fast(3), {1: "a", 2: "b"}, EARLY, "up to 3"),
        (fast(2, count=3), {1: "a", 2: "b"}, EARLY, "as 3 messages"),
        (fast(None), {1: "a"}, EARLY, ""),
        (fast(None), {1: "b"}, EARLY, "members of"),
    ],
)
def test_time_and_fast_batches(steps: list[Step], holds: dict[int, str], read_ns: tuple[int, int], named: str) -> None:
    """Too early, too late, missing, twice, elsewhere and out of order are named; `holds` is "value subject"."""
    messages = {}
    for seq, text in holds.items():
        value, _, subject = text.partition(" ")
        messages[seq] = Stored(value, subject or "t.a", seq)
    found = timed.check(Evidence(history(steps), [Replica("n1", messages, read_ns=read_ns)]))
    assert found.verdict == ("violated" if named else "ok")
    assert named in " ".join(found.texts)


@pytest.mark.parametrize(("read_ns", "verdict"), [(EARLY, "violated"), (LATE, "ok")])
def test_a_marker_has_a_reason(read_ns: tuple[int, int], verdict: str) -> None:
    """A delete marker stands where a message with a lifetime can have ended, and nowhere else."""
    marker = Replica("n1", {2: Stored("", "t.a", 2, {timed.MARKER: "MaxAge"})}, read_ns=read_ns)
    unknown = history(publish("v", None, ttl_ns=SECOND_NS))
    assert timed.check(Evidence(unknown, [marker])).verdict == verdict
    assert timed.check(Evidence(history(publish("v", None)), [marker])).verdict == "violated"
