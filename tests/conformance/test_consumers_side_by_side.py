"""Consumers: what nats-server answers, and what is right."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial

import pytest
from tests.conformance.consumer_talk import (
    S,
    ack,
    ask,
    counts,
    delivered,
    ear,
    floor,
    hear_some,
    info,
    make,
    messages,
    none,
    place,
    pull,
    refused,
    seqs,
    silence,
    take,
    tell,
    wait_for,
)
from tests.conformance.jetstream_talk import Servers, Talk, Told, both_servers, encoded, side_by_side

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


def fill(talk: Talk, count: int, subject: str = "s.x") -> None:
    talk.flood([subject] * count)


# ------------------------------------------------------------------ what is pending


@side_by_side
def test_pending_counts_what_limits_left(talk: Talk) -> None:
    """Messages that the stream dropped are not pending."""
    talk.create("S", max_msgs=100)
    fill(talk, 1000)
    make(talk)
    assert counts(talk) == (100, 0, 0)
    assert seqs(take(talk, 2)) == [901, 902]


@side_by_side
def test_filters_that_lie_close_together(talk: Talk) -> None:
    """A literal and a wildcard below it overlap not; each message counts once and comes in order."""
    talk.create("S", subjects=["stream.>", "event.>"])
    talk.flood([f"stream.A{'.b' if number % 2 else ''}" for number in range(10)])
    kinds = ["event.foo.foo", "event.foo.bar", "event.bar.foo", "event.bar.bar"]
    talk.flood(kinds * 4)
    for consumer, filters, pending in (
        ("A", ["stream.A", "stream.A.>"], 10),
        ("B", ["stream.A", "stream.*.A"], 5),
        ("C", ["stream.subject.A", "stream.subject.A.>"], 0),
        ("D", ["event.foo.*", "event.*.foo"], 12),
        ("E", ["stream.A", "other.>"], 5),
    ):
        make(talk, consumer, filter_subjects=filters)
        assert counts(talk, consumer)[0] == pending
    for filters, code in ((["event.>", "event.*.foo"], 10138), (["stream.A", "stream.A"], 10138), (["a", ""], 10139)):
        assert refused(talk, "X", filter_subjects=filters) == code
    assert refused(talk, "X", filter_subject="a", filter_subjects=["b"]) == 10136
    wanted = [11 + number for number in range(16) if number % 4 < 3]
    assert seqs(take(talk, 12, "D")) == wanted


@side_by_side
def test_the_last_of_each_subject_with_gaps(talk: Talk) -> None:
    """Each subject once, whatever was dropped in between; then nothing is pending, and the floor is at the end."""
    talk.create("S", subjects=["foo.*", "bar.*"], max_msgs_per_subject=5)
    talk.flood([f"foo.{number * 7919 % 300}" for number in range(3000)])
    talk.flood([f"bar.{number}" for number in range(300)])
    make(talk, deliver_policy="last_per_subject", filter_subject="foo.*")
    assert counts(talk)[0] == 300
    found = take(talk, 300)
    assert len({one.subject for one in found}) == 300
    for one in found:
        ack(talk, one)
    assert floor(talk) == (300, 3000)
    assert counts(talk) == (0, 0, 0)


def pending(talk: Talk) -> int:
    with talk.ours_alone():
        return counts(talk)[0]


@side_by_side
def test_a_start_that_lies_ahead(talk: Talk) -> None:
    """A start sequence beyond the end waits for it."""
    talk.create("S")
    make(talk, deliver_policy="by_start_sequence", opt_start_seq=10)
    fill(talk, 8)
    assert counts(talk)[0] == 0
    fill(talk, 4)
    wait_for(lambda: pending(talk), 3)
    assert seqs(take(talk, 3)) == [10, 11, 12]
    assert floor(talk) == (0, 9)


@side_by_side
def test_where_delivery_begins(talk: Talk) -> None:
    """Each policy at its place, with one filter and without."""
    talk.create("S")
    talk.flood([f"s.{number % 3}" for number in range(9)])
    stamp = talk.done("STREAM.MSG.GET.S", {"seq": 5})["message"]["time"]
    policies: list[tuple[dict[str, object], list[int]]] = [
        ({"deliver_policy": "all"}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"deliver_policy": "last"}, [9]),
        ({"deliver_policy": "new"}, []),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 8}, [8, 9]),
        ({"deliver_policy": "last_per_subject", "filter_subject": "s.>"}, [7, 8, 9]),
        ({"deliver_policy": "last", "filter_subject": "s.1"}, [8]),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3, "filter_subject": "s.0"}, [4, 7]),
    ]
    for number, (policy, wanted) in enumerate(policies):
        make(talk, f"P{number}", **policy)
        assert seqs(pull(talk, {"batch": 20, "no_wait": True}, f"P{number}")) == wanted
    with talk.ours_alone():
        make(talk, "P", deliver_policy="by_start_time", opt_start_time=stamp)
        assert seqs(pull(talk, {"batch": 20, "no_wait": True}, "P"))[0] <= 5
    for wrong in (
        {"deliver_policy": "by_start_sequence"},
        {"deliver_policy": "by_start_time"},
        {"deliver_policy": "all", "opt_start_seq": 3},
        {"deliver_policy": "last_per_subject"},
        {"deliver_policy": "new", "opt_start_time": stamp},
    ):
        with talk.ours_alone():
            assert refused(talk, "Q", **wrong) == 10094


# ------------------------------------------------------------------ what a request gets


@side_by_side
def test_bytes_without_a_number(talk: Talk) -> None:
    """A request for bytes alone asks for one message, and is told that it is complete."""
    talk.create("S")
    talk.flood(["s.x"] * 5, b"x" * 100)
    make(talk)
    inbox = ask(talk, {"max_bytes": 1024, "expires": 60 * S})
    one, status = talk.hear(inbox), talk.hear(inbox)
    assert seqs([one]) == [1]
    assert tell(status) == "409 Batch Completed Nats-Pending-Messages=-1 Nats-Pending-Bytes=882"


@side_by_side
def test_how_much_was_asked_for_is_told_as_it_was_asked(talk: Talk) -> None:
    """A request for no number of messages gets one; when it ends without, it did not miss one. Its time is its own."""
    talk.create("S")
    make(talk, max_expires=S // 5)
    for body, told in (
        ({"expires": S // 10}, 0),
        ({"expires": S // 10, "batch": 0}, 0),
        ({"expires": S // 10, "batch": -3}, -3),
        ({"expires": S // 10, "batch": 1}, 1),
        ({"expires": S // 10, "batch": 3}, 3),
        ({"expires": S // 10, "no_wait": True}, 0),
    ):
        [status] = pull(talk, body)
        assert tell(status) == f"408 Request Timeout Nats-Pending-Messages={told} Nats-Pending-Bytes=0"
    inbox = ask(talk, {})
    silence(talk, inbox, 0.5)
    talk.flood(["s.x", "s.x", "s.x"])
    assert seqs([talk.hear(inbox)]) == [1]
    [status] = pull(talk, {"expires": -1})
    assert tell(status) == "408 Request Timeout Nats-Pending-Messages=0 Nats-Pending-Bytes=0"
    assert seqs(pull(talk, {"batch": 0})) == [2]


@side_by_side
def test_a_message_larger_than_asked_for(talk: Talk) -> None:
    """It is not sent; the requester is told at once, with what it did not get."""
    talk.create("S")
    talk.flood(["s.x"], b"x" * 2000)
    make(talk)
    [status] = pull(talk, {"batch": 10, "max_bytes": 1000, "expires": 60 * S})
    assert tell(status) == "409 Message Size Exceeds MaxBytes Nats-Pending-Messages=10 Nats-Pending-Bytes=1000"


@side_by_side
def test_requests_that_cannot_be_met(talk: Talk) -> None:
    """Each is answered with its status, and gets no message."""
    talk.create("S")
    fill(talk, 3)
    make(talk, max_batch=5, max_expires=2 * S, max_bytes=1000)
    for body in (
        {"batch": 6},
        {"batch": 1, "expires": 3 * S},
        {"batch": 1, "expires": S, "max_bytes": 1001},
        {"batch": 1, "expires": S, "idle_heartbeat": S},
        {"batch": 1, "expires": S, "min_pending": 1},
        {"batch": 1, "expires": S, "min_ack_pending": 1},
        {"batch": 1, "expires": S, "id": "x"},
        {"batch": 1, "expires": S, "priority": 10},
        {"batch": 1, "expires": S, "priority": -1},
    ):
        [found] = pull(talk, body)
        assert found.status[:3] in ("400", "409"), tell(found)
    assert seqs(pull(talk, {"batch": 1, "expires": S, "group": "any"})) == [1]


@side_by_side
def test_the_bodies_of_requests(talk: Talk) -> None:
    """Nothing, a number, JSON with unknown members; what cannot be read asks for one message."""
    talk.create("S")
    fill(talk, 40)
    make(talk)
    for body, count in (
        (b"", 1),
        (b"3", 3),
        (b'{"batch":2,"unknown":1}', 2),
        (b'{"batch":0}', 1),
        (b'{"batch":-5}', 1),
        (b" 2 ", 2),
    ):
        inbox = ask(talk, body)
        hear_some(talk, inbox, count)
        silence(talk, inbox, 0.2)


@side_by_side
def test_a_request_that_will_not_wait(talk: Talk) -> None:
    """It gets what there is and the status behind it; with a time limit it waits only while it has got nothing."""
    talk.create("S")
    make(talk)
    none(talk)
    fill(talk, 5)
    found = pull(talk, {"batch": 10, "no_wait": True})
    assert (seqs(found), found[-1].status) == ([1, 2, 3, 4, 5], "404 No Messages")
    inbox = ask(talk, {"batch": 10, "no_wait": True, "expires": 60 * S})
    silence(talk, inbox, 0.3)
    fill(talk, 1)
    sixth, status = hear_some(talk, inbox, 2)
    assert (seqs([sixth]), status.status) == ([6], "404 No Messages")
    inbox = ask(talk, {"batch": 2, "expires": S // 2})
    [status] = hear_some(talk, inbox, 1)
    assert tell(status).startswith("408 Request Timeout")


@side_by_side
def test_more_requests_than_may_wait(talk: Talk) -> None:
    """The one too many is told so, unless it has heartbeats to find out by; a time limit frees the place."""
    talk.create("S")
    make(talk, max_waiting=2)
    wishes = [{"expires": 2 * S}, {"expires": 60 * S}, {"expires": 60 * S}, {"expires": 60 * S, "idle_heartbeat": S}]
    first, _, third, beating = inboxes = [ear(talk) for _ in wishes]
    asked = [
        talk.packed("$JS.API.CONSUMER.MSG.NEXT.S.C", encoded({"batch": 1, **wish}), (), inbox)
        for wish, inbox in zip(wishes, inboxes, strict=True)
    ]
    talk.send(b"".join(asked))  # at once, so that the first still waits when the last comes
    assert tell(hear_some(talk, third, 1)[0]) == "409 Exceeded MaxWaiting"
    silence(talk, beating, 0.3)
    assert tell(hear_some(talk, first, 1)[0]).startswith("408 Request Timeout")
    assert info(talk)["num_waiting"] == 1


@side_by_side
def test_heartbeats_of_a_request(talk: Talk) -> None:
    """While there is nothing, a sign of life comes each time; then the message, then the end."""
    talk.create("S")
    make(talk)
    inbox = ask(talk, {"batch": 2, "expires": 60 * S, "idle_heartbeat": S // 2})
    assert [one.status for one in hear_some(talk, inbox, 2)] == ["100 Idle Heartbeat"] * 2
    fill(talk, 2)
    found: list[Told] = []
    while len(seqs(found)) < 2:
        found.append(talk.hear(inbox))
    assert seqs(found) == [1, 2]
    assert {one.status for one in found} <= {"", "100 Idle Heartbeat"}


@side_by_side
def test_a_consumer_that_is_deleted_under_a_request(talk: Talk) -> None:
    """Whoever waits hears of it at once; requests to what is gone find nobody."""
    talk.create("S")
    make(talk)
    inbox = ask(talk, {"batch": 1, "expires": 60 * S})
    wait_for(lambda: waiting(talk), 1)
    talk.done("CONSUMER.DELETE.S.C")
    assert tell(hear_some(talk, inbox, 1)[0]).startswith("409 Consumer Deleted")
    assert talk.hear(ask(talk, {"batch": 1})).status == "503"
    make(talk)
    inbox = ask(talk, {"batch": 1, "expires": 60 * S})
    wait_for(lambda: waiting(talk), 1)
    talk.done("STREAM.DELETE.S")
    with talk.ours_alone() as is_ours:  # nats-server says nothing
        assert not is_ours or talk.hear(inbox).status == "409 Consumer Deleted"


def waiting(talk: Talk, consumer: str = "C") -> int:
    with talk.ours_alone():
        return int(info(talk, consumer)["num_waiting"])


@side_by_side
def test_a_pull_from_a_push_consumer(talk: Talk) -> None:
    """It is told that this is the wrong kind."""
    talk.create("S")
    make(talk, deliver_subject="d")
    [found] = pull(talk, {"batch": 1})
    assert tell(found) == "409 Consumer is push based"


# ------------------------------------------------------------------ acknowledgements


@side_by_side
def test_the_floor_after_giving_back(talk: Talk) -> None:
    """It waits for the one that was given back, and then goes to the end."""
    talk.create("S")
    fill(talk, 11)
    make(talk)
    found = take(talk, 11)
    talk.say(found[0].reply, b"-NAK")
    for one in found[1:10]:
        ack(talk, one)
    assert (floor(talk), counts(talk)[1]) == ((0, 0), 2)
    [again] = take(talk, 1)
    assert place(again)[:3] == (2, 1, 12)
    ack(talk, again)
    assert (delivered(talk), floor(talk)) == ((12, 11), (10, 10))


@side_by_side
def test_words_of_acknowledgements(talk: Talk) -> None:
    """Each does what it says; each is confirmed if somebody waits for it; what is no word is confirmed and ignored."""
    talk.create("S")
    fill(talk, 9)
    make(talk, ack_wait=600 * S)
    one, two, three, four, five, six, seven, _, _ = take(talk, 9)
    for message, word in ((one, b""), (two, b"+ACK"), (three, b"+OK"), (four, b"+TERM because"), (five, b"nonsense")):
        assert ack(talk, message, word).data == b""
    assert counts(talk) == (0, 5, 0)
    ack(talk, six, b'-NAK {"delay": 200000000}')
    ack(talk, seven, b"-NAK 200ms")
    inbox = ask(talk, {"batch": 2, "expires": 60 * S})
    assert sorted(seqs([talk.hear(inbox) for _ in range(2)])) == [6, 7]


@side_by_side
def test_work_in_progress(talk: Talk) -> None:
    """The time of a message begins anew with each word that it is worked on; those that nobody speaks of come again."""
    talk.create("S")
    fill(talk, 3)
    make(talk, ack_wait=2 * S)
    start = time.monotonic()
    one, two, _ = take(talk, 3)
    time.sleep(1)
    said = time.monotonic()
    for message, word in ((one, b"nonsense"), (two, b"+WPI")):
        talk._ask(message.reply, word, ())
    was_in_time = time.monotonic() - start < 1.9  # on a machine that stood still it may have come too late
    inbox = ask(talk, {"batch": 3, "expires": 60 * S})
    again = {place(talk.hear(inbox))[1]: time.monotonic() - said for _ in range(3)}
    assert sorted(again) == [1, 2, 3]
    assert again[2] > 1.9 or not was_in_time


@side_by_side
def test_acknowledging_and_asking_for_more(talk: Talk) -> None:
    """The next word gets one message, or what the request behind it says, on the reply subject."""
    talk.create("S")
    fill(talk, 6)
    make(talk)
    [one] = take(talk, 1)
    inbox = ear(talk)
    talk.say(one.reply, b"+NXT", reply=inbox)
    [two] = hear_some(talk, inbox, 1)
    inbox = ear(talk)
    talk.say(two.reply, b'+NXT {"batch": 2, "no_wait": true}', reply=inbox)
    assert seqs(hear_some(talk, inbox, 2)) == [3, 4]
    inbox = ear(talk)
    talk.say(two.reply, b"+NXT 2", reply=inbox)
    assert seqs(hear_some(talk, inbox, 2)) == [5, 6]
    assert floor(talk) == (2, 2)


def awaited(talk: Talk, stream: str = "S") -> int:
    with talk.ours_alone():
        return counts(talk, stream=stream)[1]


@side_by_side
def test_how_often_is_counted_once(talk: Talk) -> None:
    """A message that was sent once is not redelivered; when the limit is raised the exhausted one stays where it is."""
    talk.create("S")
    fill(talk, 1)
    make(talk, max_deliver=1, ack_wait=S // 2)
    take(talk, 1)
    wait_for(lambda: awaited(talk), 0)
    none(talk)
    assert counts(talk)[2] == 0
    with talk.ours_alone() as is_ours:  # nats-server counts the exhausted one from now on
        assert make(talk, max_deliver=2, ack_wait=S // 2)["num_redelivered"] == 0 or not is_ours
    fill(talk, 1)
    assert seqs(take(talk, 1)) == [2]
    [again] = take(talk, 1)
    assert place(again)[:2] == (2, 2)
    time.sleep(0.8)
    none(talk)


@side_by_side
def test_a_client_that_dies_with_messages(talk: Talk) -> None:
    """They stay its own until their time is over; the next request gets them, second delivery each."""
    talk.create("S", retention="interest")
    make(talk, ack_wait=S // 2)
    fill(talk, 10)
    take(talk, 10)
    time.sleep(1)
    assert counts(talk)[1] == 10
    found = take(talk, 10)
    assert [place(one)[:2] for one in found] == [(2, seq) for seq in range(1, 11)]


@side_by_side
def test_each_message_has_its_own_time(talk: Talk) -> None:
    """Two messages taken one after the other come again one after the other, by the list of waits."""
    talk.create("S")
    fill(talk, 2)
    make(talk, backoff=[S // 2, S], max_deliver=5)
    start = time.monotonic()
    inbox = ask(talk, {"batch": 6, "expires": 60 * S})
    came: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(6):
        message = talk.hear(inbox)
        came[place(message)[1]].append(time.monotonic() - start)
    for times in came.values():
        assert times[1] > 0.45
        assert times[2] > 1.45


@side_by_side
def test_acks_of_what_was_not_delivered(talk: Talk) -> None:
    """A made-up place changes nothing and is not confirmed; nor is another stream's, or a subject that is none."""
    talk.create("S", retention="workqueue")
    fill(talk, 5)
    make(talk)
    first, _ = take(talk, 2)
    tokens = first.reply.split(".")
    numbers = ("5", "999", "18446744073709551615", "99999999999999999999999", "-1", "0", "x")
    subjects = [".".join([*tokens[:5], seq, seq, *tokens[7:]]) for seq in numbers]
    subjects += [
        first.reply.replace(".S.C.", ".S.D."),
        first.reply.replace(".S.C.", ".T.C."),
        first.reply + ".more",
        "$JS.ACK.S.C",
        "$JS.ACK.S.C.1.1",
    ]
    for subject in subjects:
        for word in (b"+ACK", b"+TERM", b"-NAK", b"+WPI"):
            talk.say(subject, word, reply=talk.new_inbox())
    talk.fence()
    assert counts(talk) == (3, 2, 0)
    assert talk.state("S")[0] == 5


