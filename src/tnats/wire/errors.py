"""What a server says when it refuses or closes: the `-ERR` texts, and the reasons kept for closed connections.

The texts are contract: clients tell them apart by their words (client protocol, "-ERR texts").
"""

from __future__ import annotations

import enum

from tnats.notation import quote
from tnats.records import frozen


class ClosedReason(enum.Enum):
    """Why a connection was closed, in the words of /connz and of disconnect events: what can be the reason here."""

    CLIENT_CLOSED = "Client Closed"
    AUTHENTICATION_TIMEOUT = "Authentication Timeout"
    AUTHENTICATION_FAILURE = "Authentication Failure"
    SLOW_CONSUMER_PENDING_BYTES = "Slow Consumer (Pending Bytes)"
    SLOW_CONSUMER_WRITE_DEADLINE = "Slow Consumer (Write Deadline)"
    WRITE_ERROR = "Write Error"
    READ_ERROR = "Read Error"
    PARSE_ERROR = "Parse Error"
    STALE_CONNECTION = "Stale Connection"
    PROTOCOL_VIOLATION = "Protocol Violation"
    BAD_CLIENT_PROTOCOL_VERSION = "Bad Client Protocol Version"
    MAX_CONNECTIONS_EXCEEDED = "Maximum Connections Exceeded"
    MAX_PAYLOAD_EXCEEDED = "Maximum Message Payload Exceeded"
    MAX_CONTROL_LINE_EXCEEDED = "Maximum Control Line Exceeded"
    SERVER_SHUTDOWN = "Server Shutdown"
    NO_RESPONDERS_REQUIRES_HEADERS = "No Responders Requires Headers"
    PROXY_REQUIRED = "Proxy Required"
    UNKNOWN = "Unknown State"


@frozen
class WireError:
    """One `-ERR`: its text, and why the connection is closed after it (None: it stays open)."""

    text: str
    reason: ClosedReason | None = None

    @property
    def line(self) -> bytes:
        """The line as it goes to the peer."""
        return error_line(self.text.encode())


def error_line(text: bytes) -> bytes:
    """`-ERR '<text>'` with its line end."""
    return b"-ERR '%b'\r\n" % text


UNKNOWN_PROTOCOL_OPERATION = WireError("Unknown Protocol Operation", ClosedReason.PROTOCOL_VIOLATION)
MAX_CONTROL_LINE_EXCEEDED = WireError("maximum control line exceeded", ClosedReason.MAX_CONTROL_LINE_EXCEEDED)
MAX_PAYLOAD_VIOLATION = WireError("Maximum Payload Violation", ClosedReason.MAX_PAYLOAD_EXCEEDED)
AUTHORIZATION_VIOLATION = WireError("Authorization Violation", ClosedReason.AUTHENTICATION_FAILURE)
AUTHENTICATION_TIMEOUT = WireError("Authentication Timeout", ClosedReason.AUTHENTICATION_TIMEOUT)
MAX_CONNECTIONS_EXCEEDED = WireError("maximum connections exceeded", ClosedReason.MAX_CONNECTIONS_EXCEEDED)
MAX_SUBSCRIPTIONS_EXCEEDED = WireError("maximum subscriptions exceeded")
INVALID_CLIENT_PROTOCOL = WireError("invalid client protocol", ClosedReason.BAD_CLIENT_PROTOCOL_VERSION)
NO_RESPONDERS_REQUIRES_HEADERS = WireError(
    "no responders requires headers support", ClosedReason.NO_RESPONDERS_REQUIRES_HEADERS
)
STALE_CONNECTION = WireError("Stale Connection", ClosedReason.STALE_CONNECTION)
INVALID_PUBLISH_SUBJECT = WireError("Invalid Publish Subject")
INVALID_SUBJECT = WireError("Invalid Subject")


def publish_violation(subject: bytes) -> bytes:
    """The line for a publish that permissions deny; the connection stays open."""
    return error_line(b"Permissions Violation for Publish to " + quoted(subject))


def reply_violation(reply: bytes) -> bytes:
    """The line for a reply subject under a reserved prefix; the connection stays open."""
    return error_line(b"Permissions Violation for Publish with Reply of " + quoted(reply))


def subscription_violation(subject: bytes, queue: bytes | None = None, sid: bytes | None = None) -> bytes:
    """The line for a denied subscription; with `sid`, for one that is taken away later. Stays open."""
    text = b"Permissions Violation for Subscription to " + quoted(subject)
    if queue is not None:
        text += b" using queue " + quoted(queue)
    if sid is not None:
        text += b" (sid %b)" % quoted(sid)
    return error_line(text)


def too_many_tokens(subject: bytes) -> bytes:
    """The line for a subscription with more tokens than `max_subscription_tokens`; stays open."""
    return error_line(b"Permissions Violation for Subscription to %b, too many tokens" % quoted(subject))


def quoted(raw: bytes) -> bytes:
    """A subject or the like in double quotes (`tnats.notation.quote`)."""
    return quote(raw.decode("utf-8", "surrogateescape")).encode()
