"""What was published and cannot be admitted yet, in the order in which it came."""

from __future__ import annotations

from collections import deque

from tnats.jetstream.stream.ports import Inbound


class IngestLine:
    """Batches, with how many messages and bytes they are."""

    __slots__ = ("_batches", "bytes", "msgs")

    def __init__(self) -> None:
        self._batches: deque[list[Inbound]] = deque()
        self.msgs = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def first(self) -> list[Inbound]:
        """The batch whose turn is next."""
        return self._batches[0]

    def put(self, batch: list[Inbound]) -> None:
        """Let a batch wait behind all others."""
        self._batches.append(batch)
        self.msgs += len(batch)
        self.bytes += _bytes_of(batch)

    def take(self) -> list[Inbound]:
        """Take the first batch out."""
        batch = self._batches.popleft()
        self.msgs -= len(batch)
        self.bytes -= _bytes_of(batch)
        return batch


def _bytes_of(batch: list[Inbound]) -> int:
    return sum([len(message.data) for message in batch])
