"""A node's store: its identity, its journal, and the stream logs on it.

Layout of the store directory:

| name | content |
|---|---|
| `tnats.lock` | advisory lock: one server at a time |
| `tnats/identity` | random store id, in two copies; every header of every file carries it |
| `tnats/marker` | boot id and whether the last run ended cleanly |
| `tnats/used` | spare copy of how far each stream's sequences were used |
| `tnats/journal/` | journal parts |
| `tnats/streams/<group number>/` | segments of one stream |
| `.../quarantine/` | damaged or foreign files that are not needed any more; nothing here is ever read or removed |

The marker tells a node that lost power from one whose process died: in the first case, entries that were acknowledged
under a sync interval may be gone (`lost_unsynced`), and a replica must not vote before it has learnt what it knew.

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
from tnats.records import define
from tnats.runtime.api import Clock, DirectoryLock, Disk, DiskError
from tnats.storage import record, segment
from tnats.storage.commit_log import LocalLog
from tnats.storage.encryption import Encryption
from tnats.storage.errors import LogRemoved, StorageError, StoreFrozen, StoreRefused
from tnats.storage.journal import Journal, JournalOptions
from tnats.storage.journal_open import open_journal
from tnats.storage.record import Finding, alarms
from tnats.storage.recover import ENTRY_SIZE_MIN, MISSING_PART_BYTES
from tnats.storage.segment import DATA_START, QUARANTINE, SegmentHeader
from tnats.storage.stream_checkpoint import NOTE
from tnats.storage.stream_log import StreamLog, StreamLogOptions
from tnats.storage.stream_open import open_stream_log
from tnats.storage.used import UsedSequences

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing

IDENTITY = 4
"""Segment role of the identity file."""
MARKER_SEED = 0x4D41524B
MARKER_OFFSETS = (0, 4096)
"""Slots of the marker file: written at the start of a run, and at its clean end."""
DELETED = ".deleted"
STORE_FULL_LOOK_NS = 2 * SECOND_NS
FILE_BYTES_MAX = 64 * 1024


@define
class StoreOptions:
    journal: JournalOptions = attrs.field(factory=JournalOptions)
    streams: StreamLogOptions = attrs.field(factory=StreamLogOptions)
    encryption: Encryption | None = None


@define
class OpenStream:
    """One stream's commit log and message log; the owner applies the entries of the one to the other."""

    name: str
    commit: LocalLog
    log: StreamLog
    applied: int
    """Index of the last entry applied to `log`: kept up by the owner."""

    _checkpointing: trio.Lock = attrs.field(factory=trio.Lock)

    async def checkpoint(self, journal: Journal) -> None:
        """Let the journal forget what is applied. Raises StorageError."""
        async with self._checkpointing:  # the owner and the store may both want one
            applied = self.applied
            await journal.flush()
            note = await self.log.checkpoint()
            if applied > self.commit.floor:
                await self.commit.checkpointed(applied, note).wait()
            await self.log.release()


