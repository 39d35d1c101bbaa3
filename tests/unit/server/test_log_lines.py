"""Log lines and what they may hold."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats.server.log_lines import (
    Level,
    LogFormat,
    format_time,
    redact_connect,
    traced_end,
    traced_operation,
    traced_payload,
)

WALL_NS = 1_795_982_400_123_456_789


def test_line_has_the_form_of_nats_server() -> None:
    """Pid, local time to the microsecond, label, text."""
    line = LogFormat(pid=7).line(Level.INFO, "Server is ready", WALL_NS)
    assert line == "[7] 2026/11/29 20:00:00.123456 [INF] Server is ready"


def test_parts_of_the_line_can_be_left_out() -> None:
    """No pid for syslog, no time for logtime: false, colours for terminals."""
    assert LogFormat(time=False).line(Level.WARN, "x", WALL_NS) == "[WRN] x"
    assert LogFormat(time=False, colors=True).line(Level.ERROR, "x", 0) == "[\x1b[31mERR\x1b[0m] x"


def test_line_ends_in_a_text_are_escaped() -> None:
    """Nobody can write a second log line through a name or a subject."""
    assert LogFormat(time=False).line(Level.INFO, "a\r\n[INF] b", 0) == "[INF] a\\r\\n[INF] b"


def test_debug_and_trace_are_written_only_if_asked_for() -> None:
    """All other levels always are."""
    assert [level for level in Level if LogFormat().wants(level)] == [Level.INFO, Level.WARN, Level.ERROR, Level.FATAL]
    assert all(LogFormat(debug=True, trace=True).wants(level) for level in Level)


@given(st.integers(0, 230 * 365 * 86_400 * 10**6))
def test_time_is_written_like_the_calendar_says(since_us: int) -> None:
    """Whole microseconds come back as they went in."""
    text = format_time(since_us * 1000)
    moment = datetime.datetime.strptime(text, "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=datetime.UTC)
    assert moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) == datetime.timedelta(microseconds=since_us)


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "connect",
    [
        '{"user":"u","pass":"s3cr3t","name":"n"}',
        '{"auth_token" : "s3cr3t"}',
        '{"PASS":"s3cr3t"}',
        '{"password":"s3cr3t"}',
        '{"pass":"a\\"s3cr3t","user":"u"}',
        '{"pass":"a,s3cr3t}","user":"u"}',
        '{"nkey":"s3cr3t","sig":"s3cr3t","proxy_sig":"s3cr3t"}',
        '{"jwt":"s3cr3t"}',
        '{"pass":s3cr3t}',
        '{"pass":"s3cr3t',
        "{pass: s3cr3t}",
        "pass=s3cr3t",
    ],
)
def test_secrets_are_taken_out_of_a_traced_connect(connect: str) -> None:
    """Whatever the CONNECT looks like, valid or not, the secret is gone and the rest can be read."""
    shown = traced_operation("CONNECT", connect.encode(), outbound=False)
    assert SECRET not in shown
    assert "[REDACTED]" in shown
    assert ('"user":"u"' in shown) == ('"user":"u"' in connect)


def test_connect_without_secrets_is_left_alone() -> None:
    """Values that only mention a secret's name stay."""
    connect = b'{"name":"signal","lang":"go","compass":"north","verbose":false}'
    assert redact_connect(connect) == connect


def test_traced_operations_can_be_counted_by_their_text() -> None:
    """Suites look for `[SUB subject sid]`."""
    assert traced_operation("SUB", b"foo.bar 1", outbound=False) == "<<- [SUB foo.bar 1]"
    assert traced_operation("PONG", b"", outbound=True) == "->> [PONG]"
    assert traced_operation("+OK", b"", outbound=True) == "->> [OK]"
    assert traced_operation("-ERR", b"'Stale Connection'", outbound=True) == "->> [-ERR Stale Connection]"
    assert traced_end(b"7") == "<-> [DELSUB 7]"


def test_traced_payload_is_cut_and_escaped() -> None:
    """At most the configured bytes, and nothing that a terminal would act on."""
    assert traced_payload(b"abcdef", 3, outbound=False) == '<<- MSG_PAYLOAD: ["abc..."]'
    assert traced_payload(b"abc", 3, outbound=True) == '->> MSG_PAYLOAD: ["abc"]'
    assert traced_payload(b"a\x1b[2J\xff\n", 0, outbound=True) == '->> MSG_PAYLOAD: ["a\\x1b[2J\\xff\\n"]'
    assert traced_payload(b'"\\', 0, outbound=True) == '->> MSG_PAYLOAD: ["\\"\\\\"]'
