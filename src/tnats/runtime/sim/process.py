"""The simulated process: injected signals, captured logs, bugs that end the run."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from errno import ENOENT

import trio

from tnats.runtime.api import DiskError, LogSink
from tnats.runtime.sim import trace as kinds
from tnats.runtime.sim.life import Life

LINES_KEPT_MAX = 10_000
OF_THE_BUILD = "Running interpreted"
"""In what a server says of its build: kept, but no event of the run, which must not depend on the build."""


class BugFound(BaseException):
    """What `Process.on_bug` raises in simulation. Not an Exception, so that no bulkhead takes it for a small matter."""


class SimLog:
    """`tnats.runtime.api.LogSink` kept in memory: (virtual time in ns, line), the last `LINES_KEPT_MAX`."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def write(self, line: str) -> None:
        self._life.check()
        node = self._life.node
        node.log_lines.append((node.world.timeline.now_ns, line))
        if OF_THE_BUILD not in line:
            node.world.trace.add(kinds.LOG, self._life.number, zlib.crc32(line.encode("utf-8", "backslashreplace")))

    def reopen(self) -> None:
        self._life.check()

    def close(self) -> None:
        self._life.check()


class SimSignals:
    """`tnats.runtime.api.SignalReceiver` fed by `Node.signal`."""

    def __init__(self) -> None:
        self._arrived: deque[str] = deque()
        self._lot = trio.lowlevel.ParkingLot()

    def deliver(self, name: str) -> None:
        """A signal arrives."""
        self._arrived.append(name)
        self._lot.unpark()

    async def next(self) -> str:
        while not self._arrived:
            await self._lot.park()
        return self._arrived.popleft()


class SimProcess:
    """`tnats.runtime.api.Process` of one incarnation."""

    def __init__(self, life: Life, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.receiver: SimSignals | None = None
        self._life = life
        self._argv = tuple(argv)
        self._environment = dict(environment)

    @property
    def argv(self) -> Sequence[str]:
        return self._argv

    @property
    def environment(self) -> Mapping[str, str]:
        return self._environment

    @property
    def pid(self) -> int:
        return 1000 + self._life.number

    @property
    def core_count(self) -> int:
        return 2

    def signals(self) -> AbstractContextManager[SimSignals]:
        self._life.check()
        return self._receive_signals()

    @contextmanager
    def _receive_signals(self) -> Iterator[SimSignals]:
        self.receiver = SimSignals()
        try:
            yield self.receiver
        finally:
            self.receiver = None

    def open_log(self, target: str, *, size_max: int = 0, backups_max: int = 0) -> LogSink:
        self._life.check()
        return SimLog(self._life)

    def read_text(self, path: str) -> str:
        self._life.check()
        try:
            return self._life.node.texts[path]
        except KeyError:
            raise DiskError(f"open {path}: no such file or directory", ENOENT) from None

    def on_bug(self, exc: BaseException, where: str) -> None:
        self._life.check()
        raise BugFound(f"{self._life.node.name}: {where}: {type(exc).__name__}: {exc}") from exc

    def memory_bytes(self) -> int:
        self._life.check()
        return 64 * 1024 * 1024

    def memory_total_bytes(self) -> int:
        return self._life.node.memory_total_bytes

    def cpu_time_ns(self) -> int:
        self._life.check()
        return self._life.node.world.timeline.now_ns // 10

    def boot_id(self) -> str:
        self._life.check()
        return f"{self._life.node.name}-boot-{self._life.node.boot_count}"
