"""What a server says when it refuses or closes: the `-ERR` texts, and the reasons kept for closed connections.

The texts are contract: clients tell them apart by their words (client protocol, "-ERR texts").
"""

from __future__ import annotations

import enum

from tnats.records import frozen


class ClosedReason(enum.Enum):
    """Why a connection was closed, in the words of /connz and of disconnect events."""

    CLIENT_CLOSED = "Client Closed"
    AUTHENTICATION_TIMEOUT = "Authentication Timeout"
    AUTHENTICATION_FAILURE = "Authentication Failure"
    TLS_HANDSHAKE_FAILURE = "TLS Handshake Failure"
    SLOW_CONSUMER_PENDING_BYTES = "Slow Consumer (Pending Bytes)"
    SLOW_CONSUMER_WRITE_DEADLINE = "Slow Consumer (Write Deadline)"
    WRITE_ERROR = "Write Error"
    READ_ERROR = "Read Error"
    PARSE_ERROR = "Parse Error"
    STALE_CONNECTION = "Stale Connection"
    PROTOCOL_VIOLATION = "Protocol Violation"
    BAD_CLIENT_PROTOCOL_VERSION = "Bad Client Protocol Version"
    INCORRECT_PORT = "Incorrect Port"
    MAX_CONNECTIONS_EXCEEDED = "Maximum Connections Exceeded"
    MAX_ACCOUNT_CONNECTIONS_EXCEEDED = "Maximum Account Connections Exceeded"
    MAX_PAYLOAD_EXCEEDED = "Maximum Message Payload Exceeded"
    MAX_CONTROL_LINE_EXCEEDED = "Maximum Control Line Exceeded"
    MAX_SUBSCRIPTIONS_EXCEEDED = "Maximum Subscriptions Exceeded"
    DUPLICATE_ROUTE = "Duplicate Route"
    ROUTE_REMOVED = "Route Removed"
    SERVER_SHUTDOWN = "Server Shutdown"
    AUTHENTICATION_EXPIRED = "Authentication Expired"
    WRONG_GATEWAY = "Wrong Gateway"
    MISSING_ACCOUNT = "Missing Account"
    CREDENTIALS_REVOKED = "Credentials Revoked"
    INTERNAL_CLIENT = "Internal Client"
    MESSAGE_HEADER_VIOLATION = "Message Header Violation"
    NO_RESPONDERS_REQUIRES_HEADERS = "No Responders Requires Headers"
    CLUSTER_NAME_CONFLICT = "Cluster Name Conflict"
    DUPLICATE_REMOTE_LEAFNODE = "Duplicate Remote LeafNode Connection"
    DUPLICATE_CLIENT_ID = "Duplicate Client ID"
    DUPLICATE_SERVER_NAME = "Duplicate Server Name"
    MINIMUM_VERSION_REQUIRED = "Minimum Version Required"
    CLUSTER_NAMES_IDENTICAL = "Cluster Names Identical"
    KICKED = "Kicked"
    PROXY_NOT_TRUSTED = "Proxy Not Trusted"
    PROXY_REQUIRED = "Proxy Required"
    UNKNOWN = "Unknown State"


@frozen
class WireError:
    """One `-ERR`: its text, and why the connection is closed after it (None: it stays open)."""

    text: str
    reason: ClosedReason | None = None

    @property
    def closes(self) -> bool:
        """Whether the connection is closed after the line."""
        return self.reason is not None

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
USER_AUTHENTICATION_EXPIRED = WireError("User Authentication Expired", ClosedReason.AUTHENTICATION_EXPIRED)
ACCOUNT_AUTHENTICATION_EXPIRED = WireError("Account Authentication Expired", ClosedReason.AUTHENTICATION_EXPIRED)
USER_AUTHENTICATION_REVOKED = WireError("User Authentication Revoked", ClosedReason.CREDENTIALS_REVOKED)
MAX_CONNECTIONS_EXCEEDED = WireError("maximum connections exceeded", ClosedReason.MAX_CONNECTIONS_EXCEEDED)
MAX_ACCOUNT_CONNECTIONS_EXCEEDED = WireError(
    "maximum account active connections exceeded", ClosedReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED
)
MAX_SUBSCRIPTIONS_EXCEEDED = WireError("maximum subscriptions exceeded")
MAX_SUBSCRIPTIONS_LOWERED = WireError("maximum subscriptions exceeded", ClosedReason.MAX_SUBSCRIPTIONS_EXCEEDED)
FAILED_ACCOUNT_REGISTRATION = WireError("Failed Account Registration", ClosedReason.AUTHENTICATION_FAILURE)
INVALID_CLIENT_PROTOCOL = WireError("invalid client protocol", ClosedReason.BAD_CLIENT_PROTOCOL_VERSION)
NO_RESPONDERS_REQUIRES_HEADERS = WireError(
    "no responders requires headers support", ClosedReason.NO_RESPONDERS_REQUIRES_HEADERS
)
TLS_REQUIRED = WireError("Secure Connection - TLS Required", ClosedReason.TLS_HANDSHAKE_FAILURE)
CONNECTIONS_THROTTLED = WireError(
    "Connection throttling is active. Please try again later.", ClosedReason.MAX_CONNECTIONS_EXCEEDED
)
STALE_CONNECTION = WireError("Stale Connection", ClosedReason.STALE_CONNECTION)
CLIENT_ON_ROUTE_PORT = WireError("attempted to connect to route port", ClosedReason.INCORRECT_PORT)
CLIENT_ON_LEAF_NODE_PORT = WireError("attempted to connect to leaf node port", ClosedReason.INCORRECT_PORT)
CLIENT_ON_GATEWAY_PORT = WireError("attempted to connect to gateway port", ClosedReason.INCORRECT_PORT)
INVALID_PUBLISH_SUBJECT = WireError("Invalid Publish Subject")
INVALID_SUBJECT = WireError("Invalid Subject")


def publish_violation(subject: bytes) -> bytes:
    """The line for a publish that permissions deny; the connection stays open."""
    return error_line(b"Permissions Violation for Publish to " + quote(subject))


def reply_violation(reply: bytes) -> bytes:
    """The line for a reply subject under a reserved prefix; the connection stays open."""
    return error_line(b"Permissions Violation for Publish with Reply of " + quote(reply))


def subscription_violation(subject: bytes, queue: bytes | None = None, sid: bytes | None = None) -> bytes:
    """The line for a denied subscription; with `sid`, for one that is taken away later. Stays open."""
    text = b"Permissions Violation for Subscription to " + quote(subject)
    if queue is not None:
        text += b" using queue " + quote(queue)
    if sid is not None:
        text += b" (sid %b)" % quote(sid)
    return error_line(text)


def too_many_tokens(subject: bytes) -> bytes:
    """The line for a subscription with more tokens than `max_subscription_tokens`; stays open."""
    return error_line(b"Permissions Violation for Subscription to %b, too many tokens" % quote(subject))


_SHORT_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quote(raw: bytes) -> bytes:
    """`raw` in double quotes, escaped as Go's `%q` does: what is not printable becomes an escape."""
    # Subjects of plain characters are by far the most common.
    if raw.isascii():
        text = raw.decode("ascii")
        if text.isprintable() and '"' not in text and "\\" not in text:
            return b'"%b"' % raw
    return b'"%b"' % "".join(map(_escape, raw.decode("utf-8", "surrogateescape"))).encode()


def _escape(character: str) -> str:
    short = _SHORT_ESCAPES.get(character)
    if short is not None:
        return short
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as surrogateescape carries it
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
