"""What a backup of a stream holds, whichever form it has: the items that readers of archives hand out."""

from __future__ import annotations

from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.jetstream.consumer.state import ConsumerState
from tnats.records import frozen


class BadArchive(Exception):
    """An archive that cannot be restored; the text says what is wrong with it."""


@frozen
class Bounds:
    """Which sequences the stream has used. `last_time_ns`: 0 for none."""

    first_seq: int
    last_seq: int
    last_time_ns: int


@frozen
class ArchivedConsumer:
    """A consumer and where it stands."""

    name: str
    config: ConsumerConfig
    state: ConsumerState


@frozen
class ArchivedMessage:
    """A message. `headers` is the whole header block, or empty."""

    seq: int
    time_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


@frozen
class Removal:
    """A message that stood further ahead in the archive was removed."""

    seq: int


Item = Bounds | ArchivedConsumer | ArchivedMessage | Removal
