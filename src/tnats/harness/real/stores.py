"""Where a server under test keeps its data, with what can be done to it: a plain directory, or the fault file system.

Both offer the same damage at rest; only the fault file system can lose what was not synced, fail calls, and say
whether bytes would outlive a power loss now.
"""

from __future__ import annotations

import base64
import errno
import fnmatch
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import trio

from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.warden import unmount
from tnats.harness.real.workplace import Workplace, last_line
from tnats.runtime.sim.disk_faults import flip_bits

FILE_SYSTEM = (sys.executable, "-m", "tnats.harness.real.faultfs_process")
MOUNT_TIMEOUT_S = 20.0
COMMAND_TIMEOUT_S = 60.0
REPLY_BYTES_MAX = 16 << 20

FILE_CLASSES = {
    "block": ("*/streams/*/msgs/*.blk", "*/streams/*/*.seg"),
    "index": ("*/streams/*/msgs/index.db",),
    "meta": ("*/streams/*/meta.inf", "*/streams/*/meta.sum"),
    "consumer": ("*/obs/*/o.dat",),
    "wal": ("*/_js_/*/msgs/*.blk", "*/journal/*.part"),
    "snapshot": ("*/_js_/*/snapshots/snap*",),
    "any": ("*",),
}
"""What scenario files call the files of a store: patterns over paths, of nats-server's layout and of ours. In ours,
one journal holds the newest records of all streams."""


class Store(Protocol):
    """A store directory."""

    @property
    def path(self) -> Path:
        """What the server gets as `store_dir`."""

    async def files(self, file_class: str) -> list[tuple[str, int]]:
        """(path, size) of the files of a class (see `FILE_CLASSES`), by path."""

    def read(self, path: str) -> bytes:
        """The content of one of them."""

    async def flip(self, path: str, bits: int) -> None:
        """Flip so many bits, drawn over the whole file. Raises FileNotFoundError when it is gone meanwhile."""

    async def truncate(self, path: str) -> int:
        """Cut a drawn number of bytes off the end, small cuts likelier; returns how many. Raises like `flip`."""

    async def power_loss(self, policy: str) -> None:
        """Lose what was not synced. The server must be dead."""

    def wipe(self) -> None:
        """Remove everything. The server must be dead."""

    async def survives(self, data: bytes) -> bool | None:
        """Whether `data` would be found after a power loss now; None where that cannot be known."""


def matches(path: str, file_class: str) -> bool:
    """Whether `path` is a file of that class, or of one of several with bars between them."""
    patterns = (pattern for name in file_class.split("|") for pattern in FILE_CLASSES[name])
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


class DirectoryStore:
    """Files of the machine's own file system. It has no power to lose.

    Damage hits what was written: zeros at the end of a file count as room that was preallocated.
    """

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path = path
        self._rng = rng

    async def files(self, file_class: str) -> list[tuple[str, int]]:
        found = []
        for directory, _, names in os.walk(self.path):
            for name in names:
                path = os.path.join(directory, name)
                if matches(path, file_class):
                    with suppress(FileNotFoundError):  # its server has just replaced it
                        found.append((path, os.path.getsize(path)))
        return sorted(found)

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    async def flip(self, path: str, bits: int) -> None:
        with open(path, "r+b") as file:
            data = file.read().rstrip(b"\0")
            changed = flip_bits(data, bits, self._rng)
            for offset in (index for index in range(len(data)) if data[index] != changed[index]):
                file.seek(offset)
                file.write(changed[offset : offset + 1])

    async def truncate(self, path: str) -> int:
        size = len(Path(path).read_bytes().rstrip(b"\0"))
        count = min(size, int(size ** self._rng.random()))
        os.truncate(path, size - count)
        return count

    async def power_loss(self, policy: str) -> None:
        raise CouldNotRun("power loss needs the fault file system")

    def wipe(self) -> None:
        empty(self.path)

    async def survives(self, data: bytes) -> bool | None:
        return None


