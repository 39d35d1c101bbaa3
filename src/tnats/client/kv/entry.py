"""One value of a key, at one revision."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from tnats.client.jetstream.delivery import Delivery, StoredMessage
from tnats.client.jetstream.errors import JetStreamError
from tnats.records import frozen

OPERATION_HEADER = "KV-Operation"
MARKER_HEADER = "Nats-Marker-Reason"


class Operation(enum.Enum):
    """What was done to the key."""

    PUT = "PUT"
    DELETE = "DEL"
    PURGE = "PURGE"


@frozen
class Entry:
    """A key at one revision. `created_ns`: since the Unix epoch. `delta`: how many newer ones were to be read."""

    bucket: str
    key: str
    value: bytes
    revision: int
    created_ns: int
    operation: Operation
    delta: int = 0

    @property
    def is_live(self) -> bool:
        """Whether this is a value, and not the mark of a removal."""
        return self.operation is Operation.PUT


class KeyNotFound(JetStreamError):
    """The key has no value."""


class KeyDeleted(KeyNotFound):
    """The key has been removed: `entry` is the mark of that."""

    def __init__(self, text: str, entry: Entry) -> None:
        super().__init__(text)
        self.entry = entry


class KeyExists(JetStreamError):
    """`create` found a value."""


_MARKERS = {"MaxAge": Operation.PURGE, "Purge": Operation.PURGE, "Remove": Operation.DELETE}
"""What a marker that the server or another client left says of the key (ADR-48)."""

_OPERATIONS = {"DEL": Operation.DELETE, "PURGE": Operation.PURGE}


def operation_of(headers: Mapping[str, Sequence[str]] | None) -> Operation:
    """What a message of a bucket's stream does to its key."""
    if not headers:
        return Operation.PUT
    if OPERATION_HEADER in headers:
        return _OPERATIONS.get(headers[OPERATION_HEADER][0], Operation.PUT)
    if MARKER_HEADER in headers:
        return _MARKERS.get(headers[MARKER_HEADER][0], Operation.PUT)
    return Operation.PUT


def from_stored(bucket: str, key: str, message: StoredMessage) -> Entry:
    """The entry that a read message is."""
    operation = operation_of(message.headers)
    return Entry(bucket, key, message.data, message.sequence, message.time_ns, operation)


def from_delivery(bucket: str, key: str, message: Delivery) -> Entry:
    """The entry that a delivered message is."""
    place = message.metadata
    operation = operation_of(message.headers)
    return Entry(bucket, key, message.data, place.stream_sequence, place.time_ns, operation, place.pending_count)
