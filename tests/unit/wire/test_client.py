"""Arguments of control lines, encoding, and reading a server's stream, by example."""

from __future__ import annotations

import pytest

from tnats.limits import CLIENT_CONTROL_LINE_BYTES_MAX
from tnats.wire import client
from tnats.wire.client import ErrorReceived, Message, ServerParser, Signal
from tnats.wire.info import ServerInfo


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        (b"foo 0", [b"foo", b"0"]),
        (b" \t foo \t bar\t\t0  ", [b"foo", b"bar", b"0"]),
        (b"foo\x0bbar 1", [b"foo\x0bbar", b"1"]),
        (b"foo\x0cbar\t1", [b"foo\x0cbar", b"1"]),
        (b"foo\rbar 1\r", [b"foo\rbar", b"1\r"]),
        (b"foo\x00\xff\xc2\xa0 1", [b"foo\x00\xff\xc2\xa0", b"1"]),
        (b"", []),
    ],
)
def test_arguments_are_separated_by_space_and_tab_alone(line: bytes, arguments: list[bytes]) -> None:
    """Runs separate; other control characters belong to the argument (as nats-server 2.15.1 has it)."""
    assert client.split_arguments(line) == arguments


def test_a_stray_cr_separates_where_no_size_is_read() -> None:
    """SUB and UNSUB take it for a blank, PUB and HPUB for a part of the argument (as nats-server 2.15.1 has it)."""
    assert client.parse_sub_arguments(b"foo\r1") == (b"foo", None, b"1")
    assert client.parse_unsub_arguments(b"1\r5\r") == (b"1", 5)
    assert client.parse_pub_arguments(b"foo\rbar 1") == (b"foo\rbar", b"", 1)
    assert client.parse_pub_arguments(b"foo 1\r") is None
    assert client.parse_hpub_arguments(b"foo 0 1\r") is None


@pytest.mark.parametrize(
    ("digits", "size"),
    [
        (b"0", 0),
        (b"000000000", 0),
        (b"999999999", 999999999),
        (b"0000000000", -1),
        (b"", -1),
        (b"-1", -1),
        (b"+1", -1),
        (b"1_0", -1),
        (b"\xd9\xa1", -1),
        (b"1 ", -1),
    ],
)
def test_sizes(digits: bytes, size: int) -> None:
    """One to nine decimal digits and nothing else."""
    assert client.parse_size(digits) == size


def test_pub_arguments() -> None:
    """Two or three, the last a size."""
    assert client.parse_pub_arguments(b"a 5") == (b"a", b"", 5)
    assert client.parse_pub_arguments(b"a b 5") == (b"a", b"b", 5)
    for bad in (b"", b"a", b"5", b"a b", b"a b c 1", b"a -1", b"a 9999999999"):
        assert client.parse_pub_arguments(bad) is None


def test_hpub_arguments() -> None:
    """Three or four, the last two sizes of which the first is no larger."""
    assert client.parse_hpub_arguments(b"a 12 14") == (b"a", b"", 12, 14)
    assert client.parse_hpub_arguments(b"a b 12 12") == (b"a", b"b", 12, 12)
    for bad in (b"a 12", b"a 12 10", b"a b c 1 1", b"a x 1", b"a 1 x", b"a b 5"):
        assert client.parse_hpub_arguments(bad) is None


def test_sub_and_unsub_arguments() -> None:
    """SUB takes two or three; UNSUB one or two, and an odd limit means at once."""
    assert client.parse_sub_arguments(b"a 1") == (b"a", None, b"1")
    assert client.parse_sub_arguments(b"a q sid") == (b"a", b"q", b"sid")
    assert client.parse_sub_arguments(b"a") is None
    assert client.parse_sub_arguments(b"a q 1 x") is None
    assert client.parse_unsub_arguments(b"1") == (b"1", 0)
    assert client.parse_unsub_arguments(b"1 5") == (b"1", 5)
    assert client.parse_unsub_arguments(b"1 abc") == (b"1", 0)
    assert client.parse_unsub_arguments(b"1 -1") == (b"1", 0)
    assert client.parse_unsub_arguments(b"") is None
    assert client.parse_unsub_arguments(b"1 2 3") is None


