"""The texts a server says when it refuses or closes."""

from __future__ import annotations

import pytest

from tnats.wire import errors


@pytest.mark.parametrize(
    ("error", "line", "reason"),
    [
        (errors.UNKNOWN_PROTOCOL_OPERATION, b"-ERR 'Unknown Protocol Operation'\r\n", "Protocol Violation"),
        (
            errors.MAX_CONTROL_LINE_EXCEEDED,
            b"-ERR 'maximum control line exceeded'\r\n",
            "Maximum Control Line Exceeded",
        ),
        (errors.MAX_PAYLOAD_VIOLATION, b"-ERR 'Maximum Payload Violation'\r\n", "Maximum Message Payload Exceeded"),
        (errors.AUTHORIZATION_VIOLATION, b"-ERR 'Authorization Violation'\r\n", "Authentication Failure"),
        (errors.AUTHENTICATION_TIMEOUT, b"-ERR 'Authentication Timeout'\r\n", "Authentication Timeout"),
        (errors.MAX_CONNECTIONS_EXCEEDED, b"-ERR 'maximum connections exceeded'\r\n", "Maximum Connections Exceeded"),
        (errors.INVALID_CLIENT_PROTOCOL, b"-ERR 'invalid client protocol'\r\n", "Bad Client Protocol Version"),
        (
            errors.NO_RESPONDERS_REQUIRES_HEADERS,
            b"-ERR 'no responders requires headers support'\r\n",
            "No Responders Requires Headers",
        ),
        (errors.STALE_CONNECTION, b"-ERR 'Stale Connection'\r\n", "Stale Connection"),
    ],
)
def test_errors_that_close(error: errors.WireError, line: bytes, reason: str) -> None:
    """Line and closed reason are those seen from nats-server 2.15.1."""
    assert error.line == line
    assert error.reason is errors.ClosedReason(reason)


def test_errors_that_leave_the_connection_open() -> None:
    """Subject faults, permissions and a full subscription table do not close."""
    for error in (errors.INVALID_SUBJECT, errors.INVALID_PUBLISH_SUBJECT, errors.MAX_SUBSCRIPTIONS_EXCEEDED):
        assert error.reason is None
    assert errors.publish_violation(b"a") == b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n"
    assert errors.reply_violation(b"_R_.x") == b"-ERR 'Permissions Violation for Publish with Reply of \"_R_.x\"'\r\n"
    text = b'Permissions Violation for Subscription to "a"'
    assert errors.subscription_violation(b"a") == b"-ERR '" + text + b"'\r\n"
    assert errors.subscription_violation(b"a", b"q") == b"-ERR '" + text + b' using queue "q"\'\r\n'
    assert errors.subscription_violation(b"a", None, b"7") == b"-ERR '" + text + b' (sid "7")\'\r\n'
    assert errors.too_many_tokens(b"a") == b"-ERR '" + text + b", too many tokens'\r\n"


@pytest.mark.parametrize(
    ("raw", "quoted"),
    [
        (b"foo.bar", b'"foo.bar"'),
        (b"", b'""'),
        (
            b'_R_."\\\xff\x01\x7f\xc2\xad\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x80\xa8\x07\x0bz',
            b'"_R_.\\"\\\\\\xff\\x01\\x7f\\u00ad\xe2\x82\xac\xf0\x9f\x98\x80\\u2028\\a\\vz"',
        ),
        ("\U000e0001".encode(), b'"\\U000e0001"'),
        (b"\xed\xa0\x80", b'"\\xed\\xa0\\x80"'),
        (b"a\tb\r\n\x08\x0c", b'"a\\tb\\r\\n\\b\\f"'),
    ],
)
def test_quoting(raw: bytes, quoted: bytes) -> None:
    """Subjects inside errors are escaped as nats-server escapes them."""
    assert errors.quoted(raw) == quoted
