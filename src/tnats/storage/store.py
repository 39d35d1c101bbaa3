"""A node's store: its journal, and the stream logs on it.

Layout of the store directory:

| name | content |
|---|---|
| `tnats.lock` | advisory lock: one server at a time |
| `tnats/identity` | random store id, in two copies; every header of every file carries it |
| `tnats/marker` | boot id and whether the last run ended cleanly |
| `tnats/used` | spare copy of which sequences each stream has used |
| `tnats/journal/` | journal parts |
| `tnats/streams/<group number>/` | segments of one stream |
| `.../quarantine/` | damaged or foreign files that are not needed any more; nothing here is ever read or removed |

The store's task (`run`) keeps the journal short: when a part is full it has the groups that hold it back checkpointed
by their owners, and writes forward what ownerless groups still need.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import trio

from tnats.limits import LEASE_SEQUENCES_MAX, SECOND_NS
from tnats.records import define, frozen
from tnats.runtime.api import Clock, DirectoryLock, Disk, DiskError
from tnats.storage.commit_log import LocalLog
from tnats.storage.encryption import Encryption
from tnats.storage.errors import DataDamaged, LogRemoved, StorageError, StoreFrozen, StoreFull
from tnats.storage.group import Group
from tnats.storage.journal import Journal, JournalOptions
from tnats.storage.marker import RunMarker
from tnats.storage.record import Finding, alarms
from tnats.storage.recover import ENTRY_SIZE_MIN, MISSING_PART_BYTES, PartSummary
from tnats.storage.store_directory import remove_directory
from tnats.storage.stream_checkpoint import NOTE
from tnats.storage.stream_log import StreamLog, StreamLogOptions
from tnats.storage.stream_open import open_stream_log
from tnats.storage.used import Used, UsedSequences

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing

STORE_FULL_LOOK_NS = 2 * SECOND_NS


@define
class StoreOptions:
    journal: JournalOptions = attrs.field(factory=JournalOptions)
    streams: StreamLogOptions = attrs.field(factory=StreamLogOptions)
    encryption: Encryption | None = None


@frozen
class StorePlace:
    """Where a store stands, and what its files are made with."""

    disk: Disk
    clock: Clock
    entropy: Callable[[int], bytes]
    root: str
    store_id: bytes
    keys: KeyRing | None


@define
class OpenStream:
    """One stream's commit log and message log; the owner applies the entries of the one to the other."""

    name: str
    commit: LocalLog
    log: StreamLog
    applied: int
    """Index of the last entry applied to `log`: kept up by the owner."""

    _checkpointing: trio.Lock = attrs.field(factory=trio.Lock)

    async def checkpoint(self) -> None:
        """Let the journal forget what is applied. Raises StorageError."""
        async with self._checkpointing:  # the owner and the store may both want one
            applied, group = self.applied, self.commit.group
            note = await self.log.checkpoint(group)
            if applied > self.commit.floor or not self.commit.note:  # no file goes before a note says where all begins
                await self.commit.checkpointed(applied, note).wait()
                await group.flush()  # with a sync interval the note is not durable yet
            await self.log.release()


