"""The hot loops of a consumer in both builds, against what they stand for."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bundles import Bundled, pack, unpack

from tnats import speedups
from tnats.errors import InvariantBroken
from tnats.jetstream.consumer import hot
from tnats.jetstream.consumer.acks import AckRun, Said, Word, ack_reply, parse_body, parse_subject
from tnats.jetstream.consumer.effects import Delivery

INTERPRETED = speedups.load_source("tnats.jetstream.consumer.hot", "tnats_consumer_hot_interpreted")
BUILDS = pytest.mark.parametrize("build", [hot, INTERPRETED], ids=["built", "interpreted"])

# ------------------------------------------------------------------ pending


@BUILDS
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "run", "remove", "due", "touch"]), st.integers(1, 60), st.integers(1, 9)),
        max_size=150,
    )
)
def test_the_window_is_a_sorted_map(build: ModuleType, steps: list[tuple[str, int, int]]) -> None:
    """Adding in any order, one by one or in runs, and removing anywhere behaves as a dict by rising sequence."""
    window, model, highest = build.PendingWindow(), {}, 0
    for what, seq, count in steps:
        if what == "add" and seq not in model:
            window.add(seq, seq + 7, -seq, seq * 2)
            model[seq] = (seq + 7, -seq, seq * 2)
        elif what == "run":
            first = highest + seq % 5 + 1
            window.add_run(first, count, first + 7, -first)
            model.update({one: (one + 7, -first, 0) for one in range(first, first + count)})
        elif what == "remove":
            gone = [one for one in model if seq <= one < seq + count]
            assert window.remove_run(seq, count) == len(gone)
            for one in gone:
                del model[one]
        elif what == "due":
            window.set_due_run(seq, seq + count, 1000 + seq)
            for one in model:
                if seq <= one <= seq + count:
                    model[one] = (*model[one][:2], 1000 + seq)
        elif what == "touch" and seq in model:
            window.touch(window.find(seq), 99)
            model[seq] = (model[seq][0], 99, 0)
        highest = max(highest, *model, 0)
        assert len(window) == len(model)
        assert (seq in window) is (seq in model)
        assert window.first() == (min((one, values[0]) for one, values in model.items()) if model else None)
        asked = [seq + 2, seq, seq, seq + 1]
        since = [one for one in range(seq, seq + 3) if one in model and model[one][0] <= seq + 8]
        assert window.among(asked, [seq + 8, 0, seq + 8, seq + 8]) == since
        assert window.seqs_up_to(seq) == sorted(one for one in model if one <= seq)
    assert list(window.items()) == [(seq, *model[seq][:2]) for seq in sorted(model)]
    assert [window.due_at(window.find(seq)) for seq in sorted(model)] == [model[seq][2] for seq in sorted(model)]
    due, later = window.due_until(5, 50, 1030)
    assert due == [seq for seq in sorted(model) if 5 <= seq <= 50 and 0 < model[seq][2] <= 1030]
    expected = {seq: model[seq][2] for seq in model if 5 <= seq <= 50 and model[seq][2] > 1030}
    found = {seq: due_ns for due_ns, first, last in later for seq in expected if first <= seq <= last}
    assert found == expected


@BUILDS
def test_a_long_window_forgets_what_is_done(build: ModuleType) -> None:
    """Messages in flight one after the other leave no trace of those acknowledged."""
    window = build.PendingWindow()
    for seq in range(1, 20_001):
        window.add(seq, seq, 0)
        if seq > 10:
            window.remove_run(seq - 10, 1)
    assert len(window) == 10
    interpreted = getattr(window, "_seqs", None)
    assert interpreted is None or len(interpreted) < 200


@BUILDS
@pytest.mark.parametrize("left", [0, 1, 300])
def test_a_window_is_as_large_as_what_is_pending(build: ModuleType, left: int) -> None:
    """Of a large batch that is acknowledged no room is kept, whatever the order, and whoever stays behind."""
    for order in (range(left + 1, 10_001), range(10_000, left, -1)):
        window = build.PendingWindow()
        window.add_run(1, 10_000, 1, 0)
        for seq in order:
            window.remove_run(seq, 1)
        assert window.seqs() == list(range(1, left + 1))
        interpreted = getattr(window, "_seqs", None)
        assert interpreted is None or len(interpreted) <= max(128, 4 * left)


@BUILDS
def test_what_is_not_pending_has_no_place(build: ModuleType) -> None:
    """Asking for the place of a message that is not there is a broken invariant, not a look beside the arrays."""
    window = build.PendingWindow()
    window.add(5, 1, 0)
    for ask in (window.sent_at, window.due_at):
        for place in (-1, 1, 10**9):
            with pytest.raises(InvariantBroken):
                ask(place)
    for change in (window.set_due, window.touch):
        with pytest.raises(InvariantBroken):
            change(window.find(4), 7)


# ------------------------------------------------------------------ bundles of deliveries

MESSAGES = st.lists(
    st.none()
    | st.tuples(
        st.integers(1, 2**62),
        st.integers(0, 2**63 - 1),
        st.sampled_from([b"a", b"js.some.subject"]),
        st.sampled_from([b"", b"NATS/1.0\r\na: b\r\n\r\n"]),
        st.binary(max_size=300),
    ),
    max_size=8,
)


@BUILDS
@given(MESSAGES, st.integers(1, 2**40), st.integers(1, 2**50), st.integers(-3, 2**50), st.integers(1, 9))
def test_a_bundle_has_what_is_delivered(
    build: ModuleType,
    messages: list[tuple[int, int, bytes, bytes, bytes] | None],
    deliveries: int,
    consumer_seq: int,
    pending: int,
    step: int,
) -> None:
    """Each message under its subject, with its headers and payload, and the reply subject of its place."""
    bundle = build.bundle_of(b"$JS.ACK.S.C.", deliveries, consumer_seq, pending, step, messages)
    expected = []
    for place, message in enumerate(messages):
        if message is not None:
            seq, time_ns, subject, headers, payload = message
            one = Delivery((b"R",), (seq,), deliveries, consumer_seq + place * step, pending - place * step)
            reply = ack_reply(b"$JS.ACK.S.C.", one, time_ns)
            expected.append(Bundled(subject, reply, len(headers), headers + payload))
    assert list(unpack(bundle)) == expected
    assert bundle == pack(expected)


# ------------------------------------------------------------------ acknowledgements

NUMBER = st.integers(0, 2**60).map(str) | st.sampled_from(["", "x", "1" * 18, "1" * 19, "-1", "+1", "1_0"])
PLACE = st.tuples(
    st.sampled_from(["S.C", "S.D", "T.C", "_.hash.S.C", "S", ""]), st.lists(NUMBER, min_size=3, max_size=7)
).map(lambda parts: ".".join(["$JS.ACK", parts[0], *parts[1]]).encode())
GOOD = st.tuples(st.sampled_from(["S.C", "S.D"]), st.integers(1, 99), st.integers(1, 99)).map(
    lambda place: f"$JS.ACK.{place[0]}.1.{place[1]}.{place[2]}.170000.3".encode()
)
BODY = st.sampled_from([b"", b"+ACK", b"+OK", b"-NAK", b"+ACK ", b"+ack", b"+NXT", b"+WPI", b"+TERM why", b"OK"])
SAID = st.builds(
    lambda subject, reply, headers, body: Bundled(subject, reply, len(headers), headers + body),
    GOOD | PLACE,
    st.sampled_from([b"", b"reply"]),
    st.sampled_from([b"", b"", b"NATS/1.0\r\n\r\n"]),
    BODY,
)


@BUILDS
@given(st.lists(SAID, max_size=30))
def test_acks_are_read_as_one_by_one(build: ModuleType, messages: list[Bundled]) -> None:
    """Taken apart again, runs are what was said, of each consumer in order; what is no plain ack stands alone."""
    told: dict[bytes, list[tuple[object, ...]]] = {}
    for item in build.read_acks(pack(messages)):
        if isinstance(item, AckRun):
            replies = list(item.replies)
            for seq, consumer_seq in zip(item.seqs, item.consumer_seqs, strict=True):
                reply = replies.pop(0)[2] if replies and replies[0][:2] == (seq, consumer_seq) else b""
                told.setdefault(item.consumer, []).append((seq, consumer_seq, reply))
            assert item.seqs
        else:
            place = parse_subject(item.subject)
            key = b"" if place is None else b"$JS.ACK.%b.%b" % (place.stream, place.consumer)
            told.setdefault(key, []).append((item.subject, item.reply, item.body))
    expected: dict[bytes, list[tuple[object, ...]]] = {}
    for message in messages:
        place, body = parse_subject(message.subject), message.data[message.header_size :]
        key = b"" if place is None else b"$JS.ACK.%b.%b" % (place.stream, place.consumer)
        is_first_form = message.subject.count(b".") == 8
        if place and is_first_form and not message.header_size and parse_body(body).word == Word.ACK:
            expected.setdefault(key, []).append((place.stream_seq, place.consumer_seq, message.reply))
        else:
            expected.setdefault(key, []).append((message.subject, message.reply, body))
    assert {key: sorted(map(repr, items)) for key, items in told.items()} == {
        key: sorted(map(repr, items)) for key, items in expected.items()
    }
    ordered = {key: items for key, items in told.items() if key != b""}
    assert all(_same_but_for_replies(items, expected[key]) for key, items in ordered.items())


def _same_but_for_replies(items: list[tuple[object, ...]], expected: list[tuple[object, ...]]) -> bool:
    return [item[:2] for item in items if isinstance(item[0], int)] == [
        item[:2] for item in expected if isinstance(item[0], int)
    ]


def test_both_builds_say_the_same() -> None:
    """The module under test is not the interpreted one twice, where it was compiled."""
    assert isinstance(hot.read_acks(pack([Bundled(b"$JS.ACK.x")]))[0], Said)
    assert INTERPRETED is not hot
