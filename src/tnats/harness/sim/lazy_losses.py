"""What a server with a sync interval may lose: what it acknowledged between its last good sync and a loss of power.

Rules
-----
* What was acknowledged before a good sync of the journal began is durable, whatever happens then.
* A server that runs begins one within an interval after each acknowledgement; with some slack for what is under way, a
  loss of power takes nothing that is older.
* Nobody syncs for a server that is dead, or that stands still. What it had not synced by then stays in the page cache,
  and out of the promise, until it has synced again: a loss of power takes what came within one interval before it
  stopped, however much later. A server that starts syncs what it finds unproved before it acknowledges anything.
* A sync of the journal that fails freezes it, and nothing is durable any more until a start that writes again what it
  cannot prove; within the start that saw the failure a good sync means nothing. Until then a loss of power takes what
  came within one interval before that failure, and all since. What proves such a start is a good sync, by a later
  start, of the part that failed or of one behind it.
* A write that fails freezes the journal as well, but what stands in it is synced when it is due: nothing is excused.

Source: `docs/storage.md`, "The path of a message" and "When the disk refuses".
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

JOURNAL = ("*/journal", "*/journal/*")
PART = "*/journal/*.part"


class LazyLosses:
    """The times, one after another, whose acknowledgements losses of power may have taken.

    `time_ns` is the history's time, `start_number` tells one start of the server from the others.
    """

    def __init__(
        self,
        window_ns: int,
        time_ns: Callable[[], int],
        start_number: Callable[[], int],
        on_durable: Callable[[int], None] = lambda began_ns: None,
    ) -> None:
        """`on_durable` is told when each good sync that proves something began."""
        self.spans_ns: list[tuple[int, int]] = []
        """(first, last) for each loss of power."""
        self._window_ns = window_ns
        self._time_ns = time_ns
        self._start_number = start_number
        self._on_durable = on_durable
        self._failures: dict[str, tuple[int, int]] = {}
        """File or directory: when its sync failed first since it was last proved durable, and in which start."""
        self._synced_ns = time_ns()
        """When the last good sync began."""
        self._seen_ns = time_ns()
        """When the server was last seen running."""
        self._stopped_ns: int | None = None
        """Since when, at the earliest, it has been dead or has stood still without a sync behind that."""

    def on_sync(self, path: str) -> Callable[[bool], None]:
        """A sync of a file or directory begins; as `SimDrive.on_sync`."""
        began_ns, start = self._time_ns(), self._start_number()
        if any(fnmatchcase(path, pattern) for pattern in JOURNAL):
            return lambda is_good: self._synced(path, began_ns, start, is_good=is_good)
        return lambda is_good: None

    def _synced(self, path: str, began_ns: int, start: int, *, is_good: bool) -> None:
        if not is_good:
            self._failures.setdefault(path, (self._time_ns(), start))
            return
        for failed, (_, failed_start) in list(self._failures.items()):
            if failed <= path and failed_start != start:
                del self._failures[failed]
        if fnmatchcase(path, PART) and not self._failures:
            self._synced_ns = began_ns
            self._on_durable(began_ns)
            if self._stopped_ns is not None and began_ns > self._stopped_ns:
                self._stopped_ns = None

    def look(self, *, is_running: bool) -> None:
        """Somebody looks now and then at whether the server runs."""
        if is_running:
            self._seen_ns = self._time_ns()
        elif self._stopped_ns is None:
            self._stopped_ns = self._seen_ns

    def power_lost(self) -> None:
        """Power fails now."""
        now_ns = self._time_ns()
        stopped_ns = now_ns if self._stopped_ns is None else self._stopped_ns
        since_ns = min([stopped_ns, *(failed_ns for failed_ns, _ in self._failures.values())])
        self.spans_ns.append((max(self._synced_ns, since_ns - self._window_ns), now_ns))
