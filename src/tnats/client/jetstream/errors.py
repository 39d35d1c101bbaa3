"""What JetStream can answer instead of what was asked for. All beneath `tnats.client.ClientError`."""

from __future__ import annotations

from tnats.client.errors import ClientError, ConnectionLost, NoResponders, TimedOut


class JetStreamError(ClientError):
    """Root of this package's errors."""


class ApiError(JetStreamError):
    """The server refused a request.

    `code` as in HTTP (404, 503 ...), `err_code` the server's own number of the reason (published error table),
    `description` its words. 0 for what an answer left out. `call`: what was asked (`STREAM.INFO.ORDERS`), empty where
    it was no call of the API.
    """

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.err_code = err_code
        self.description = description
        self.call = ""

    def __str__(self) -> str:
        call = f"{self.call}, " if self.call else ""
        return f"{self.description} ({call}code {self.code}, err_code {self.err_code})"


class NotFound(ApiError):
    """What was asked for is not there."""


class StreamNotFound(NotFound):
    """There is no stream of this name."""


class BucketNotFound(StreamNotFound):
    """There is no such bucket or object store: no stream is behind its name."""

    def __init__(self, what: str, bucket: str) -> None:
        super().__init__(404, 10059, f"there is no {what} {bucket!r}")

    def __str__(self) -> str:
        return self.description


class ConsumerNotFound(NotFound):
    """The stream has no consumer of this name."""


class MessageNotFound(NotFound):
    """The stream has no such message."""


class NameInUse(ApiError):
    """A stream or consumer of this name is there already, with another configuration."""


class WrongLastSequence(ApiError):
    """A publish expected another last sequence than the stream has: somebody else was faster. Nothing was stored."""


class TemporarilyUnavailable(ApiError):
    """The server cannot answer now: no leader, or what is asked about is offline. Later it may."""


class JetStreamUnavailable(NoResponders):
    """Nobody answers the JetStream API: it is not enabled, or the domain is unknown here."""


class PullRefused(JetStreamError):
    """The server turned a pull request down, or ended it: `status` and `description` are its words (ADR-13)."""

    def __init__(self, consumer: str, status: int, description: str) -> None:
        super().__init__(f"consumer {consumer}: {description} (status {status})")
        self.status = status
        self.description = description


class ConsumerDeleted(PullRefused):
    """The consumer was removed while messages were awaited."""


OUTAGE = (NoResponders, TimedOut, ConnectionLost, TemporarilyUnavailable)
"""What says nothing about whether the thing asked for exists: who waits for it goes on waiting."""

_BY_CODE: dict[int, type[ApiError]] = {
    10004: TemporarilyUnavailable,
    10008: TemporarilyUnavailable,
    10009: TemporarilyUnavailable,
    10013: NameInUse,
    10014: ConsumerNotFound,
    10037: MessageNotFound,
    10058: NameInUse,
    10059: StreamNotFound,
    10071: WrongLastSequence,
    10118: TemporarilyUnavailable,
    10119: TemporarilyUnavailable,
    10148: NameInUse,
    10149: ConsumerNotFound,
    10163: TemporarilyUnavailable,
    10164: WrongLastSequence,
}


def api_error(code: int, err_code: int, description: str) -> ApiError:
    """The exception for an error of an answer."""
    kind = _BY_CODE.get(err_code, NotFound if code == 404 else ApiError)
    return kind(code, err_code, description)
