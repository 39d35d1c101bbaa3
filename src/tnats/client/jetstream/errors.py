"""What JetStream can answer instead of what was asked for. All beneath `tnats.client.ClientError`."""

from __future__ import annotations

from tnats.client.errors import ClientError, ConnectionLost, NoResponders, TimedOut
from tnats.jetstream.api import errors


class JetStreamError(ClientError):
    """Root of this package's errors."""


class ApiError(JetStreamError):
    """The server refused a request.

    `code` as in HTTP (404, 503 ...), `err_code` the server's own number of the reason (published error table),
    `description` its words. 0 for what an answer left out. `call`: what was refused (`STREAM.INFO.ORDERS`, `publish on
    'orders.new'`).
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
        missing = errors.STREAM_NOT_FOUND
        super().__init__(missing.code, missing.err_code, f"there is no {what} {bucket!r}")

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
    errors.CLUSTER_INCOMPLETE.err_code: TemporarilyUnavailable,
    errors.CLUSTER_NOT_AVAIL.err_code: TemporarilyUnavailable,
    errors.CLUSTER_NOT_LEADER.err_code: TemporarilyUnavailable,
    errors.STREAM_OFFLINE.err_code: TemporarilyUnavailable,
    errors.CONSUMER_OFFLINE.err_code: TemporarilyUnavailable,
    errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY.err_code: TemporarilyUnavailable,
    errors.STREAM_NOT_FOUND.err_code: StreamNotFound,
    errors.CONSUMER_NOT_FOUND.err_code: ConsumerNotFound,
    errors.CONSUMER_DOES_NOT_EXIST.err_code: ConsumerNotFound,
    errors.NO_MESSAGE_FOUND.err_code: MessageNotFound,
    errors.STREAM_NAME_EXIST.err_code: NameInUse,
    errors.CONSUMER_NAME_EXIST.err_code: NameInUse,
    errors.CONSUMER_ALREADY_EXISTS.err_code: NameInUse,
    errors.STREAM_WRONG_LAST_SEQUENCE.err_code: WrongLastSequence,
    errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.err_code: WrongLastSequence,
}


def api_error(code: int, err_code: int, description: str, call: str) -> ApiError:
    """The exception for an error of the answer to `call`."""
    kind = _BY_CODE.get(err_code, NotFound if code == 404 else ApiError)
    refusal = kind(code, err_code, description)
    refusal.call = call
    return refusal
