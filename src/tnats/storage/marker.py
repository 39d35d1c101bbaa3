"""The run marker of a store: `tnats/marker` says how the last run ended.

It names the boot of the machine in which the last run was, how many starts there were, and whether the run ended in
order. So a start tells a machine that lost power from a process that died: in the first case entries that were
acknowledged under a sync interval may be gone. What was lost counts as lost until the owners have accounted for it: as
long as that is to be done, the marker goes on naming the boot that it happened in.
"""

from __future__ import annotations

import errno

from tnats.runtime.api import Clock, Disk, DiskError
from tnats.storage import record, segment
from tnats.storage.record import Finding
from tnats.storage.store_directory import FILE_BYTES_MAX

MARKER_SEED = 0x4D41524B
MARKER_OFFSETS = (0, 4096)
"""Slots of the file: written at the start of a run, and at its clean end."""


class RunMarker:
    """See the module. `read` it first."""

    def __init__(self, disk: Disk, clock: Clock, path: str, boot_id: str) -> None:
        self._disk = disk
        self._clock = clock
        self._path = path
        self._boot_id = boot_id
        self._named_boot_id = boot_id
        self.incarnation = 0
        """Counts the starts of the store."""
        self.ended_clean = False
        """Whether the last run ended in order."""
        self.lost_power = False
        """Power was lost since the last clean end, and what went with it was not accounted for before this start."""
        self.findings: list[Finding] = []

    @property
    def is_accounted(self) -> bool:
        """What losses of power took is accounted for."""
        return self._named_boot_id == self._boot_id

    async def read(self) -> None:
        """Learn how the last run ended. Raises DiskError."""
        path = self._path
        try:
            data = await self._disk.read_file(path, bytes_max=FILE_BYTES_MAX)
        except DiskError as exc:
            if exc.errno != errno.ENOENT:
                raise
            self.incarnation = 1
            return
        slots = [segment.read_record(data, offset, MARKER_SEED, path, self.findings) for offset in MARKER_OFFSETS]
        found = [slot for slot in slots if slot is not None and slot.kind == record.MARKER]
        latest = max(found, key=lambda slot: (slot.index, slot.stamp), default=None)
        if latest is None or len(found) < len(slots):
            self.distrust("damaged", max(1, len(data)))
            return
        self.incarnation = latest.index + 1
        self.ended_clean = bool(latest.stamp)
        self.lost_power = not latest.stamp and latest.key.decode() != self._boot_id
        if self.lost_power:
            self._named_boot_id = latest.key.decode()

    def distrust(self, kind: str, size: int) -> None:
        """The file is of no use: the worst is assumed."""
        # The count may be gone too; the clock gives one that is higher than any before.
        self.incarnation = self._clock.wall_ns()
        self.lost_power = True
        self._named_boot_id = ""
        self.findings.append(Finding(kind, self._path, 0, size, text="taken for a loss of power"))

    async def write(self, *, is_clean: bool) -> None:
        """Note the state of this run. In place, since a full disk must not prevent it; a slot lies in one sector.

        Raises DiskError.
        """
        try:
            file = await self._disk.open(self._path)
        except DiskError as exc:
            if exc.errno != errno.ENOENT:
                raise
            slots = [self._slot(offset, is_clean=is_clean) for offset in MARKER_OFFSETS]
            await self._disk.write_file(self._path, bytes(slots[0].ljust(MARKER_OFFSETS[1], b"\0") + slots[1]))
            return
        try:
            offset = MARKER_OFFSETS[is_clean]
            file.pwrite([self._slot(offset, is_clean=is_clean)], offset)
            await file.sync()
        finally:
            file.close()

    async def account(self) -> None:
        """What was lost is accounted for, durably. Raises DiskError."""
        if not self.is_accounted:
            self._named_boot_id = self._boot_id
            await self.write(is_clean=False)

    def _slot(self, offset: int, *, is_clean: bool) -> bytearray:
        return record.pack_one(
            record.MARKER,
            offset=offset,
            seed=MARKER_SEED,
            index=self.incarnation,
            stamp=int(is_clean),
            key=self._named_boot_id.encode(),
        )
