"""Answers, ack subjects and conditions: from the wire to what users hold, and back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats.client import ClientError, Message
from tnats.client.jetstream import (
    ApiError,
    JetStreamError,
    Metadata,
    NameInUse,
    NotFound,
    PubAck,
    Stream,
    StreamNotFound,
    WrongLastSequence,
)
from tnats.client.jetstream.answers import decode_answer
from tnats.client.jetstream.api import Api
from tnats.client.jetstream.delivery import parse_metadata
from tnats.client.jetstream.publish import format_ttl, with_conditions

NAMES = st.text("abcXYZ_-09", min_size=1, max_size=12)
NUMBERS = st.integers(0, 2**63 - 1)
CALL = "publish on 'a'"


def answer(data: bytes, block: bytes = b"") -> Message:
    return Message(None, "_INBOX.x", "", block, data)  # type: ignore[arg-type]


@given(NAMES, NAMES, st.lists(NUMBERS, min_size=5, max_size=5), st.sampled_from(["", "hub"]), st.integers(0, 2))
def test_ack_subjects_of_both_forms(stream: str, consumer: str, numbers: list[int], domain: str, extra: int) -> None:
    """The short form, and the long one with domain, account and perhaps more at its end, say the same (ADR-15)."""
    tail = ".".join(map(str, numbers))
    expected = Metadata(stream, consumer, *numbers)
    assert parse_metadata(f"$JS.ACK.{stream}.{consumer}.{tail}") == expected
    long = parse_metadata(f"$JS.ACK.{domain or '_'}.hash.{stream}.{consumer}.{tail}" + ".more" * extra)
    assert (long.domain, long.stream, long.stream_sequence) == (domain, stream, expected.stream_sequence)


@pytest.mark.parametrize("reply", ["", "_INBOX.a.b", "$JS.ACK.s.c.1.2.3.4", "$JS.ACK.s.c.1.2.x.4.5"])
def test_other_reply_subjects_are_refused(reply: str) -> None:
    """A message that no consumer delivered has no place."""
    with pytest.raises(JetStreamError):
        parse_metadata(reply)


def test_answers_become_records_or_errors() -> None:
    """Keys that are not known are passed over; an error becomes the exception of its number, with its parts, which
    names what was refused."""
    ack = decode_answer(answer(b'{"stream":"S","seq":7,"duplicate": true,"new":[1]}'), PubAck, CALL)
    assert ack == PubAck("S", 7, duplicate=True)
    for err_code, kind in ((10059, StreamNotFound), (10058, NameInUse), (10164, WrongLastSequence)):
        body = b'{"type":"t","error":{"code":400,"err_code":%d,"description":"why"}}' % err_code
        with pytest.raises(kind) as refused:
            decode_answer(answer(body), PubAck, CALL)
        assert (refused.value.code, refused.value.err_code, refused.value.description) == (400, err_code, "why")
        assert str(refused.value) == f"why ({CALL}, code 400, err_code {err_code})"
    with pytest.raises(NotFound):
        decode_answer(answer(b'{"error":{"code":404,"err_code":99999,"description":"x"}}'), PubAck, CALL)
    with pytest.raises(ApiError, match="Too Many"):
        decode_answer(answer(b"", b"NATS/1.0 429 Too Many Requests\r\n\r\n"), PubAck, CALL)
    for body in (b"", b"[]", b"{", b'{"stream":1,"seq":2}', b"{}"):
        with pytest.raises(JetStreamError):
            decode_answer(answer(body), PubAck, CALL)


def test_conditions_become_headers() -> None:
    """Each in the server's words, beside one's own; none adds none."""
    assert with_conditions(None, {}) is None
    assert with_conditions({"A": "1"}, {"message_id": "x", "expected_last_subject_sequence": 0, "ttl_s": 1.5}) == {
        "A": "1",
        "Nats-Msg-Id": "x",
        "Nats-Expected-Last-Subject-Sequence": "0",
        "Nats-TTL": "1.5s",
    }
    assert format_ttl(math.inf) == "never"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "*", "a>", "a/b", "a\\b", "a\tb"])
def test_names_that_cannot_be(name: str) -> None:
    """A name that would be several tokens, and so another request, is refused before anything is sent."""
    api = Api(None, domain="", prefix="", timeout_s=1)  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="name"):
        Stream(api, name)
    with pytest.raises(ClientError, match="name"):
        Stream(api, "S").consumer(name)
