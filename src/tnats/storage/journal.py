"""The journal of a node: the entries of all groups, interleaved, and one sync at a time for everything in it.

A *group* is one log: a stream's, a consumer's, a Raft group's. Its owner appends entries and gets a `Ticket`; the
ticket is done when the entries are durable (with a sync interval: when they are in the page cache). Everything that
arrives while a sync is under way goes into the next one.

Theory of operation
-------------------
* The journal is a row of preallocated *parts* (`journal_parts`), of which the last is written (`journal_part`).
* A batch is written, synced, then promised: at once in a slot of the part's header area, and by the next batch, whose
  every record carries the durable offset. `recover.py` tells torn tails from damage by that promise.
* The task in `run` takes batch after batch. When it is idle and one append comes at a time, the appending task writes
  and begins the sync itself, and `run` finds it under way: a lone publisher waits for every task switch.
* A part is released when every group's floor is above the entries it holds. An owner raises its floor once it has put
  the entries' effects elsewhere, durably (a checkpoint). Entries of a lagging group can be written forward.
* After every start a new part is begun: nothing is ever written behind bytes of an unfinished write.

Errors
------
* A failed write or sync is sticky: the journal is frozen, all open tickets fail, so does everything later. Whether
  the entries survive is unknown until the next start. After a failed write, what had been written before is still
  synced when it is due; after a failed sync nothing is, since a second one may answer well and mean nothing.
* No space for a new part refuses the waiting entries and their successors in the queue, and nothing else: the next
  append tries again. The end of each part is reserved for what frees space: removals, and behind them checkpoints.
  Those go on when others are refused that wait with them.

The host runs `run` in its nursery, ends it with `close`, and calls `release` after checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import attrs
import trio

from tnats.limits import (
    JOURNAL_BATCH_BYTES_MAX,
    JOURNAL_PART_BYTES_MAX,
    JOURNAL_UNSYNCED_BYTES_MAX,
)
from tnats.records import define
from tnats.runtime.api import Buffer, Clock, DiskError
from tnats.storage import hot, record
from tnats.storage.errors import NO_SPACE, LogRemoved, StorageError, StoreFrozen, StoreFull
from tnats.storage.group import Group, Ticket
from tnats.storage.group_table import GroupTable
from tnats.storage.journal_part import LEFT_BY_OTHERS, JournalPart
from tnats.storage.journal_parts import JournalParts
from tnats.storage.journal_queue import Append, AppendQueue, Batch
from tnats.storage.recover import PartSummary, Recovery

RECORD_BYTES_MORE_MAX = hot.HEADER_SIZE + 8
"""A record takes at most so much more than its key, head and body; and SEALED_BYTES_MAX if it is encrypted."""


@define
class JournalOptions:
    part_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=attrs.validators.le(JOURNAL_PART_BYTES_MAX))
    sync_interval_ns: int = 0
    """0: entries are acknowledged when durable. Otherwise at once, and power loss may take the last interval."""


class Journal:
    """See the module. Made by `open_journal`."""

    def __init__(
        self, parts: JournalParts, clock: Clock, options: JournalOptions, recovery: Recovery, *, is_encrypted: bool
    ) -> None:
        self.parts = parts
        self.directory = parts.directory
        self._clock = clock
        self._options = options
        self._bytes_more_max = RECORD_BYTES_MORE_MAX + (record.SEALED_BYTES_MAX if is_encrypted else 0)
        self._groups = GroupTable(recovery, lambda state: Group(self, state))
        self.damaged_bytes = recovery.damaged_bytes
        """How much of the journal could not be read when it was opened."""
        self.was_empty = not recovery.parts
        """No part stood there when the journal was opened."""
        self.frozen: StoreFrozen | None = None
        self.full: StoreFull | None = None
        """Why the last write that may not use the reserve was refused."""
        self._filled = trio.Event()
        self._rolled = trio.Event()
        self._is_looking = False
        """Somebody asks whether there is room again."""
        self._queue = AppendQueue()
        self._work = trio.Event()
        self._closing = False
        self._is_writing = False
        """A batch is on its way, up to its last ticket: nothing may be written before that, so tickets end in order."""
        self._under_way: Batch | None = None
        """Written, and its sync is begun and not awaited yet."""
        self._leases: list[Append] = []
        """Extensions that are written, and not yet on their way to being durable."""
        self._leases_syncing: list[Append] = []
        self._batch_count = 0
        """How many appends the last batch was of."""
        self._ended_count = 0
        """Of all appends that were ever put in line."""
        self._sync_at_ns = 0
        """When the first unsynced entry must be durable, with a sync interval."""
        self._flushed: trio.Event | None = None
        """Somebody waits for a flush; set when there is something new to see."""
        self.run_pass: Callable[[Callable[[], None]], None] = _call
        """Calls what resolves the tickets of a batch that was waited for: what comes of them can go out at once."""
        self.sync_count = 0

    def mono_ns(self) -> int:
        """The time by which groups measure how fast they use their leases."""
        return self._clock.mono_ns()

    @property
    def findings(self) -> list[record.Finding]:
        """What opening and reading brought to light."""
        return self.parts.findings

    # -------------------------------------------------------------- groups

    def group(self, name: str) -> Group:
        """The group of this name; made if it is new (durable with its first entry)."""
        return self._groups.group(name)

    @property
    def has_nameless(self) -> bool:
        """Whether there are entries of a group whose name is lost."""
        return self._groups.has_nameless

    def knows(self, name: str) -> bool:
        """Whether there is a group of this name."""
        return self._groups.knows(name)

    def has_dropped(self, number: int) -> bool:
        """Whether there was a group of this number that is no more; False where nothing is known of it."""
        return self._groups.has_dropped(number)

    def adopt(self, number: int, name: str) -> None:
        """Take up a group that the journal has lost, under the number that its other files carry."""
        self._groups.adopt(number, name)

    @property
    def groups(self) -> list[Group]:
        """All groups with a known name, in the order of their making."""
        return self._groups.named

    # -------------------------------------------------------------- appending

    def enqueue(
        self,
        group: Group,
        records: list[hot.Record],
        callback: Callable[[Ticket], None] | None,
        on_durable: Callable[[], None] | None = None,
        *,
        left: int = LEFT_BY_OTHERS,
        wake: bool = True,
        sequence: int = 0,
        lease: int = 0,
    ) -> Ticket:
        """Put records in line for the next batch; `run` is told of it with `wake`.

        Of a group that takes leases: the highest `sequence` that they use, or the `lease` that they extend it to.

        Raises StoreFrozen, LogRemoved.
        """
        if self.frozen is not None:
            raise self.frozen
        if group.is_dropped:
            raise LogRemoved(f"log {group.name} in {self.directory} is removed")
        size = 0
        for _, _, _, _, key, head, body in records:
            size += len(key) + len(head) + len(body) + self._bytes_more_max
        ticket = Ticket(callback)
        self._queue.put(Append(group, records, size, ticket, on_durable, left, sequence, lease))
        if wake:
            self._work.set()
        return ticket

    def write_nowait(self) -> None:
        """Write what waits in the caller's task, which saves a task switch; `run` does it soon if that cannot be done.

        With a sync interval it is acknowledged then; without one, its sync is begun if the last batch was a lone
        append too: else this one waits for what others are about to append.
        """
        part = self.parts.current
        interval_ns = self._options.sync_interval_ns
        if (
            self._is_writing
            or part is None
            or self.frozen is not None
            or self._closing
            or self._queue.bytes > min(JOURNAL_BATCH_BYTES_MAX, part.room(LEFT_BY_OTHERS))
            or (self._queue.is_beyond_lease if interval_ns else self._batch_count > 1)
        ):
            self._work.set()
            return
        if not part.is_dirty:
            self._work.set()  # `run` has to await the sync, or to begin it after the interval
        self._is_writing = True
        self._write(part, self._take_batch())
        self._is_writing = self._under_way is not None

    def write_entry_nowait(self, group: Group, body: Buffer) -> bool:
        """With a sync interval, and nothing in line: write one entry in the caller's task, with no ticket for it.

        False if that cannot be done: then nothing has happened.
        """
        part = self.parts.current
        state = group.state
        if (
            not self._options.sync_interval_ns
            or part is None
            or self._queue
            or self._is_writing
            or self._closing
            or self.frozen is not None
            or not state.state_at
            or group.is_dropped
            or len(body) + self._bytes_more_max > part.room(LEFT_BY_OTHERS)
        ):
            return False
        index = group.proposed + 1
        if not part.is_dirty:
            self._work.set()  # `run` has to sync after the interval
        try:
            offsets = self._put(part, [(record.ENTRY, state.number, index, 0, b"", b"", body)])
        except StorageError:
            return False  # whoever is next in line meets it too
        state.add(index, part.summary.number << 32 | offsets[0])
        part.summary.tops[state.number] = index
        group.proposed = index
        return True

    def _take_batch(self) -> Batch:
        batch = self._queue.take()
        self._batch_count = len(batch.appends)
        return batch

    @property
    def is_busy(self) -> bool:
        """Whether so much waits that who can wait is to be told so."""
        return self._queue.is_busy

    @property
    def grants_leases(self) -> bool:
        """Whether sequences may be used that a loss of power can take the knowledge of."""
        return self._options.sync_interval_ns > 0

    def _write(self, part: JournalPart, batch: Batch) -> None:
        """Write a batch for which there is room. It is done if it need not be durable, else its sync is begun."""
        try:
            batch.offsets = self._put(part, batch.records)
            if batch.extensions:
                self._leases += batch.extensions
                self._work.set()
            if not self.grants_leases or batch.is_beyond_lease:
                self._begin_sync(part)
                self._under_way = batch
                return
        except StorageError as exc:
            self._refuse(batch, exc)
            return
        self._announce(batch)
        self._complete(part, batch)

    def _put(self, part: JournalPart, records: list[hot.Record]) -> list[int]:
        """Put records behind the others of a part; their file offsets. Raises StoreFull, StoreFrozen."""
        if not part.is_dirty:
            self._sync_at_ns = self._clock.mono_ns() + self._options.sync_interval_ns
        try:
            offsets = part.write(records)
        except DiskError as exc:
            if exc.errno not in NO_SPACE:
                raise self._freeze(exc) from exc
            full = StoreFull(f"journal {self.directory}: {exc}")
            full.may_have_written = True
            raise full from exc
        if part.end - part.durable >= JOURNAL_UNSYNCED_BYTES_MAX:
            self._work.set()
        return offsets

    def _announce(self, batch: Batch) -> None:
        for append in batch.appends:
            if append.on_durable is not None:
                append.on_durable()

    def _complete(self, part: JournalPart, batch: Batch) -> None:
        """A batch is as durable as was asked for."""
        if self.full is not None and batch.left == LEFT_BY_OTHERS:
            self.full = None
        self._groups.note(part.summary, batch.records, batch.offsets)
        self._ended_count += len(batch.appends)
        for append in batch.appends:
            append.ticket.resolve()

    def _refuse(self, batch: Batch, error: StorageError) -> None:
        """Refuse a batch and everything behind it, whose indexes rest on it."""
        if isinstance(error, StoreFull):
            self.full = error
            self._filled.set()
            if batch.left == LEFT_BY_OTHERS:
                self._rolled.set()  # a checkpoint may make room
        refused = [*batch.appends, *self._queue.take_all()]
        self._ended_count += len(refused)
        for append in refused:
            append.group.refused()
        for append in refused:
            append.ticket.resolve(error)

    def _freeze(self, exc: DiskError) -> StoreFrozen:
        if self.frozen is None:
            self.frozen = StoreFrozen(
                f"journal {self.directory} takes no more writes until the server is restarted: {exc}"
            )
        return self.frozen

    # -------------------------------------------------------------- the writing task

    async def run(self) -> None:
        """Write batches until `close`. However it ends, no sync is under way behind it."""
        try:
            await self._write_batches()
        finally:
            self._closing = True
            if self._under_way is not None:
                await self._end_batch(self._under_way)

    async def _write_batches(self) -> None:
        while True:
            if self._under_way is not None:
                await self._end_batch(self._under_way)
            elif self._queue:
                await self._begin_batch()
            elif self._is_looking and not self._closing:
                await self._look_for_room()
            elif self._closing:
                await self._sync()
                self._tell_flushed()
                return
            else:
                await self._wait_for_work()
            if self._under_way is None:
                if self.is_dirty and (self._flushed is not None or self._is_due()):
                    await self._sync()
                self._tell_flushed()

    async def _wait_for_work(self) -> None:
        if self.is_dirty:
            with self._clock.deadline(self._sync_at_ns):
                await self._work.wait()
        else:
            await self._work.wait()
        self._work = trio.Event()
        if self._closing:
            self._work.set()

    async def _begin_batch(self) -> None:
        """Write what waits, in a new part if the current one has no room for it."""
        batch = self._take_batch()
        self._is_writing = True
        try:
            part = self.parts.current
            # What a batch has to leave is found out near the end of a part alone.
            if part is None or (batch.size > part.room(LEFT_BY_OTHERS) and batch.size > part.room(batch.left)):
                part = await self._roll(batch.size)
        except StoreFull as exc:
            self._free_space(batch)
            self._refuse(batch, exc)
        except StorageError as exc:
            self._refuse(batch, exc)
        else:
            self.run_pass(lambda: self._write(part, batch))
            if self._under_way is None:
                await trio.lowlevel.checkpoint()
        self._is_writing = self._under_way is not None

    def _free_space(self, batch: Batch) -> None:
        """There is no room for a new part: of what waits, take out of `batch` and write what frees space.

        All of that, or nothing: one may rest on another, as a removal on the acknowledgement that leads to it.
        """
        part = self.parts.current
        batch.appends += self._queue.take_all()
        freeing = [append for append in batch.appends if append.left < LEFT_BY_OTHERS]
        others = [append for append in batch.appends if append.left == LEFT_BY_OTHERS]
        refused = {append.group for append in others}
        if not freeing or part is None or any(append.group in refused for append in freeing):
            return
        size = sum(append.size for append in freeing)
        going = Batch(freeing, size, [each for append in freeing for each in append.records])
        if size <= part.room(going.left):
            batch.appends = others
            self.run_pass(lambda: self._write(part, going))

    async def _end_batch(self, batch: Batch) -> None:
        part = self.parts.current
        assert part is not None
        self._under_way = None
        is_synced = await self._wait_synced(part)
        if is_synced:
            self.run_pass(lambda: self._announce(batch))  # who waits hears of it before anything else is done
            self.run_pass(lambda: self._complete(part, batch))
        else:
            assert self.frozen is not None
            self._refuse(batch, self.frozen)
        self._is_writing = False

    # -------------------------------------------------------------- durability

    @property
    def is_dirty(self) -> bool:
        """Whether something is written that a sync would make durable."""
        part = self.parts.current
        return part is not None and part.is_dirty and not part.is_in_doubt

    def _is_due(self) -> bool:
        """Whether the interval is over, or a lease is to be extended, or so much was written that a start would take
        long to make sure of it.
        """
        part = self.parts.current
        assert part is not None
        return (
            self._clock.mono_ns() >= self._sync_at_ns
            or part.end - part.durable >= JOURNAL_UNSYNCED_BYTES_MAX
            or bool(self._leases)
        )

    async def _sync(self) -> None:
        """Make the current part durable and promise it. When that fails the journal is frozen."""
        part = self.parts.current
        if part is not None and self.is_dirty:
            with suppress(StoreFrozen):
                self._begin_sync(part)
                await self._wait_synced(part)

    def _begin_sync(self, part: JournalPart) -> None:
        """Raises StoreFrozen."""
        try:
            part.begin_sync()
        except DiskError as exc:
            raise self._freeze(exc) from exc
        self._leases, self._leases_syncing = [], self._leases

    async def _wait_synced(self, part: JournalPart) -> bool:
        try:
            await part.wait_synced()
        except DiskError as exc:
            self._freeze(exc)
            return False
        for append in self._leases_syncing:
            append.group.state.leased = append.lease
        self.sync_count += 1
        return True

    async def flush(self) -> None:
        """Return when everything appended so far is durable, whatever the sync interval. Raises StoreFrozen.

        What is appended meanwhile is not waited for: there may be no end to that.
        """
        put_count = self._queue.put_count
        await self._wait_until(lambda: self._ended_count >= put_count)
        part = self.parts.current
        if part is not None:
            end = part.end
            await self._wait_until(lambda: part.durable >= end)
        if self.frozen is not None:
            raise self.frozen

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition() and self.frozen is None:
            if self._flushed is None:
                self._flushed = trio.Event()
            self._work.set()
            await self._flushed.wait()

    def _tell_flushed(self) -> None:
        if self._flushed is not None:
            self._flushed.set()
            self._flushed = None

    def close(self) -> None:
        """Let `run` write what waits, sync, and end."""
        self._closing = True
        self._work.set()

    # -------------------------------------------------------------- parts

    async def begin(self) -> None:
        """Write the first part of this run: the table, where the last part ends, and what is carried over from it.

        If there is no room for it, reads go on, and the first append tries again. Raises StoreFull for a new journal,
        StoreFrozen, DiskError.
        """
        try:
            await self._roll(0)
        except StoreFull:
            if self.was_empty:
                raise

    async def _roll(self, size: int) -> JournalPart:
        """Begin a new part with room for `size` bytes. Raises StoreFull, StoreFrozen."""
        await self._sync()
        if self.frozen is not None:
            raise self.frozen
        is_first = self.parts.current is None
        try:
            part = await self.parts.roll(size, self._groups)
        except DiskError as exc:
            raise self._freeze(exc) from exc
        if not is_first:
            self._rolled.set()
        return part

    async def wait_filled(self) -> None:
        """Return when there was no room for a write since the last call."""
        await self._filled.wait()
        self._filled = trio.Event()

    async def wait_rolled(self) -> None:
        """Return when a part was filled, or there was no room for one, since the last call."""
        await self._rolled.wait()
        self._rolled = trio.Event()

    def look_for_room(self) -> None:
        """Have `run` find out whether there is room again, by beginning a new part; beside no batch, which would be
        refused with it.
        """
        self._is_looking = True
        self._work.set()

    async def _look_for_room(self) -> None:
        self._is_looking = False
        self._is_writing = True
        try:
            await self._roll(0)
            self.full = None
        except StoreFull as exc:
            self.full = exc
            self._rolled.set()  # a checkpoint may make room
        except StoreFrozen:
            pass  # whoever is next in line meets it too
        self._is_writing = False

    @property
    def old_parts(self) -> Sequence[PartSummary]:
        """Parts before the current one, oldest first."""
        return self.parts.old

    def needing(self, part: PartSummary) -> list[Group]:
        """The groups that still have entries in `part`."""
        return self._groups.needing(part)

    async def release(self) -> int:
        """Remove the oldest parts whose entries nobody needs; returns how many. Raises StoreFull, StoreFrozen."""
        number = 0
        for part in self.old_parts:
            if self.needing(part):
                break
            number = part.number
        if not number:
            return 0
        await self.flush()  # with a sync interval, what says that nobody needs them may not be durable yet
        try:
            return await self.parts.release(number)
        except DiskError as exc:
            if exc.errno in NO_SPACE:  # a damaged part is set aside
                raise StoreFull(f"journal {self.directory}: {exc}") from exc
            raise self._freeze(exc) from exc

    async def write_forward(self, group: Group, part: PartSummary) -> Ticket:
        """Write the entries that `group` still has in `part` into the current part, so that `part` can go."""
        records: list[hot.Record] = []
        for index in range(group.floor + 1, min(part.tops.get(group.state.number, 0), group.last) + 1):
            if group.state.place(index) >> 32 == part.number:
                entry = await group.read(index)
                records.append((record.ENTRY, group.state.number, index, entry.stamp, b"", b"", entry.body))
        ticket = self.enqueue(group, records, None)
        await ticket.wait()
        part.tops.pop(group.state.number, None)
        return ticket


def _call(work: Callable[[], None]) -> None:
    work()
