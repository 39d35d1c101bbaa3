"""The fault file system: the simulated disk, mounted, so that a real server process can be run on it.

One disk model serves both halves of the harness. `tnats.runtime.sim.disk_image` says what the medium and the page
cache hold and what a power loss keeps; here its calls are answered over FUSE instead of over the seam. The content
lives in memory and outlives the server process, as a disk does.

Rules
-----
* The kernel caches nothing: names and attributes have no lifetime, reads and writes are direct. What a program wrote
  is in the *model's* page cache, and only `fsync`, `fdatasync`, a directory's `fsync`, or a write through a
  descriptor opened with O_SYNC or O_DSYNC moves it to the model's medium.
* Names follow one of two rules. "posix": a name is durable once its directory was synced, and nothing else makes it
  so. "journal": any sync also commits the names made before it, as the journals of ext4 and XFS do.
* With write-back, what was written becomes durable without any sync after so long (Linux: 30 s), and with the rule of
  a journal names are committed a sixth of that apart (ext4: 5 s).
* `power_loss` is called after the server was killed. Handles from before it answer EIO.
* Faults are the rules of `tnats.runtime.sim.disk_faults`, met in the order in which calls arrive.

Not offered, since no server of ours needs them: links, extended attributes, shared writable mappings.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import random
import stat
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Literal, ParamSpec, TypeVar

import pyfuse3
import trio

from tnats.records import define
from tnats.runtime.sim.disk import SimDrive
from tnats.runtime.sim.disk_faults import Delay, Effect, Fail, Flip, Kind, Lose, Misdirect, SyncFault, flip_bits
from tnats.runtime.sim.disk_image import ROOT, CrashPolicy, ImageError

BLOCK_SIZE = 4096
WRITE_BACK_STEPS = 6
SEARCH_SIZE = 1024 * 1024
"""Files are searched in pieces of this size: what was written last often stands in front of room set aside."""
SYNC_FLAGS = os.O_SYNC | os.O_DSYNC

T = TypeVar("T")
P = ParamSpec("P")


@define
class Handle:
    """One open file or directory. `epoch` counts power losses: an older one is dead."""

    number: int
    path: str
    epoch: int
    sync_writes: bool = False


def answered(call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Turn what the model refuses into what FUSE answers."""

    async def answer(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return await call(*arguments, **options)
        except ImageError as exc:
            raise pyfuse3.FUSEError(exc.code) from None
        except KeyError:  # a node that a power loss has taken away
            raise pyfuse3.FUSEError(errno.EIO) from None

    return answer


class FaultFileSystem(pyfuse3.Operations):
    """The mounted disk. Calls arrive from pyfuse3's tasks; each changes the model in one step."""

    def __init__(self, drive: SimDrive, names: Literal["posix", "journal"]) -> None:
        super().__init__()
        self.drive = drive
        self._commits_names = names == "journal"
        self._changed_directories: dict[int, None] = {}
        self._dirty_files: dict[int, None] = {}
        self._epoch = 0
        self._handles: dict[int, Handle] = {}
        self._next_handle = 1
        self._places: dict[int, tuple[int, str]] = {}
        self._modes: dict[int, int] = {}
        self._changed_ns: dict[int, int] = {}
        self._start_ns = time.time_ns()
        self.call_counts: dict[str, int] = {}

    # ---------------------------------------------------------------- what the control channel asks

    def power_loss(self, policy: CrashPolicy) -> None:
        """Lose what `policy` does not spare."""
        self._epoch += 1
        self._changed_directories.clear()
        self._dirty_files.clear()
        self.drive.power_loss(policy)

    def would_survive(self, text: bytes, glob: str) -> bool:
        """Whether a power loss now would leave `text` in some file that still has its name (the strictest policy)."""
        image = self.drive.image.clone()
        image.crash(CrashPolicy.STRICT, random.Random(0))
        numbers = [image.file(path) for path in image.walk() if fnmatch.fnmatchcase(path, glob)]
        numbers.sort(key=lambda number: self._changed_ns.get(number, 0), reverse=True)
        return any(
            text in image.read(number, SEARCH_SIZE + len(text), offset)
            for number in numbers
            for offset in range(0, image.size(number), SEARCH_SIZE)
        )

    async def write_back(self, age_s: float) -> None:
        """Be the kernel's write-back, until cancelled: data that is `age_s` old reaches the medium by itself."""
        bounds: deque[int] = deque(maxlen=WRITE_BACK_STEPS)
        while True:
            await trio.sleep(age_s / WRITE_BACK_STEPS)
            self._commit_names()
            if len(bounds) == WRITE_BACK_STEPS:
                for number in list(self._dirty_files):
                    self.drive.image.sync_file(number, bounds[0])
                    if not self.drive.image.has_pending(number):
                        del self._dirty_files[number]
            bounds.append(self.drive.image.operation_count)

    # ---------------------------------------------------------------- paths and attributes

    def _path(self, number: int) -> str:
        parts: list[str] = []
        while number != ROOT:
            number, name = self._places[number]
            parts.append(name)
        return "/" + "/".join(reversed(parts))

    def _child_path(self, parent: int, name: bytes) -> str:
        return f"{self._path(parent).rstrip('/')}/{os.fsdecode(name)}"

    def _attributes(self, number: int, *, is_directory: bool) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = number
        entry.entry_timeout = entry.attr_timeout = 0
        mode = self._modes.get(number, 0o755 if is_directory else 0o644)
        entry.st_mode = (stat.S_IFDIR if is_directory else stat.S_IFREG) | mode
        entry.st_nlink = 2 if is_directory else 1
        entry.st_size = 0 if is_directory else self.drive.image.size(number)
        entry.st_blksize = BLOCK_SIZE
        entry.st_blocks = -(-entry.st_size // 512)
        entry.st_uid, entry.st_gid = os.getuid(), os.getgid()
        entry.st_atime_ns = entry.st_mtime_ns = entry.st_ctime_ns = self._changed_ns.get(number, self._start_ns)
        return entry

    def _find(self, parent: int, name: bytes) -> tuple[int, bool]:
        """Node and whether it is a directory."""
        path = self._child_path(parent, name)
        image = self.drive.image
        try:
            number, is_directory = image.file(path), False
        except ImageError as exc:
            if exc.code != errno.EISDIR:
                raise
            number, is_directory = image.directory(path), True
        self._places[number] = (parent, os.fsdecode(name))
        return number, is_directory

    def _touch(self, number: int) -> None:
        self._dirty_files[number] = None
        self._changed_ns[number] = time.time_ns()

    async def _meet(self, kind: Kind, path: str) -> Effect | None:
        """Apply the rules to one call: waits out a delay, raises a plain failure, returns any other effect."""
        self.call_counts[kind] = self.call_counts.get(kind, 0) + 1
        effect, delay = self.drive.meet(kind, path)
        await self._wait(delay)
        if isinstance(effect, Fail) and kind not in ("write", "sync"):
            raise pyfuse3.FUSEError(effect.errno)
        return effect

    async def _wait(self, delay: Delay | None) -> None:
        if delay is not None:
            await trio.sleep(self.drive.latency_ns(0, 0, delay) / 1e9)

    def _open(self, number: int, path: str, flags: int = 0) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = Handle(number, path, self._epoch, bool(flags & SYNC_FLAGS))
        return handle

    def _handle(self, fh: int) -> Handle:
        handle = self._handles[fh]
        if handle.epoch != self._epoch:
            raise pyfuse3.FUSEError(errno.EIO)
        return handle

    # ---------------------------------------------------------------- names

    @answered
    async def lookup(self, parent_inode: int, name: bytes, ctx: object = None) -> pyfuse3.EntryAttributes:
        number, is_directory = self._find(parent_inode, name)
        return self._attributes(number, is_directory=is_directory)

    @answered
    async def getattr(self, inode: int, ctx: object = None) -> pyfuse3.EntryAttributes:
        return self._attributes(inode, is_directory=self._is_directory(inode))

    def _is_directory(self, number: int) -> bool:
        if number == ROOT:
            return True
        try:
            self.drive.image.size(number)
        except AssertionError:
            return True
        return False

    @answered
    async def setattr(
        self, inode: int, attr: pyfuse3.EntryAttributes, fields: pyfuse3.SetattrFields, fh: int | None, ctx: object
    ) -> pyfuse3.EntryAttributes:
        is_directory = self._is_directory(inode)
        if fields.update_size:
            await self._meet("resize", self._path(inode) if fh is None else self._handle(fh).path)
            grown = attr.st_size - self.drive.image.size(inode)
            if grown > 0 and self.drive.image.used_bytes + grown > self.drive.capacity_bytes:
                raise pyfuse3.FUSEError(errno.ENOSPC)
            self.drive.image.resize(inode, attr.st_size)
            self._touch(inode)
        if fields.update_mode:
            self._modes[inode] = stat.S_IMODE(attr.st_mode)
        if fields.update_mtime:
            self._changed_ns[inode] = attr.st_mtime_ns
        return self._attributes(inode, is_directory=is_directory)

    @answered
    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: object) -> pyfuse3.EntryAttributes:
        path = self._child_path(parent_inode, name)
        await self._meet("mkdir", path)
        self.drive.image.make_directory(path)
        self._changed_directories[parent_inode] = None
        number, _ = self._find(parent_inode, name)
        self._modes[number] = stat.S_IMODE(mode)
        self._touch(number)
        return self._attributes(number, is_directory=True)

    @answered
    async def unlink(self, parent_inode: int, name: bytes, ctx: object) -> None:
        path = self._child_path(parent_inode, name)
        await self._meet("unlink", path)
        self.drive.image.remove(path)
        self._changed_directories[parent_inode] = None

    @answered
    async def rmdir(self, parent_inode: int, name: bytes, ctx: object) -> None:
        path = self._child_path(parent_inode, name)
        await self._meet("rmdir", path)
        self.drive.image.remove_directory(path)
        self._changed_directories[parent_inode] = None

    @answered
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: object,
    ) -> None:
        source, target = self._child_path(parent_inode_old, name_old), self._child_path(parent_inode_new, name_new)
        await self._meet("rename", source)
        if flags & pyfuse3.RENAME_EXCHANGE:
            raise pyfuse3.FUSEError(errno.EINVAL)
        if flags & pyfuse3.RENAME_NOREPLACE:
            names = [name for name, _, _ in self.drive.image.entries(self._path(parent_inode_new))]
            if os.fsdecode(name_new) in names:
                raise pyfuse3.FUSEError(errno.EEXIST)
        self.drive.image.rename(source, target)
        self._changed_directories.update({parent_inode_old: None, parent_inode_new: None})
        self._find(parent_inode_new, name_new)

    @answered
    async def opendir(self, inode: int, ctx: object) -> int:
        return self._open(inode, self._path(inode))

    @answered
    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        handle = self._handle(fh)
        path = self._path(handle.number)
        await self._meet("list", path)
        for index, (name, is_directory, _) in enumerate(self.drive.image.entries(path)):
            if index < start_id:
                continue
            number, _ = self._find(handle.number, os.fsencode(name))
            attributes = self._attributes(number, is_directory=is_directory)
            if not pyfuse3.readdir_reply(token, os.fsencode(name), attributes, index + 1):
                return

    async def releasedir(self, fh: int) -> None:
        del self._handles[fh]

    @answered
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        handle = self._handle(fh)
        before = self.drive.image.operation_count
        effect = await self._meet("sync_dir", handle.path)
        if isinstance(effect, SyncFault) and effect.variant in ("once", "sticky"):
            raise pyfuse3.FUSEError(errno.EIO)
        if not isinstance(effect, SyncFault):
            self.drive.image.sync_directory(handle.number, before)
            self._commit_names()

    @answered
    async def statfs(self, ctx: object) -> pyfuse3.StatvfsData:
        found = pyfuse3.StatvfsData()
        found.f_bsize = found.f_frsize = BLOCK_SIZE
        found.f_blocks = self.drive.capacity_bytes // BLOCK_SIZE
        free_bytes = max(0, self.drive.capacity_bytes - self.drive.image.used_bytes)
        found.f_bfree = found.f_bavail = free_bytes // BLOCK_SIZE
        found.f_files, found.f_ffree, found.f_favail = 1 << 20, 1 << 19, 1 << 19
        found.f_namemax = 255
        return found

    # ---------------------------------------------------------------- files

    @answered
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: object
    ) -> tuple[pyfuse3.FileInfo, pyfuse3.EntryAttributes]:
        path = self._child_path(parent_inode, name)
        await self._meet("create", path)
        if not self.drive.image.is_file(path):
            self.drive.image.create(path)
            self._changed_directories[parent_inode] = None
        number, _ = self._find(parent_inode, name)
        self._modes[number] = stat.S_IMODE(mode)
        self._touch(number)
        return (
            pyfuse3.FileInfo(fh=self._open(number, path, flags), direct_io=True),
            self._attributes(number, is_directory=False),
        )

    @answered
    async def open(self, inode: int, flags: int, ctx: object) -> pyfuse3.FileInfo:
        path = self._path(inode)
        await self._meet("open", path)
        if flags & os.O_TRUNC and self.drive.image.size(inode):
            await self._meet("resize", path)
            self.drive.image.resize(inode, 0)
        return pyfuse3.FileInfo(fh=self._open(inode, path, flags), direct_io=True)

    @answered
    async def read(self, fh: int, off: int, size: int) -> bytes:
        handle = self._handle(fh)
        effect = await self._meet("read", handle.path)
        data = self.drive.image.read(handle.number, size, off)
        if isinstance(effect, Flip) and data:
            return flip_bits(data, effect.bits, self.drive.rng)
        return data

    @answered
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        handle = self._handle(fh)
        effect = await self._meet("write", handle.path)
        self._write(handle, off, bytes(buf), effect)
        if handle.sync_writes:
            await self._sync(handle)
        return len(buf)

    def _write(self, handle: Handle, offset: int, data: bytes, effect: Effect | None) -> None:
        image = self.drive.image
        number = handle.number
        if isinstance(effect, Fail):
            image.write(number, data[: effect.written], offset)
            raise pyfuse3.FUSEError(effect.errno)
        if isinstance(effect, Lose):
            return
        if isinstance(effect, Flip) and data:
            data = flip_bits(data, effect.bits, self.drive.rng)
        if isinstance(effect, Misdirect):
            offset = effect.offset
            number = number if effect.path is None else image.file(effect.path)
        grown = max(0, offset + len(data) - image.size(number))
        if image.used_bytes + grown > self.drive.capacity_bytes:
            raise pyfuse3.FUSEError(errno.ENOSPC)
        image.write(number, data, offset)
        self._touch(number)

    @answered
    async def fsync(self, fh: int, datasync: bool) -> None:
        await self._sync(self._handle(fh))

    async def _sync(self, handle: Handle) -> None:
        image = self.drive.image
        before = image.operation_count
        effect = await self._meet("sync", handle.path)
        if isinstance(effect, Fail):
            raise pyfuse3.FUSEError(effect.errno)
        if isinstance(effect, SyncFault):
            if effect.variant in ("once", "silent"):
                image.forget_content(handle.number, before)
            if effect.variant in ("once", "sticky"):
                raise pyfuse3.FUSEError(errno.EIO)
            return
        image.sync_file(handle.number, before)
        self._commit_names()

    def _commit_names(self) -> None:
        """The journal's part of a sync."""
        if self._commits_names:
            for number in self._changed_directories:
                self.drive.image.sync_directory(number)
            self._changed_directories.clear()

    async def flush(self, fh: int) -> None:
        """close(2) promises nothing about the medium."""

    async def release(self, fh: int) -> None:
        del self._handles[fh]
