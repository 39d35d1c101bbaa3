"""The API's tables: errors, subjects, records, answers, levels, advisories."""

from __future__ import annotations

import orjson
import pytest
from tests.unit.jetstream.stores import T0

from tnats.jetstream.api import advisories, errors, messages
from tnats.jetstream.api.fields import Update, decode, rows_of, to_object
from tnats.jetstream.api.json_text import DecodeError
from tnats.jetstream.api.levels import required_level, supports, with_required_level, with_server_level
from tnats.jetstream.api.messages import encode_answer, page
from tnats.jetstream.api.subjects import RESPONSE_TYPES, SYSTEM_ACCOUNT_CALLS, Call, parse
from tnats.jetstream.consumer.config import AckPolicy, ConsumerConfig
from tnats.jetstream.consumer.rules import FIXED_TEXTS
from tnats.jetstream.stream.config import StreamConfig, StreamConfigRequest
from tnats.jetstream.stream.rules import UPDATE_RULES

# ------------------------------------------------------------------ errors


def test_the_error_table_is_whole() -> None:
    """226 errors, each under its own code; a description's tags are those its row names."""
    assert len(errors.TABLE) == 226
    assert all(code == kind.err_code for code, kind in errors.TABLE.items())
    assert errors.STREAM_WRONG_LAST_SEQUENCE(seq=7).to_json() == {
        "code": 400,
        "err_code": 10071,
        "description": "wrong last sequence: 7",
    }
    with pytest.raises(KeyError):
        errors.STREAM_WRONG_LAST_SEQUENCE()


# ------------------------------------------------------------------ subjects


def test_every_call_is_found_by_its_subject() -> None:
    """Each of the 37 patterns parses to its own call, with the names where the stars are."""
    assert len(Call) == 37
    for call in Call:
        tokens = [{"*": "N", ">": "R.x"}.get(token, token) for token in call.value.split(".")]
        address = parse(f"$JS.API.{'.'.join(tokens)}".encode())
        assert address is not None
        assert address.call == call
        assert address.names == ("N",) * call.value.split(".").count("*")
    assert not set(RESPONSE_TYPES) & {Call.CONSUMER_MSG_NEXT, Call.DIRECT_GET, Call.DIRECT_GET_LAST}
    assert len(SYSTEM_ACCOUNT_CALLS) == 7


@pytest.mark.parametrize(
    "subject", ["$JS.API.NOPE", "$JS.API.STREAM.CREATE", "$JS.API.STREAM.INFO.a.b", "$JS.API.STREAM.INFO..", "$JS.API"]
)
def test_other_subjects_are_no_calls(subject: str) -> None:
    """Unknown words, missing or extra tokens are no calls."""
    assert parse(subject.encode()) is None


def test_the_parts_of_a_create_subject() -> None:
    """CONSUMER.CREATE.<stream>.<consumer>.<filter> gives all three."""
    address = parse(b"$JS.API.CONSUMER.CREATE.S.C.a.*.b")
    assert address is not None
    assert (address.stream, address.consumer, address.filter_subject) == ("S", "C", "a.*.b")


# ------------------------------------------------------------------ records


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"foo":1}', 'json: unknown field "foo"'),
        (
            '{"max_msgs":"x"}',
            "json: cannot unmarshal string into Go struct field StreamConfigRequest.max_msgs of type int64",
        ),
        (
            '{"max_msgs":1.5}',
            "json: cannot unmarshal number 1.5 into Go struct field StreamConfigRequest.max_msgs of type int64",
        ),
        (
            '{"max_msgs":1180591620717411303424}',
            "json: cannot unmarshal number 1180591620717411303424 into Go struct field StreamConfigRequest.max_msgs "
            "of type int64",
        ),
        (
            '{"sealed":"x"}',
            "json: cannot unmarshal string into Go struct field StreamConfigRequest.sealed of type bool",
        ),
        (
            '{"subjects":"x"}',
            "json: cannot unmarshal string into Go struct field StreamConfigRequest.subjects of type []string",
        ),
        ('{"name":5}', "json: cannot unmarshal number into Go struct field StreamConfigRequest.name of type string"),
        (
            '{"metadata":{"a":1}}',
            "json: cannot unmarshal number into Go struct field StreamConfigRequest.metadata.a of type string",
        ),
        ('{"retention":"x"}', 'can not unmarshal "\\"x\\""'),
        ('{"retention":3}', 'can not unmarshal "3"'),
        ("[]", "json: cannot unmarshal array into Go value of type server.StreamConfigRequest"),
        (
            '{"mirror":{"name":"x","opt_start_time":"zzz"}}',
            'parsing time "zzz" as "2006-01-02T15:04:05Z07:00": cannot parse "zzz" as "2006"',
        ),
    ],
)
def test_strictness_and_its_texts(body: str, text: str) -> None:
    """Unknown fields and wrong types are refused with nats-server's words."""
    with pytest.raises(DecodeError) as caught:
        decode(StreamConfigRequest, body.encode())
    assert str(caught.value) == text


def test_what_is_forgiven() -> None:
    """Keys in any case, null for "not given", an empty body; unknown fields where the decoder is lenient."""
    config = decode(StreamConfig, b'{"NAME":"T","subjects":null,"sources":[null]}')
    assert (config.name, config.subjects, config.sources) == ("T", [], [None])
    assert decode(StreamConfig, b" ") == StreamConfig()
    assert decode(StreamConfig, b'{"zz":1}', strict=False) == StreamConfig()