@side_by_side
def test_acks_to_nobody(talk: Talk) -> None:
    """Whoever waits for the confirmation of an ack to what is not there is told at once that nobody answers."""
    talk.create("S")
    fill(talk, 1)
    make(talk)
    [one] = take(talk, 1)
    for subject in (
        one.reply.replace(".S.C.", ".S.D."),
        one.reply.replace(".S.C.", ".T.C."),
        one.reply + ".more",
        "$JS.ACK.S.C",
        "$JS.ACK.S.C.1.1",
    ):
        inbox = talk.new_inbox()
        talk.say(subject, b"+ACK", reply=inbox)
        assert talk.hear(inbox).status == "503", subject
    talk.done("CONSUMER.DELETE.S.C")
    inbox = talk.new_inbox()
    talk.say(one.reply, b"+ACK", reply=inbox)
    assert talk.hear(inbox).status == "503"


@side_by_side
def test_an_ack_to_a_consumer_of_the_same_name(talk: Talk) -> None:
    """Acks of deliveries of a deleted consumer do not touch the new one, as long as that has not delivered so far."""
    talk.create("S")
    fill(talk, 4)
    make(talk)
    old = take(talk, 4)
    talk.done("CONSUMER.DELETE.S.C")
    make(talk)
    take(talk, 1)
    for one in old[1:]:
        talk.say(one.reply, b"+ACK")
    talk.fence()
    assert (counts(talk), floor(talk)) == ((3, 1, 0), (0, 0))


