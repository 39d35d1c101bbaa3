"""Requests with values that mean nothing, in every field of every body of the API: the same answers as nats-server's,
and nothing made of what was refused.

What is deliberately otherwise stands in `differs`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.jetstream_talk import Servers, Talk, both_servers

from tnats.jetstream.api import messages
from tnats.jetstream.api.fields import ListOf, Record, Row, rows_of
from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.jetstream.stream.config import StreamConfig

pytestmark = pytest.mark.slow

Path = tuple[str | int, ...]

VALUES = [
    b"null", b'""', b'"x"', b'"a b"', b"0", b"1", b"-1", b"-5", b"1.5", b"1e3", b"99999999999999999999",
    b"9223372036854775807", b"-9223372036854775809", b"18446744073709551615", b"true", b"false", b"[]", b"[1]",
    b'["x"]', b"[null]", b"{}", b'{"a":1}', b'{"x":"y"}',
]  # fmt: skip
BODIES = [
    b"", b" ", b"{}", b"null", b"[]", b"1", b'"x"', b"true", b"{", b"x", b"{}x", b'{"x":1}', b"\xff", b'{"offset":-1}',
    b'{"a":', b"{}{}", b"[1,2]", b'{"SEQ":1}',
]  # fmt: skip
BETWEEN_SERVERS = ("direct", "sourcing")
"""Fields that servers use among themselves: such consumers are not listed there."""
NAMES = ["", "a.b", "a b", "a*", "a>b", "x" * 256, "a/b", "a\\b", "../a", "a\tb", "\u00e4"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


def paths(record: type[Any], above: Path = ()) -> Iterator[tuple[Path, Row]]:
    """Every field of a record and of those within; 0 stands for the one item of an array."""
    for _, row in rows_of(record):
        path = (*above, row.key)
        yield path, row
        if isinstance(row.kind, Record):
            yield from paths(row.kind.record, path)
        elif isinstance(row.kind, ListOf) and isinstance(row.kind.item, Record):
            yield from paths(row.kind.item.record, (*path, 0))


def body_with(path: Path, value: bytes, beside: dict[str, bytes]) -> bytes:
    """An object that has the value at a path; origins of a stream have a name."""
    for depth in range(len(path) - 1, 0, -1):
        key = path[depth]
        is_origin = path[0] in ("mirror", "sources") and depth == (2 if path[1] == 0 else 1)
        name = b'"name":"X",' if is_origin and key != "name" else b""
        value = b"[%b]" % value if key == 0 else b'{%b"%b":%b}' % (name, str(key).encode(), value)
    fields = {**beside, str(path[0]): value}
    return b"{%b}" % b",".join(b'"%b":%b' % (key.encode(), one) for key, one in fields.items())


def differs(call: str, path: Path, value: bytes) -> bool:
    """What this server answers otherwise, with the reason."""
    place = path[-1]
    if call == "CONSUMER.CREATE":
        return (
            (place == "priority_groups" and value in (b'["x"]', b"[null]"))  # of two faults the other one is named
            or (place == "inactive_threshold" and value in (b"0", b"1"))  # gone before it can be looked at
        )
    if call in ("STREAM.CREATE", "STREAM.UPDATE"):
        return (
            (place == "filter_subject" and value in (b'"x"', b'"a b"'))  # is shown; is refused for white space
            or (place == "tags" and value == b"[]")  # an empty placement is kept
            or (place == "first_seq" and value == b"1" and call == "STREAM.CREATE")  # is shown while it is empty
            or (place == "first_seq" and len(value) > 18)  # there, the sequences begin at 0 when they leave 64 bits
            or (path[0] == "republish" and call == "STREAM.UPDATE")  # without a destination it means nothing
            or (path[0] == "mirror" and place in ("api", "deliver") and call == "STREAM.UPDATE")  # two faults
        )
    if call == "STREAM.PURGE":
        return place == "seq" and len(value) > 18  # beyond the last sequence: there, counting goes on from that
    # Negative numbers of messages and bytes are errors in a direct get, not an empty answer.
    return call == "DIRECT.GET" and value in (b"-1", b"-5")


def make(talk: Talk, name: str = "T", **config: object) -> None:
    """The stream of this name, on the subject T, if it is not there."""
    talk.done(f"STREAM.CREATE.{name}", {"name": name, "subjects": ["T"], **config})
    talk.log.pop()


@pytest.mark.parametrize("call", ["STREAM.CREATE", "STREAM.UPDATE"])
@pytest.mark.parametrize("field", [row.key for _, row in rows_of(StreamConfig)])
def test_stream_configurations(servers: Servers, call: str, field: str) -> None:
    """Each value in each field of a stream's configuration is taken, corrected or refused as nats-server does it.

    Each time under another name: where nats-server is still removing a stream of the same name, the new one is handed
    its sequences, or can never be made again.
    """

    def scene(talk: Talk) -> None:
        numbers = itertools.count()
        for path, _ in paths(StreamConfig):
            if path[0] != field:
                continue
            for value in VALUES:
                name = f"{call[-6:]}-{field}-{next(numbers)}"
                beside = {"name": b'"%b"' % name.encode(), **({} if field == "mirror" else {"subjects": b'["T"]'})}
                if call == "STREAM.UPDATE":
                    make(talk, name)
                kept = len(talk.log)
                answer = talk.api(f"{call}.{name}", body_with(path, value, beside))
                if not differs(call, path, value):
                    kept += 1
                if "error" in answer and call == "STREAM.CREATE":
                    assert talk.api("STREAM.NAMES")["streams"] is None
                else:
                    talk.api(f"STREAM.DELETE.{name}")
                del talk.log[kept:]

    servers.play(scene)


@pytest.mark.parametrize("field", [row.key for _, row in rows_of(ConsumerConfig) if row.key not in BETWEEN_SERVERS])
def test_consumer_configurations(servers: Servers, field: str) -> None:
    """Each value in each field of a consumer's configuration, for pull and for push."""

    def scene(talk: Talk) -> None:
        talk.done("STREAM.CREATE.T", {"name": "T", "subjects": ["T"]})
        for path, _ in paths(ConsumerConfig):
            if path[0] != field:
                continue
            for value in VALUES:
                for beside in ({}, {"deliver_subject": b'"d"'}):
                    config = body_with(path, value, {"name": b'"C"', **beside})
                    kept = len(talk.log)
                    answer = talk.api("CONSUMER.CREATE.T.C", b'{"stream_name":"T","config":%b}' % config)
                    if differs("CONSUMER.CREATE", path, value):
                        del talk.log[kept:]
                    names = talk.api("CONSUMER.NAMES.T")["consumers"]
                    assert (names == []) or "error" not in answer
                    kept = len(talk.log)
                    for name in names:
                        talk.api(f"CONSUMER.DELETE.T.{name}")
                    if differs("CONSUMER.CREATE", path, value):
                        del talk.log[kept - 1 :]
        talk.done("STREAM.DELETE.T")

    servers.play(scene)


