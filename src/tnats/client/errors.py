"""What a client operation can raise. All beneath `ClientError`, itself a `TnatsError`; texts are one line."""

from __future__ import annotations

from tnats.errors import TnatsError


class ClientError(TnatsError):
    """Root of everything this package raises."""


class ConnectFailed(ClientError):
    """No server could be joined; the text lists each one that was tried with its reason."""


class ConnectionLost(ClientError):
    """The connection ended while this call was waiting for the server; whether it took effect is unknown."""


class ConnectionClosed(ClientError):
    """The client is closed, or draining and past the point where this call is possible."""


class PendingBufferFull(ClientError):
    """`publish_nowait` found no room: the outgoing buffer holds `pending_bytes_max`. Await `publish` instead."""


class PayloadTooLarge(ClientError):
    """Headers and payload together exceed the server's `max_payload`; nothing was sent."""


class BadSubject(ClientError):
    """The subject (or queue group, or reply) cannot stand on the wire: empty, an empty token, or white space."""


class TimedOut(ClientError):
    """What was waited for did not come within the time limit."""


class NoResponders(ClientError):
    """The server knows nobody who listens on the subject of this request (status 503)."""


class ServerError(ClientError):
    """The server sent `-ERR`; the text is what it said. Reported as an event unless a call is waiting for it."""


class AuthorizationFailed(ServerError):
    """The server refused the credentials, or no longer accepts them (`Authorization Violation` and its kin)."""


class PermissionsViolation(ServerError):
    """The server denied a publish or a subscription. A denied subscription also raises it from its iteration."""


class SubscriptionClosed(ClientError):
    """The subscription has ended and all its messages have been taken."""


def server_error(text: str) -> ServerError:
    """The exception for what stood between the quotes of an `-ERR` (client protocol, "-ERR texts")."""
    lowered = text.lower()
    if lowered.startswith("permissions violation"):
        return PermissionsViolation(text)
    if lowered.startswith("authorization") or "authentication" in lowered or lowered == "failed account registration":
        return AuthorizationFailed(text)
    return ServerError(text)