class Store:
    """See the module. Made by `open_store`; `close` it after `run` was cancelled or has returned."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Callable[[int], bytes],
        root: str,
        options: StoreOptions,
        lock: DirectoryLock,
        store_id: bytes,
        keys: KeyRing | None = None,
    ) -> None:
        self._keys = keys
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._root = root
        self._options = options
        self._lock = lock
        self.store_id = store_id
        self.lost_unsynced = False
        """Power was lost since the last clean end: acknowledged entries may be gone if a sync interval was set."""
        self.incarnation = 0
        """Counts the starts of this store."""
        self._findings: list[Finding] = []
        self._streams: dict[str, OpenStream] = {}
        self._owners: dict[str, Callable[[], Awaitable[None]]] = {}
        self._adopted: set[str] = set()
        self._shortening = trio.Lock()
        self._is_settled = False
        """What was there before this start is open."""
        self._boot_id = ""
        self._marked_boot_id = ""
        """What the marker names: the boot of the last run as long as what was lost with it is not accounted for."""
        self._ended_clean = False
        """Whether the last run ended in order."""
        self._used = UsedSequences(disk, clock, entropy, f"{root}/used", store_id, keys)
        self.journal: Journal

    @property
    def findings(self) -> list[Finding]:
        """Everything that opening and reading brought to light."""
        found = [*self._findings, *self._used.findings, *self.journal.findings]
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
        log = await open_stream_log(
            self._disk,
            self._clock,
            self._entropy,
            self._directory(group.state.number),
            name=name,
            store_id=self.store_id,
            options=self._options.streams,
            note=commit.note[: NOTE.size],
            first_sequence=None if name in self._adopted else first_sequence,
            last_sequence=last_sequence,
            erase_again=not self._ended_clean,
            keys=self._keys,
        )
        # No sequence is given out twice: what the journal has lost may have used as many as fit into the lost bytes.
        if name in self._adopted:
            log.recovery.used = (self._used.last(name, None), MISSING_PART_BYTES // ENTRY_SIZE_MIN)
        else:
            unknown = 0
            if is_lost and self.journal.has_nameless:  # its entries may all be there, under no name
                unknown = MISSING_PART_BYTES // ENTRY_SIZE_MIN
            elif self.journal.damaged_bytes and (group.lost or is_lost):
                unknown = self.journal.damaged_bytes // ENTRY_SIZE_MIN + 1
            log.recovery.used = (self._used.last(name, None if self._is_damaged() else group.state.number), unknown)
        stream = self._streams[name] = OpenStream(name, commit, log, commit.floor)
        return stream

    def last_lost(self, name: str, last: int) -> int:
        """The last sequence that a loss of power can have taken from a stream; `last` if it has taken none.

        `last` is the last sequence that is known to have been used.
        """
        leased = self.journal.group(name).state.leased
        if not self.lost_unsynced or not leased:
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
        return f"{self._root}/streams/{number:010d}"

    async def delete_stream(self, name: str) -> None:
        """Remove a stream for good: first from the journal, durably, then its files."""
        stream = self._streams.pop(name)
        directory = await self._forget(name)
        await stream.log.close()
        await self._remove_directory(directory)

    async def drop_group(self, name: str) -> None:
        """Remove a log that is not open here: its owner's removal was cut short."""
        directory = await self._forget(name)
        if directory in await _list_paths(self._disk, f"{self._root}/streams"):
            await self._remove_directory(directory)

    async def _forget(self, name: str) -> str:
        """Remove a log from the journal, durably; returns the directory of its files."""
        self._used.forget(name)
        group = self.journal.group(name)
        await group.drop_nowait().wait()
        await self.journal.flush()
        return self._directory(group.state.number)

    async def _remove_directory(self, path: str) -> None:
        """Remove a stream's files: whole at any moment, or for the next start to finish."""
        await self._disk.rename(path, path + DELETED)
        await self._remove_tree(path + DELETED)

    async def _remove_tree(self, path: str) -> None:
        for entry in await self._disk.list(path):
            inner = f"{path}/{entry.name}"
            if entry.is_directory:
                await self._remove_tree(inner)
            else:
                await self._disk.unlink(inner)
        await self._disk.rmdir(path)

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
                await self._clock.sleep_ns(STORE_FULL_LOOK_NS)
                await self.journal.probe()

    @property
    def stale_paths(self) -> list[str]:
        """Files that are not encrypted as new ones are."""
        paths = self.journal.parts.stale_paths
        for stream in self._streams.values():
            paths += [each.path for each in stream.log.files.segments.values() if each.is_stale]
        return [*paths, f"{self._root}/used"] if self._used.is_stale else paths

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
        while journal.old_parts:
            part = journal.old_parts[0]
            for group in journal.needing(part):
                owner = self._owners.get(group.name)
                stream = self._streams.get(group.name)
                with suppress(LogRemoved):
                    if owner is not None:
                        await owner()
                    elif stream is not None:
                        await stream.checkpoint(journal)
            for group in journal.needing(part):
                with suppress(LogRemoved):
                    await journal.write_forward(group, part)
            if not await journal.release():
                return
            await self._note_used()  # behind the release: on a full disk that is what makes room

    async def _note_used(self, *, is_end: bool = False) -> None:
        """Keep the spare copy of used sequences up to what is durable: at a clean end that is all."""
        used = {}
        for group in self.journal.groups:
            number = group.state.number
            last = self._used.last(group.name, number)
            stream = self._streams.get(group.name)
            if stream is not None and is_end:
                last = max(last, stream.log.index.last)
            elif stream is not None and group.note:
                last = max(last, NOTE.unpack_from(group.note)[1])
            if last:
                used[group.name] = (number, last)
        await self._used.save(used)

    async def settle(self, *, is_accounted: bool = True) -> None:
        """Recovery is over. `is_accounted`: the owners have accounted for all that a loss of power took; until then it
        is left to the next start (`lost_unsynced`). Raises DiskError.
        """
        self._is_settled = True
        self.journal.parts.end_recovery()
        if is_accounted and self._marked_boot_id != self._boot_id:
            self._marked_boot_id = self._boot_id
            await self._write_marker(is_clean=False)

    async def close(self) -> None:
        """After `run`: close the files and, if all is durable, say so in the marker. Raises DiskError."""
        for stream in self._streams.values():
            await stream.log.close()
        clean = (
            self.journal.frozen is None
            and self._marked_boot_id == self._boot_id
            and not any(isinstance(stream.log.trouble, StoreFrozen) for stream in self._streams.values())
        )
        self.journal.parts.close()
        if clean:
            await self._note_used(is_end=True)
            await self._write_marker(is_clean=True)
        self._lock.release()

    # -------------------------------------------------------------- opening

    async def start(self, boot_id: str) -> None:
        """Read the marker, open the journal, and put away what belongs to nobody."""
        self._boot_id = self._marked_boot_id = boot_id
        await self._read_marker()
        await self._used.load()
        journal_directory = f"{self._root}/journal"
        is_new = self.incarnation == 1
        self.journal = await open_journal(
            self._disk,
            self._clock,
            self._entropy,
            journal_directory,
            store_id=self.store_id,
            options=self._options.journal,
            keys=self._keys,
        )
        if not is_new and self.journal.was_empty:
            self._findings.append(Finding("missing", journal_directory, text="all parts of the journal"))
        await self._write_marker(is_clean=False)  # after the first part is there, and before anything is acknowledged
        await self._disk.mkdir(f"{self._root}/streams")
        await self._disk.sync_dir(self._root)
        await self._sweep()

    async def _sweep(self) -> None:
        """Finish deletions, and see to directories of groups that the journal does not know.

        If the journal is damaged they are taken up again; if not, they are put aside: what they hold may be
        all that is left of something.
        """
        known = {f"{group.state.number:010d}" for group in self.journal.groups}
        streams = f"{self._root}/streams"
        for entry in await self._disk.list(streams):
            path = f"{streams}/{entry.name}"
            if entry.name.endswith(DELETED):
                await self._remove_tree(path)
            elif entry.name in known or entry.name == QUARANTINE:
                continue
            elif not await self._disk.list(path):
                await self._disk.rmdir(path)
            elif not (self._is_damaged() and await self._adopt(path, entry.name)):
                await self._disk.mkdir(f"{streams}/{QUARANTINE}")
                aside = f"{streams}/{QUARANTINE}/{entry.name}-{self.incarnation}"
                await self._disk.rename(path, aside)
                self._findings.append(Finding("orphan", aside, text="stream that the journal does not know"))

    def _is_damaged(self) -> bool:
        """Whether the journal may have lost something."""
        return bool(alarms([*self._findings, *self.journal.findings]))

    async def _adopt(self, path: str, directory_name: str) -> bool:
        """Find the name of a stream in the headers of its segments (most of them say it), and take it up."""
        if not directory_name.isdecimal():
            return False
        votes: dict[str, int] = {}
        for entry in await self._disk.list(path):
            if entry.name.endswith(".seg"):
                file = await self._disk.open(f"{path}/{entry.name}", readonly=True)
                header, _ = segment.read_header(await file.pread(DATA_START, 0), file.path, self._keys)
                file.close()
                if header is not None and (header.role, header.store_id) == (segment.STREAM, self.store_id):
                    votes[header.group] = votes.get(header.group, 0) + 1
        names = [name for name in votes if name not in self.stream_names]
        if not names:
            return False
        name = max(names, key=lambda name: votes[name])
        self.journal.adopt(int(directory_name), name)
        self._adopted.add(name)
        self._findings.append(Finding("orphan", path, group=name, text="taken up without its journal"))
        return True

    async def _read_marker(self) -> None:
        path = f"{self._root}/marker"
        try:
            data = await self._disk.read_file(path, bytes_max=FILE_BYTES_MAX)
        except DiskError as exc:
            if exc.errno != errno.ENOENT:
                raise
            self.incarnation = 1
            return
        slots = [segment.read_record(data, offset, MARKER_SEED, path, self._findings) for offset in MARKER_OFFSETS]
        found = [slot for slot in slots if slot is not None and slot.kind == record.MARKER]
        latest = max(found, key=lambda slot: (slot.index, slot.stamp), default=None)
        if latest is None or len(found) < len(slots):
            # The count may be gone too; the clock gives one that is higher than any before.
            self.incarnation = self._clock.wall_ns()
            self.lost_unsynced = True
            self._marked_boot_id = ""
            self._findings.append(Finding("damaged", path, 0, max(1, len(data)), text="taken for a loss of power"))
            return
        self.incarnation = latest.index + 1
        self._ended_clean = bool(latest.stamp)
        self.lost_unsynced = not latest.stamp and latest.key.decode() != self._boot_id
        if self.lost_unsynced:
            self._marked_boot_id = latest.key.decode()

    def _marker(self, offset: int, *, is_clean: bool) -> bytearray:
        return record.pack_one(
            record.MARKER,
            offset=offset,
            seed=MARKER_SEED,
            index=self.incarnation,
            stamp=int(is_clean),
            key=self._marked_boot_id.encode(),
        )

    async def _write_marker(self, *, is_clean: bool) -> None:
        """Note the state of this run. In place, since a full disk must not prevent it; a slot lies in one sector."""
        path = f"{self._root}/marker"
        try:
            file = await self._disk.open(path)
        except DiskError as exc:
            if exc.errno != errno.ENOENT:
                raise
            slots = [self._marker(offset, is_clean=is_clean) for offset in MARKER_OFFSETS]
            await self._disk.write_file(path, bytes(slots[0].ljust(MARKER_OFFSETS[1], b"\0") + slots[1]))
            return
        try:
            offset = MARKER_OFFSETS[is_clean]
            file.pwrite([self._marker(offset, is_clean=is_clean)], offset)
            await file.sync()
        finally:
            file.close()


