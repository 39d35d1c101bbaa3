"""The process as an embedded server sees it: its log is memory, its bugs are remembered, signals are not its own."""

from __future__ import annotations

import traceback
from collections import deque

from tnats.runtime.api import LogSink
from tnats.runtime.live.process import LiveProcess


class MemorySink:
    """A `tnats.runtime.api.LogSink` into a deque."""

    def __init__(self, lines: deque[str]) -> None:
        self._lines = lines

    def write(self, line: str) -> None:
        self._lines.append(line)

    def reopen(self) -> None:
        """There is no file."""

    def close(self) -> None:
        """The lines are kept."""


class EmbeddedProcess(LiveProcess):
    """The real process, but for the log on standard error and for bugs."""

    def __init__(self, lines: deque[str], bugs: list[str], *, boot: int = 1) -> None:
        """`boot` counts the times that the machine, as far as this server knows, has started."""
        super().__init__(("tnats",))
        self._boot = boot
        self._lines = lines
        self._bugs = bugs

    def open_log(self, target: str, *, size_max: int = 0, backups_max: int = 0) -> LogSink:
        if target == "stderr":
            return MemorySink(self._lines)
        return super().open_log(target, size_max=size_max, backups_max=backups_max)

    def boot_id(self) -> str:
        """Another one after each power cut."""
        return f"{super().boot_id()}-{self._boot}"

    def on_bug(self, exc: BaseException, where: str) -> None:
        """Kept, so that stopping the server raises."""
        self._bugs.append(f"in {where}:\n" + "".join(traceback.format_exception(exc)))
