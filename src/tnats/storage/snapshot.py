"""Snapshots: a state at an index, whole and verified or not there.

A snapshot is a file of its own: header area, chunks, and a footer that counts them. It is written under a temporary
name, synced, renamed, its directory synced, and then read back and verified. The last verified one is kept until the
next is verified; one that does not verify is set aside, never deleted, and the older one answers.

File names carry the index: `<index>.snap`. The group and the store are named in the header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tnats.records import frozen
from tnats.runtime.api import Clock, Disk, DiskError
from tnats.storage import hot, record, segment
from tnats.storage.errors import NO_SPACE, DataDamaged, StoreFull
from tnats.storage.record import Finding
from tnats.storage.segment import DATA_START, SegmentHeader

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing

CHUNK_BYTES = 256 * 1024
SUFFIX = ".snap"


@frozen
class Snapshot:
    """A verified snapshot. `term` belongs to the entry `index`, the last one that the state includes."""

    index: int
    term: int
    data: bytes


class SnapshotStore:
    """The snapshots of one group, in a directory of their own. One task uses it."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Callable[[int], bytes],
        directory: str,
        *,
        group: str,
        store_id: bytes,
        keys: KeyRing | None = None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._directory = directory
        self._group = group
        self._store_id = store_id
        self._keys = keys
        self.findings: list[Finding] = []

    async def save(self, index: int, term: int, pieces: Iterable[bytes]) -> None:
        """Store a state; on return it is durable and verified, and older ones are gone.

        Raises StoreFull, DataDamaged (it could not be read back), DiskError; then the older ones are still there.
        """
        path = f"{self._directory}/{index:020d}{SUFFIX}"
        temporary = path + ".tmp"
        try:
            await self._write(temporary, index, term, pieces)
            await self._disk.rename(temporary, path)
            await self._disk.sync_dir(self._directory)
        except DiskError as exc:
            if exc.errno in NO_SPACE:
                await segment.remove_quietly(self._disk, temporary)
                raise StoreFull(f"no room for a snapshot of {self._group}: {exc}") from exc
            raise
        if await self._read(path) is None:
            raise DataDamaged(f"the new snapshot {path} does not verify; the older one is kept")
        for other in await self._paths():
            if other < path:
                await self._disk.unlink(other)

    async def load(self) -> Snapshot | None:
        """The newest snapshot that verifies. What does not is set aside and reported in `findings`."""
        for path in reversed(await self._paths()):
            found = await self._read(path)
            if found is not None:
                return found
            self.findings.append(Finding("damaged", path, group=self._group, text="snapshot does not verify"))
            await segment.set_aside(self._disk, path)
            await self._disk.sync_dir(self._directory)
        return None

    async def open(self) -> None:
        """Make the directory, whose parent exists, and remove unfinished snapshots."""
        await self._disk.mkdir(self._directory)
        await self._disk.sync_dir(self._directory.rpartition("/")[0])
        for entry in await self._disk.list(self._directory):
            if entry.name.endswith(".tmp"):
                await self._disk.unlink(f"{self._directory}/{entry.name}")

    async def _paths(self) -> list[str]:
        entries = await self._disk.list(self._directory)
        return [f"{self._directory}/{entry.name}" for entry in entries if entry.name.endswith(SUFFIX)]

    async def _write(self, path: str, index: int, term: int, pieces: Iterable[bytes]) -> None:
        seed = int.from_bytes(self._entropy(4), "little")
        header = SegmentHeader(segment.SNAPSHOT, index, self._group, self._store_id, seed, self._clock.wall_ns())
        header, cipher = segment.new_header(header, self._keys)
        file = await self._disk.open(path, create=True)
        try:
            await file.truncate(0)
            file.pwrite([header.area()], 0)
            end = DATA_START
            count = 0
            for chunk in _chunks(pieces):
                records: list[hot.Record] = [(record.CHUNK, 0, count, term, b"", b"", chunk)]
                packed, _ = segment.pack(records, end, seed, end, cipher)
                file.pwrite([packed], end)
                end += len(packed)
                count += 1
            file.pwrite([record.pack_one(record.FOOTER, offset=end, seed=seed, index=term, stamp=count)], end)
            await file.sync()
        finally:
            file.close()

    async def _read(self, path: str) -> Snapshot | None:
        """The snapshot in `path` if every byte of it verifies (single flipped bits are undone and reported)."""
        file = await self._disk.open(path, readonly=True)
        try:
            data = bytearray(await file.pread(file.size(), 0))
        finally:
            file.close()
        header, findings = segment.read_header(data, path, self._keys)
        self.findings += findings
        if header is None or (header.role, header.group, header.store_id, path) != (
            segment.SNAPSHOT,
            self._group,
            self._store_id,
            f"{self._directory}/{header.number:020d}{SUFFIX}",
        ):
            return None
        scan = segment.scan(data, header.seed, path, cipher=segment.cipher_of(header, self._keys))
        self.findings += scan.findings
        if not scan.records or scan.holes:
            return None
        *chunks, footer = (record.take_apart(scan.data, found, 0) for found in scan.records)
        is_whole = footer.kind == record.FOOTER and footer.stamp == len(chunks)
        if not is_whole or any((each.kind, each.index) != (record.CHUNK, at) for at, each in enumerate(chunks)):
            return None
        return Snapshot(header.number, footer.index, b"".join(each.body for each in chunks))


def _chunks(pieces: Iterable[bytes]) -> Iterable[bytes]:
    """The pieces cut so that each fits a chunk."""
    for piece in pieces:
        for start in range(0, len(piece), CHUNK_BYTES):
            yield piece[start : start + CHUNK_BYTES]