CALLS: dict[str, tuple[type[Any], dict[str, bytes]]] = {
    "STREAM.INFO": (messages.JSApiStreamInfoRequest, {}),
    "STREAM.NAMES": (messages.JSApiStreamNamesRequest, {}),
    "STREAM.LIST": (messages.JSApiStreamListRequest, {}),
    "STREAM.PURGE": (messages.JSApiStreamPurgeRequest, {"seq": b"1"}),
    "STREAM.MSG.GET": (messages.JSApiMsgGetRequest, {"seq": b"3"}),
    "STREAM.MSG.DELETE": (messages.JSApiMsgDeleteRequest, {}),
    "STREAM.SNAPSHOT": (messages.JSApiStreamSnapshotRequest, {}),
    "STREAM.RESTORE": (messages.JSApiStreamRestoreRequest, {}),
    "DIRECT.GET": (messages.JSApiMsgGetRequest, {"seq": b"3"}),
    "CONSUMER.NAMES": (messages.JSApiConsumersRequest, {}),
    "CONSUMER.LIST": (messages.JSApiConsumersRequest, {}),
    "CONSUMER.PAUSE": (messages.JSApiConsumerPauseRequest, {}),
    "CONSUMER.UNPIN": (messages.JSApiConsumerUnpinRequest, {}),
}
NAMELESS = ("STREAM.NAMES", "STREAM.LIST")
EMPTY_CALLS = ("STREAM.DELETE", "CONSUMER.DELETE", "CONSUMER.INFO", "STREAM.CANCEL_MOVE", "STREAM.LEADER.STEPDOWN")


@pytest.mark.parametrize("call", [*CALLS, *EMPTY_CALLS])
def test_other_bodies(servers: Servers, call: str) -> None:
    """Bodies that are no JSON, no object, or have impossible fields, for every other call."""

    def scene(talk: Talk) -> None:
        record, beside = CALLS.get(call, (None, {}))
        bodies: list[tuple[Path, bytes, bytes]] = [(("",), b"", body) for body in BODIES]
        if record is not None and record is not messages.JSApiStreamRestoreRequest:
            bodies += [(path, value, body_with(path, value, beside)) for path, _ in paths(record) for value in VALUES]
        for path, value, body in bodies:
            kept = len(talk.log)
            make(talk, allow_direct=True, storage="memory" if call == "STREAM.PURGE" else "file")
            if talk.state("T") == (0, 0, 0):
                talk.flood(["T"] * 6, b"x")
                talk.done("STREAM.PURGE.T", {"seq": 3})
            config = {"durable_name": "C", "ack_policy": "explicit"}
            talk.api("CONSUMER.DURABLE.CREATE.T.C", {"stream_name": "T", "config": config})
            del talk.log[kept:]
            tail = "" if call in NAMELESS else ".T.C" if call.startswith("CONSUMER") and call not in LISTS else ".T"
            tail = ".R" if call == "STREAM.RESTORE" else tail
            told = talk.ask(f"$JS.API.{call}{tail}", body)
            if (
                differs(call, path, value)
                or (call, body) == ("DIRECT.GET", b"{}{}")
                or b"$JS.SNAPSHOT.RESTORE." in told.data
            ):
                talk.log.pop()
            if call in ("STREAM.PURGE", "STREAM.MSG.DELETE"):
                talk.done("STREAM.DELETE.T")
        talk.api("STREAM.DELETE.T")

    servers.play(scene)


