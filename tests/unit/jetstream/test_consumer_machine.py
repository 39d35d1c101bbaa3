"""The consumer machine, case by case; talks that nats-server answered are in the golden files."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from tests.bundles import Bundled
from tests.unit.jetstream.consumers import ListIndex, Rig, Sent, tell
from tests.unit.jetstream.stores import SECOND, T0

from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.consumer import rules
from tnats.jetstream.consumer.config import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy, ReplayPolicy
from tnats.jetstream.consumer.effects import Delivery, deliverable
from tnats.jetstream.consumer.letters import Letter, letter_block
from tnats.jetstream.stream.config import Retention, StreamConfig
from tnats.limits import MIB
from tnats.wire.headers import get_header, parse_headers


def filled(*subjects: str) -> ListIndex:
    index = ListIndex()
    for subject in subjects:
        index.append(index.last_seq + 1, T0, subject.encode(), b"", b"x")
    return index


def seqs(deliveries: list[Sent]) -> list[int]:
    return [delivery.seq for delivery in deliveries]


def places(rig: Rig) -> tuple[int, int, int, int]:
    """Delivered and ack floor, consumer and stream sequence each."""
    state = rig.machine.state
    return (
        state.delivered_consumer_seq,
        state.delivered_stream_seq,
        state.floor_consumer_seq,
        state.floor_stream_seq,
    )


# ------------------------------------------------------------------ where delivery begins


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"deliver_policy": DeliverPolicy.LAST}, [5]),
        ({"deliver_policy": DeliverPolicy.LAST, "filter_subject": "s.a"}, [4]),
        ({"deliver_policy": DeliverPolicy.NEW}, []),
        ({"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 3}, [3, 4, 5]),
        ({"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time_ns": T0 + 1}, []),
        ({"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT, "filter_subject": "s.*"}, [3, 4, 5]),
    ],
)
def test_deliver_policies(config: dict[str, Any], expected: list[int]) -> None:
    """Each policy begins where it says, and goes on with what is stored later."""
    rig = Rig(filled("s.a", "s.b", "s.c", "s.a", "s.b"), **config)
    assert rig.machine.info(0).num_pending == len(expected)
    assert seqs(rig.fetch(10)) == expected
    rig.store("s.a")
    assert seqs(rig.fetch(10)) == [6]


def test_a_start_beyond_the_end_is_kept() -> None:
    """A start sequence of 10 on an empty stream: the first of twelve messages to come is the tenth."""
    rig = Rig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=10)
    rig.store(count=12)
    assert seqs(rig.fetch(12)) == [10, 11, 12]


def test_last_per_subject_with_holes() -> None:
    """Each subject once, then the floor at the end and nothing ahead; a restart in between changes nothing."""
    rig = Rig(
        filled(*[f"s.{number % 7}" for number in range(40)]),
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        filter_subject="s.>",
    )
    first = rig.fetch(3)
    rig.restart()
    rest = rig.fetch(10)
    assert seqs(first + rest) == [34, 35, 36, 37, 38, 39, 40]
    for delivery in first + rest:
        rig.ack(delivery)
    assert places(rig) == (7, 40, 7, 40)
    assert rig.machine.info(0).num_pending == 0


def test_pending_after_limits_removed_most() -> None:
    """What the stream dropped before it was delivered is not ahead, now and after a restart."""
    rig = Rig()
    rig.store(count=30)
    for seq in range(1, 21):
        rig.remove(seq)
    assert rig.machine.info(0).num_pending == 10
    rig.restart()
    assert rig.machine.info(0).num_pending == 10


@pytest.mark.parametrize(
    ("filters", "count"),
    [(["s.A", "s.A.>"], 10), (["s.A", "s.*.A"], 5), (["s.x.A", "s.x.A.>"], 0)],
)
def test_filter_lists(filters: list[str], count: int) -> None:
    """A literal beside a wildcard that does not cover it: each matching message once, none missing."""
    rig = Rig(filled(*["s.A", "s.A.b"] * 5), filter_subjects=filters)
    assert rig.machine.info(0).num_pending == count
    assert len(seqs(rig.fetch(20))) == count


def test_overlapping_patterns_deliver_once() -> None:
    """Two patterns that share subjects, neither within the other: twelve messages, in order, none twice."""
    subjects = ["e.foo.foo", "e.foo.bar", "e.bar.foo", "e.bar.bar"] * 4
    rig = Rig(filled(*subjects), filter_subjects=["e.foo.*", "e.*.foo"])
    expected = [seq for seq, subject in enumerate(subjects, 1) if subject != "e.bar.bar"]
    assert seqs(rig.fetch(20)) == expected


# ------------------------------------------------------------------ acknowledgements


def test_made_up_acks_do_nothing_and_are_not_answered() -> None:
    """Acks for a message that was not delivered, or does not exist, change nothing."""
    rig = Rig(stream=StreamConfig(name="S", subjects=["s.>"], retention=Retention.WORKQUEUE, num_replicas=1))
    rig.store(count=5)
    rig.fetch(2)
    for seq in (5, 999):
        effects = rig.say(Bundled(b"$JS.ACK.S.C.1.%d.%d.1.0" % (seq, seq), b"A", 0, b"+ACK"))
        assert (effects.ops, effects.done, effects.acked_replies) == ([], [], [])
    assert places(rig) == (2, 2, 0, 0)


def test_both_forms_of_ack_subjects() -> None:
    """The form with domain and account hash, also with more tokens behind, acknowledges like the short one."""
    rig = Rig()
    rig.store(count=3)
    first, second, third = rig.fetch(3)
    tail = first.ack_reply.removeprefix(b"$JS.ACK.")
    assert rig.say(Bundled(b"$JS.ACK._.hash8." + tail)).done == [1]
    tail = second.ack_reply.removeprefix(b"$JS.ACK.")
    assert rig.say(Bundled(b"$JS.ACK.hub.hash8." + tail + b".more.still")).done == [2]
    assert rig.ack(third).done == [3]


def test_a_negative_ack_with_delay_is_earlier_than_the_wait() -> None:
    """The delay counts even where the ack wait is longer."""
    rig = Rig(ack_wait_ns=10 * SECOND)
    rig.store()
    (delivery,) = rig.fetch(1)
    rig.ack(delivery, '-NAK {"delay":4000000000}')
    rig.pull('{"batch":1,"expires":20000000000}')
    assert rig.sleep(3.9) == []
    assert [line.split()[1] for line in rig.sleep(0.2)] == ["1/2"]


def test_back_off_is_per_message() -> None:
    """Two messages sent half a wait apart come again each at its own time."""
    rig = Rig(backoff_ns=[2 * SECOND, 4 * SECOND])
    rig.store()
    rig.fetch(1)
    rig.sleep(1)
    rig.store()
    rig.fetch(1)
    rig.pull('{"batch":4,"expires":60000000000}')
    heard = [f"{rig.now_ns / SECOND:.1f} {one}" for _ in range(20) for one in rig.sleep(0.5)]
    assert [(line.split()[0], line.split()[2]) for line in heard] == [
        ("2.0", "1/2"),
        ("3.0", "2/2"),
        ("6.0", "1/3"),
        ("7.0", "2/3"),
    ]


def test_after_the_last_delivery() -> None:
    """Three lapse twice: one advisory each, never again, also after a restart; the fourth's ack moves the floor."""
    rig = Rig(max_deliver=2, ack_wait_ns=SECOND)
    rig.store(count=3)
    rig.fetch(3)
    rig.sleep(1.1)
    rig.fetch(3)
    rig.sleep(5)
    assert rig.advisories() == ["max_deliver"] * 3
    rig.store()
    rig.restart()
    (fourth,) = rig.fetch(9)
    assert places(rig)[2:] == (0, 0)
    rig.ack(fourth)
    assert places(rig) == (7, 4, 7, 4)
    assert rig.machine.info(0).num_ack_pending == 0
    assert rig.advisories() == ["max_deliver"] * 3


