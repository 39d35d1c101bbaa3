"""The client protocol under arbitrary bytes and arbitrary cuts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tnats.wire import client, headers
from tnats.wire.client import ErrorReceived, Message, ServerParser, Signal
from tnats.wire.connect import parse_connect
from tnats.wire.errors import quoted
from tnats.wire.info import ServerInfo, encode_info, parse_info

WORD = st.binary(min_size=1, max_size=8).filter(lambda raw: not any(byte in b" \t\r\n" for byte in raw))
VALUE = st.binary(max_size=12).filter(lambda raw: b"\r" not in raw and b"\n" not in raw)
KEY = WORD.filter(lambda raw: b":" not in raw)
FIELDS = st.lists(st.tuples(KEY, VALUE), max_size=5)


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, tuple[bytes, ...]]:
    """A MSG or HMSG line with its body, and its parts."""
    subject, sid = draw(WORD), draw(WORD)
    reply = draw(st.one_of(st.just(b""), WORD))
    payload = draw(st.binary(max_size=40))
    block = headers.build_headers(draw(FIELDS)) if draw(st.booleans()) else b""
    names = b" ".join(part for part in (subject, sid, reply) if part)
    if block:
        line = b"HMSG %b %d %d\r\n%b%b\r\n" % (names, len(block), len(block) + len(payload), block, payload)
    else:
        line = b"MSG %b %d\r\n%b\r\n" % (names, len(payload), payload)
    return line, (subject, sid, reply, block, payload)


@st.composite
def others(draw: st.DrawFn) -> tuple[bytes, object]:
    info = ServerInfo(server_name=draw(st.text(st.characters(codec="utf-8"), max_size=5)), port=draw(st.integers(0, 9)))
    return draw(
        st.sampled_from(
            [
                (b"PING\r\n", Signal.PING),
                (b"PONG\r\n", Signal.PONG),
                (b"+OK\r\n", Signal.OK),
                (b"-ERR 'it''s \"x\"'\r\n", ErrorReceived(b"it''s \"x\"")),
                (encode_info(info), info),
            ]
        )
    )


def plain(operation: client.Operation) -> object:
    if isinstance(operation, Message):
        return operation.subject, operation.sid, operation.reply, operation.headers, operation.payload
    return operation


@given(st.lists(st.one_of(messages(), others()), max_size=8), st.data())
def test_any_cut_gives_the_same_operations(stream: list[tuple[bytes, object]], data: st.DataObject) -> None:
    """However the bytes are cut, the operations are those that were written, and none is early or lost."""
    raw = b"".join(line for line, _ in stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    parser = ServerParser()
    found: list[object] = []
    start = 0
    for cut in [*cuts, len(raw)]:
        found += [plain(operation) for operation in parser.feed(raw[start:cut])]
        start = cut
        ends = [len(b"".join(line for line, _ in stream[: count + 1])) for count in range(len(stream))]
        assert len(found) == sum(end <= cut for end in ends)
    assert parser.fault == ""
    assert found == [expected for _, expected in stream]


@given(st.lists(st.one_of(st.binary(max_size=30), st.sampled_from([b"MSG a 1 3\r\n", b"\r\n", b"INFO ", b"{}"]))))
def test_no_bytes_raise(chunks: list[bytes]) -> None:
    """Whatever a server sends, the parser answers with operations or a fault."""
    parser = ServerParser()
    for chunk in chunks:
        parser.feed(chunk)


@given(st.binary(max_size=60))
def test_readers_of_json_and_headers_never_raise(raw: bytes) -> None:
    """Arbitrary bytes are invalid, not an exception; quoting takes anything and stays on one line."""
    parse_connect(raw)
    parse_info(raw)
    headers.parse_headers(raw)
    for parse in (client.parse_pub_arguments, client.parse_hpub_arguments, client.parse_sub_arguments):
        parse(raw)
    shown = quoted(raw)
    assert b"\n" not in shown
    assert b"\r" not in shown


@given(st.lists(st.one_of(WORD, st.sampled_from([b"\x0b", b"a\x0c"])), max_size=5), st.data())
def test_arguments_come_back_from_any_blanks(arguments: list[bytes], data: st.DataObject) -> None:
    """Arguments joined by runs of space and tab split into the same arguments."""
    blanks = st.text(" \t", min_size=1, max_size=3).map(str.encode)
    line = b"".join(one + data.draw(blanks) for one in arguments)
    assert client.split_arguments(line) == arguments


@given(FIELDS, KEY, VALUE)
def test_header_operations_agree_with_a_list_of_fields(
    fields: list[tuple[bytes, bytes]], key: bytes, value: bytes
) -> None:
    """Build, parse, get, set and remove on raw bytes do what they would do on a list of pairs."""
    block = headers.build_headers(fields)
    parsed = headers.parse_headers(block)
    assert parsed is not None
    assert parsed.fields == [(name, text.strip(b" \t")) for name, text in fields]
    for name, _ in fields:
        first = next(text for other, text in fields if other == name)
        assert headers.get_header(block, name) == first.lstrip(b" ")
        kept = [field for field in fields if field[0] != name]
        assert headers.remove_header(block, name) == (headers.build_headers(kept) if kept else b"")
    changed = headers.set_header(block, key, value)
    assert headers.get_header(changed, key) == value.lstrip(b" ")
    others_before = [field for field in fields if field[0] != key]
    after = headers.parse_headers(changed)
    assert after is not None
    assert [name for name, _ in after.fields].count(key) == 1
    assert headers.remove_header(changed, key) == (headers.build_headers(others_before) if others_before else b"")