@side_by_side
def test_acknowledging_everything_up_to_a_message(talk: Talk) -> None:
    """All below are acknowledged with it; the rest is awaited."""
    talk.create("S")
    fill(talk, 10)
    make(talk, ack_policy="all")
    found = take(talk, 10)
    ack(talk, found[6])
    assert (floor(talk), counts(talk)) == ((7, 7), (0, 3, 0))
    ack(talk, found[3])
    assert floor(talk) == (7, 7)
    ack(talk, found[8], b"+TERM")
    assert (floor(talk), counts(talk)) == ((9, 9), (0, 1, 0))
    fill(talk, 3)
    gone = take(talk, 2)[1]
    talk.done("STREAM.MSG.DELETE.S", {"seq": 12})
    talk.say(gone.reply, b"+TERM")
    with talk.ours_alone():
        wait_for(lambda: floor(talk), (12, 12))
    assert counts(talk) == (1, 0, 0)


@side_by_side
def test_without_acknowledgements(talk: Talk) -> None:
    """A delivery is all there is; the floor follows it."""
    talk.create("S")
    fill(talk, 3)
    make(talk, ack_policy="none")
    take(talk, 2)
    assert (floor(talk), counts(talk), delivered(talk)) == ((2, 2), (1, 0, 0), (2, 2))


@side_by_side
def test_as_many_as_may_await_their_ack(talk: Talk) -> None:
    """Nothing more comes before one of them is acknowledged."""
    talk.create("S")
    fill(talk, 5)
    make(talk, max_ack_pending=2)
    inbox = ask(talk, {"batch": 5, "expires": 60 * S})
    first, _ = hear_some(talk, inbox, 2)
    silence(talk, inbox, 0.3)
    ack(talk, first)
    assert seqs(hear_some(talk, inbox, 1)) == [3]