def test_one_delivery_is_no_redelivery() -> None:
    """With max_deliver 1 nothing counts as redelivered; raising it does not bring an exhausted message back."""
    rig = Rig(max_deliver=1, ack_wait_ns=SECOND)
    rig.store()
    rig.fetch(1)
    rig.sleep(2)
    assert rig.machine.info(0).num_redelivered == 0
    rig.config = rig.check(
        ConsumerConfig(name="C", durable_name="C", ack_policy=AckPolicy.EXPLICIT, max_deliver=2, ack_wait_ns=SECOND)
    )
    rig.take(rig.machine.reconfigure(rig.config, rig.now_ns))
    rig.store()
    assert seqs(rig.fetch(5)) == [2]
    rig.sleep(1.1)
    assert seqs(rig.fetch(5)) == [2]


def test_other_filters_end_nothing_that_is_in_hand() -> None:
    """What was delivered under the old filter is acknowledged as ever, comes again if it is not, and is passed over if
    it is gone meanwhile, of which the stream does not tell any more.
    """
    rig = Rig(filter_subject="s.a", ack_wait_ns=SECOND)
    rig.store("s.a", count=4)
    rig.store("s.b")
    acked, *_ = rig.fetch(3)
    rig.config = rig.check(attrs.evolve(rig.config, filter_subject="s.b"))
    rig.take(rig.machine.reconfigure(rig.config, rig.now_ns))
    assert (rig.machine.info(0).num_ack_pending, places(rig)[2:]) == (3, (0, 0))
    assert rig.ack(acked).done == [1]
    rig.index.remove(2)
    rig.sleep(1.1)
    assert seqs(rig.fetch(5)) == [3, 5]
    assert rig.machine.info(0).num_ack_pending == 2


