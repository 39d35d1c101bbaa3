"""What is traced of the bytes of a connection."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tnats.limits import CONTROL_LINE_BYTES_MAX
from tnats.server.tracing import Scanner

SAID = (
    b'CONNECT {"user":"u","pass":"hush"}\r\nPING\r\nsub  foo\t1\r\nSUB foo q 2\r\nUNSUB 1 5\r\n'
    b"PUB foo 5\r\nhello\r\nPUB foo rep 0\r\n\r\nHPUB foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPONG\r\n"
)
SAID_LINES = [
    '<<- [CONNECT {"user":"u","pass":"[REDACTED]"}]',
    "<<- [PING]",
    "<<- [SUB foo\\t1]",
    "<<- [SUB foo q 2]",
    "<<- [UNSUB 1 5]",
    "<<- [PUB foo 5]",
    '<<- MSG_PAYLOAD: ["hello"]',
    "<<- [PUB foo rep 0]",
    "<<- [HPUB foo 12 14]",
    '<<- MSG_PAYLOAD: ["NATS/1.0\\r\\n\\r\\nhi"]',
    "<<- [PONG]",
]
TOLD = (
    b"INFO {}\r\n+OK\r\nPING\r\nMSG foo 1 5\r\nhello\r\nHMSG foo 1 rep 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    b"-ERR 'Stale Connection'\r\n"
)
TOLD_LINES = [
    "->> [OK]",
    "->> [PING]",
    "->> [MSG foo 1 5]",
    '->> MSG_PAYLOAD: ["hello"]',
    "->> [HMSG foo 1 rep 12 14]",
    '->> MSG_PAYLOAD: ["NATS/1.0\\r\\n\\r\\nhi"]',
    "->> [-ERR Stale Connection]",
]


def trace(*parts: bytes, outbound: bool = False, max_traced_msg_len: int = 0, headers_only: bool = False) -> list[str]:
    lines: list[str] = []
    scanner = Scanner(lines.append, outbound=outbound, max_traced_msg_len=max_traced_msg_len, headers_only=headers_only)
    for part in parts:
        scanner.feed(part)
    return lines


def test_lines_are_those_of_nats_server() -> None:
    """Both directions, secrets taken out, INFO and empty payloads not shown."""
    assert trace(SAID) == SAID_LINES
    assert trace(TOLD, outbound=True) == TOLD_LINES


@given(st.lists(st.integers(0, max(len(SAID), len(TOLD))), max_size=8))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    """However the bytes arrive, the same lines come out."""
    for data, outbound, lines in ((SAID, False, SAID_LINES), (TOLD, True, TOLD_LINES)):
        edges = [0, *sorted(cuts), len(data)]
        parts = [data[start:end] for start, end in itertools.pairwise(edges)]
        assert trace(*parts, outbound=outbound) == lines


@given(st.lists(st.binary(max_size=40)))
def test_any_bytes_are_survived(parts: list[bytes]) -> None:
    """What clients send can be anything; nothing raises, and no control code reaches the log."""
    for line in trace(*parts):
        assert line.isprintable()


def test_a_line_is_told_before_its_payload_has_come() -> None:
    """A publish that is refused for its size is still seen."""
    assert trace(b"PUB foo 99999999\r\n") == ["<<- [PUB foo 99999999]"]


def test_nothing_is_told_after_bytes_of_another_protocol() -> None:
    """The connection is closed for them, so what follows is not handled either."""
    assert trace(b"PING\r\nBOGUS\r\nPING\r\n") == ["<<- [PING]"]
    assert trace(b"PUB foo x\r\nPING\r\n") == ["<<- [PUB foo x]"]
    assert trace(b"x" * (CONTROL_LINE_BYTES_MAX + 1), b"\r\nPING\r\n") == []


def test_payloads_can_be_cut_and_left_out() -> None:
    """`max_traced_msg_len` cuts them, `trace_headers` leaves the headers alone."""
    assert trace(b"PUB a 5\r\nhello\r\n", max_traced_msg_len=2)[1:] == ['<<- MSG_PAYLOAD: ["he..."]']
    assert trace(SAID, headers_only=True)[5:] == [
        "<<- [PUB foo 5]",
        "<<- [PUB foo rep 0]",
        "<<- [HPUB foo 12 14]",
        '<<- MSG_PAYLOAD: ["NATS/1.0"]',
        "<<- [PONG]",
    ]
