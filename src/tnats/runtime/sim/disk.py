"""The simulated disk: `tnats.runtime.api.Disk` over a `DiskImage`, with latencies, faults and death.

Two objects with two lifetimes. A `SimDrive` is the hardware: it outlives the node's incarnations and owns the image,
the fault rules, the capacity and the timing. A `SimDisk` is what one incarnation sees of it; its owner says through
`alive` whether that incarnation still lives, and every call after its death raises NodeKilled.

Plain calls take their latency by `stall` (the whole node stands still, as it would in reality), awaited ones sleep
on the clock. Syncs are carried out one after another in the order they were made, and make durable what had been
written when they were made.

`SimDrive.observer` is told of every operation before it is carried out: clone the image there to ask "what if the
power failed now".
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from tnats.errors import NodeKilled
from tnats.records import define, frozen
from tnats.runtime.api import Buffer, Clock, DirectoryEntry, DiskError, StoreLocked
from tnats.runtime.disk_errors import disk_error
from tnats.runtime.sim.disk_faults import (
    CHANGING,
    Delay,
    DiskFault,
    Effect,
    Fail,
    Flip,
    Kind,
    Lose,
    Misdirect,
    SyncFault,
    flip_bits,
)
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage, ImageError


@define
class DiskTiming:
    """Mean latencies; each call draws between half and twice of its own."""

    write_ns: int = 2_000
    read_ns: int = 80_000
    sync_ns: int = 150_000
    name_ns: int = 30_000
    bytes_per_second: int = 500_000_000


SyncEnd = Callable[[bool], None]
"""Told of the end of a sync: whether the caller hears that what was written is durable."""


def ignored(is_good: bool) -> None:
    """The end of a sync that nobody wants to know of."""


class SimDrive:
    """The hardware of one node's disk. `rng` decides everything that is drawn."""

    def __init__(
        self, rng: random.Random, *, timing: DiskTiming | None = None, capacity_bytes: int = 1 << 40, cold: float = 0.0
    ) -> None:
        self.rng = rng
        self.image = DiskImage()
        self.faults: list[DiskFault] = []
        self.timing = timing or DiskTiming()
        self.capacity_bytes = capacity_bytes
        self.cold = cold
        """Chance that `pread_cached` finds the page not in the cache."""
        self.observer: Callable[[Kind, str], None] | None = None
        self.on_sync: Callable[[str], SyncEnd] | None = None
        """Told of every sync of a file or directory that begins; what it returns is told of its end."""
        self.sync_free_at_ns = 0
        self.locks: dict[str, SimDisk] = {}
        self.opened: dict[int, int] = {}
        """How often each node is open in the present incarnation."""

    def power_loss(self, policy: CrashPolicy) -> None:
        """Lose what `policy` does not spare. The incarnation must be dead already."""
        self.image.crash(policy, self.rng)
        self.sync_free_at_ns = 0
        self.locks.clear()
        self.close_all()

    def close_all(self) -> None:
        """The incarnation has ended, and the kernel closes its files; a call under way still counts in its own."""
        self.opened = {}

    def wipe(self) -> None:
        """A new empty disk."""
        self.image = DiskImage()

    def meet(self, kind: Kind, path: str) -> tuple[Effect | None, Delay | None]:
        """The effect and the delay that the rules have for this operation."""
        if self.observer is not None:
            self.observer(kind, path)
        effect: Effect | None = None
        delay: Delay | None = None
        for fault in self.faults:
            if effect is not None and not isinstance(fault.effect, Delay):
                continue
            if fault.meets(kind, path, self.rng):
                if isinstance(fault.effect, Delay):
                    delay = fault.effect
                else:
                    effect = fault.effect
        return effect, delay

    def sync_begins(self, path: str) -> SyncEnd:
        """A sync begins; call the result when it ends."""
        return ignored if self.on_sync is None else self.on_sync(path)

    def latency_ns(self, base_ns: int, count: int, delay: Delay | None) -> int:
        """A drawn latency for an operation on `count` bytes."""
        duration = int(base_ns * self.rng.uniform(0.5, 2.0)) + count * 1_000_000_000 // self.timing.bytes_per_second
        if delay is not None:
            duration = int(duration * delay.factor) + delay.added_ns
            if delay.stall_chance and self.rng.random() < delay.stall_chance:
                duration += int(delay.stall_ns * self.rng.random())
        return duration