# ------------------------------------------------------------------ after the last delivery


@side_by_side
def test_deliveries_come_to_an_end(talk: Talk) -> None:
    """Each exhausted message is announced once and stays in the work queue; what comes later is not held up."""
    talk.listen("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C")
    talk.create("S", retention="workqueue")
    fill(talk, 3)
    make(talk, max_deliver=2, ack_wait=S // 2)
    for _ in range(2):
        take(talk, 3)
    inbox = ask(talk, {"batch": 1, "expires": 60 * S})
    heard = [talk.hear("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C") for _ in range(3)]
    assert sorted((one.json["stream_seq"], one.json["deliveries"]) for one in heard) == [(1, 2), (2, 2), (3, 2)]
    fill(talk, 1)
    [fourth] = hear_some(talk, inbox, 1)
    ack(talk, fourth)
    assert (floor(talk)[1], counts(talk)[:2], talk.state("S")) == (4, (0, 0), (3, 1, 4))
    silence(talk, "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C", 0.8)


@side_by_side
def test_a_late_acknowledgement(talk: Talk) -> None:
    """It counts, though the message's deliveries are used up: neither a work queue nor interest keeps the message."""
    for retention in ("workqueue", "interest"):
        for is_asked_for in (False, True):
            stream = f"{retention}-{is_asked_for}".upper()
            talk.create(stream, subjects=["s.>"], retention=retention)
            make(talk, stream=stream, max_deliver=1, ack_wait=S // 2)
            fill(talk, 3)
            late, _ = take(talk, 2, stream=stream)
            wait_for(partial(awaited, talk, stream), 0)
            if is_asked_for:
                pull(talk, {"batch": 2, "no_wait": True}, stream=stream)
            ack(talk, late)
            wait_for(lambda name=stream: messages(talk, name), 2)
            talk.done(f"STREAM.DELETE.{stream}")


@side_by_side
def test_what_is_announced(talk: Talk) -> None:
    """Giving back, ending, creation and deletion, and the samples of acknowledgements."""
    advisories = "$JS.EVENT.ADVISORY.CONSUMER.*.S.ANNOUNCED"  # not what may still be told of other consumers
    talk.listen(advisories)
    talk.listen("$JS.EVENT.METRIC.CONSUMER.ACK.S.ANNOUNCED")
    talk.create("S")
    fill(talk, 3)
    make(talk, "ANNOUNCED", sample_freq="100%")
    one, two, three = take(talk, 3, "ANNOUNCED")
    ack(talk, one, b"-NAK")
    ack(talk, two, b"+TERM no good")
    ack(talk, three)
    talk.done("CONSUMER.DELETE.S.ANNOUNCED")
    heard = [talk.hear(advisories) for _ in range(4)]
    metric = talk.hear("$JS.EVENT.METRIC.CONSUMER.ACK.S.ANNOUNCED").json
    talk.log.append(sorted((one.subject, sorted(one.json), one.json.get("reason"), one.json["type"]) for one in heard))
    assert metric.pop("ack_time") > 0
    talk.log.append({key: value for key, value in metric.items() if key not in ("id", "timestamp")})


# ------------------------------------------------------------------ names and changes


@side_by_side
def test_a_durable_name_by_both_ways(talk: Talk) -> None:
    """The answer has the name, whichever subject and member told it."""
    talk.create("S")
    config = {"durable_name": "D", "ack_policy": "explicit"}
    body = {"stream_name": "S", "config": config}
    assert talk.done("CONSUMER.DURABLE.CREATE.S.D", body)["name"] == "D"
    assert talk.done("CONSUMER.CREATE.S.E", {**body, "config": {**config, "durable_name": "E"}})["name"] == "E"
    assert talk.done("CONSUMER.CREATE.S.F.s.x", {"stream_name": "S", "config": {"name": "F", "filter_subject": "s.x"}})
    assert talk.done("CONSUMER.NAMES.S")["consumers"] == ["D", "E", "F"]


@side_by_side
def test_names_that_are_none(talk: Talk) -> None:
    """Each is refused with its number, and nothing is made."""
    talk.create("S")
    for call, config, code in (
        ("CONSUMER.DURABLE.CREATE.S.D", {"durable_name": "E"}, 10017),
        ("CONSUMER.DURABLE.CREATE.S.D", {}, 10018),
        ("CONSUMER.CREATE.S", {"durable_name": "E"}, None),
        ("CONSUMER.CREATE.S.D", {"name": "E"}, None),
        ("CONSUMER.CREATE.S.D", {"name": "D", "durable_name": "E"}, None),
        ("CONSUMER.CREATE.S.D", {"name": "D", "filter_subject": "s.x", "filter_subjects": []}, 0),
        ("CONSUMER.CREATE.S.D.s.y", {"name": "D", "filter_subject": "s.x"}, 10131),
        ("CONSUMER.CREATE.S.D.s.y", {"name": "D", "filter_subjects": ["s.x", "s.y"]}, 10137),
        ("CONSUMER.CREATE.S.a/b", {"name": "a/b"}, None),
        ("CONSUMER.CREATE.T.D", {"name": "D"}, None),
    ):
        answer = talk.api(call, {"stream_name": call.split(".")[2 if "DURABLE" not in call else 3], "config": config})
        if code is not None:
            assert answer.get("error", {}).get("err_code", 0) == code, (call, config)
        if "error" not in answer:
            talk.done(f"CONSUMER.DELETE.S.{answer['name']}")
    assert talk.refused("CONSUMER.CREATE.S.D", {"stream_name": "T", "config": {"name": "D"}}) == 10056
    assert talk.done("CONSUMER.NAMES.S")["consumers"] in (None, [])


@side_by_side
def test_a_name_that_is_taken(talk: Talk) -> None:
    """A consumer is not replaced by another kind of the same name, and keeps its place when that is tried."""
    talk.create("S")
    fill(talk, 5)
    make(talk)
    ack(talk, take(talk, 2)[0])
    assert refused(talk, deliver_policy="new") == 10012
    assert refused(talk, action="create", description="other") == 10148
    assert refused(talk, "D", action="update") == 10149
    assert refused(talk, mem_storage=True) == 10012
    assert refused(talk, ack_policy="all") == 10012
    make(talk, action="create")
    assert (floor(talk), counts(talk)) == ((1, 1), (3, 1, 0))


@side_by_side
def test_other_filters(talk: Talk) -> None:
    """They may be widened and narrowed, and the place is kept; overlapping ones are refused."""
    talk.create("S", subjects=["t.>"])
    talk.flood(["t.a", "t.b", "t.a", "t.b"])
    make(talk, filter_subject="t.a")
    ack(talk, take(talk, 1)[0])
    make(talk, filter_subjects=["t.a", "t.b"])
    assert (floor(talk)[1], counts(talk)[0]) == (1, 3)
    assert refused(talk, filter_subjects=["t.a", "t.>"]) == 10138
    make(talk, filter_subject="t.x")
    assert (floor(talk)[1], counts(talk)[0]) == (1, 0)
    make(talk, filter_subject="other")
    assert talk.refused("STREAM.CREATE.T", {"name": "T", "subjects": ["t.x"]}) == 10065


@side_by_side
def test_other_filters_while_messages_are_in_hand(talk: Talk) -> None:
    """What was delivered awaits its ack as before: an ack ends it, in a work queue it is gone then, and what is not
    acknowledged comes again, wanted or not.
    """
    for retention in ("limits", "workqueue"):
        talk.create("S", subjects=["t.>"], retention=retention)
        make(talk, filter_subject="t.a", ack_wait=S)
        talk.flood(["t.a", "t.b", "t.a", "t.b"])
        first, _ = take(talk, 2)
        make(talk, filter_subject="t.b", ack_wait=S)
        assert (floor(talk), counts(talk)) == ((0, 0), (1, 2, 0))
        ack(talk, first)
        wait_for(lambda: messages(talk), 4 if retention == "limits" else 3)
        assert floor(talk)[0] == 1
        inbox = ask(talk, {"batch": 2, "expires": 60 * S})
        assert sorted(place(talk.hear(inbox))[:2] for _ in range(2)) == [(1, 4), (2, 3)]
        talk.done("STREAM.DELETE.S")


@side_by_side
def test_the_same_start_written_otherwise(talk: Talk) -> None:
    """A start time with another precision or zone is the same time."""
    talk.create("S")
    make(talk, deliver_policy="by_start_time", opt_start_time="2026-01-02T03:04:05.500Z")
    with talk.ours_alone():  # nats-server shows the zone of the request, we show UTC
        again = make(
            talk, deliver_policy="by_start_time", opt_start_time="2026-01-02T05:04:05.500000000+02:00", description="x"
        )
    assert again["config"]["description"] == "x"
    assert refused(talk, deliver_policy="by_start_time", opt_start_time="2026-01-02T03:04:06Z") == 10012


@side_by_side
def test_limits_of_a_consumer_can_change(talk: Talk) -> None:
    """What an update may change is changed and holds for messages on their way too."""
    talk.create("S")
    fill(talk, 4)
    make(talk, ack_wait=30 * S)
    take(talk, 2)
    found = make(
        talk,
        ack_wait=60 * S,
        max_deliver=7,
        max_ack_pending=9,
        headers_only=True,
        description="d",
        metadata={"a": "b"},
        max_batch=3,
        max_expires=60 * S,
        max_bytes=4096,
        sample_freq="30",
        inactive_threshold=60 * S,
    )
    assert found["config"]["max_deliver"] == 7
    [third, _] = take(talk, 2)
    assert (third.data, third.headers["Nats-Msg-Size"]) == (b"", "0")
    for fixed in (
        {"replay_policy": "original"},
        {"max_waiting": 7},
        {"deliver_policy": "last"},
        {"ack_policy": "none"},
        {"deliver_subject": "d"},
    ):
        answer = talk.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {**found["config"], **fixed}})
        assert "error" in answer, fixed