async def open_store(
    disk: Disk,
    clock: Clock,
    entropy: Callable[[int], bytes],
    directory: str,
    *,
    boot_id: str,
    options: StoreOptions,
) -> Store:
    """Open the store in `directory`, made if missing.

    Raises StoreLocked, StoreRefused (another program's or version's), StorageError, DiskError.
    """
    await _make_directory(disk, directory)
    await refuse_others(disk, directory)
    lock = await disk.lock(f"{directory}/tnats.lock")
    try:
        root = f"{directory}/tnats"
        await disk.mkdir(root)
        await disk.sync_dir(directory)
        findings: list[Finding] = []
        store_id = await _identify(disk, clock, entropy, root, findings)
        keys = make_keys(options.encryption, store_id, entropy)
        await refuse_unopenable(disk, root, keys)
        store = Store(disk, clock, entropy, root, options, lock, store_id, keys)
        store._findings += findings
        await store.start(boot_id)
    except BaseException:
        lock.release()
        raise
    return store


def make_keys(encryption: Encryption | None, store_id: bytes, entropy: Callable[[int], bytes]) -> KeyRing | None:
    """The keys of the store `store_id`."""
    if encryption is None:
        return None
    from tnats.storage.cipher import KeyRing  # the ciphers' library takes memory, which most servers can do without

    return KeyRing(encryption, store_id, entropy)