def test_every_ruled_field_has_its_rule() -> None:
    """Each stream field that changes by a rule has one, none is left over; each fixed consumer field has its text."""
    ruled = {name for name, row in rows_of(StreamConfig) if row.update == Update.RULED}
    assert ruled == set(UPDATE_RULES)
    fixed = {name for name, row in rows_of(ConsumerConfig) if row.update == Update.FIXED}
    assert fixed == set(FIXED_TEXTS)


def test_levels_follow_from_the_fields_in_use() -> None:
    """The required level is the highest of any field in use; only answers tell the server's own."""
    assert required_level(StreamConfig(name="T")) == 0
    assert required_level(StreamConfig(name="T", allow_msg_ttl=True)) == 1
    assert required_level(StreamConfig(name="T", allow_msg_ttl=True, allow_batched=True)) == 4
    assert required_level(ConsumerConfig(ack_policy=AckPolicy.FLOW_CONTROL)) == 4
    stored = with_required_level(StreamConfig(metadata={"a": "b", "_nats.ver": "forged"}))
    assert stored == {"a": "b", "_nats.req.level": "0"}
    assert with_server_level(stored)["_nats.level"] == "5"
    assert [supports(value) for value in (None, b"5", b"6", b"x")] == [True, True, False, False]


# ------------------------------------------------------------------ answers


def test_answers_have_the_servers_bytes() -> None:
    """Key order and what is left out are nats-server's."""
    info = messages.StreamInfo(
        config=decode(StreamConfig, b'{"name":"T","subjects":["T"],"num_replicas":1}'),
        created_ns=T0,
        state=messages.StreamState(messages=2, bytes=96, first_seq=1, first_ts_ns=T0, last_seq=2, last_ts_ns=T0),
        ts_ns=T0 + 1,
    )
    assert encode_answer("stream_create_response", messages.StreamCreated(info, True)) == (
        b'{"type":"io.nats.jetstream.api.v1.stream_create_response","config":{"name":"T","subjects":["T"],'
        b'"retention":"limits","max_consumers":0,"max_msgs":0,"max_bytes":0,"max_age":0,"max_msgs_per_subject":0,'
        b'"discard":"old","storage":"file","num_replicas":1,"compression":"none","allow_direct":false,'
        b'"mirror_direct":false,"sealed":false,"deny_delete":false,"deny_purge":false,"allow_rollup_hdrs":false,'
        b'"consumer_limits":{},"allow_msg_ttl":false},"created":"2023-11-14T22:13:20Z","state":{"messages":2,'
        b'"bytes":96,"first_seq":1,"first_ts":"2023-11-14T22:13:20Z","last_seq":2,"last_ts":"2023-11-14T22:13:20Z",'
        b'"consumer_count":0},"ts":"2023-11-14T22:13:20.000000001Z","did_create":true}'
    )
    error = errors.STREAM_NOT_FOUND()
    assert encode_answer("stream_info_response", messages.StreamInfoAnswer(), error) == (
        b'{"type":"io.nats.jetstream.api.v1.stream_info_response","error":{"code":404,"err_code":10059,'
        b'"description":"stream not found"},"total":0,"offset":0,"limit":0}'
    )
    assert encode_answer("consumer_pause_response", messages.ConsumerPaused()) == (
        b'{"type":"io.nats.jetstream.api.v1.consumer_pause_response","paused":false,"pause_until":"0001-01-01T00:00:00Z"}'
    )
    assert encode_answer("stream_names_response", messages.StreamNames()).endswith(b'"limit":0,"streams":null}')
    assert encode_answer("consumer_unpin_response", messages.Empty()) == (
        b'{"type":"io.nats.jetstream.api.v1.consumer_unpin_response"}'
    )


def test_paging() -> None:
    """A negative offset is the beginning, one beyond the end an empty page."""
    items = list(range(5))
    assert page(items, -1, 3) == ([0, 1, 2], 0)
    assert page(items, 4, 3) == ([4], 4)
    assert page(items, 2**62, 3) == ([], 5)


@pytest.mark.parametrize(
    ("body", "is_valid"),
    [
        ("{}", False),
        ('{"seq":1}', True),
        ('{"seq":1,"last_by_subj":"x"}', False),
        ('{"seq":1,"next_by_subj":"x"}', True),
        ('{"last_by_subj":"x"}', True),
        ('{"seq":1,"batch":2}', False),
        ('{"multi_last":["x"]}', False),
    ],
)
def test_which_gets_name_one_message(body: str, is_valid: bool) -> None:
    """STREAM.MSG.GET takes exactly one way of naming one message."""
    assert decode(messages.JSApiMsgGetRequest, body.encode()).is_valid_get() is is_valid


# ------------------------------------------------------------------ advisories

CONSUMER = advisories.ConsumerIdentity("$G", "S", "C")


def test_an_advisory_is_complete() -> None:
    """Type, id and time come first; what is not known is left out."""
    advisory = advisories.message_terminated(CONSUMER, 2, 1, 3, "because")
    assert advisory.subject == "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C"
    assert advisory.encode("id1", T0) == (
        b'{"type":"io.nats.jetstream.advisory.v1.terminated","id":"id1","timestamp":"2023-11-14T22:13:20Z",'
        b'"stream":"S","consumer":"C","consumer_seq":2,"stream_seq":1,"deliveries":3,"reason":"because"}'
    )
    assert "reason" not in advisories.message_terminated(CONSUMER, 2, 1, 3, "").fields
    metric = advisories.consumer_ack_metric(CONSUMER, 1, 2, 3, 1)
    assert metric.subject == "$JS.EVENT.METRIC.CONSUMER.ACK.S.C"
    assert orjson.loads(metric.encode("x", T0))["ack_time"] == 3
    assert to_object(messages.Success(True)) == {"success": True}