@side_by_side
def test_another_ack_wait_holds_for_what_is_in_hand(talk: Talk) -> None:
    """A message that was to be awaited for minutes comes again after the second that an update asks for."""
    talk.create("S")
    fill(talk, 2)
    make(talk, ack_wait=600 * S)
    take(talk, 2)
    make(talk, ack_wait=S)
    assert [place(one)[:2] for one in take(talk, 2)] == [(2, 1), (2, 2)]


# ------------------------------------------------------------------ pausing, resetting, ending by itself


@side_by_side
def test_pausing_and_going_on(talk: Talk) -> None:
    """While paused nothing is delivered and acks count; an empty request, or a time of zero, lets it go on."""
    talk.listen("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C")
    talk.create("S")
    fill(talk, 5)
    make(talk)
    [one] = take(talk, 1)
    until = "2099-01-01T00:00:00Z"
    for resume in (None, {"pause_until": "0001-01-01T00:00:00Z"}, {}):
        found = talk.done("CONSUMER.PAUSE.S.C", {"pause_until": until})
        assert found["paused"]
        inbox = ask(talk, {"batch": 1, "expires": 60 * S})
        silence(talk, inbox, 0.2)
        none(talk)
        ack(talk, one)
        assert talk.done("CONSUMER.PAUSE.S.C", resume)["paused"] is False
        # nats-server serves the request only seconds later, or with the next one.
        assert not talk.is_ours or seqs([talk.hear(inbox)])
    heard = [talk.hear("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C").json for _ in range(6)]
    assert [one["paused"] for one in heard] == [True, False] * 3
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
    with talk.ours_alone():
        talk.done("CONSUMER.PAUSE.S.C", {"pause_until": soon})
    assert seqs([talk.hear(ask(talk, {"batch": 1, "expires": 60 * S}))])
    assert talk.refused("CONSUMER.PAUSE.S.X", {"pause_until": until}) == 10014


@side_by_side
def test_beginning_again(talk: Talk) -> None:
    """A reset goes to a sequence, or behind what is acknowledged; of messages that are acknowledged each, consumer
    sequences go on here.
    """
    talk.create("S")
    fill(talk, 6)
    make(talk)
    found = take(talk, 4)
    ack(talk, found[0])
    ack(talk, found[1])
    with talk.ours_alone():
        assert talk.done("CONSUMER.RESET.S.C")["reset_seq"] == 3
    with talk.ours_alone() as is_ours:
        assert [place(one)[:3] for one in take(talk, 2)] == [(1, 3, 5 if is_ours else 1), (1, 4, 6 if is_ours else 2)]
        assert talk.done("CONSUMER.RESET.S.C", {"seq": 2})["reset_seq"] == 2
        assert seqs(take(talk, 2)) == [2, 3]
    make(talk, "N", deliver_policy="new")
    assert talk.refused("CONSUMER.RESET.S.N", {"seq": 2}) == 10204
    make(talk, "B", deliver_policy="by_start_sequence", opt_start_seq=4)
    assert talk.refused("CONSUMER.RESET.S.B", {"seq": 3}) == 10204
    with talk.ours_alone():
        assert talk.done("CONSUMER.RESET.S.B", {"seq": 5})["reset_seq"] == 5


