"""The real disk.

Three ways to the kernel, by how long a call may take:

* in place: `pwrite` (page cache) and `pread_cached` (RWF_NOWAIT answers only from the page cache; where the file
  system does not know the flag, it answers None and the caller awaits `pread`);
* the sync thread (`sync.thread`) carries out syncs in the order they were begun: a hop through trio's thread cache
  costs 44 us;
* the pool: everything else that waits, on at most DISK_WORKERS_MAX threads.

The thread starts with the first sync, so a server without storage never has it. It ends with the trio run. A
LiveDisk serves one trio run.

A call that was begun is waited for even when its task is cancelled. A file that is closed meanwhile keeps its
descriptor until its calls under way have ended, since the number could be given to another file.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import trio

from tnats.limits import DISK_WORKERS_MAX
from tnats.runtime.api import Buffer, DirectoryEntry, DiskError, StoreLocked
from tnats.runtime.disk_errors import disk_error
from tnats.runtime.live.sync import calls
from tnats.runtime.live.sync.thread import SyncThread

T = TypeVar("T")

IOV_MAX = os.sysconf("SC_IOV_MAX")
ZEROS_SIZE = 1024 * 1024
"""Zeros are written in pieces of this size where room cannot be reserved."""


class LiveDisk:
    """The file system of this machine."""

    def __init__(self) -> None:
        self._workers = trio.CapacityLimiter(DISK_WORKERS_MAX)
        self._sync_thread: SyncThread | None = None

    async def call(self, verb: str, path: str, work: Callable[[], T]) -> T:
        """Run a blocking call on the pool, with its OSError as DiskError."""
        try:
            return await trio.to_thread.run_sync(work, limiter=self._workers)
        except OSError as exc:
            raise disk_error(verb, path, exc.errno or errno.EIO) from exc

    @property
    def sync_thread(self) -> SyncThread:
        if self._sync_thread is None:
            self._sync_thread = SyncThread()
        return self._sync_thread

    async def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> LiveFile:
        flags = os.O_RDONLY if readonly else os.O_RDWR
        if create:
            flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
        return await self._open(path, flags, 0o640)

    async def _open(self, path: str, flags: int, mode: int) -> LiveFile:
        descriptor = await self.call("open", path, lambda: os.open(path, flags | os.O_CLOEXEC, mode))
        return LiveFile(self, path, descriptor)

    async def create_file(self, path: str, content: Sequence[Buffer]) -> LiveFile:
        descriptor = await self.call("create", path, lambda: make_file(path, content))
        return LiveFile(self, path, descriptor)

    async def rename(self, source: str, target: str) -> None:
        await self.call("rename", source, lambda: os.replace(source, target))

    async def unlink(self, path: str) -> None:
        await self.call("remove", path, lambda: os.unlink(path))

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        def make() -> None:
            if parents:
                os.makedirs(path, 0o750, exist_ok=True)
                return
            try:
                os.mkdir(path, 0o750)
            except FileExistsError:
                if not os.path.isdir(path):
                    raise

        await self.call("make directory", path, make)

    async def rmdir(self, path: str) -> None:
        await self.call("remove directory", path, lambda: os.rmdir(path))

    async def list(self, path: str) -> list[DirectoryEntry]:
        def scan() -> list[DirectoryEntry]:
            with os.scandir(path) as entries:
                found = []
                for entry in entries:
                    is_directory = entry.is_dir(follow_symlinks=False)
                    size = 0 if is_directory else entry.stat(follow_symlinks=False).st_size
                    found.append(DirectoryEntry(entry.name, is_directory, size))
            return sorted(found, key=lambda entry: entry.name)

        return await self.call("list", path, scan)

    async def sync_dir(self, path: str) -> None:
        def sync() -> None:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

        await self.call("sync directory", path, sync)

    async def free_bytes(self, path: str) -> int:
        def ask() -> int:
            stat = os.statvfs(path)
            return stat.f_bavail * stat.f_frsize

        return await self.call("ask for free space of", path, ask)

    async def lock(self, path: str) -> LiveLock:
        def take() -> int:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(descriptor)
                raise StoreLocked(
                    f"{path} is held by another server on this store (process {holder}); stop it first",
                    errno.EWOULDBLOCK,
                ) from None
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            return descriptor

        return LiveLock(await self.call("lock", path, take))

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
        file = await self._open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)
        try:
            try:
                file.pwrite([data], 0)
                await file.sync()
            finally:
                file.close()
            await self.rename(temporary, path)
        except DiskError:
            with suppress(DiskError):
                await self.unlink(temporary)
            raise
        await self.sync_dir(os.path.dirname(path) or ".")


class LiveFile:
    """One open descriptor."""

    def __init__(self, disk: LiveDisk, path: str, descriptor: int) -> None:
        self._disk = disk
        self._path = path
        self._descriptor = descriptor
        self._calls = 0
        self._unsynced_bytes = 0
        self._closed = False
        self._knows_nowait = hasattr(os, "RWF_NOWAIT")

    @property
    def path(self) -> str:
        return self._path

    def _check(self, verb: str) -> None:
        if self._closed:
            raise disk_error(verb, self._path, errno.EBADF)

    def size(self) -> int:
        self._check("ask for the size of")
        return os.fstat(self._descriptor).st_size

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._check("write")
        total = sum(map(len, buffers))
        self._unsynced_bytes += total
        try:
            if len(buffers) <= IOV_MAX:
                written = os.pwritev(self._descriptor, buffers, offset) if total else 0
            else:
                written = 0
            rest = memoryview(b"".join(buffers))[written:] if written < total else memoryview(b"")
            while rest:
                count = os.pwrite(self._descriptor, rest, offset + total - len(rest))
                rest = rest[count:]
        except OSError as exc:
            raise disk_error("write", self._path, exc.errno or errno.EIO) from exc

    def pread_cached(self, count: int, offset: int) -> bytes | None:
        self._check("read")
        if not self._knows_nowait:
            return None
        buffer = bytearray(count)
        try:
            done = os.preadv(self._descriptor, [buffer], offset, os.RWF_NOWAIT)
        except OSError as exc:
            self._knows_nowait = exc.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
            return None
        if done < count:
            if offset + done < self.size():
                return None
            del buffer[done:]
        return bytes(buffer)

    async def _call(self, verb: str, work: Callable[[], T]) -> T:
        self._check(verb)
        self._calls += 1
        try:
            return await self._disk.call(verb, self._path, work)
        finally:
            self._end_call()

    def _end_call(self) -> None:
        self._calls -= 1
        if self._closed and not self._calls:
            os.close(self._descriptor)

    async def pread(self, count: int, offset: int) -> bytes:
        def read() -> bytes:
            pieces = []
            done = 0
            while done < count:
                piece = os.pread(self._descriptor, count - done, offset + done)
                if not piece:
                    break
                pieces.append(piece)
                done += len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)

        return await self._call("read", read)

    async def preallocate(self, size: int) -> None:
        def allocate() -> None:
            present = os.fstat(self._descriptor).st_size
            if size > present:
                reserve(self._descriptor, present, size)

        await self._call("preallocate", allocate)

    async def truncate(self, size: int) -> None:
        await self._call("truncate", lambda: os.ftruncate(self._descriptor, size))

    def begin_sync(self) -> LiveSyncing:
        self._check("sync")
        self._calls += 1
        unsynced_bytes, self._unsynced_bytes = self._unsynced_bytes, 0
        try:
            thread = self._disk.sync_thread
            return LiveSyncing(self, partial(thread.outcome, thread.begin(self._descriptor, unsynced_bytes)))
        except OSError:  # no descriptors for the way to the thread
            return LiveSyncing(self, self._sync_in_pool)

    async def _sync_in_pool(self) -> int:
        return await self._disk.call("sync", self._path, lambda: calls.sync(self._descriptor))

    def end_sync(self, error: int) -> None:
        """A sync has ended, with 0 or errno. Raises DiskError if it failed."""
        self._end_call()
        if error:
            raise disk_error("sync", self._path, error)

    async def sync(self) -> None:
        await self.begin_sync().wait()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if not self._calls:
                os.close(self._descriptor)


def make_file(path: str, content: Sequence[Buffer]) -> int:
    """The descriptor of a new file with this content, which was written before it got its name. Raises OSError."""
    temporary = path + ".tmp"
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        rest = memoryview(b"".join(content))
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.replace(temporary, path)
    except OSError:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return descriptor


def reserve(descriptor: int, start: int, end: int) -> None:
    """Have room for the bytes from `start`, the file's present end, to `end`. Raises OSError.

    Where the file system cannot reserve room (FUSE, some network file systems), posix_fallocate would write a byte to
    each of thousands of pages; writing the zeros in large pieces comes to the same and takes a tenth of the time.
    """
    import ctypes  # most starts need none of it

    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or libc.fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while fallocate(descriptor, 0, start, end - start) != 0:
        code = ctypes.get_errno()
        if code == errno.EINTR:
            continue
        if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(code, os.strerror(code))
        zeros = bytes(min(ZEROS_SIZE, end - start))
        while start < end:
            start += os.pwrite(descriptor, zeros[: end - start], start)
        return


class LiveLock:
    """A held flock."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LiveSyncing:
    """An fdatasync that was begun."""

    __slots__ = ("_file", "_outcome")

    def __init__(self, file: LiveFile, outcome: Callable[[], Awaitable[int]]) -> None:
        """`outcome` awaits its end: 0 or errno."""
        self._file = file
        self._outcome = outcome

    async def wait(self) -> None:
        try:
            error = await self._outcome()
        except trio.Cancelled:  # the call goes on, and what it needs must outlive it; the next checkpoint is cancelled
            with trio.CancelScope(shield=True):
                error = await self._outcome()
        self._file.end_sync(error)