async def refuse_unopenable(disk: Disk, root: str, keys: KeyRing | None) -> None:
    """Raises StoreRefused when a file of the store is encrypted under a key that is not given, before any is touched.

    Without keys the newest part of the journal tells: every start under a key begins one.
    """
    paths = [path for path in await _list_paths(disk, f"{root}/journal") if path.endswith(".part")]
    if keys is None:
        paths = paths[-1:]
    else:
        for directory in await _list_paths(disk, f"{root}/streams"):
            paths += [path for path in await _list_paths(disk, directory) if path.endswith(".seg")]
        paths += [path for path in await _list_paths(disk, root) if path.endswith("/used")]
    for path in paths:
        file = await disk.open(path, readonly=True)
        try:
            segment.read_header(await file.pread(DATA_START, 0), path, keys)
        finally:
            file.close()


async def _list_paths(disk: Disk, directory: str) -> list[str]:
    """What stands in a directory; nothing if there is none."""
    try:
        return [f"{directory}/{entry.name}" for entry in await disk.list(directory)]
    except DiskError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return []


async def refuse_others(disk: Disk, directory: str) -> None:
    """Raises StoreRefused when `directory` holds another program's store, DiskError when it cannot be listed."""
    for entry in await disk.list(directory):
        if entry.name == "jetstream" and entry.is_directory:
            raise StoreRefused(
                f"{directory} holds a store of nats-server (directory `jetstream`); it was not touched. "
                "Give this server a directory of its own and copy the streams by backup and restore"
            )