class SimDisk:
    """One incarnation's view of a `SimDrive`."""

    def __init__(
        self,
        drive: SimDrive,
        clock: Clock,
        *,
        alive: Callable[[], bool] = lambda: True,
        stall: Callable[[int], None] = lambda duration_ns: None,
        descriptors_max: int = 65536,
    ) -> None:
        self.drive = drive
        self.clock = clock
        self.is_alive = alive
        self.stall = stall
        self.descriptors_max = descriptors_max
        self.open_count = 0

    def check_alive(self) -> None:
        if not self.is_alive():
            raise NodeKilled("the node of this disk has lost its power")

    def begin(self, kind: Kind, path: str, *, verb: str) -> tuple[Effect | None, Delay | None]:
        """Death, observer and rules at the start of a call; a failing rule raises."""
        self.check_alive()
        effect, delay = self.drive.meet(kind, path)
        if isinstance(effect, Fail) and kind not in ("write", "sync"):
            raise disk_error(verb, path, effect.errno)
        return effect, delay

    async def take(self, base_ns: int, count: int, delay: Delay | None) -> None:
        """Spend the latency of an awaited call."""
        await self.clock.sleep_ns(self.drive.latency_ns(base_ns, count, delay))
        self.check_alive()

    async def _name_call(self, kind: Kind, path: str, verb: str, action: Callable[[], None]) -> None:
        _, delay = self.begin(kind, path, verb=verb)
        await self.take(self.drive.timing.name_ns, 0, delay)
        try:
            action()
        except ImageError as exc:
            raise disk_error(verb, path, exc.code) from None

    async def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> SimFile:
        self.check_alive()
        creating = create and not self.drive.image.is_file(path)
        self.begin("create" if creating else "open", path, verb="open")
        await self.take(self.drive.timing.name_ns, 0, None)
        if self.open_count >= self.descriptors_max:
            raise disk_error("open", path, errno.EMFILE)
        image = self.drive.image
        try:
            try:
                number = image.file(path)
            except ImageError as exc:
                if exc.code != errno.ENOENT or not create:
                    raise
                number = image.create(path)
            else:
                if create and exclusive:
                    raise disk_error("create", path, errno.EEXIST)
        except ImageError as exc:
            raise disk_error("open", path, exc.code) from None
        self.open_count += 1
        self.drive.opened[number] = self.drive.opened.get(number, 0) + 1
        return SimFile(self, path, number, readonly=readonly)

    async def create_file(self, path: str, content: Sequence[Buffer]) -> SimFile:
        temporary = path + ".tmp"
        file = await self.open(temporary, create=True)
        try:
            if file.size():
                await file.truncate(0)
            file.pwrite(content, 0)
            await self.rename(temporary, path)
        except BaseException as exc:
            file.close()
            if isinstance(exc, DiskError):
                with suppress(DiskError):
                    await self.unlink(temporary)
            raise
        file.path = path
        return file

    async def rename(self, source: str, target: str) -> None:
        await self._name_call("rename", source, "rename", lambda: self.drive.image.rename(source, target))

    async def unlink(self, path: str) -> None:
        await self._name_call("unlink", path, "remove", lambda: self.drive.image.remove(path))

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        def make() -> None:
            parts = [part for part in path.split("/") if part]
            first = 1 if parents else len(parts)
            for count in range(first, len(parts) + 1):
                current = "/" + "/".join(parts[:count])
                try:
                    self.drive.image.make_directory(current)
                except ImageError as exc:
                    if exc.code != errno.EEXIST:
                        raise
                    self.drive.image.require_directory(current)

        await self._name_call("mkdir", path, "make directory", make)

    async def rmdir(self, path: str) -> None:
        await self._name_call("rmdir", path, "remove directory", lambda: self.drive.image.remove_directory(path))

    async def list(self, path: str) -> list[DirectoryEntry]:
        _, delay = self.begin("list", path, verb="list")
        await self.take(self.drive.timing.name_ns, 0, delay)
        try:
            return [DirectoryEntry(*entry) for entry in self.drive.image.entries(path)]
        except ImageError as exc:
            raise disk_error("list", path, exc.code) from None

    async def sync_dir(self, path: str) -> None:
        effect, delay = self.begin("sync_dir", path, verb="sync directory")
        try:
            number = self.drive.image.directory(path)
        except ImageError as exc:
            raise disk_error("sync directory", path, exc.code) from None
        before = self.drive.image.operation_count
        sync_end = self.drive.sync_begins(path)
        await self.take(self.drive.timing.sync_ns, 0, delay)
        is_refused = isinstance(effect, SyncFault) and effect.variant in ("once", "sticky")
        sync_end(not is_refused)
        if is_refused:
            raise disk_error("sync directory", path, errno.EIO)
        if not isinstance(effect, SyncFault):
            self.drive.image.sync_directory(number, before)
            self.drive.image.forget_unnamed(self.drive.opened)

    async def free_bytes(self, path: str) -> int:
        self.begin("free", path, verb="ask for free space of")
        await self.take(self.drive.timing.name_ns, 0, None)
        return max(0, self.drive.capacity_bytes - self.drive.image.used_bytes)

    async def lock(self, path: str) -> SimLock:
        file = await self.open(path, create=True)
        file.close()
        self.begin("lock", path, verb="lock")
        holder = self.drive.locks.get(path)
        if holder is not None and holder.is_alive():
            raise StoreLocked(f"{path} is held by another server on this store; stop it first", errno.EWOULDBLOCK)
        self.drive.locks[path] = self
        return SimLock(self, path)

    async def read_file(self, path: str, *, bytes_max: int) -> bytes:
        file = await self.open(path, readonly=True)
        try:
            if file.size() > bytes_max:
                raise disk_error("read", path, errno.EFBIG)
            return await file.pread(file.size(), 0)
        finally:
            file.close()

    async def write_file(self, path: str, data: Buffer, *, mode: int = 0o640) -> None:
        temporary = path + ".tmp"
        file = await self.open(temporary, create=True)
        try:
            try:
                if file.size():
                    await file.truncate(0)
                file.pwrite([data], 0)
                await file.sync()
            finally:
                file.close()
            await self.rename(temporary, path)
        except DiskError:
            with suppress(DiskError):
                await self.unlink(temporary)
            raise
        await self.sync_dir(path.rpartition("/")[0] or "/")


