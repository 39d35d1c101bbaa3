"""What a server that syncs at an interval may lose: what it acknowledged between a good sync and a loss of power.

Rules
-----
* While syncs succeed, that is one interval, and some slack for what was under way.
* A sync of the journal that fails freezes it, and nothing is durable any more until a start that writes again what it
  cannot prove. Until then a loss of power takes what came within one interval before that failure, and all since.
* What proves such a start: a good sync, by a later start of the server, of the part that failed or of one behind it.
  Within the start that saw the failure a good sync means nothing.

Source: `docs/storage.md`, "The path of a message" and "When the disk refuses".
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

JOURNAL = ("*/journal", "*/journal/*")


class LazyLosses:
    """The times, one after another, whose acknowledgements losses of power may have taken.

    `time_ns` is the history's time, `start_number` tells one start of the server from the others.
    """

    def __init__(self, window_ns: int, time_ns: Callable[[], int], start_number: Callable[[], int]) -> None:
        self.spans_ns: list[tuple[int, int]] = []
        """(first, last) for each loss of power."""
        self._window_ns = window_ns
        self._time_ns = time_ns
        self._start_number = start_number
        self._failures: dict[str, tuple[int, int]] = {}
        """File or directory: when its sync failed first since it was last proved durable, and in which start."""

    def on_sync(self, path: str, is_good: bool) -> None:
        """A sync of a file or directory ended; as `SimDrive.on_sync`."""
        if not any(fnmatchcase(path, pattern) for pattern in JOURNAL):
            return
        start = self._start_number()
        if not is_good:
            self._failures.setdefault(path, (self._time_ns(), start))
            return
        for failed, (_, failed_start) in list(self._failures.items()):
            if failed <= path and failed_start != start:
                del self._failures[failed]

    def power_lost(self) -> None:
        """Power fails now."""
        now_ns = self._time_ns()
        since_ns = min([now_ns, *(failed_ns for failed_ns, _ in self._failures.values())])
        self.spans_ns.append((since_ns - self._window_ns, now_ns))