@side_by_side
def test_what_counts_as_use(talk: Talk) -> None:
    """A consumer lives while somebody waits, while an ack is awaited, and while signals come; then it goes."""
    talk.create("S")
    fill(talk, 2)

    def names() -> object:
        with talk.ours_alone():
            return talk.done("CONSUMER.NAMES.S")["consumers"] or []

    make(talk, durable_name="", ack_wait=60 * S, inactive_threshold=600 * S)
    [one] = take(talk, 1)
    make(talk, durable_name="", ack_wait=60 * S, inactive_threshold=S // 2)
    for word in (b"+WPI", b"+WPI", b"+WPI"):
        time.sleep(0.4)
        ack(talk, one, word)
    assert names() == ["C"]
    ack(talk, one)
    wait_for(names, [])
    make(talk, "D", durable_name="", inactive_threshold=600 * S)  # nats-server still removes the files of C
    ask(talk, {"batch": 5, "expires": 600 * S}, "D")
    wait_for(lambda: waiting(talk, "D"), 1)
    make(talk, "D", durable_name="", inactive_threshold=S // 2)
    time.sleep(1.2)
    assert names() == ["D"]


# ------------------------------------------------------------------ priority groups


@side_by_side
def test_groups_that_are_none(talk: Talk) -> None:
    """Settings of priority groups that contradict each other are refused by number."""
    talk.create("S")
    group = {"priority_groups": ["g"]}
    for config, code in (
        ({**group, "priority_policy": "overflow", "deliver_subject": "d"}, 10178),
        ({**group}, 10196),
        ({"priority_policy": "overflow"}, 10159),
        ({"priority_policy": "overflow", "priority_groups": [""]}, 10161),
        ({"priority_policy": "overflow", "priority_groups": ["a b"]}, 10162),
        ({"priority_policy": "overflow", "priority_groups": ["n" * 17]}, 10162),
        ({"priority_timeout": S}, 10197),
        ({**group, "priority_policy": "nonsense"}, 10025),
    ):
        assert refused(talk, **config) == code, config


@side_by_side
def test_overflow(talk: Talk) -> None:
    """A request is served from as many pending, or unacknowledged, messages on as it asks for."""
    talk.create("S")
    make(talk, priority_policy="overflow", priority_groups=["g"])
    for body in ({"batch": 1, "expires": S}, {"batch": 1, "expires": S, "group": "x"}):
        assert pull(talk, body)[0].status.startswith("400"), body
    inbox = ask(talk, {"batch": 5, "expires": 60 * S, "group": "g", "min_pending": 3})
    acks = ask(talk, {"batch": 5, "expires": 60 * S, "group": "g", "min_ack_pending": 2})
    fill(talk, 2)
    silence(talk, inbox, 0.3)
    fill(talk, 1)
    assert seqs(hear_some(talk, inbox, 1)) == [1]
    silence(talk, inbox, 0.3)
    silence(talk, acks, 0.1)
    plain = ask(talk, {"batch": 1, "expires": 60 * S, "group": "g"})
    assert seqs(hear_some(talk, plain, 1)) == [2]
    assert seqs(hear_some(talk, acks, 1)) == [3]


@side_by_side
def test_a_pinned_client(talk: Talk) -> None:
    """The first to ask is pinned and gets everything; when it is unpinned, or silent, another is."""
    pinned, unpinned = "$JS.EVENT.ADVISORY.CONSUMER.PINNED.S.*", "$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.S.*"
    talk.listen(pinned)
    talk.listen(unpinned)
    talk.create("S")
    fill(talk, 9)
    make(talk, priority_policy="pinned_client", priority_groups=["g"], priority_timeout=600 * S)
    want = {"batch": 1, "expires": 60 * S, "group": "g"}
    [one] = pull(talk, want)
    pin = one.headers["Nats-Pin-Id"]
    other = ask(talk, want)
    [two] = pull(talk, {**want, "id": pin})
    assert (seqs([one, two]), two.headers["Nats-Pin-Id"]) == ([1, 2], pin)
    assert pull(talk, {**want, "id": "wrong"})[0].status.startswith("423")
    assert talk.refused("CONSUMER.UNPIN.S.C", {"group": "x"}) == 10160
    assert talk.refused("CONSUMER.UNPIN.S.C", {"group": ""}) == 10025
    silence(talk, other, 0.2)
    talk.done("CONSUMER.UNPIN.S.C", {"group": "g"})
    [three] = hear_some(talk, other, 1)
    assert (place(three)[1], three.headers["Nats-Pin-Id"] != pin) == (3, True)
    [state] = info(talk)["priority_groups"]
    assert state["group"] == "g"
    assert state["pinned_client_id"]
    make(talk, "D", priority_policy="pinned_client", priority_groups=["g"], priority_timeout=S)
    start = time.monotonic()
    [one] = pull(talk, want, "D")
    [two] = hear_some(talk, ask(talk, want, "D"), 1)
    assert time.monotonic() - start > 0.9
    assert (place(two)[1], two.headers["Nats-Pin-Id"] != one.headers["Nats-Pin-Id"]) == (2, True)
    assert [talk.hear(unpinned).json["reason"] for _ in range(2)] == ["admin", "timeout"]
    assert len([talk.hear(pinned) for _ in range(4)]) == 4


@side_by_side
def test_prioritized(talk: Talk) -> None:
    """The lowest number is served first, whoever asked first."""
    talk.create("S")
    make(talk, priority_policy="prioritized", priority_groups=["g"])
    low = ask(talk, {"batch": 2, "expires": 60 * S, "group": "g", "priority": 5})
    high = ask(talk, {"batch": 2, "expires": 60 * S, "group": "g", "priority": 1})
    wait_for(lambda: waiting(talk), 2)
    fill(talk, 3)
    assert seqs(hear_some(talk, high, 2)) == [1, 2]
    assert seqs(hear_some(talk, low, 1)) == [3]


# ------------------------------------------------------------------ push


@side_by_side
def test_push_settings_that_are_none(talk: Talk) -> None:
    """Each is refused by number."""
    talk.create("S")
    for config, code in (
        ({"deliver_subject": "d.*"}, 10079),
        ({"deliver_subject": "s.loop", "ack_policy": "none"}, 10081),
        ({"deliver_subject": "d", "idle_heartbeat": S // 20}, 10083),
        ({"idle_heartbeat": S}, 10088),
        ({"flow_control": True}, 10089),
        ({"deliver_subject": "d", "flow_control": True}, 10108),
        ({"deliver_subject": "d", "max_waiting": 5}, 10080),
        ({"rate_limit_bps": 1000}, 10086),
        ({"deliver_subject": "d", "ack_policy": "none", "max_ack_pending": 5}, 10082),
        ({"deliver_group": "q"}, None),
        ({"deliver_subject": "d e"}, None),
        ({"backoff": [S, S], "max_deliver": 1}, 10116),
        ({"ack_wait": -1}, None),
        ({"max_batch": -1}, None),
        ({"sample_freq": "many"}, None),
        ({"inactive_threshold": -1}, None),
        ({"num_replicas": 3}, None),
        ({"num_replicas": -1}, None),
        ({"description": "d" * 5000}, 10107),
        ({"metadata": {"a": "b" * 140_000}}, 10135),
        ({"ack_policy": "flow_control"}, 10218),
    ):
        answer = talk.api(
            "CONSUMER.CREATE.S.C",
            {"stream_name": "S", "config": {"durable_name": "C", "name": "C", "ack_policy": "explicit", **config}},
        )
        if code is not None:
            assert answer["error"]["err_code"] == code, config
        if "error" not in answer:
            talk.done("CONSUMER.DELETE.S.C")


@side_by_side
def test_pushing_while_somebody_listens(talk: Talk) -> None:
    """Messages wait for a listener, come with their own subject and headers, and the listener shows in the info."""
    talk.create("S")
    talk.stored("s.x", b"one", {"A": "b"})
    make(talk, deliver_subject="d.x")
    with talk.ours_alone():
        assert not info(talk).get("push_bound")
    talk.listen("d.x")
    [one] = hear_some(talk, "d.x", 1)
    assert (one.subject, one.data, one.headers) == ("s.x", b"one", {"A": "b"})
    wait_for(lambda: bound(talk), True)
    sid = next(sid for sid, subject in talk._sids.items() if subject == "d.x")
    talk.send(b"UNSUB %d\r\n" % sid)
    wait_for(lambda: bound(talk), False)
    fill(talk, 1)
    talk.send(b"SUB d.x %d\r\n" % sid)
    assert seqs(hear_some(talk, "d.x", 1)) == [2]


def bound(talk: Talk) -> bool:
    with talk.ours_alone():
        return bool(info(talk).get("push_bound"))


@side_by_side
def test_who_counts_as_listener(talk: Talk) -> None:
    """Whoever subscribes to the deliver subject itself, in its group if it has one: nobody's pattern takes messages."""
    talk.create("S")
    fill(talk, 2)
    cases = (
        ({}, "d.>", "", False),
        ({}, "d.x", "q", False),
        ({"deliver_group": "q"}, "d.x", "", False),
        ({"deliver_group": "q"}, "d.x", "r", False),
        ({"deliver_group": "q"}, "d.>", "q", False),
        ({"deliver_group": "q"}, "d.x", "q", True),
        ({}, "d.x", "", True),
    )
    for number, (config, pattern, group, counts_as_one) in enumerate(cases):
        subject, consumer = f"d{number}.x", f"C{number}"
        make(talk, consumer, deliver_subject=subject, ack_policy="none", **config)
        sid, key = 100 + number, f"case {number}"
        talk._sids[sid] = key
        talk.send(f"SUB {pattern.replace('d', f'd{number}')} {group} {sid}\r\n".encode())
        if counts_as_one:
            assert seqs(hear_some(talk, key, 2)) == [1, 2]
        else:
            silence(talk, key, 0.2)
        with talk.ours_alone():
            assert bool(info(talk, consumer).get("push_bound")) == counts_as_one


@side_by_side
def test_a_group_of_listeners(talk: Talk) -> None:
    """With a deliver group each message goes to one member; a plain listener does not make it active."""
    talk.create("S")
    fill(talk, 3)
    make(talk, deliver_subject="d", deliver_group="q", ack_policy="none")
    talk.send(b"SUB d 70\r\n")
    talk._sids[70] = "plain"
    silence(talk, "plain", 0.3)
    for sid in (71, 72):
        talk._sids[sid] = "group"
        talk.send(f"SUB d q {sid}\r\n".encode())
    assert sorted(seqs([talk.hear("group") for _ in range(3)])) == [1, 2, 3]
    silence(talk, "group", 0.2)
    assert refused(talk, deliver_subject="e", deliver_group="q", ack_policy="none") == 10013


@side_by_side
def test_signs_of_life_of_a_push_consumer(talk: Talk) -> None:
    """While there is nothing to send, and once there was, each with the places of the last delivery."""
    talk.create("S")
    make(talk, deliver_subject="d", idle_heartbeat=S // 4)
    talk.listen("d")
    assert [tell(one) for one in hear_some(talk, "d", 2)] == [
        "100 Idle Heartbeat Nats-Last-Consumer=0 Nats-Last-Stream=0"
    ] * 2
    fill(talk, 2)
    found = []
    while seqs(found) != [1, 2] or not found[-1].status:
        found.append(talk.hear("d"))
    assert tell(found[-1]) == "100 Idle Heartbeat Nats-Last-Consumer=2 Nats-Last-Stream=2"


@side_by_side
def test_flow_control(talk: Talk) -> None:
    """Past half the window an answer is asked for; without one deliveries stop and heartbeats say whom to answer."""
    talk.create("S")
    make(talk, deliver_subject="d", idle_heartbeat=S // 2, flow_control=True, ack_policy="none", max_ack_pending=-1)
    talk.flood(["s.x"] * 4000, b"x" * 5000)
    talk.listen("d")
    came, requests, stalled = 0, [], ""
    while not stalled:
        told = talk.hear("d")
        if told.status == "100 FlowControl Request":
            requests.append(told.reply)
        elif told.status:
            stalled = told.headers.get("Nats-Consumer-Stalled", "")
        else:
            came += 1
    assert 0 < came < 4000
    assert requests == [stalled]
    while came < 4000:
        told = talk.hear("d")
        if told.status == "100 FlowControl Request":
            talk.say(told.reply)
        elif told.status:
            talk.say(told.headers.get("Nats-Consumer-Stalled", "nobody"))
        else:
            came += 1


@side_by_side
def test_acknowledging_by_flow_control(talk: Talk) -> None:
    """With that policy an answer is asked for when as many are pending as may be, and with each heartbeat; its headers
    acknowledge, and without them nothing is.
    """
    talk.create("S")
    fill(talk, 250)
    for config, code in (
        ({"ack_wait": S}, 10221),
        ({"max_deliver": 3}, 10222),
        ({"max_ack_pending": -1}, 10220),
    ):
        assert refused(talk, ack_policy="flow_control", deliver_subject="d", **config) == code
    make(talk, ack_policy="flow_control", deliver_subject="d", max_ack_pending=100)
    talk.listen("d")

    def next_request() -> tuple[str, int]:
        """The reply subject of the next request, and how many messages came before it."""
        count = 0
        while (told := talk.hear("d")).status != "100 FlowControl Request":
            count += not told.status
        return told.reply, count

    request, count = next_request()
    talk.say(request)
    assert (count, floor(talk)) == (100, (0, 0))
    for wanted_floor, wanted_count in ((60, 0), (160, 60), (250, 90)):
        request, count = next_request()
        assert count == wanted_count
        last = str(wanted_floor)
        talk.say(request, b"", {"Nats-Last-Consumer": last, "Nats-Last-Stream": last})
        talk.fence()
        wait_for(lambda: quiet_floor(talk), wanted_floor)
    assert counts(talk) == (0, 0, 0)


def quiet_floor(talk: Talk) -> int:
    with talk.ours_alone():
        return floor(talk)[1]


@side_by_side
def test_a_rate(talk: Talk) -> None:
    """No more bits come than there may be in the time."""
    talk.create("S")
    talk.flood(["s.x"] * 400, b"x" * 10_000)
    make(talk, deliver_subject="d", ack_policy="none", max_ack_pending=-1, rate_limit_bps=8_000_000)
    start = time.monotonic()
    talk.listen("d")
    for _ in range(400):
        talk.hear("d")
    assert time.monotonic() - start > 2


@side_by_side
def test_replaying_as_it_was(talk: Talk) -> None:
    """No message comes before the pauses of the original are over."""
    talk.create("S")
    for _ in range(3):
        talk.stored("s.x")
        time.sleep(0.4)
    for config in ({"deliver_subject": "d", "ack_policy": "none"}, {"ack_policy": "none"}):
        make(talk, **config, replay_policy="original")
        start = time.monotonic()
        if "deliver_subject" in config:
            talk.listen("d")
            inbox = "d"
        else:
            inbox = ask(talk, {"batch": 3, "expires": 60 * S})
        for number in range(3):
            talk.hear(inbox)
            assert time.monotonic() - start > 0.38 * number
        talk.done("CONSUMER.DELETE.S.C")


@side_by_side
def test_headers_alone(talk: Talk) -> None:
    """The payload's size in place of the payload; a message's own headers stay."""
    talk.create("S")
    talk.stored("s.x", b"12345", {"A": "b"})
    talk.stored("s.x", b"123")
    make(talk, headers_only=True)
    found = take(talk, 2)
    assert [(one.data, one.headers) for one in found] == [
        (b"", {"A": "b", "Nats-Msg-Size": "5"}),
        (b"", {"Nats-Msg-Size": "3"}),
    ]


# ------------------------------------------------------------------ retention


@side_by_side
def test_a_filter_narrowed_on_an_interest_stream(talk: Talk) -> None:
    """What nobody wants any more goes."""
    talk.create("S", subjects=["interest.>"], retention="interest")
    make(talk, filter_subject="interest.>")
    talk.flood([f"interest.{number}" for number in range(10)])
    make(talk, filter_subject="interest.1")
    wait_for(lambda: messages(talk), 1)


@side_by_side
def test_a_late_ack_from_before_a_reset(talk: Talk) -> None:
    """It is taken for one of the new delivery by nats-server alone."""
    talk.create("S")
    fill(talk, 3)
    make(talk)
    before = take(talk, 3)
    with talk.ours_alone() as is_ours:
        assert talk.done("CONSUMER.RESET.S.C", {"seq": 1})["reset_seq"] == 1
        again = take(talk, 2)
        talk.say(before[1].reply, b"+ACK")
        talk.fence()
        assert counts(talk)[1] == (2 if is_ours else 1)
        for one in again:
            ack(talk, one)
        wait_for(lambda: counts(talk)[1], 0)


@side_by_side
def test_a_reset_that_skips_on_an_interest_stream(talk: Talk) -> None:
    """What was skipped goes, unless another consumer wants it."""
    talk.create("S", subjects=["interest.>"], retention="interest")
    make(talk)
    make(talk, "D", filter_subject="interest.1")
    talk.flood([f"interest.{number}" for number in range(5)])
    take(talk, 2)
    with talk.ours_alone():
        assert talk.done("CONSUMER.RESET.S.C", {"seq": 4})["reset_seq"] == 4
    wait_for(lambda: messages(talk), 3)
    with talk.ours_alone():
        assert seqs(take(talk, 2)) == [4, 5]
    assert seqs(take(talk, 1, "D")) == [2]


@side_by_side
def test_a_work_queue_keeps_what_nobody_wants_yet(talk: Talk) -> None:
    """Acks of one consumer leave the others' messages alone, and those of consumers to come."""
    talk.create("S", subjects=["jobs.>"], retention="workqueue")
    make(talk, filter_subject="jobs.a")
    talk.flood(["jobs.b"] * 10 + ["jobs.a"] * 10)
    for one in take(talk, 10):
        ack(talk, one)
    assert (messages(talk), floor(talk)) == (10, (10, 20))
    make(talk, "D", filter_subject="jobs.b")
    assert counts(talk, "D")[0] == 10
    assert seqs(take(talk, 10, "D")) == list(range(1, 11))


@side_by_side
def test_consumers_of_a_work_queue(talk: Talk) -> None:
    """One consumer for each message: explicit acks, everything, filters that do not overlap."""
    talk.create("S", subjects=["jobs.>"], retention="workqueue")
    make(talk, "A", filter_subject="jobs.a.>")
    for config, code in (
        ({"ack_policy": "none", "filter_subject": "jobs.b"}, None),
        ({"ack_policy": "all", "filter_subject": "jobs.b"}, None),
        ({"deliver_policy": "new", "filter_subject": "jobs.b"}, 10101),
        ({}, None),
        ({"filter_subject": "jobs.>"}, 10100),
        ({"filter_subjects": ["jobs.b", "jobs.a.x"]}, None),
    ):
        assert refused(talk, "B", **config) in ([code] if code else [10084, 10098, 10099, 10100]), config


@side_by_side
def test_updating_consumers_of_a_work_queue(talk: Talk) -> None:
    """What cannot change is told as for any consumer; what a new one may not be, for new ones alone."""
    talk.create("S", retention="workqueue")
    make(talk, "A", filter_subject="s.a")
    make(talk, "B", filter_subject="s.b")
    starts: list[dict[str, object]] = [{"deliver_policy": "new"}, {"deliver_policy": "last"}, {"ack_policy": "all"}]
    for change in starts:
        assert refused(talk, "A", filter_subject="s.a", **change) == 10012
        assert refused(talk, "A", filter_subject="s.a", action="update", **change) == 10012
        assert refused(talk, "A", filter_subject="s.a", action="create", **change) == 10148
        assert refused(talk, "N", filter_subject="s.n", **change) == (10098 if "ack_policy" in change else 10101)
        assert refused(talk, "N", filter_subject="s.n", action="update", **change) == 10149
    for action in ("", "update"):
        assert refused(talk, "A", filter_subject="s.a", ack_policy="none", action=action) == 10084
        assert refused(talk, "N", filter_subject="s.n", ack_policy="none", action=action) == 10084
        assert refused(talk, "A", filter_subject="s.b", action=action) == 10100
        assert refused(talk, "A", filter_subject="s.*", ack_policy="all", action=action) == 10100
    assert refused(talk, "N") == 10099
    assert refused(talk, "N", deliver_policy="new") == 10101
    with talk.ours_alone() as is_ours:  # nats-server lets it have what the other one has
        answer = talk.api(
            "CONSUMER.CREATE.S.A", {"stream_name": "S", "config": {"durable_name": "A", "ack_policy": "explicit"}}
        )
        assert not is_ours or answer["error"]["err_code"] == 10100


@side_by_side
def test_a_consumer_of_a_work_queue_made_again(talk: Talk) -> None:
    """Deleting and making it again five times loses nothing."""
    talk.create("S", retention="workqueue")
    fill(talk, 40)
    for _ in range(5):
        make(talk, filter_subject="s.x")
        take(talk, 3)
        talk.done("CONSUMER.DELETE.S.C")
    assert talk.state("S") == (40, 1, 40)


@side_by_side
def test_sourcing_a_part_of_a_work_queue(talk: Talk) -> None:
    """Only what is taken leaves the queue, be it one that has schedules too."""
    for number, config in enumerate(({}, {"allow_msg_schedules": True})):
        origin, target = f"S{number}", f"T{number}"
        talk.create(origin, subjects=["x.>"], retention="workqueue", **config)
        talk.flood(["x.other"] * 3 + ["x.target"] * 2)
        if config:
            at = {"Nats-Schedule": "@at 2099-01-01T00:00:00Z", "Nats-Schedule-Target": "x.target"}
            talk.stored("x.later", b"", at)
        left = 3 + len(config)
        source = {"name": origin, "filter_subject": "x.target"}
        talk.done(f"STREAM.CREATE.{target}", {"name": target, "sources": [source]})
        wait_for(lambda names=(origin, target): tuple(messages(talk, name) for name in names), (left, 2))
        talk.done(f"STREAM.DELETE.{origin}")


@side_by_side
def test_interest_of_several(talk: Talk) -> None:
    """A message goes when the last consumer that wants it has acknowledged; unwanted ones take a sequence only."""
    talk.create("S", retention="interest")
    assert talk.stored("s.nobody") == 1
    make(talk, "A", filter_subject="s.a")
    make(talk, "B")
    talk.flood(["s.a", "s.b"])
    assert talk.state("S")[0] == 2
    one, two = take(talk, 2, "B")
    ack(talk, one)
    ack(talk, two)
    wait_for(lambda: messages(talk), 1)
    ack(talk, take(talk, 1, "A")[0])
    wait_for(lambda: messages(talk), 0)
    talk.stored("s.a")
    talk.done("CONSUMER.DELETE.S.A")
    talk.done("CONSUMER.DELETE.S.B")
    wait_for(lambda: messages(talk), 0)


@side_by_side
def test_an_interest_stream_lets_go_of_exhausted_messages(talk: Talk) -> None:
    """What becomes of a message whose deliveries are used up is the same."""
    talk.create("S", retention="interest")
    make(talk, max_deliver=1, ack_wait=S // 2)
    fill(talk, 2)
    take(talk, 1)
    wait_for(lambda: awaited(talk), 0)
    none_left = pull(talk, {"batch": 2, "no_wait": True})
    ack(talk, none_left[0])
    wait_for(lambda: quiet_floor(talk), 2)
    talk.state("S")
    info(talk)


# ------------------------------------------------------------------ answers as JSON


@side_by_side
def test_the_form_of_answers(talk: Talk) -> None:
    """Lists, names, info with a body that should not be there, and calls that are misspelt."""
    talk.create("S")
    for number in range(3):
        make(talk, f"C{number}", max_deliver=number + 2, backoff=[S, 2 * S], metadata={"k": "v"})
    talk.done("CONSUMER.LIST.S")
    talk.done("CONSUMER.LIST.S", {"offset": 1})
    talk.done("CONSUMER.NAMES.S", {"offset": 2})
    assert talk.refused("CONSUMER.INFO.S.C0", {"x": 1}) == 10038
    assert talk.refused("CONSUMER.DELETE.S.C0", {"x": 1}) == 10038
    assert talk.refused("CONSUMER.INFO.S.X") == 10014
    assert talk.refused("CONSUMER.INFO.X.X") == 10059
    assert talk.refused("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": {"name": "D", "x": 1}}) == 10025
    assert talk.refused("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": {"ack_policy": "never"}}) == 10025
    assert talk.refused("CONSUMER.CREATE.S.D", b"{") == 10025
    assert talk.refused("CONSUMER.CREATE.S.D", b"[]") == 10025
    talk.api("CONSUMER.CREATE.S.D", {"stream_name": "S"})
    talk.api("CONSUMER.CREATE.S.D", json.dumps({"stream_name": "S", "config": {"max_deliver": 1e400}}).encode())