async def _make_directory(disk: Disk, directory: str) -> None:
    """Make the store directory with its parents, durably."""
    try:
        await disk.mkdir(directory, parents=True)
    except DiskError as exc:
        if exc.errno not in (errno.EEXIST, errno.ENOTDIR):
            raise
        raise StoreRefused(f"{directory}: storage directory is not a directory; name another one as store_dir") from exc
    parent = directory.rstrip("/")
    while parent.strip("/"):
        parent = parent.rpartition("/")[0]
        try:
            await disk.sync_dir(parent or "/")
        except DiskError as exc:
            if exc.errno not in (errno.EACCES, errno.EPERM):
                raise
            return  # not ours to sync, so not ours either to have made


async def _identify(
    disk: Disk, clock: Clock, entropy: Callable[[int], bytes], root: str, findings: list[Finding]
) -> bytes:
    """The store's id; drawn and stored if this is a new store."""
    path = f"{root}/identity"
    try:
        data = await disk.read_file(path, bytes_max=FILE_BYTES_MAX)
    except DiskError as exc:
        if exc.errno != errno.ENOENT:
            raise
        if any(entry.name != "identity.tmp" for entry in await disk.list(root)):
            raise StoreRefused(
                f"{path} is missing, but {root} holds data: restore the file, or move the data away"
            ) from exc
        store_id = entropy(16)
        header = SegmentHeader(IDENTITY, 0, "store", store_id, 0, clock.wall_ns())
        await disk.write_file(path, bytes(header.area()))
        return store_id
    header_found, found = segment.read_header(data, path)
    findings += found
    if header_found is None or header_found.role != IDENTITY:
        raise StoreRefused(f"{path} is damaged in both copies: restore it from a backup")
    if found:
        file = await disk.open(path)
        try:
            for offset, copy in segment.wrong_headers(header_found, data):
                file.pwrite([copy], offset)
            await file.sync()
        finally:
            file.close()
    return header_found.store_id