def test_messages_of_a_silent_client_stay_pending() -> None:
    """They count as pending until somebody asks, who gets all of them with delivery 2."""
    rig = Rig()
    rig.store(count=10)
    rig.fetch(10)
    rig.sleep(120)
    assert rig.machine.info(0).num_ack_pending == 10
    again = rig.fetch(10)
    assert [delivery.ack_reply.split(b".")[4] for delivery in again] == [b"2"] * 10


def test_ack_all_survives_a_restart() -> None:
    """Ten sent, the seventh acknowledged: floor 7, three pending, before and after."""
    rig = Rig(ack_policy=AckPolicy.ALL)
    rig.store(count=10)
    deliveries = rig.fetch(10)
    assert rig.ack(deliveries[6]).done == [1, 2, 3, 4, 5, 6, 7]
    rig.restart()
    info = rig.machine.info(0)
    assert (info.ack_floor.stream_seq, info.num_ack_pending) == (7, 3)


def test_timers_go_on_after_a_restart() -> None:
    """A message sent before the restart is due when it would have been."""
    rig = Rig(ack_wait_ns=10 * SECOND)
    rig.store()
    rig.fetch(1)
    rig.sleep(6)
    rig.restart()
    rig.pull('{"batch":1,"expires":60000000000}')
    assert rig.sleep(3.9) == []
    assert len(rig.sleep(0.2)) == 1


@pytest.mark.parametrize(("before_s", "after_s"), [(600, 5), (5, 20)])
def test_another_ack_wait_holds_for_what_is_in_hand(before_s: int, after_s: int) -> None:
    """Each message comes again so long after it was sent, or spoken of last; what is to come again anyway does."""
    rig = Rig(ack_wait_ns=before_s * SECOND)
    rig.store(count=4)
    first, second, third, _ = rig.fetch(4)
    rig.ack(first)
    rig.ack(second, "-NAK")
    rig.sleep(2)
    rig.ack(third, "+WPI")
    config = ConsumerConfig(name="C", durable_name="C", ack_policy=AckPolicy.EXPLICIT, ack_wait_ns=after_s * SECOND)
    rig.config = rig.check(config)
    rig.take(rig.machine.reconfigure(rig.config, rig.now_ns))
    assert [one.seq for one in rig.fetch(4)] == [2]
    rig.sleep(after_s - 2.1)
    assert rig.fetch(4) == []
    rig.sleep(0.2)
    assert [one.seq for one in rig.fetch(4)] == [4]
    rig.sleep(1.8)
    assert rig.fetch(4) == []
    rig.sleep(0.2)
    assert 3 in [one.seq for one in rig.fetch(4)]


def test_a_clock_set_back_does_not_stretch_the_ack_wait() -> None:
    """What was sent "in the future" before the restart is due one ack wait after it."""
    rig = Rig(ack_wait_ns=10 * SECOND)
    rig.sleep(100)
    rig.store()
    rig.fetch(1)
    rig.now_ns -= 60 * SECOND
    rig.restart()
    rig.pull('{"batch":1,"expires":60000000000}')
    assert rig.sleep(9.9) == []
    assert len(rig.sleep(0.2)) == 1


# ------------------------------------------------------------------ requests, pause, activity


def test_a_deleted_consumer_ends_its_requests() -> None:
    """Everybody who waits is told, and nothing waits any more."""
    rig = Rig()
    rig.pull('{"batch":1,"expires":30000000000}', "R1")
    rig.pull('{"batch":2,"expires":30000000000}', "R2")
    assert rig.told(rig.machine.end_requests("409 Consumer Deleted")) == [
        "R1 409 Consumer Deleted",
        "R2 409 Consumer Deleted",
    ]
    assert rig.machine.info(0).num_waiting == 0


def test_nothing_is_sent_to_those_who_left() -> None:
    """A request whose reply subject nobody listens to gets no message."""
    rig = Rig()
    rig.pull('{"batch":5,"expires":30000000000}', "gone")
    rig.pull('{"batch":5,"expires":30000000000}', "here")
    rig.deaf.add(b"gone")
    rig.store(count=2)
    assert [send.target for send in rig.sent] == [b"here", b"here"]


