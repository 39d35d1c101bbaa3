"""The last connections that were closed, for /connz?state=closed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from tnats.limits import CLOSED_SUBSCRIPTIONS_MAX


class _Weighty(Protocol):
    @property
    def subscriptions_list(self) -> tuple[object, ...]: ...


Record = TypeVar("Record", bound=_Weighty)


class ClosedRing(Generic[Record]):
    """Keeps the newest `count_max` records, or fewer if they hold more than CLOSED_SUBSCRIPTIONS_MAX subscriptions.

    `total` counts all that were ever added.
    """

    __slots__ = ("_count_max", "_records", "_subscription_count", "total")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._records: deque[Record] = deque()
        self._subscription_count = 0
        self.total = 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        """Oldest first."""
        return iter(self._records)

    def add(self, record: Record) -> None:
        self._records.append(record)
        self._subscription_count += len(record.subscriptions_list)
        self.total += 1
        while len(self._records) > self._count_max or self._subscription_count > CLOSED_SUBSCRIPTIONS_MAX:
            self._subscription_count -= len(self._records.popleft().subscriptions_list)
