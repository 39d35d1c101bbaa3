"""What was promised about a stream: each kind of broken promise is found, and a good history has none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tnats.harness.promises import StreamPromises


def told(*, is_queue: bool = False) -> StreamPromises:
    """Three messages acknowledged, the first acked with confirmation, the second terminated."""
    stream = StreamPromises("S", is_queue)
    for seq, value in enumerate(("a", "b", "c"), start=1):
        stream.published(value)
        stream.acknowledged(value, seq)
        stream.delivered(seq, value, stream.asked())
    stream.ending(1, "a", by_termination=False)
    stream.ended(1, "a", by_termination=False)
    stream.ending(2, "b", by_termination=True)
    stream.ended(2, "b", by_termination=True)
    return stream


def test_a_good_history_has_no_faults() -> None:
    """Everything as promised; what nobody knows of may be there or not."""
    stream = told()
    stream.published("unsure")
    stream.check_stored({1: "a", 2: "b", 3: "c", 4: "unsure"}, 1, 4)
    stream.check_consumer(floor=2, delivered_seq=3)
    stream.check_consumer(floor=2, delivered_seq=2)
    stream.check_dead([(1, "b")])
    stream.published("unsure")
    stream.acknowledged("unsure", 4)
    for seq, value in ((3, "c"), (4, "unsure")):
        stream.delivered(seq, value, stream.asked())
        stream.ending(seq, value, by_termination=False)
    stream.check_drained(stored=4, pending=0, ack_pending=0)
    queue = told(is_queue=True)
    queue.check_stored({2: "b", 3: "c"}, 1, 3)
    assert stream.faults == queue.faults == []


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (lambda stream: stream.check_stored({1: "a", 2: "b"}, 1, 3), "acknowledged message 3"),
        (lambda stream: stream.check_stored({1: "a", 2: "b", 3: "d"}, 1, 3), "sequence 3"),
        (lambda stream: stream.check_stored({1: "a", 2: "b", 3: "c", 4: "a"}, 1, 4), "'a' stored at sequence 4"),
        (lambda stream: stream.check_stored({1: "a", 2: "b"}, 1, 2), "the last sequence is 2"),
        (lambda stream: stream.acknowledged("d", 3), "sequence 3"),
        (lambda stream: stream.delivered(1, "a", stream.asked()), "delivered again"),
        (lambda stream: stream.check_consumer(floor=1, delivered_seq=3), "everything up to 2"),
        (lambda stream: stream.check_consumer(floor=2, delivered_seq=1), "delivered up to 1"),
        (lambda stream: [stream.check_consumer(floor=floor, delivered_seq=3) for floor in (3, 2)], "fell from 3 to 2"),
        (lambda stream: stream.check_dead([(1, "b"), (2, "b")]), "twice"),
        (lambda stream: stream.check_dead([(1, "a")]), "nobody terminated it"),
        (lambda stream: stream.check_drained(stored=3, pending=0, ack_pending=0), "is no dead letter"),
        (lambda stream: stream.check_drained(stored=3, pending=1, ack_pending=0), "1 messages were not delivered"),
    ],
)
def test_broken_promises_are_found(broken: Callable[[StreamPromises], object], text: str) -> None:
    """Each is named, with the sequence."""
    stream = told()
    broken(stream)
    assert any(text in fault for fault in stream.faults), stream.faults


def test_a_delivery_may_have_been_under_way_when_the_ack_was_confirmed() -> None:
    """Its ack wait was over and another worker's request got it; requests after the confirmation must not."""
    stream = told()
    asked = stream.asked()
    stream.ending(3, "c", by_termination=False)
    stream.ended(3, "c", by_termination=False)
    stream.delivered(3, "c", asked)
    assert stream.faults == []
    stream.delivered(3, "c", stream.asked())
    assert stream.faults == ["S: message 3 was delivered again after its ack was confirmed"]


def test_a_work_queue_lets_go_of_what_was_acked() -> None:
    """A confirmed ack's message may not be there; one that was never acked must be, and nothing is left at the end."""
    stream = told(is_queue=True)
    stream.check_stored({1: "a"}, 1, 3)
    assert ["message 1 is there" in stream.faults[1], "message 3 " in stream.faults[0]] == [True, True]
    stream.faults.clear()
    stream.check_drained(stored=1, pending=0, ack_pending=0)
    assert "left in the work queue" in stream.faults[0]
