"""The interface of a stream's message store, which `StreamLog` (files) and `MemoryLog` share.

A log stores what its stream decided: sequences, times and removals come from committed entries, and every call is
idempotent under replay of these entries in order. `index` answers every question that needs no message content.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol

from tnats.records import define
from tnats.storage.errors import StorageError
from tnats.storage.group import Group
from tnats.storage.index import MessageIndex
from tnats.storage.record import Finding


@define
class Message:
    """One stored message. `headers` is the whole header block, or empty."""

    sequence: int
    time_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


Stored = tuple[int, int, bytes, bytes, bytes]
"""The same as a tuple: sequence, time, subject, header block, payload."""

Content = tuple[bytes, bytes, bytes]
"""Subject, header block, payload."""


class MessageLog(Protocol):
    """A stream's messages. One task appends, removes and checkpoints; any task may read."""

    @property
    def index(self) -> MessageIndex:
        """For reading only."""

    @property
    def last_time_ns(self) -> int:
        """Time of the message with the highest sequence that was ever appended; 0 when none was."""

    @property
    def trouble(self) -> StorageError | None:
        """Why the log should be given nothing more: StoreFull (passes) or StoreFrozen (until restart)."""

    @property
    def findings(self) -> list[Finding]:
        """What opening and reading brought to light."""

    @property
    def unreadable(self) -> dict[int, None]:
        """Live messages that a read could not read."""

    is_packing: bool
    """Whether files are to be compressed once nothing more is appended to them."""

    def size_of(self, subject: bytes, headers: bytes, payload: bytes) -> int:
        """What a message counts toward `bytes`, as NATS counts it for this kind of storage."""

    async def append(self, messages: Sequence[Message]) -> None:
        """Store committed messages, sequences ascending. Those that are there or were removed are passed over.

        Sequences that are jumped over count as lost: `skip` says otherwise. Never fails: what cannot be written
        stays in memory, `trouble` says why, and `checkpoint` tries again.
        """

    @property
    def is_recovering(self) -> bool:
        """What is stored now was stored before: entries are replayed."""

    def hold_replayed(self, times_ns: array[int], messages: Sequence[Content]) -> None:
        """`hold_run` while entries are replayed, of any times. What stands in the files is not written again."""

    @property
    def unwritten_bytes(self) -> int:
        """Size of the messages that stand in memory only, until the next `write`."""

    def hold(self, messages: Iterable[Message]) -> None:
        """What `append` does at once: the messages count and can be read; `write` brings them to their files."""

    def hold_run(self, time_ns: int, messages: Sequence[Content]) -> None:
        """`hold` for new messages of one time, at least one, that take the sequences behind the last."""

    def write_nowait(self) -> bool:
        """Write what was held, or much of it, where that can be done without waiting; whether `write` has nothing left
        to do. Never fails, as `append`.
        """

    async def write(self) -> None:
        """Write what was held, and prepare for more. Never fails, as `append`."""

    def load_nowait(self, sequence: int) -> Message | None:
        """A live message if it can be had without waiting, else None.

        Raises KeyError when the sequence is not live, DataDamaged when it is lost or unreadable.
        """

    def load_run_nowait(self, sequences: Sequence[int]) -> list[Stored | None]:
        """Of several messages those, from the first on, that can be had without waiting; None for what is not live."""

    async def load(self, sequence: int) -> Message:
        """A live message. Raises as `load_nowait`, and DiskError."""

    def remove(self, sequences: Iterable[int], *, erase: bool = True) -> int:
        """Remove messages, or declare lost ones removed; returns how many were live. `erase` overwrites the content."""

    def raise_start(self, start: int) -> int:
        """Remove every message below `start`; returns how many. The next sequence is at least `start`."""

    def skip(self, first: int, last: int) -> None:
        """Count the sequences from `first` to `last` as used and, where no message is live, as removed."""

    async def checkpoint(self, group: Group) -> bytes:
        """Make everything durable; returns a note to be stored durably before `release`, ahead of anything else that
        the group gets. One at a time, with `release`.

        `group` is where all that was stored and removed was committed.

        Raises StoreFull, StoreFrozen.
        """

    async def release(self) -> None:
        """Free what the last checkpoint, whose note is durable, no longer needs. Raises StoreFrozen."""

    async def close(self) -> None:
        """Close files without making anything durable."""
