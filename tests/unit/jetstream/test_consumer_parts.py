"""Parts of the consumer machine: pending window, state and its bytes, bodies of acks and pulls, rules."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.consumer import rules, state
from tnats.jetstream.consumer.acks import Ack, Word, parse_body, parse_subject
from tnats.jetstream.consumer.config import AckPolicy, Action, ConsumerConfig
from tnats.jetstream.consumer.letters import Letter
from tnats.jetstream.consumer.requests import PullBody
from tnats.jetstream.consumer.requests import parse_body as parse_pull
from tnats.jetstream.consumer.state import ConsumerState, decode_ops, encode_ops
from tnats.jetstream.stream.config import StreamConfig
from tnats.limits import SECOND_NS

# ------------------------------------------------------------------ state

OPS = st.lists(
    st.tuples(
        st.sampled_from(
            [state.DELIVERED, state.ACKED, state.ACKED_ALL, state.GIVEN_UP, state.SKIPPED, state.LETTER_STORED]
        ),
        st.integers(1, 20),
    ),
    max_size=60,
)


@given(OPS)
def test_state_survives_its_bytes(steps: list[tuple[int, int]]) -> None:
    """At any point the snapshot restores the state, operations survive theirs, and the floor never falls."""
    here = ConsumerState()
    for kind, seq in steps:
        floor = (here.floor_consumer_seq, here.floor_stream_seq)
        count = (
            seq % 4 + 1 if kind == state.ACKED or (kind == state.DELIVERED and seq > here.delivered_stream_seq) else 1
        )
        op = (kind, seq, count, here.delivered_consumer_seq + 1 if kind == state.DELIVERED else 0, seq * 1000)
        letters = [Letter(seq, "dead", "why " * (seq % 3), seq, seq * 7)] if kind == state.GIVEN_UP else []
        assert decode_ops(encode_ops([op, op], letters)) == (letters, [op, op])
        here.replay(encode_ops([op], letters), tracks_acks=True)
        assert here.floor_consumer_seq >= floor[0]
        assert here.floor_stream_seq >= floor[1]
        back = ConsumerState.decode(here.encode())
        assert back.encode() == here.encode()
        assert list(back.pending.items()) == list(here.pending.items())
        assert (back.redelivered, back.held, back.outbox) == (here.redelivered, here.held, here.outbox)


# ------------------------------------------------------------------ acks and pulls


@pytest.mark.parametrize(
    ("body", "ack"),
    [
        (b"", Ack(Word.ACK)),
        (b"+ACK", Ack(Word.ACK)),
        (b"+OK", Ack(Word.ACK)),
        (b"-NAK", Ack(Word.NAK)),
        (b'-NAK {"delay":5}', Ack(Word.NAK, delay_ns=5)),
        (b"-NAK 2s", Ack(Word.NAK, delay_ns=2_000_000_000)),
        (b"-NAK zz", Ack(Word.NAK)),
        (b'-NAK {"delay":"x"}', Ack(Word.NAK)),
        (b"-NAK {", Ack(Word.NAK)),
        (b"-NAK []", Ack(Word.NAK)),
        (b"+WPI", Ack(Word.PROGRESS)),
        (b"+NXT", Ack(Word.NEXT)),
        (b'+NXT {"batch":2}', Ack(Word.NEXT, rest=b'{"batch":2}')),
        (b"+TERM", Ack(Word.TERM)),
        (b"+TERM  no good ", Ack(Word.TERM, rest=b"no good")),
        (b"+ACKx", Ack(Word.UNKNOWN)),
        (b"huh", Ack(Word.UNKNOWN)),
    ],
)
def test_words_of_acks(body: bytes, ack: Ack) -> None:
    """Every word with what follows it; what cannot be read of a delay is none."""
    assert parse_body(body) == ack


@pytest.mark.parametrize(
    "subject",
    [b"$JS.ACK.S.C.1.2.3.4", b"$JS.ACK.S.C.1.2.3.4.5.6", b"$JS.ACK.S.C.x.2.3.4.5", b"$JS.ACK.S.C.1.-2.3.4.5", b"a.b"],
)
def test_other_subjects_acknowledge_nothing(subject: bytes) -> None:
    """Too few tokens, ten of them, or numbers that are none."""
    assert parse_subject(subject) is None


@given(st.binary(max_size=40))
def test_bodies_never_fail(body: bytes) -> None:
    """Whatever a client sends as an ack or a pull request is read as something."""
    parse_body(body)
    assert parse_pull(body).batch is not None


def test_pull_bodies() -> None:
    """A number, JSON with unknown keys, and nonsense."""
    assert parse_pull(b" 7 ").batch == 7
    assert parse_pull(b'{"batch":3,"expires":5,"zz":1}') == PullBody(batch=3, expires_ns=5)
    assert [parse_pull(body).batch for body in (b"", b"x", b"{", b'{"batch":"x"}')] == [1, 1, 1, 1]


# ------------------------------------------------------------------ rules


def test_a_refused_creation_changes_nothing() -> None:
    """Another immutable setting under the same name is refused, and the old configuration is untouched."""
    around = rules.Surroundings(StreamConfig(name="S", num_replicas=1))
    old = rules.check_create(ConsumerConfig(name="C", ack_policy=AckPolicy.EXPLICIT), around)
    assert isinstance(old, ConsumerConfig)
    wanted = ConsumerConfig(name="C", ack_policy=AckPolicy.NONE)
    for action, code in ((Action.CREATE, 10148), (Action.CREATE_OR_UPDATE, 10012), (Action.UPDATE, 10012)):
        refused = rules.check_create(wanted, around, old=old, action=action)
        assert isinstance(refused, ApiError)
        assert refused.err_code == code
    assert old.ack_policy == AckPolicy.EXPLICIT


def test_both_ways_of_naming_give_the_name() -> None:
    """The old durable subject and the new one with a durable name only: name and durable name are equal."""
    around = rules.Surroundings(StreamConfig(name="S", num_replicas=1))
    for expects_durable in (True, False):
        config = ConsumerConfig(durable_name="D")
        assert rules.check_request_names(config, subject_name="D", expects_durable=expects_durable) is None
        checked = rules.check_create(config, around)
        assert isinstance(checked, ConsumerConfig)
        assert (checked.name, checked.durable_name) == ("D", "D")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("max_waiting", "max_waiting must not be negative"),
        ("max_batch", "max_batch must not be negative"),
        ("max_expires_ns", "max_expires must not be negative"),
        ("max_bytes", "max_bytes must not be negative"),
        ("inactive_threshold_ns", "inactive_threshold must not be negative"),
        ("priority_timeout_ns", "priority_timeout must not be negative"),
        ("idle_heartbeat_ns", "idle_heartbeat must not be negative"),
        ("max_ack_pending", "max_ack_pending must be set to -1"),
        ("max_deliver", "max_deliver must be set to -1"),
    ],
)
def test_what_is_negative_means_none(field: str, text: str) -> None:
    """A client that asks for pedantry is told; another gets what it would have got without the field."""
    around = rules.Surroundings(StreamConfig(name="S", num_replicas=1))
    plain = ConsumerConfig(durable_name="D", ack_policy=AckPolicy.EXPLICIT)
    wanted = attrs.evolve(plain)
    setattr(wanted, field, -5)
    refused = rules.check_create(wanted, around, pedantic=True)
    assert isinstance(refused, ApiError)
    assert (refused.err_code, refused.description) == (10157, f"pedantic mode: {text}")
    default = -1 if field == "max_ack_pending" else getattr(rules.check_create(plain, around), field)
    assert getattr(rules.check_create(wanted, around), field) == default


def test_who_is_inactive_for_how_long() -> None:
    """Without a durable name a consumer goes after five seconds. An update that leaves that name out leaves it as it
    is, and one that gives it makes the consumer stay.
    """
    around = rules.Surroundings(StreamConfig(name="S", num_replicas=1))
    unnamed, durable = ConsumerConfig(name="C"), ConsumerConfig(durable_name="C")

    def made(new: ConsumerConfig, old: ConsumerConfig | None = None) -> ConsumerConfig:
        checked = rules.check_create(new, around, old=old)
        assert isinstance(checked, ConsumerConfig)
        return checked

    assert (made(unnamed).inactive_threshold_ns, made(durable).inactive_threshold_ns) == (5 * SECOND_NS, 0)
    assert made(unnamed, made(unnamed)) == made(unnamed)
    assert made(unnamed, made(durable)) == made(durable, made(unnamed)) == made(durable)
    refused = rules.check_create(unnamed, around, old=made(durable), action=Action.CREATE)
    assert isinstance(refused, ApiError)
    assert refused.err_code == 10148
