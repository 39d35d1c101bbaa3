"""Progress on standard error, drawn with rich: imported only where some is shown."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


def drawing(*columns: ProgressColumn) -> Progress:
    """Drawn if it is a terminal, and gone afterwards."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class Steps:
    """Where nothing is drawn (no terminal): a plain line on standard error for each tenth of the way."""

    TENTHS = 10

    def __init__(self, progress: Progress) -> None:
        self._is_wanted = progress.disable
        self._tenth = 0

    def __call__(self, share: float, text: str) -> None:
        """So much of 1 is done, and `text` is what there is to say."""
        tenth = int(share * self.TENTHS)
        if self._is_wanted and tenth > self._tenth:
            self._tenth = tenth
            print(text, file=sys.stderr, flush=True)


class Bar:
    """A context manager around the drawing; gives the function that moves it on."""

    def __init__(self, title: str, total: int, *, in_bytes: bool = False) -> None:
        """`total` and what it is called with count messages, or bytes."""
        self._progress = drawing(
            TextColumn("{task.description}"),
            BarColumn(),
            *((DownloadColumn(binary_units=True), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)),
            TimeRemainingColumn(),
        )
        self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> Bar:
        """Draw it; call it with the number of messages or bytes done since."""
        self._progress.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, count: int) -> None:
        """`count` more are done."""
        self._progress.advance(self._task, count)