class SimFile:
    """One open file. Keeps its node even when the name goes away."""

    def __init__(self, disk: SimDisk, path: str, number: int, *, readonly: bool) -> None:
        self._disk = disk
        self.path = path
        self._number = number
        self._readonly = readonly
        self._closed = False

    def size(self) -> int:
        self._check("ask for the size of")
        return self._disk.drive.image.size(self._number)

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._check("write", changing=True)
        drive = self._disk.drive
        data = b"".join(buffers)
        effect, delay = self._disk.begin("write", self.path, verb="write")
        self._disk.stall(drive.latency_ns(drive.timing.write_ns, len(data), delay))
        self._disk.check_alive()
        number = self._number
        # A crash can leave more than fits: nothing may grow then, but what is there can be written over.
        room = max(0, drive.capacity_bytes - drive.image.used_bytes - max(0, offset - self.size()))
        if isinstance(effect, Fail):
            drive.image.write(number, data[: min(effect.written, room)], offset)
            raise disk_error("write", self.path, effect.errno)
        if isinstance(effect, Lose):
            return
        if isinstance(effect, Flip) and data:
            data = flip_bits(data, effect.bits, drive.rng)
        if isinstance(effect, Misdirect):
            offset = effect.offset
            number = number if effect.path is None else drive.image.file(effect.path)
        grown = offset + len(data) - drive.image.size(number)
        if grown > room:
            drive.image.write(number, data[: max(0, len(data) - grown + room)], offset)
            raise disk_error("write", self.path, errno.ENOSPC)
        drive.image.write(number, data, offset)

    def pread_cached(self, count: int, offset: int) -> bytes | None:
        self._check("read")
        drive = self._disk.drive
        if drive.cold and drive.rng.random() < drive.cold:
            return None
        self._disk.check_alive()
        effect, _ = drive.meet("read", self.path)
        return None if isinstance(effect, Fail) else self._read(count, offset, effect)

    async def pread(self, count: int, offset: int) -> bytes:
        self._check("read")
        effect, delay = self._disk.begin("read", self.path, verb="read")
        opened = self._disk.drive.opened
        opened[self._number] = opened.get(self._number, 0) + 1  # a close meanwhile waits for the end of the call
        try:
            await self._disk.take(self._disk.drive.timing.read_ns, count, delay)
            return self._read(count, offset, effect)
        finally:
            opened[self._number] -= 1

    def _read(self, count: int, offset: int, effect: Effect | None) -> bytes:
        data = self._disk.drive.image.read(self._number, count, offset)
        if isinstance(effect, Flip) and data:
            return flip_bits(data, effect.bits, self._disk.drive.rng)
        return data

    async def preallocate(self, size: int) -> None:
        if size > self.size():
            await self._resize("preallocate", size)

    async def truncate(self, size: int) -> None:
        await self._resize("truncate", size)

    async def _resize(self, verb: str, size: int) -> None:
        self._check(verb, changing=True)
        drive = self._disk.drive
        _, delay = self._disk.begin("resize", self.path, verb=verb)
        await self._disk.take(drive.timing.name_ns, 0, delay)
        if size > self.size() and drive.image.used_bytes + size - self.size() > drive.capacity_bytes:
            raise disk_error(verb, self.path, errno.ENOSPC)
        drive.image.resize(self._number, size)

    def begin_sync(self) -> SimSyncing:
        self._check("sync", changing=True)
        drive = self._disk.drive
        before = drive.image.operation_count
        effect, delay = self._disk.begin("sync", self.path, verb="sync")
        start_ns = max(self._disk.clock.mono_ns(), drive.sync_free_at_ns)
        drive.sync_free_at_ns = start_ns + drive.latency_ns(drive.timing.sync_ns, 0, delay)
        sync_end = drive.sync_begins(self.path)
        return SimSyncing(self._disk, self.path, self._number, before, effect, drive.sync_free_at_ns, sync_end)

    async def sync(self) -> None:
        await self.begin_sync().wait()

    def close(self) -> None:
        self._disk.check_alive()
        if not self._closed:
            self._closed = True
            self._disk.open_count -= 1
            opened = self._disk.drive.opened
            opened[self._number] = opened.get(self._number, 1) - 1

    def _check(self, verb: str, *, changing: bool = False) -> None:
        self._disk.check_alive()
        if self._closed or (changing and self._readonly):
            raise disk_error(verb, self.path, errno.EBADF)


