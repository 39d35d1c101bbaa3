"""Log lines to standard error or to a file that rotates by size.

A full file is renamed to `NAME.YYYY.MM.DD.hh.mm.ss.nnnnnnnnn` (nats-server's form, `logfile_size_limit`), and the
oldest of these beyond the number to keep are removed. What cannot be written is dropped and counted: a server
does not stop for its log.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from tnats.runtime.api import DiskError

STAMP = r"\d{4}\.\d\d\.\d\d\.\d\d\.\d\d\.\d\d(\.\d{1,9})?"
"""The date of a rotated file's name; compiled when it is first needed, since most starts are not."""


class StderrSink:
    """`tnats.runtime.api.LogSink` on the standard error of the process."""

    def __init__(self) -> None:
        self.dropped_count = 0

    def write(self, line: str) -> None:
        try:
            write_all(2, line)
        except OSError:
            self.dropped_count += 1

    def reopen(self) -> None:
        pass

    def close(self) -> None:
        pass


class FileSink:
    """`tnats.runtime.api.LogSink` on a file. `size_max` in bytes (0: no rotation), `backups_max` 0 keeps all."""

    def __init__(self, path: str, *, size_max: int, backups_max: int) -> None:
        self.dropped_count = 0
        self._path = path
        self._size_max = size_max
        self._backups_max = backups_max
        self._fd = -1
        self._size = 0
        self._open()

    def _open(self) -> None:
        try:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        except OSError as exc:
            raise DiskError(f"cannot open log file {self._path}: {exc.strerror}", exc.errno or 0) from None
        self._size = os.fstat(self._fd).st_size

    def write(self, line: str) -> None:
        try:
            self._size += write_all(self._fd, line)
            if 0 < self._size_max < self._size:
                self._rotate()
        except (OSError, DiskError):
            self.dropped_count += 1

    def _rotate(self) -> None:
        now_ns = time.time_ns()
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(now_ns // 1_000_000_000))
        with suppress(FileNotFoundError):  # it was moved before, and no new one could be opened then
            os.rename(self._path, f"{self._path}.{stamp}.{now_ns % 1_000_000_000:09d}")
        self.reopen()
        if self._backups_max > 0:
            for backup in self._backups()[: -self._backups_max]:
                os.unlink(backup)

    def _backups(self) -> list[str]:
        """Paths of the rotated files, oldest first."""
        directory, name = os.path.split(self._path)
        prefix = name + "."
        found = [
            entry
            for entry in os.listdir(directory or ".")
            if entry.startswith(prefix) and re.fullmatch(STAMP, entry[len(prefix) :])
        ]
        return [os.path.join(directory, entry) for entry in sorted(found)]

    def reopen(self) -> None:
        old = self._fd
        self._open()
        if old >= 0:
            os.close(old)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def write_all(fd: int, line: str) -> int:
    """Write `line` and a newline to `fd`; returns the number of bytes."""
    data = memoryview((line + "\n").encode("utf-8", "backslashreplace"))
    total = len(data)
    while data:
        data = data[os.write(fd, data) :]
    return total