class FaultFs:
    """A mounted fault file system; commands go to its process (see `faultfs_process`)."""

    def __init__(self, path: Path, process: trio.Process, log: Path) -> None:
        self.path = path
        self._process = process
        self._log = log
        self._lock = trio.Lock()
        self._buffer = bytearray()

    async def command(self, **command: Any) -> Any:
        """Carry out one command; returns its answer. Raises CouldNotRun when the process refuses or is gone."""
        assert self._process.stdin is not None
        answer: dict[str, Any] = {"error": f"no answer within {COMMAND_TIMEOUT_S:g} s"}
        # shielded: an answer that nobody takes would be taken for the next one's
        scope = trio.CancelScope(shield=True, relative_deadline=COMMAND_TIMEOUT_S)
        async with self._lock:
            with scope:
                try:
                    await self._process.stdin.send_all(json.dumps(command).encode() + b"\n")
                    answer = await self._answer()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    answer = self._ended()
        if "error" in answer:
            raise CouldNotRun(f"fault file system: {command['do']}: {answer['error']}")
        return answer["ok"]

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while (end := self._buffer.find(b"\n")) < 0:
            chunk = await self._process.stdout.receive_some()
            if not chunk or len(self._buffer) > REPLY_BYTES_MAX:
                raise trio.BrokenResourceError("its process ended")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> dict[str, Any]:
        """Instead of an answer."""
        return {"error": f"its process ended; its log ends with: {last_line(self._log)}"}

    async def wait_mounted(self) -> None:
        """Wait for the first line. Raises CouldNotRun."""
        with trio.move_on_after(MOUNT_TIMEOUT_S):
            try:
                answer = await self._answer()
            except trio.BrokenResourceError:
                answer = self._ended()
            if "error" in answer:
                raise CouldNotRun(f"fault file system: {answer['error']}")
            return
        raise CouldNotRun(f"fault file system: not mounted within {MOUNT_TIMEOUT_S:g} s")

    async def files(self, file_class: str) -> list[tuple[str, int]]:
        listed = await self.command(do="list", glob="*")
        return [(path, size) for path, size in listed if matches(path, file_class)]

    def read(self, path: str) -> bytes:
        return (self.path / path.lstrip("/")).read_bytes()

    async def flip(self, path: str, bits: int) -> None:
        await self.command(do="flip", path=path, bits=bits)

    async def truncate(self, path: str) -> int:
        count: int = await self.command(do="truncate", path=path)
        return count

    async def power_loss(self, policy: str) -> None:
        await self.command(do="power", policy=policy)

    def wipe(self) -> None:
        empty(self.path)

    async def survives(self, data: bytes) -> bool | None:
        answer: bool = await self.command(do="survives", base64=base64.b64encode(data).decode(), glob="*")
        return answer


def empty(path: Path) -> None:
    """Remove everything in a directory."""
    for entry in path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def missing_for_mount() -> str | None:
    """What this machine lacks for the fault file system, in one line; None if nothing."""
    if find_spec("pyfuse3") is None:
        return "the fault file system needs pyfuse3: pip install '.[jepsen]' in the clone"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        reason = os.strerror(errno.EACCES if os.path.exists("/dev/fuse") else errno.ENOENT)
        return f"the fault file system needs /dev/fuse: {reason}"
    if shutil.which("fusermount3") is None:
        return "the fault file system needs fusermount3 (Debian: apt install fuse3)"
    return None


@asynccontextmanager
async def open_fault_fs(
    workplace: Workplace, name: str, seed: int, *, names: str, write_back_s: float
) -> AsyncIterator[FaultFs]:
    """Mount a fresh fault file system for the length of the block, as the disk of the node `name`. `names` and
    `write_back_s`: see `faultfs`.

    Raises CouldNotRun.
    """
    lacking = missing_for_mount()
    if lacking is not None:
        raise CouldNotRun(lacking)
    path = workplace.directory / f"{name}-disk"
    path.mkdir()
    log = workplace.directory / f"{name}-faultfs.log"
    process = await workplace.start(
        [*FILE_SYSTEM, str(path), str(seed), names, str(write_back_s)],
        log=log,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    store = FaultFs(path, process, log)
    try:
        await store.wait_mounted()
        yield store
    finally:
        with trio.CancelScope(shield=True):
            assert process.stdin is not None
            await process.stdin.aclose()
            with trio.move_on_after(MOUNT_TIMEOUT_S):
                await workplace.wait(process)
            await workplace.kill(process)
            await trio.to_thread.run_sync(unmount, str(path))  # is still there if the process was killed