@frozen
class SimSyncing:
    """A sync under way: what had been written before operation `before` is durable at `done_at_ns`."""

    disk: SimDisk
    path: str
    number: int
    before: int
    effect: Effect | None
    done_at_ns: int
    sync_end: SyncEnd

    async def wait(self) -> None:
        image = self.disk.drive.image
        await self.disk.clock.sleep_ns(self.done_at_ns - self.disk.clock.mono_ns())
        self.disk.check_alive()
        is_refused = isinstance(self.effect, SyncFault) and self.effect.variant in ("once", "sticky")
        self.sync_end(not is_refused and not isinstance(self.effect, Fail))
        if isinstance(self.effect, Fail):
            raise disk_error("sync", self.path, self.effect.errno)
        if isinstance(self.effect, SyncFault):
            if self.effect.variant in ("once", "silent"):
                image.forget_content(self.number, self.before)
            if is_refused:
                raise disk_error("sync", self.path, errno.EIO)
            return
        image.sync_file(self.number, self.before)


class SimLock:
    """A held lock; ends with `release` or with the life of the incarnation."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.check_alive()
        if self._disk.drive.locks.get(self._path) is self._disk:
            del self._disk.drive.locks[self._path]


def full(glob: str = "*", *, skip: int = 0, written: int = 0) -> DiskFault:
    """A rule: the file system is full from the call after `skip` on."""
    return DiskFault(("write", "resize", "create", "mkdir"), Fail(errno.ENOSPC, written), glob=glob, skip=skip)


def read_only() -> DiskFault:
    """A rule: the file system was remounted read-only after an error."""
    return DiskFault(CHANGING, Fail(errno.EROFS))
