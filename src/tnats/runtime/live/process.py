"""The process as the operating system sees it: signals, logs, memory, boot."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from errno import EILSEQ, EINVAL

import trio

from tnats.runtime.api import DiskError, LogSink
from tnats.runtime.live.log_sink import FileSink, StderrSink

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def complete_standard_streams() -> None:
    """Open on the null device what of the three the process was started without.

    A file of the store could get the number otherwise, and be written to as the log.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            lowest = os.open(os.devnull, os.O_RDWR)  # which is the one that is missing
            setattr(sys, name, os.fdopen(lowest, mode, closefd=False))


class LiveSignals:
    """`tnats.runtime.api.SignalReceiver` on trio's signal receiver."""

    def __init__(self, arriving: AsyncIterator[int] | None) -> None:
        self._arriving = arriving

    async def next(self) -> str:
        if self._arriving is None:
            await trio.sleep_forever()
            raise AssertionError("unreachable")
        return signal.Signals(await self._arriving.__anext__()).name.removeprefix("SIG")


class LiveProcess:
    """`tnats.runtime.api.Process` of this operating-system process."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv
        self._bug_sink: LogSink = StderrSink()

    @property
    def argv(self) -> Sequence[str]:
        return self._argv

    @property
    def environment(self) -> Mapping[str, str]:
        return os.environ

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def core_count(self) -> int:
        return len(os.sched_getaffinity(0))

    def signals(self) -> AbstractContextManager[LiveSignals]:
        """Outside the main thread (an embedded server) no signal ever arrives: they belong to the host program."""
        return receive_signals()

    def open_log(self, target: str, *, size_max: int = 0, backups_max: int = 0) -> LogSink:
        sink: LogSink = (
            StderrSink() if target == "stderr" else FileSink(target, size_max=size_max, backups_max=backups_max)
        )
        self._bug_sink = sink
        return sink

    def read_text(self, path: str) -> str:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            raise DiskError(f"open {path}: {(error.strerror or str(error)).lower()}", error.errno or 0) from None
        except UnicodeDecodeError as error:
            raise DiskError(f"{path}: not UTF-8 at byte {error.start}", EILSEQ) from None
        except ValueError as error:
            raise DiskError(f"open {path!r}: {error}", EINVAL) from None

    def on_bug(self, exc: BaseException, where: str) -> None:
        """Goes to the log opened last, or to standard error."""
        for line in (f"[ERR] internal error in {where}:", *"".join(traceback.format_exception(exc)).splitlines()):
            self._bug_sink.write(line)

    def memory_bytes(self) -> int:
        try:
            with open("/proc/self/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # no descriptor is left
            return 0

    def memory_total_bytes(self) -> int:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            try:
                with open(path, "rb") as file:
                    limit = file.read().strip()
            except OSError:
                continue
            if limit.isdigit():
                total = min(total, int(limit))
        return total

    def cpu_time_ns(self) -> int:
        return time.process_time_ns()

    def boot_id(self) -> str:
        told = os.environ.get("TNATS_BOOT_ID")  # by a test that loses a store's power, and not the machine's
        if told:
            return told
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()


@contextmanager
def receive_signals() -> Iterator[LiveSignals]:
    """The context manager behind `LiveProcess.signals`."""
    if threading.current_thread() is not threading.main_thread():
        yield LiveSignals(None)
        return
    with trio.open_signal_receiver(*SIGNALS) as arriving:
        yield LiveSignals(arriving)