class Store:
    """See the module. Made by `open_store`; `close` it after `run` was cancelled or has returned."""

    def __init__(
        self,
        place: StorePlace,
        options: StoreOptions,
        lock: DirectoryLock,
        marker: RunMarker,
        used: UsedSequences,
        journal: Journal,
        adopted: set[str],
        findings: list[Finding],
    ) -> None:
        self._place = place
        self._options = options
        self._lock = lock
        self._marker = marker
        self._used = used
        self.journal = journal
        self._adopted = adopted
        """Streams that the journal has lost, by name."""
        self._findings = findings
        self._streams: dict[str, OpenStream] = {}
        self._owners: dict[str, Callable[[], Awaitable[None]]] = {}
        self._leaving: dict[str, None] = {}
        """Logs to be removed, by name: the journal does not know of it yet."""
        self._removing = trio.Lock()
        self._shortening = trio.Lock()
        self._is_settled = False
        """What was there before this start is open."""

    @property
    def store_id(self) -> bytes:
        return self._place.store_id

    @property
    def incarnation(self) -> int:
        """Counts the starts of this store."""
        return self._marker.incarnation

    @property
    def lost_unsynced(self) -> bool:
        """Power was lost since the last clean end: acknowledged entries may be gone if a sync interval was set."""
        return self._marker.lost_power

    @property
    def findings(self) -> list[Finding]:
        """Everything that opening and reading brought to light."""
        found = [*self._findings, *self._marker.findings, *self._used.findings, *self.journal.findings]
        for stream in self._streams.values():
            found += stream.log.findings
        return found

    def health(self) -> list[str]:
        """Why the health check must fail, one line each; empty when all is well."""
        lines = [str(finding) for finding in alarms(self.findings)]
        if self.journal.frozen is not None:
            lines.append(str(self.journal.frozen))
        elif self.journal.full is not None:
            lines.append(str(self.journal.full))
        lines += [str(stream.log.trouble) for stream in self._streams.values() if stream.log.trouble is not None]
        return lines

    @property
    def stream_names(self) -> list[str]:
        """Names of the streams that stand in the journal, in the order of their making."""
        return [group.name for group in self.journal.groups]

    async def open_stream(self, name: str, *, first_sequence: int = 1, last_sequence: int | None = None) -> OpenStream:
        """A stream's logs, made if it is new. The owner applies `commit.replay()`, then calls `log.end_recovery()`.

        `last_sequence`: see `open_stream_log`. Before `settle` every stream is taken for one that was there before.

        Raises StoreRefused, StorageError, DiskError.
        """
        is_lost = not self._is_settled and not self.journal.knows(name)
        group = self.journal.group(name)
        commit = LocalLog(group)
        place = self._place
        log = await open_stream_log(
            place.disk,
            place.clock,
            place.entropy,
            self._directory(group.state.number),
            name=name,
            store_id=place.store_id,
            options=self._options.streams,
            note=commit.note[: NOTE.size],
            gaps=group.state.gaps,
            first_sequence=first_sequence,
            is_adopted=name in self._adopted,
            noted_first=self._used.find(name, group.state.number).first,
            last_sequence=last_sequence,
            erase_again=not self._marker.ended_clean,
            keys=place.keys,
        )
        # No sequence is given out twice: what the journal has lost may have used as many as fit into the lost bytes.
        if name in self._adopted:
            log.recovery.used = (self._used.find(name, None).last, MISSING_PART_BYTES // ENTRY_SIZE_MIN)
        else:
            unknown = 0
            if is_lost and self.journal.has_nameless:  # its entries may all be there, under no name
                unknown = MISSING_PART_BYTES // ENTRY_SIZE_MIN
            elif self.journal.damaged_bytes and (group.lost or is_lost):
                unknown = self.journal.damaged_bytes // ENTRY_SIZE_MIN + 1
            noted = self._used.find(name, None if self._is_damaged() else group.state.number)
            log.recovery.used = (noted.last, unknown)
        stream = self._streams[name] = OpenStream(name, commit, log, commit.floor)
        return stream

    def _is_damaged(self) -> bool:
        """Whether the journal may have lost something."""
        return bool(alarms([*self._findings, *self._marker.findings, *self.journal.findings]))

    def last_lost(self, name: str, last: int) -> int:
        """The last sequence that a loss of power can have taken from a stream; `last` if it has taken none.

        `last` is the last sequence that is known to have been used.
        """
        leased = self.journal.group(name).state.leased
        if not self._marker.lost_power or not leased:
            return last
        if self.journal.damaged_bytes:  # its lease may have gone further
            leased = max(leased, last + self.journal.damaged_bytes // ENTRY_SIZE_MIN) + LEASE_SEQUENCES_MAX
        return max(last, leased)

    def own(self, name: str, checkpoint: Callable[[], Awaitable[None]]) -> None:
        """Have `checkpoint` called, instead of anything else, when the group `name` holds back a part of the journal.

        It raises the group's floor over what it has applied. Raises StorageError.
        """
        self._owners[name] = checkpoint

    def disown(self, name: str) -> None:
        """The group is gone, or going."""
        self._owners.pop(name, None)

    def _directory(self, number: int) -> str:
        return f"{self._place.root}/streams/{number:010d}"

    async def drop_group(self, name: str) -> None:
        """Remove a log that is of no use to anybody any more, with its files if it has any: first from the journal,
        durably. Where that has no room, it is done when it has.

        Raises StoreFrozen, DiskError.
        """
        self.disown(name)
        self._leaving[name] = None
        stream = self._streams.pop(name, None)
        if stream is not None:
            await stream.log.close()
        with suppress(StoreFull):
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        """Raises StoreFull, StoreFrozen, DiskError."""
        async with self._removing:
            if name not in self._leaving:
                return
            group = self.journal.group(name)
            await group.drop_nowait().wait()
            del self._leaving[name]
            self._used.forget(name)
        await self.journal.flush()
        try:
            await remove_directory(self._place.disk, self._directory(group.state.number))
        except DiskError as exc:
            if exc.errno != errno.ENOENT:  # it was no stream's
                raise

    # -------------------------------------------------------------- running

    async def run(self) -> None:
        """Write the journal and keep it short, until `stop`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_short)
            nursery.start_soon(self._watch_room)
            await self.journal.run()
            nursery.cancel_scope.cancel()

    def stop(self) -> None:
        """Let `run` write what waits, sync, and return."""
        self.journal.close()

    async def _keep_short(self) -> None:
        with suppress(DiskError):  # it is only about room, and the next start tries again
            await self.journal.parts.trim()
        while True:
            await self.journal.wait_rolled()
            try:
                await self.shorten()
            except StorageError:
                pass  # in `health` already; the next part tries again

    async def _watch_room(self) -> None:
        """While the disk is full, look now and then: the health check must not fail for longer than it is."""
        while True:
            await self.journal.wait_filled()
            while self.journal.full is not None and self.journal.frozen is None:
                await self._place.clock.sleep_ns(STORE_FULL_LOOK_NS)
                self.journal.look_for_room()

    @property
    def stale_paths(self) -> list[str]:
        """Files that are not encrypted as new ones are."""
        paths = self.journal.parts.stale_paths
        for stream in self._streams.values():
            paths += [each.path for each in stream.log.files.segments.values() if each.is_stale]
        return [*paths, f"{self._place.root}/used"] if self._used.is_stale else paths

    async def renew(self) -> None:
        """Write anew what is not encrypted as new files are, one file at a time. Raises StorageError.

        What is damaged, and what a full disk has no room for, stays: `stale_paths`.
        """
        for stream in list(self._streams.values()):
            with suppress(LogRemoved):
                while await stream.log.rewrite():
                    pass
        await self.shorten()
        await self._note_used()

    async def shorten(self) -> None:
        """Checkpoint whoever holds back an old part of the journal, and release the parts."""
        async with self._shortening:
            await self._shorten()

    async def _shorten(self) -> None:
        journal = self.journal
        for name in list(self._leaving):
            with suppress(StorageError, DiskError):  # in `health` already, or left to the next start
                await self._remove(name)
        if journal.full is not None:
            for each in list(self._streams.values()):
                with suppress(StorageError):  # in `health` already
                    await each.log.free(each.commit.group)
        while journal.old_parts:
            part = journal.old_parts[0]
            for group in self._needing(part):
                owner = self._owners.get(group.name)
                stream = self._streams.get(group.name)
                with suppress(LogRemoved):
                    if owner is not None:
                        await owner()
                    elif stream is not None:
                        await stream.checkpoint()
            for group in self._needing(part):
                with suppress(LogRemoved, DataDamaged, DiskError):  # with what cannot be read the part stays
                    await journal.write_forward(group, part)
            if not await journal.release():
                return
            await self._note_used()  # behind the release: on a full disk that is what makes room

    def _needing(self, part: PartSummary) -> list[Group]:
        """The groups that are to let go of a part."""
        return [group for group in self.journal.needing(part) if group.name not in self._leaving]

    async def _note_used(self, *, is_all: bool = False) -> None:
        """Keep the spare copy of used sequences up to what is durable; `is_all`: up to all that streams have used."""
        used = {}
        for group in self.journal.groups:
            number = group.state.number
            noted = self._used.find(group.name, number)
            stream = self._streams.get(group.name)
            if stream is not None and is_all:
                noted = Used(number, stream.log.index.start, max(noted.last, stream.log.index.last))
            elif stream is not None and group.note:
                first, last = NOTE.unpack_from(group.note)[:2]
                noted = Used(number, first, max(noted.last, last))
            if noted.last:
                used[group.name] = noted
        await self._used.save(used)

    async def settle(self, *, is_accounted: bool = True) -> None:
        """Recovery is over. `is_accounted`: the owners have accounted for all that a loss of power took; until then it
        is left to the next start (`lost_unsynced`). Raises DiskError.
        """
        self._is_settled = True
        self.journal.parts.end_recovery()
        if self._is_damaged():  # what was passed over for it must be known when there is more
            await self._note_used(is_all=True)
        if is_accounted:
            await self._marker.account()

    async def close(self) -> None:
        """After `run`: close the files and, if all is durable, say so in the marker. Raises DiskError."""
        for stream in self._streams.values():
            await stream.log.close()
        clean = (
            self.journal.frozen is None
            and not self.journal.is_dirty
            and self._marker.is_accounted
            and not any(isinstance(stream.log.trouble, StoreFrozen) for stream in self._streams.values())
        )
        self.journal.parts.close()
        if clean:
            await self._note_used(is_all=True)
            await self._marker.write(is_clean=True)
        self._lock.release()