def test_encoding() -> None:
    """The lines of a client, byte for byte."""
    assert client.encode_pub(b"a", b"xy") == b"PUB a 2\r\nxy\r\n"
    assert client.encode_pub(b"a", b"", b"r") == b"PUB a r 0\r\n\r\n"
    block = b"NATS/1.0\r\n\r\n"
    assert client.encode_pub(b"a", b"xy", b"r", block) == b"HPUB a r 12 14\r\nNATS/1.0\r\n\r\nxy\r\n"
    assert client.encode_sub(b"a.>", b"1") == b"SUB a.> 1\r\n"
    assert client.encode_sub(b"a", b"1", b"q") == b"SUB a q 1\r\n"
    assert client.encode_unsub(b"1") == b"UNSUB 1\r\n"
    assert client.encode_unsub(b"1", 5) == b"UNSUB 1 5\r\n"


def test_a_stream_of_everything() -> None:
    """Each kind of message becomes its operation, in order."""
    parser = ServerParser()
    operations = parser.feed(
        b'INFO {"server_id":"N"} \r\n+OK\r\nPING\r\nPONG\r\n'
        b"-ERR 'Invalid Subject'\r\n"
        b"MSG a 1 2\r\nxy\r\nMSG a 1 r 0\r\n\r\nHMSG a 2 r 12 14\r\nNATS/1.0\r\n\r\n\r\n\r\n"
    )
    assert parser.fault == ""
    assert operations[0] == ServerInfo(server_id="N")
    assert operations[1:4] == [Signal.OK, Signal.PING, Signal.PONG]
    assert operations[4] == ErrorReceived(b"Invalid Subject")
    messages = [one for one in operations if isinstance(one, Message)]
    assert [(one.subject, one.sid, one.reply, one.headers, one.payload) for one in messages] == [
        (b"a", b"1", b"", b"", b"xy"),
        (b"a", b"1", b"r", b"", b""),
        (b"a", b"2", b"r", b"NATS/1.0\r\n\r\n", b"\r\n"),
    ]


@pytest.mark.parametrize(
    "stream",
    [
        b"FOO\r\n",
        b"\r\n",
        b"PINGX\r\n",
        b"INFO nonsense\r\n",
        b"MSG a 1\r\n",
        b"MSG a 1 b c 1\r\n",
        b"MSG a 1 x\r\n",
        b"MSG a 1 2\r\nxyz\r\n",
        b"HMSG a 1 5 3\r\n",
        b"HMSG a 1 5\r\n",
        b"MSG a 1 999999999\r\n",
        b"MSG a 1 " + b"9" * 5000 + b"\r\n",
        b"HMSG a 1 " + b"9" * 5000 + b" 5\r\n",
        b"MSG " + b"a" * CLIENT_CONTROL_LINE_BYTES_MAX,
    ],
)
def test_a_broken_stream_is_a_fault_once(stream: bytes) -> None:
    """What came before the fault is handed out, it is named in one line, and nothing comes after it."""
    parser = ServerParser()
    operations = parser.feed(b"PING\r\n" + stream)
    assert operations == [Signal.PING]
    assert parser.fault
    assert "\n" not in parser.fault
    assert parser.feed(b"PING\r\n") == []


def test_a_large_payload_in_small_pieces_is_joined_once() -> None:
    """While a payload is incomplete, pieces are collected without looking at them again."""
    payload = bytes(1_000_000)
    stream = b"MSG a 1 %d\r\n%b\r\nPING\r\n" % (len(payload), payload)
    scans = 0
    operations = []

    class Counting(ServerParser):
        def _scan(self, buffer: bytes, operations: list[client.Operation]) -> int:
            nonlocal scans
            scans += 1
            return super()._scan(buffer, operations)

    parser = Counting()
    for at in range(0, len(stream), 1000):
        operations += parser.feed(stream[at : at + 1000])
    assert scans < 5
    assert isinstance(operations[0], Message)
    assert operations[0].payload == payload
    assert operations[1] is Signal.PING