LISTS = ("CONSUMER.NAMES", "CONSUMER.LIST")


def test_names(servers: Servers) -> None:
    """Names that are too long, hold wildcards, white space or path separators: refused, and nothing is made."""

    def scene(talk: Talk) -> None:
        talk.done("STREAM.CREATE.T", {"name": "T", "subjects": ["T"]})
        for name in NAMES:
            token = name if name and not set(name) & set(".*> \t") else "X"
            if name != "\u00e4":
                talk.refused(f"STREAM.CREATE.{token}", {"name": name, "subjects": ["other"]})
            for key in ("name", "durable_name"):
                if token == "X" or "/" in name or "\\" in name:
                    body = {"stream_name": "T", "config": {key: name}}
                    for call in (f"CONSUMER.CREATE.T.{token}", f"CONSUMER.DURABLE.CREATE.T.{token}"):
                        if "error" not in talk.api(call, body):
                            talk.api(f"CONSUMER.DELETE.T.{token}")
        assert talk.api("STREAM.NAMES")["streams"] == ["T"]
        assert talk.api("CONSUMER.NAMES.T")["consumers"] == []
        talk.done("STREAM.DELETE.T")

    servers.play(scene)


def test_wildcards_in_the_names_of_consumers(servers: Servers) -> None:
    """Refused in whatever form of the call they come: no consumer has such a name."""

    def scene(talk: Talk) -> None:
        talk.done("STREAM.CREATE.T", {"name": "T", "subjects": ["T"]})
        for name in ("a*", "*a", "a>", "a*b"):
            for config in ({"name": name}, {"durable_name": name}, {}):
                for tail in (f"CREATE.T.{name}", f"DURABLE.CREATE.T.{name}", "CREATE.T"):
                    if config or tail != "CREATE.T":
                        talk.refused(f"CONSUMER.{tail}", {"stream_name": "T", "config": config})
        assert talk.api("CONSUMER.NAMES.T")["consumers"] == []

    servers.play(scene)


def test_what_is_no_text(servers: Servers) -> None:
    """Halves of characters are told as none, what is no space in JSON is a fault; each request is answered, and a name
    that no answer could say is none.
    """

    def scene(talk: Talk) -> None:
        for body in (b'"\\u0000\\ud800"', b'"\\ud83d\\ude00 \\\\ud800 \\ude00x"', b'"\xff\xed\xa0\x80"'):
            answer = talk.done("STREAM.CREATE.T", b'{"name":"T","description":' + body + b"}")
            assert "\ufffd" in answer["config"]["description"]
            talk.done("STREAM.DELETE.T")
        for body in (b'\x0b{"name":"T"}', b'{"name":"T"}\x0c', b"\xa0{}", b"\x1c", b'\x85{"name":"T"}'):
            assert talk.refused("STREAM.CREATE.T", body) in (10025, 10056)
        talk.done("STREAM.CREATE.T", {"name": "T", "subjects": ["T.>"]})
        with talk.ours_alone() as is_ours:  # nats-server makes consumers whose names cannot be told
            for config in (b"{}", b'{"name":"\xff"}', b'{"durable_name":"\xff"}'):
                inbox = talk.new_inbox()
                body = b'{"stream_name":"T","config":' + config + b"}"
                head = f"{inbox} {len(body)}\r\n".encode()
                talk.send(b"PUB $JS.API.CONSUMER.CREATE.T.\xff " + head + body + b"\r\n")
                assert "error" in talk.hear(inbox).json or not is_ours
            assert talk.api("CONSUMER.NAMES.T")["consumers"] == [] or not is_ours
            talk.api("STREAM.DELETE.T")

    servers.play(scene)


def test_very_many_subjects(servers: Servers) -> None:
    """A request with thousands of subjects or filters is answered, the same by both."""

    def scene(talk: Talk) -> None:
        subjects = [f"{number % 7}.{number}" for number in range(3000)]
        talk.done("STREAM.CREATE.T", {"name": "T", "subjects": subjects})
        talk.done(
            "CONSUMER.CREATE.T.C", {"stream_name": "T", "config": {"durable_name": "C", "filter_subjects": subjects}}
        )
        assert talk.refused("STREAM.CREATE.U", {"name": "U", "subjects": ["x", *reversed(subjects)]}) == 10065
        body = {"stream_name": "T", "config": {"durable_name": "D", "filter_subjects": [*subjects, "3.*"]}}
        assert talk.refused("CONSUMER.CREATE.T.D", body) == 10138

    servers.play(scene)
