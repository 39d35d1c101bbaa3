"""Each checker of streams and consumers is quiet on a correct run and names what is planted in a wrong one."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import pytest
from tests.unit.harness.test_checkers import Step, history

from tnats.harness.checkers import (
    at_least_once,
    batch_atomic,
    confirmed_acks,
    consumer_limits,
    counter,
    dedup,
    exclusive,
    expected_sequence,
    objects,
    removal,
    watched,
)
from tnats.harness.checkers.consumer_limits import ConsumerLimits
from tnats.harness.checkers.evidence import Evidence, Replica, Result, Stored
from tnats.harness.checkers.removal import Limits

SECOND_NS = 10**9


def pair(
    f: str,
    value: object,
    result: object = None,
    *,
    process: int = 0,
    end: str = "ok",
    told: object = None,
    **extra: object,
) -> list[Step]:
    """An operation and its end; `told` are further keys of the end."""
    more = told if isinstance(told, dict) else {}
    last = value if result is None else result
    return [("invoke", process, f, value, dict(extra)), (end, process, f, last, {**extra, **more})]


def publish(value: str, seq: int | None, *, duplicate: bool = False, **extra: object) -> list[Step]:
    """A publish on "a" that was acknowledged at `seq`; None: nobody knows."""
    keys: dict[str, object] = {"subject": "a", "stream": "s", **extra}
    if seq is None:
        return pair("publish", value, end="info", **keys)
    return pair("publish", value, told={"seq": seq, "duplicate": duplicate}, **keys)


def refused(value: str, **extra: object) -> list[Step]:
    return pair("publish", value, end="fail", told={"error": "conflict"}, subject="a", stream="s", **extra)


def fetch(consumer: str, *got: tuple[int, str, int, int], life: int = 1, count: int = 10) -> list[Step]:
    """A fetch that brought (sequence, value, delivery, consumer sequence)."""
    brought = [list(each) for each in got]
    return pair("fetch", None, brought, told={"life": life}, consumer=consumer, count=count, life=life)


def ack(seq: int, kind: str = "sync", *, end: str = "ok") -> list[Step]:
    return pair("ack", seq, end=end, consumer="C", kind=kind)


def held(values: dict[int, str], *, named_lost: tuple[tuple[int, int], ...] = ()) -> Replica:
    stored = {seq: Stored(value, "a", seq) for seq, value in values.items()}
    return Replica("n1", stored, max(values, default=0), named_lost=named_lost)


def evidence(*steps: list[Step], holds: dict[int, str] | None = None) -> Evidence:
    flat = [step for each in steps for step in each]
    return Evidence(history(flat), [] if holds is None else [held(holds)])


def words(result: Result) -> str:
    return " ".join(result.texts)


def test_ids_are_stored_once() -> None:
    """A second copy, a second acknowledgement of another sequence, and a duplicate of another are named."""
    good = evidence(
        publish("v", None), publish("v", 1, duplicate=True), publish("v", 1, duplicate=True), holds={1: "v"}
    )
    assert dedup.check(good).verdict == "ok"
    assert "at 1 and 2" in words(dedup.check(evidence(publish("v", 1), holds={1: "v", 2: "v"})))
    assert "not as a duplicate" in words(dedup.check(evidence(publish("v", 1), publish("v", 2))))
    assert "as a duplicate of 3" in words(dedup.check(evidence(publish("v", 1), publish("v", 3, duplicate=True))))
    assert dedup.check(evidence(publish("v", 1), publish("v", 2)), is_windowed=False).verdict == "ok"


def test_expected_sequences() -> None:
    """A success behind something else and a refusal that nothing explains are named; removals explain much."""
    good = [publish("u", 1), publish("v", 2, expected=1), refused("w", expected=1), publish("x", 3, expected_subject=2)]
    assert expected_sequence.check(evidence(*good)).verdict == "ok"
    assert "stored at 3" in words(expected_sequence.check(evidence(publish("v", 3, expected=1))))
    between = evidence(publish("u", 1), publish("v", 2), publish("w", 3, expected_subject=1))
    assert "2 came between" in words(expected_sequence.check(between))
    gone = evidence(publish("u", 1), publish("v", 2), pair("remove", 2), publish("w", 3, expected_subject=1))
    assert expected_sequence.check(gone).verdict == "ok"
    lonely = evidence(publish("u", 1), refused("v", expected=1))
    assert "nobody published behind it" in words(expected_sequence.check(lonely))
    assert (
        expected_sequence.check(evidence(publish("u", 1), publish("x", None), refused("v", expected=1))).verdict == "ok"
    )


def batch(values: list[str], seq: int | None, *, commit: bool = True, end: str = "ok") -> list[Step]:
    told = {"seq": seq, "count": len(values)} if seq else {}
    return pair("batch", values, end=end, told=told, commit=commit, stream="s")


@pytest.mark.parametrize(
    ("steps", "holds", "named"),
    [
        (batch(["a", "b"], 2), {1: "a", 2: "b"}, ""),
        (batch(["a", "b"], None, end="info"), {}, ""),
        (batch(["a", "b"], None, end="info"), {4: "a", 5: "b"}, ""),
        (batch(["a", "b"], 2), {1: "a"}, "lacks b at 2"),
        (batch(["a", "b"], None, end="info"), {4: "a"}, "a part of"),
        (batch(["a", "b"], None, end="info"), {4: "b", 5: "a"}, "members of"),
        (batch(["a", "b"], None, end="fail", commit=False), {4: "a"}, "never committed"),
    ],
)
def test_batches_are_whole(steps: list[Step], holds: dict[int, str], named: str) -> None:
    """A part, another order, and members of a batch that was not committed are named."""
    found = batch_atomic.check(evidence(steps, holds=holds))
    assert found.verdict == ("violated" if named else "ok")
    assert named in words(found)


def test_counters_add_up() -> None:
    """A wrong total, an increment that is there twice, and one that nobody sent are named."""

    def count(*totals: tuple[str, int], acked: int = 5) -> Result:
        steps = pair("add", "c1", by=2) + pair("add", "c2", told={"seq": 2, "total": str(acked)}, by=3)
        steps[1] = ("info", 0, "add", "c1", {"by": 2})
        stored = {
            place: Stored(value, "n", 0, None, f'{{"val":"{total}"}}') for place, (value, total) in enumerate(totals, 1)
        }
        return counter.check(Evidence(history(steps), [Replica("n1", stored)]))

    assert count(("c1", 2), ("c2", 5)).verdict == "ok"
    assert "make 5" in words(count(("c1", 2), ("c2", 6)))
    assert "increment c1 at 1 and at 2" in words(count(("c1", 2), ("c1", 4)))
    assert "nobody added" in words(count(("x", 1), ("c2", 4)))
    assert "with total 9" in words(count(("c1", 2), ("c2", 5), acked=9))


def test_removals_and_limits() -> None:
    """What is missing without a reason, what came back, and what nobody published are named."""
    steps = [publish("u", 1), publish("v", 2), pair("remove", 1)]
    assert removal.check(evidence(*steps, holds={2: "v"})).verdict == "ok"
    assert "holds nothing there" in words(removal.check(evidence(*steps, holds={})))
    assert "removal was acknowledged" in words(removal.check(evidence(*steps, holds={1: "u", 2: "v"})))
    assert "nobody published" in words(removal.check(evidence(*steps, holds={2: "v", 3: "x"})))
    assert "was refused" in words(removal.check(evidence(refused("w"), holds={1: "w"})))
    assert removal.check(evidence(publish("u", 1), pair("purge", 2), holds={})).verdict == "ok"
    assert removal.check(evidence(publish("u", 1), publish("v", 2), holds={2: "v"}), Limits(1)).verdict == "ok"
    over = removal.check(evidence(publish("u", 1), publish("v", 2), holds={1: "u", 2: "v"}), Limits(1))
    assert "1 are allowed" in words(over)
    aged = Limits(age_max_ns=5 * SECOND_NS, age_slack_ns=SECOND_NS)
    for is_held, read_s, named in (
        (True, 5, ""),
        (False, 5, ""),
        (True, 7, "s old"),
        (False, 3, "holds nothing there"),
    ):
        found = evidence(publish("u", 1), holds={1: "u"} if is_held else {})
        found.replicas[0].read_ns = read_s * SECOND_NS, read_s * SECOND_NS
        assert named in " ".join(removal.check(found, aged).texts)
        assert removal.check(found, aged).verdict == ("violated" if named else "ok")


def test_a_lazy_loss_must_be_named() -> None:
    """A loss of what was not synced is excused if the server names it, and not otherwise."""
    lost = history(publish("u", 1))
    for named, span_ns, verdict in (
        ((1, 1), (990, 1000), "ok"),
        ((2, 9), (990, 1000), "violated"),
        ((1, 1), (8990, 9000), "violated"),
    ):
        found = Evidence(lost, [held({}, named_lost=(named,))], unsynced_ns=(span_ns,))
        assert removal.check(found).verdict == verdict


@pytest.mark.parametrize(
    ("named", "lost_ns", "verdict"),
    [((1, 1), 1500, "ok"), ((2, 2), 1500, "violated"), ((1, 1), 3500, "violated"), ((1, 1), 500, "violated")],
)
def test_what_was_lost_is_no_last_message(named: tuple[int, int], lost_ns: int, verdict: str) -> None:
    """An expectation passes over a message that a loss of power took before, if the server names it; a loss that came
    later, or before the message, explains nothing. The same goes for a message id.
    """

    def seen(*steps: list[Step]) -> Evidence:
        return attrs.evolve(evidence(*steps, holds={9: "v"}), unsynced_ns=((0, lost_ns),))

    expecting = seen(publish("u", 1), publish("v", 9, expected_subject=0))
    expecting.replicas[0].named_lost = (named,)
    assert expected_sequence.check(expecting).verdict == verdict
    again = seen(publish("v", 1, id="i"), publish("v", 9, id="i"))
    again.replicas[0].named_lost = (named,)
    assert dedup.check(again).verdict == verdict


def test_everything_is_delivered_in_order() -> None:
    """A message that never came, one that came no more though nobody acknowledged it, one that nobody published, and
    first deliveries out of order are named.
    """
    steps = [publish("u", 1), publish("v", 2), ack(1, end="info")]
    both = fetch("C", (1, "u", 1, 1), (2, "v", 1, 2))
    assert at_least_once.check(evidence(*steps, both, ack(2, "term")), ["C"]).verdict == "ok"
    assert "never delivered it" in words(at_least_once.check(evidence(*steps, fetch("C", (1, "u", 1, 1))), ["C"]))
    assert "v at 2 no more" in words(at_least_once.check(evidence(*steps, both, ack(2, "nak")), ["C"]))
    assert "never published" in words(at_least_once.check(evidence(fetch("C", (1, "x", 1, 1))), []))
    wrong = evidence(*steps, fetch("C", (2, "v", 1, 1), (1, "u", 1, 2)))
    assert "behind 2" in words(at_least_once.check(wrong, ["C"]))


def test_confirmed_acks_hold() -> None:
    """A delivery that was asked for after a confirmation, and a floor below it, are named."""
    first = fetch("C", (1, "u", 1, 1))
    again = fetch("C", (1, "u", 2, 2))
    assert confirmed_acks.check(evidence(first, ack(1), fetch("C"))).verdict == "ok"
    assert confirmed_acks.check(evidence(first, ack(1, end="info"), again)).verdict == "ok"
    assert "had been confirmed" in words(confirmed_acks.check(evidence(first, ack(1), again)))
    low = pair("info", None, told={"floor": 0, "ack_pending": 0}, consumer="C")
    assert "up to 1 was confirmed" in words(confirmed_acks.check(evidence(first, ack(1), low)))


def test_one_worker_at_a_time() -> None:
    """A second delivery too soon is named, unless somebody gave the message back or the server was started anew."""
    first, second = fetch("C", (1, "u", 1, 1)), fetch("C", (1, "u", 2, 2))
    waits = {"C": [SECOND_NS]}
    assert "delivered 1 again" in words(exclusive.check(evidence(first, second), waits))
    assert exclusive.check(evidence(first, second), {"C": [10]}).verdict == "ok"
    third = fetch("C", (1, "u", 3, 3))
    assert exclusive.check(evidence(first, second), {"C": [10, SECOND_NS]}).verdict == "ok"
    assert "delivered 1 again" in words(exclusive.check(evidence(first, second, third), {"C": [10, SECOND_NS]}))
    assert exclusive.check(evidence(first, ack(1, "nak"), second), waits).verdict == "ok"
    assert exclusive.check(evidence(first, fetch("C", (1, "u", 2, 2), life=2)), waits).verdict == "ok"


def test_work_leaves_its_queue_when_it_is_done() -> None:
    """Work that is gone though nobody did it, and work that is there though it is done, are named."""
    done = [publish("u", 1), fetch("C", (1, "u", 1, 1)), ack(1)]
    assert exclusive.check_queue(evidence(*done, holds={})).verdict == "ok"
    assert "still holds" in words(exclusive.check_queue(evidence(*done, holds={1: "u"})))
    assert "nobody acknowledged" in words(exclusive.check_queue(evidence(publish("u", 1), holds={})))


def test_consumers_keep_their_limits() -> None:
    """One delivery too many, a fetch that brings more than was asked for, and too many pending are named."""
    limits = {"C": ConsumerLimits(max_deliver=2, max_ack_pending=1)}
    assert consumer_limits.check(evidence(fetch("C", (1, "u", 2, 2))), limits).verdict == "ok"
    assert "2 are allowed" in words(consumer_limits.check(evidence(fetch("C", (1, "u", 3, 3))), limits))
    much = fetch("C", (1, "u", 1, 1), (2, "v", 1, 2), count=1)
    assert "a fetch of 1 brought 2" in words(consumer_limits.check(evidence(much), limits))
    pending = pair("info", None, told={"floor": 0, "ack_pending": 2}, consumer="C")
    assert "2 messages pending" in words(consumer_limits.check(evidence(pending), limits))


@pytest.mark.parametrize(
    ("seen", "named"),
    [
        ([(2, "b"), (3, "c")], ""),
        ([(1, "a"), (3, "c")], "saw nothing at 2"),
        ([(1, "a"), (2, "x"), (3, "c")], "saw x at 2"),
        ([(2, "b"), (1, "a")], "at 1 after 2"),
    ],
)
def test_ordered_readers_see_everything_once(seen: list[tuple[int, str]], named: str) -> None:
    """From the first message on that it saw, a reader misses nothing and never goes back."""
    found = watched.check([(1, "a"), (2, "b"), (3, "c")], {"r": seen})
    assert found.verdict == ("violated" if named else "ok")
    assert named in words(found)


def put(value: str | None, *, end: str = "ok") -> list[Step]:
    return pair("put" if value else "delete", ["o", value], end=end)


def get(value: str | None) -> list[Step]:
    return pair("get", ["o", None], ["o", value], process=1)


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        ([get(None), put("a"), get("a"), put(None), get(None)], ""),
        ([put("a"), put("b", end="info"), get("b")], ""),
        ([put("a"), put("b", end="info"), get("a")], ""),
        ([put("a"), put("b"), get("a")], "possible: b"),
        ([put("a"), get("x")], "object o is x"),
        ([put("a"), get(None)], "object o is None"),
        ([put("a"), get("damaged")], "cannot be read"),
    ],
)
def test_objects_are_the_newest(steps: Iterable[list[Step]], named: str) -> None:
    """What is older than a confirmed version, what nobody put, and what cannot be read at rest are named."""
    found = objects.check(evidence(*steps))
    assert found.verdict == ("violated" if named else "ok")
    assert named in words(found)


def test_an_object_may_break_while_it_is_changed() -> None:
    """A reader that meets the writer at work may not get to the end."""
    begin, end = put("b")
    middle = get("damaged")
    assert objects.check(evidence(put("a"), [begin, *middle, end])).verdict == "ok"
