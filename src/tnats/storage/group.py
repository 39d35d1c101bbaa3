"""A group: one log of the journal, as its owner handles it; and the ticket that an append gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from tnats.runtime.api import Buffer
from tnats.storage import hot, record
from tnats.storage.errors import StorageError
from tnats.storage.journal_part import LEFT_BY_CHECKPOINTS, LEFT_BY_GAPS, LEFT_BY_OTHERS, LEFT_BY_REMOVALS
from tnats.storage.lease import LeasePace
from tnats.storage.ranges import without
from tnats.storage.recover import GroupState

if TYPE_CHECKING:
    from tnats.storage.journal import Journal


class Ticket:
    """The outcome of one append. `callback`, if given, is called once, from the journal's task."""

    __slots__ = ("_event", "callback", "done", "error")

    def __init__(self, callback: Callable[[Ticket], None] | None = None) -> None:
        self.done = False
        self.error: StorageError | None = None
        self.callback = callback
        self._event: trio.Event | None = None

    async def wait(self) -> None:
        """Return when the entries are durable; raise the StorageError that prevented it."""
        if not self.done:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        if self.error is not None:
            raise self.error

    def resolve(self, error: StorageError | None = None) -> None:
        """Set the outcome and wake the waiters."""
        self.done = True
        self.error = error
        if self._event is not None:
            self._event.set()
        if self.callback is not None:
            self.callback(self)


class Group:
    """An owner's handle on one log of the journal. Indexes start at 1."""

    def __init__(self, journal: Journal, state: GroupState) -> None:
        self._journal = journal
        self.state = state
        self.proposed = state.last
        """Index of the last entry that was appended, written or not."""
        self.is_dropped = False
        """Its removal is on its way, or done."""
        self._pace = LeasePace(state.leased)

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def floor(self) -> int:
        return self.state.floor

    @property
    def last(self) -> int:
        """Index of the last entry that is written."""
        return self.state.last

    @property
    def note(self) -> bytes:
        """What the owner stored with the floor."""
        return self.state.note

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Ranges (first, last) of indexes that cannot be read."""
        return self.state.lost

    def append_nowait(
        self,
        bodies: Sequence[Buffer],
        *,
        term: int = 0,
        callback: Callable[[Ticket], None] | None = None,
        on_durable: Callable[[], None] | None = None,
        frees_space: bool = False,
        wake: bool = True,
        sequence: int = 0,
    ) -> Ticket:
        """Append entries behind `proposed`; each is whole or absent after a crash, and none without those before it.

        `on_durable` is called as soon as they are what the ticket says, before anything is done that this leads to.

        `frees_space` is for entries that remove something: they may use some of the part's reserve, so that a full
        disk can be emptied. Who does not `wake` the journal calls `Journal.write_nowait` next. `sequence` is the
        highest that the entries give to messages: no other message gets it, whatever a loss of power takes (see
        `lease`).

        Raises StoreFrozen, StoreBusy.
        """
        if sequence > self._pace.extend_above and self._journal.grants_leases:
            self._extend_lease(sequence)
        first = self.proposed + 1
        number = self.state.number
        records: list[hot.Record] = [
            (record.ENTRY, number, first + offset, term, b"", b"", body) for offset, body in enumerate(bodies)
        ]
        if not self.state.state_at:
            records.insert(0, self.state.record(0, self.proposed, b""))
        ticket = self._journal.enqueue(
            self,
            records,
            callback,
            on_durable,
            left=LEFT_BY_REMOVALS if frees_space else LEFT_BY_OTHERS,
            wake=wake,
            sequence=sequence,
        )
        self.proposed += len(bodies)
        return ticket

    def write_nowait(self, body: Buffer, *, sequence: int = 0) -> bool:
        """With a sync interval: append one entry and write it here and now, as `append_nowait` and a done ticket do.

        False if that cannot be done: then nothing has happened, and `append_nowait` says why.
        """
        if sequence > self._pace.extend_above or sequence > self.state.leased:
            return False
        return self._journal.write_entry_nowait(self, body)

    def _extend_lease(self, sequence: int) -> None:
        lease = self._pace.extend(sequence, self._journal.mono_ns())
        records: list[hot.Record] = [(record.LEASE, self.state.number, lease, 0, b"", b"", b"")]
        if not self.state.state_at:
            records.insert(0, self.state.record(0, self.proposed, b""))
        self._journal.enqueue(self, records, None, lease=lease)

    def refused(self) -> None:
        """Nothing of what is proposed and not written will be."""
        self.proposed = self.last
        self.is_dropped = False
        self._pace.refused(self.state.leased)

    def set_state_nowait(self, floor: int, note: bytes) -> Ticket:
        """Forget the entries up to `floor`, whose effects are durable elsewhere, and keep `note` with it."""
        records = [self.state.record(floor, self.proposed, note)]
        return self._journal.enqueue(self, records, None, left=LEFT_BY_CHECKPOINTS)

    async def flush(self) -> None:
        """See `Journal.flush`."""
        await self._journal.flush()

    async def keep_gaps(self, gaps: list[tuple[int, int]]) -> None:
        """`flush`, and keep these ranges of removed sequences, in order, all or none, until the next state is set.

        Raises StoreFull, StoreFrozen.
        """
        untold = without(gaps, self.state.gaps)
        if untold:
            await self._journal.enqueue(self, self.state.gap_records(untold), None, left=LEFT_BY_GAPS).wait()
        await self.flush()

    def drop_nowait(self) -> Ticket:
        """Remove the group."""
        drop: hot.Record = (record.DROP, self.state.number, 0, 0, b"", b"", b"")
        ticket = self._journal.enqueue(self, [drop], None, left=LEFT_BY_GAPS)
        self.is_dropped = True  # a checkpoint written behind the removal would bring the group back
        return ticket

    async def read_run(self) -> dict[int, tuple[int, Buffer]]:
        """Term and body of every entry that can be read as it stands, by index. Raises DiskError."""
        return await self._journal.parts.read_run(self.state)

    async def read(self, index: int) -> record.Record:
        """Entry `index` (stamp: term). Raises DataDamaged, DiskError, KeyError (gone, or not written yet)."""
        return await self._journal.parts.read(self.state, index)
