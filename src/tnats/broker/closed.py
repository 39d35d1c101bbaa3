"""The last connections that were closed, for /connz?state=closed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Record = TypeVar("Record")


class ClosedRing(Generic[Record]):
    """Keeps the newest `count_max` records; `total` counts all that were ever added."""

    __slots__ = ("_records", "total")

    def __init__(self, count_max: int) -> None:
        self._records: deque[Record] = deque(maxlen=count_max)
        self.total = 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        """Oldest first."""
        return iter(self._records)

    def add(self, record: Record) -> None:
        self._records.append(record)
        self.total += 1
