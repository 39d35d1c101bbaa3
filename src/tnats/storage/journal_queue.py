"""What waits for the journal to write it: appends in line, and the batches that are made of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import attrs

from tnats.limits import JOURNAL_BATCH_BYTES_MAX, JOURNAL_QUEUE_BYTES_MAX, JOURNAL_QUEUE_SPARE_BYTES
from tnats.records import define
from tnats.storage import hot
from tnats.storage.errors import StoreBusy
from tnats.storage.group import Group, Ticket


@define(eq=False)
class Append:
    """Records that an owner put in line at once."""

    group: Group
    records: list[hot.Record]
    size: int
    """Bytes that they take at most."""
    ticket: Ticket
    on_durable: Callable[[], None] | None
    left: int
    """Room that it has to leave: see `journal_part`."""
    sequence: int
    """The highest that it gives to messages, 0 for none: above the lease, it is durable before it is acknowledged."""
    lease: int
    """The group's lease once this is durable; 0: as it is."""


@define(eq=False)
class Batch:
    """What is written and synced in one go."""

    appends: list[Append]
    size: int
    records: list[hot.Record]
    offsets: list[int] = attrs.field(factory=list)
    """Where the records stand, once they are written."""

    @property
    def left(self) -> int:
        return max(append.left for append in self.appends)

    @property
    def is_beyond_lease(self) -> bool:
        return is_beyond_lease(self.appends)

    @property
    def extensions(self) -> list[Append]:
        """Those that extend a lease."""
        return [append for append in self.appends if append.lease]


class AppendQueue:
    """Bounded: from JOURNAL_QUEUE_BYTES_MAX on publishers are told to wait; JOURNAL_QUEUE_SPARE_BYTES more is refused,
    whatever the size of one append.
    """

    def __init__(self) -> None:
        self._appends: deque[Append] = deque()
        self.bytes = 0
        self.put_count = 0
        """Of all that was ever put in line."""

    def __bool__(self) -> bool:
        return bool(self._appends)

    @property
    def is_beyond_lease(self) -> bool:
        return is_beyond_lease(self._appends)

    @property
    def is_busy(self) -> bool:
        """Whether who can wait is to be told so."""
        return self.bytes >= JOURNAL_QUEUE_BYTES_MAX

    def put(self, append: Append) -> None:
        """Put in line. Raises StoreBusy."""
        bytes_max = JOURNAL_QUEUE_BYTES_MAX + JOURNAL_QUEUE_SPARE_BYTES
        if self._appends and self.bytes + append.size > bytes_max:
            raise StoreBusy(f"{self.bytes} bytes wait for the journal (limit {bytes_max})")
        self._appends.append(append)
        self.put_count += 1
        self.bytes += append.size

    def take(self) -> Batch:
        """The first in line, as many as go into one batch."""
        waiting = self._appends
        appends: list[Append] = []
        records: list[hot.Record] = []
        size = 0
        while waiting and (not appends or size + waiting[0].size <= JOURNAL_BATCH_BYTES_MAX):
            append = waiting.popleft()
            size += append.size
            records += append.records
            appends.append(append)
        self.bytes -= size
        return Batch(appends, size, records)

    def take_all(self) -> list[Append]:
        """All that waits."""
        appends = list(self._appends)
        self._appends.clear()
        self.bytes = 0
        return appends


def is_beyond_lease(appends: Iterable[Append]) -> bool:
    """Whether any uses a sequence above its group's lease."""
    return any(append.sequence > append.group.state.leased for append in appends)