def test_a_pause_ends_by_time_and_by_request() -> None:
    """Nothing is delivered until then; the remaining time is reported; both changes are announced."""
    rig = Rig()
    rig.store()

    def pause(until_ns: int | None) -> None:
        rig.config = attrs.evolve(rig.config, pause_until_ns=until_ns)
        rig.take(rig.machine.reconfigure(rig.config, rig.now_ns))

    pause(T0 + 30 * SECOND)
    rig.pull('{"batch":1,"expires":60000000000}')
    rig.sleep(29)
    info = rig.machine.info(rig.now_ns)
    assert (info.paused, info.pause_remaining_ns, rig.sent) == (True, SECOND, [])
    assert rig.pull('{"batch":1,"no_wait":true}', "N") == ["N 404 No Messages"]
    rig.sent.clear()
    assert len(rig.sleep(1.5)) == 1
    pause(T0 + 300 * SECOND)
    pause(T0 + 400 * SECOND)
    pause(T0 + 400 * SECOND)
    pause(None)
    assert rig.machine.info(rig.now_ns).paused is False
    assert rig.advisories() == ["consumer_pause"] * 5


def test_what_counts_as_activity() -> None:
    """A delivery whose ack is awaited, and acks, keep a consumer; it is unused the threshold after the last of them."""
    rig = Rig(inactive_threshold_ns=SECOND, ack_wait_ns=60 * SECOND)
    rig.store()
    (delivery,) = rig.fetch(1)
    rig.sleep(5)
    assert not any(effects.is_inactive for effects in rig.log)
    rig.ack(delivery)
    rig.sleep(0.9)
    assert not any(effects.is_inactive for effects in rig.log)
    assert rig.machine.next_deadline_ns() == rig.now_ns + SECOND // 10
    assert rig.take(rig.machine.tick(rig.now_ns + SECOND // 10)).is_inactive


def reset(rig: Rig, seq: int = 0) -> int | ApiError:
    effects, start = rig.machine.reset(seq, rig.now_ns)
    rig.take(effects)
    return start


def test_a_reset_begins_again() -> None:
    """Behind the floor without a sequence; elsewhere only where the deliver policy allows it."""
    rig = Rig()
    rig.store(count=4)
    rig.ack(rig.fetch(3)[0])
    assert (reset(rig), seqs(rig.fetch(9))) == (2, [2, 3, 4])
    assert (reset(rig, 4), seqs(rig.fetch(9)), places(rig)[0]) == (4, [4], 7)
    for config, error in (
        ({"deliver_policy": DeliverPolicy.NEW}, "not allowed"),
        ({"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 9}, "below start seq"),
    ):
        _, refused = Rig(**config).machine.reset(5, 0)
        assert isinstance(refused, ApiError)
        assert refused.description == f"invalid reset: {error}"


@pytest.mark.parametrize(
    ("headers", "is_at_hand", "size"),
    [
        (b"", True, len("s.a") + len(b"NATS/1.0\r\nNats-Msg-Size: 100000\r\n\r\n")),
        (b"NATS/1.0\r\nK: v\r\n\r\n", True, len("s.a") + len(b"NATS/1.0\r\nK: v\r\nNats-Msg-Size: 100000\r\n\r\n")),
        (b"", False, len("s.a") + 65_535),
    ],
)
def test_without_payloads_a_request_is_charged_what_is_sent(headers: bytes, is_at_hand: bool, size: int) -> None:
    """Subject, reply and headers, with the one that tells the size; of a message that must be read first the most that
    it can be.
    """
    rig = Rig(headers_only=True)
    rig.index.is_at_hand = is_at_hand
    rig.index.append(1, T0, b"s.a", headers, bytes(100_000))
    size += len(f"$JS.ACK.S.C.1.1.1.{T0}.0")
    for max_bytes, seqs_sent in ((size - 1, []), (size, [1])):
        rig.sent.clear()
        rig.pull(f'{{"batch":2,"expires":1000000000,"max_bytes":{max_bytes}}}')
        assert [send.seq for send in rig.sent if isinstance(send, Sent)] == seqs_sent


@pytest.mark.parametrize("policy", [AckPolicy.EXPLICIT, AckPolicy.ALL])
@pytest.mark.parametrize("word", ["+ACK", "", "-NAK", "+WPI", "+TERM"])
def test_what_is_said_of_deliveries_before_a_reset_counts_no_more(policy: AckPolicy, word: str) -> None:
    """A message that was delivered again awaits an acknowledgement of that delivery, also after a restart; nobody is
    told that it has come.
    """
    rig = Rig(ack_policy=policy, max_ack_pending=10)
    rig.store(count=5)
    before = rig.fetch(4)
    assert reset(rig, 2) == 2
    again = rig.fetch(3)
    assert [seqs(before), seqs(again)] == [[1, 2, 3, 4], [2, 3, 4]]
    for is_restarted in (False, True):
        if is_restarted:
            rig.restart()
        for delivery in reversed(before[1:]):
            effects = rig.ack(delivery, word, "asks")
            assert (effects.acked_replies, effects.done, effects.ops) == ([], [], [])
        assert rig.machine.state.pending.seqs() == [2, 3, 4]
    assert rig.ack(again[-1], "+ACK", "asks").acked_replies == [b"asks"]
    assert rig.machine.state.pending.seqs() == ([] if policy == AckPolicy.ALL else [2, 3])
    assert rig.applied.pending.seqs() == rig.machine.state.pending.seqs()


def test_a_late_ack_from_before_a_reset_takes_no_message_from_a_stream() -> None:
    """What was delivered again and not acknowledged since is not done with, whoever else lets go of it."""
    rig = Rig()
    rig.store(count=2)
    before = rig.fetch(2)
    reset(rig, 1)
    rig.fetch(1)
    assert [rig.ack(delivery).done for delivery in before] == [[], []]


# ------------------------------------------------------------------ priority groups


@pytest.mark.parametrize("filters", [(), ("s.a", "s.b", "s.c"), ("s.>",)])
def test_who_is_at_the_end_of_the_stream_counts_nothing(
    filters: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much is ahead of it is known from what it found to deliver: a stream may have thousands of such consumers."""
    rig = Rig(filter_subjects=filters)
    rig.store()
    rig.pull('{"batch":10}')

    def count_matching(filters: tuple[bytes, ...], from_seq: int, to_seq: int) -> int:
        raise AssertionError("counted")

    monkeypatch.setattr(rig.index, "count_matching", count_matching)
    for subject in ("s.b", "other", "s.c"):
        rig.store(subject)
    wanted = [1, 2, 4] if filters else [1, 2, 3, 4]
    assert list(map(tell, rig.sent)) == [f"R {seq}/1 c{place} p0" for place, seq in enumerate(wanted, start=1)]


@pytest.mark.parametrize(("asked", "told"), [("", 0), ('"batch":0,', 0), ('"batch":-3,', -3), ('"batch":2,', 2)])
def test_what_is_missing_is_told_as_it_was_asked_for(asked: str, told: int) -> None:
    """A request for no number of messages gets one, and is told of none when its time is over."""
    rig = Rig()
    assert rig.pull(f'{{{asked}"expires":1000000000}}') == []
    assert rig.sleep(1) == [f"R 408 Request Timeout [Nats-Pending-Messages: {told}, Nats-Pending-Bytes: 0]"]
    rig.store()
    assert rig.pull(f'{{{asked}"expires":1000000000}}') == ["R 1/1 c1 p0"]
    assert len(rig.machine._waiting) == max(told - 1, 0)


def test_the_time_of_a_request_is_its_own() -> None:
    """Without one it waits until it is served, whatever bound others are refused by; what is over is told at once."""
    rig = Rig(max_expires_ns=SECOND)
    assert rig.pull('{"batch":1}') == []
    assert rig.sleep(100) == []
    rig.store()
    assert [send.seq for send in rig.sent if isinstance(send, Sent)] == [1]
    rig.store()
    ended = "R 408 Request Timeout [Nats-Pending-Messages: 0, Nats-Pending-Bytes: 0]"
    assert rig.pull('{"expires":-1}') == [ended]


def test_requests_that_came_together_are_served_by_priority() -> None:
    """The first one read does not take the messages that a more important one behind it wants."""
    rig = Rig(priority_policy=PriorityPolicy.PRIORITIZED, priority_groups=["g"])
    rig.store(count=2)
    low, high = (f'{{"batch":2,"group":"g","priority":{priority},"expires":9000000000}}' for priority in (1, 0))
    told = rig.pulls((low, "low"), (high, "high"))
    assert [one.split()[0] for one in told] == ["high", "high"]


def test_requests_beyond_max_waiting_find_room_where_messages_are() -> None:
    """More requests at once than may wait are all served while there are messages; only the rest is refused."""
    rig = Rig(max_waiting=2)
    rig.store(count=5)
    told = rig.pulls(*(('{"batch":1,"expires":9000000000}', f"R{number}") for number in range(8)))
    assert [one.split()[0] for one in told if "409" not in one] == [f"R{number}" for number in range(5)]
    assert [one for one in told if "409" in one] == ["R7 409 Exceeded MaxWaiting"]


def pinned() -> Rig:
    return Rig(priority_policy=PriorityPolicy.PINNED_CLIENT, priority_groups=["g"], priority_timeout_ns=SECOND)


def test_a_pinned_client_gets_all() -> None:
    """The first to be served is pinned and told its id; others wait; a wrong id is refused."""
    rig = pinned()
    rig.store(count=3)
    assert rig.pull('{"batch":1,"group":"g"}', "A") == ["A 1/1 c1 p2 pin id1"]
    assert rig.pull('{"batch":1,"group":"g","expires":9000000000}', "B") == []
    assert rig.pull('{"batch":1,"group":"g","id":"other"}', "C") == ["C 423 Nats-Pin-Id mismatch"]
    assert rig.pull('{"batch":1,"group":"g","id":"id1"}', "A") == ["A 2/1 c2 p1 pin id1"]
    state = rig.machine.info(0).priority_groups[0]
    assert (state.group, state.pinned_client_id, state.pinned_ts_ns) == ("g", "id1", T0)


def test_a_silent_pin_ends() -> None:
    """After the time-out another client is pinned, and both changes are announced; so on request."""
    rig = pinned()
    rig.store(count=3)
    rig.pull('{"batch":1,"group":"g"}', "A")
    rig.pull('{"batch":1,"group":"g","expires":9000000000}', "B")
    assert rig.sleep(1.1) == ["B 2/1 c2 p1 pin id2"]
    assert not isinstance(rig.take(rig.machine.unpin("g", rig.now_ns)), ApiError)  # type: ignore[arg-type]
    assert rig.machine.info(0).priority_groups[0].pinned_client_id == ""
    reasons = [advisory.fields.get("reason", "pinned") for effects in rig.log for advisory in effects.advisories]
    assert reasons == ["pinned", "timeout", "pinned", "admin"]
    refused = rig.machine.unpin("other", 0)
    assert isinstance(refused, ApiError)
    assert refused.err_code == 10160


# ------------------------------------------------------------------ push


def push(**config: Any) -> Rig:
    rig = Rig(deliver_subject="D", **config)
    rig.take(rig.machine.set_bound(True, 0))
    return rig


def test_push_sends_while_somebody_listens() -> None:
    """Messages go to the deliver subject in order; with nobody there they wait."""
    rig = push()
    rig.store(count=2)
    rig.take(rig.machine.set_bound(False, 0))
    rig.store()
    assert seqs([send for send in rig.sent if isinstance(send, Sent)]) == [1, 2]
    assert [line.split()[1] for line in rig.told(rig.machine.set_bound(True, 0))] == ["3/1"]
    assert rig.pull() == ["R 409 Consumer is push based"]


def test_push_heartbeats_fill_silence() -> None:
    """One each interval without a message, saying how far the consumer is."""
    rig = push(idle_heartbeat_ns=SECOND)
    rig.store()
    rig.sleep(0.9)
    rig.sent.clear()
    assert rig.sleep(1.2) == [
        "D 100 Idle Heartbeat [Nats-Last-Consumer: 1, Nats-Last-Stream: 1]",
        "D 100 Idle Heartbeat [Nats-Last-Consumer: 1, Nats-Last-Stream: 1]",
    ]


def test_flow_control_stops_and_goes_on() -> None:
    """Past half the window a request goes out, past all of it nothing more, until it is answered."""
    rig = push(idle_heartbeat_ns=SECOND, flow_control=True, ack_policy=AckPolicy.NONE)
    rig.store(payload="x" * 600_000, count=8)
    told = [send for send in rig.sent if not isinstance(send, Sent)]
    assert [(send.block, send.reply) for send in told] == [
        (b"NATS/1.0 100 FlowControl Request\r\n\r\n", b"$JS.FC.S.C.id1")
    ]
    assert rig.machine.state.delivered_stream_seq == 4
    stalled = "[Nats-Last-Consumer: 4, Nats-Last-Stream: 4, Nats-Consumer-Stalled: $JS.FC.S.C.id1]"
    assert rig.sleep(1) == [f"D 100 Idle Heartbeat {stalled}"]
    assert rig.told(rig.machine.flow_answered(b"$JS.FC.S.C.wrong", b"", rig.now_ns)) == []
    rig.take(rig.machine.flow_answered(b"$JS.FC.S.C.id1", b"", rig.now_ns))
    assert rig.machine.state.delivered_stream_seq == 8


def test_flow_answers_acknowledge() -> None:
    """With that ack policy an answer is asked for when as many are pending as may be, and with each heartbeat while any
    is; its header says up to where messages are acknowledged, and without it none is.
    """
    rig = push(ack_policy=AckPolicy.FLOW_CONTROL, max_ack_pending=3, flow_control=True, idle_heartbeat_ns=SECOND)

    def answer(number: int, block: bytes = b"") -> list[int]:
        return rig.take(rig.machine.flow_answered(b"$JS.FC.S.C.id%d" % number, block, rig.now_ns)).done

    rig.store(count=5)
    assert (rig.machine.state.delivered_stream_seq, rig.asked()) == (3, ["$JS.FC.S.C.id1"])
    assert answer(1) == []
    rig.sleep(1.5)
    assert rig.asked() == ["$JS.FC.S.C.id1", "$JS.FC.S.C.id2"]
    assert answer(2, b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n") == [1, 2]
    assert (places(rig)[2:], rig.machine.state.delivered_stream_seq) == ((2, 2), 5)
    assert answer(2, b"NATS/1.0\r\nNats-Last-Stream: 5\r\n\r\n") == []
    assert answer(3, b"NATS/1.0\r\nNats-Last-Stream: 99\r\n\r\n") == [3, 4, 5]


def test_rate_limit() -> None:
    """After the burst, bytes leave at the configured bits per second."""
    rig = push(rate_limit_bps=8_000_000, ack_policy=AckPolicy.NONE)
    rig.store(payload="x" * 500_000, count=6)
    assert rig.machine.state.delivered_stream_seq == 3
    rig.sleep(1.1)
    assert rig.machine.state.delivered_stream_seq == 5


def test_original_replay_keeps_the_gaps() -> None:
    """Messages are sent as far apart as they were stored."""
    rig = Rig()
    index = rig.index
    for seconds in (0, 3, 4):
        index.append(index.last_seq + 1, T0 + seconds * SECOND, b"s.a", b"", b"x")
    rig = Rig(index, replay_policy=ReplayPolicy.ORIGINAL, ack_policy=AckPolicy.NONE, deliver_subject="D")
    rig.take(rig.machine.set_bound(True, 0))
    heard = [(rig.now_ns // SECOND, len(rig.sleep(1))) for _ in range(5)]
    assert rig.sent
    assert heard == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 0)]


# ------------------------------------------------------------------ what is sent


def test_headers_that_deliveries_add() -> None:
    """Headers only: the size instead of the body; pinned: the id; the message's own headers stay."""
    own = b"NATS/1.0\r\nA: b\r\n\r\n"
    message = (1, 5, b"s.a", own, b"xyz")
    *_, block, payload = deliverable(Delivery((b"R",), (1,), 1, 1, 0, headers_only=True, pin_id="pin7"), message)
    assert payload == b""
    assert [get_header(block, key) for key in (b"A", b"Nats-Msg-Size", b"Nats-Pin-Id")] == [b"b", b"3", b"pin7"]
    assert deliverable(Delivery((b"R",), (1,), 1, 1, 0), message) == message


# ------------------------------------------------------------------ extensions


def test_dead_letters() -> None:
    """Exhausted and terminated messages wait in the outbox, over a restart too; when their letter is stored, and not
    before, the stream may let go of them. Acknowledged ones become no letters.
    """
    rig = Rig(max_deliver=1, ack_wait_ns=SECOND, metadata={"tnats.dead_letter": "dead.letters"})
    rig.store(count=3)
    first, second, _ = rig.fetch(3)
    assert rig.ack(first).done == [1]
    assert rig.ack(second, "+TERM bad order").done == []
    rig.sleep(2)
    wanted = [(2, "dead.letters", "bad order", 1), (3, "dead.letters", "max deliveries", 1)]
    for _ in range(2):
        found = rig.machine.state.outbox.values()
        assert [(letter.seq, letter.target, letter.reason, letter.deliveries) for letter in found] == wanted
        assert [rig.machine.needs(seq) for seq in (1, 2, 3)] == [False, True, True]
        rig.restart()
    assert rig.take(rig.machine.letter_stored(2, rig.now_ns)).done == [2]
    rig.restart()
    assert list(rig.machine.state.outbox) == [3]


def test_letters_that_nobody_takes_end_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full outbox holds everything back, and deliveries go on when a letter is stored."""
    monkeypatch.setattr("tnats.jetstream.consumer.deliver.CONSUMER_LETTERS_MAX", 2)
    rig = Rig(metadata={"tnats.dead_letter": "dead"})
    rig.store(count=5)
    for delivery in rig.fetch(3)[:2]:
        rig.ack(delivery, "+TERM")
    assert rig.fetch(5) == []
    rig.take(rig.machine.letter_stored(1, rig.now_ns))
    assert seqs(rig.fetch(5)) == [4, 5]


def test_the_headers_of_a_letter() -> None:
    """It says where it comes from and why, keeps the message's own headers, and none that tell a stream what to do."""
    own = b"NATS/1.0\r\nA: b\r\nNats-Msg-Id: 7\r\nNats-TTL: 5\r\nNats-Expected-Last-Sequence: 9\r\n\r\n"
    block = letter_block(Letter(3, "dead", "line\r\nend", 2, 99), own, "S", "C", b"s.a")
    parsed = parse_headers(block)
    assert parsed is not None
    assert parsed.fields == [
        (b"A", b"b"),
        (b"Nats-Msg-Id", b"dead-letter.S.C.3.99"),
        (b"Nats-Dead-Letter-Stream", b"S"),
        (b"Nats-Dead-Letter-Consumer", b"C"),
        (b"Nats-Dead-Letter-Subject", b"s.a"),
        (b"Nats-Dead-Letter-Sequence", b"3"),
        (b"Nats-Dead-Letter-Deliveries", b"2"),
        (b"Nats-Dead-Letter-Reason", b"line end"),
    ]


def test_order_per_subject() -> None:
    """With one unacknowledged message per subject, other subjects go on, and each subject stays in order."""
    rig = Rig(metadata={"tnats.max_ack_pending_per_subject": "1"})
    for subject in ("s.a", "s.a", "s.b", "s.a", "s.b"):
        rig.store(subject)
    first = rig.fetch(5)
    assert seqs(first) == [1, 3]
    assert rig.machine.info(0).num_pending == 3
    rig.restart()
    rig.ack(first[0])
    second = rig.fetch(5)
    assert seqs(second) == [2]
    assert places(rig)[3] == 1
    rig.ack(first[1])
    rig.ack(second[0])
    last = rig.fetch(5)
    assert sorted(seqs(last)) == [4, 5]
    for delivery in last:
        rig.ack(delivery)
    assert places(rig)[3] == 5


@pytest.mark.parametrize(
    "metadata",
    [
        {"tnats.dead_letter": "a.*"},
        {"tnats.dead_letter": ""},
        {"tnats.max_ack_pending_per_subject": "0"},
        {"tnats.max_ack_pending_per_subject": "many"},
        {"tnats.deadletter": "a"},
    ],
)
def test_bad_extensions_are_refused(metadata: dict[str, str]) -> None:
    """A value that makes no sense, or an extension that does not exist, is an error."""
    config = ConsumerConfig(name="C", ack_policy=AckPolicy.EXPLICIT, metadata=metadata)
    checked = rules.check(config, rules.Surroundings(StreamConfig(name="S", num_replicas=1)))
    assert isinstance(checked, ApiError)


def test_a_purge_shortens_the_list_of_last_messages() -> None:
    """With "last per subject", what a purge or a deletion takes away is neither delivered nor counted."""
    rig = Rig(filled("s.a", "s.b", "s.c", "s.d"), deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject="s.>")
    rig.index.remove_before(3)
    rig.take(rig.machine.stream_purged(3, 0, is_counted=False))
    assert rig.machine.info(0).num_pending == 2
    rig.remove(3)
    assert rig.machine.info(0).num_pending == 1
    assert seqs(rig.fetch(9)) == [4]


def test_progress_saves_an_overdue_message() -> None:
    """A message whose time is over, but which was not sent again yet, is the client's once more after a +WPI."""
    rig = Rig(ack_wait_ns=SECOND)
    rig.store()
    (delivery,) = rig.fetch(1)
    rig.sleep(1.5)
    rig.ack(delivery, "+WPI")
    assert rig.fetch(1) == []
    rig.sleep(1.1)
    assert seqs(rig.fetch(1)) == [1]


def test_a_pass_is_bounded_in_bytes() -> None:
    """Of many large messages a few go out at a time, in order, and the rest follow at once."""
    rig = Rig()
    rig.pull('{"batch":20,"expires":30000000000}')
    rig.store(payload="x" * 3 * MIB, count=8)
    assert seqs([send for send in rig.sent if isinstance(send, Sent)]) == [1, 2, 3]
    assert rig.machine.next_deadline_ns() == rig.now_ns
    rig.sleep(0)
    assert seqs([send for send in rig.sent if isinstance(send, Sent)]) == list(range(1, 9))
