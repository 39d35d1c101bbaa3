"""How long acknowledgements wait for their sync, as notes on the server's lane: what a report shows of durability.

A server with a sync interval acknowledges first. From the first acknowledgement until a good sync of the journal that
began behind it has ended, a loss of power would take what was acknowledged: each such while is one note. (A server that
acknowledges what is synced has none: C29 sees to it.)
"""

from __future__ import annotations

from collections.abc import Callable

from tnats.harness.sim.recording import Note, Recording

VOLATILE = "volatile"


class SyncLag:
    """Of one server. Times are nanoseconds of `now_ns`."""

    def __init__(self, recording: Recording, lane: str, now_ns: Callable[[], int]) -> None:
        self._recording = recording
        self._lane = lane
        self._now_ns = now_ns
        self._note: Note | None = None
        self._first_ns = self._last_ns = 0
        """When the first and the last one of those that wait were acknowledged."""

    def acked(self) -> None:
        """A client got an acknowledgement."""
        self._last_ns = self._now_ns()
        if self._note is None:
            self._begin(self._last_ns)

    def synced(self, began_ns: int) -> None:
        """A good sync of the journal, which began at `began_ns`, has ended."""
        if self._note is not None and began_ns >= self._first_ns:
            self.end()
            if self._last_ns > began_ns:
                self._begin(began_ns)

    def end(self) -> None:
        """Nothing waits any more: it is synced, or lost."""
        if self._note is not None:
            self._recording.end(self._note)
            self._note = None

    def _begin(self, first_ns: int) -> None:
        self._first_ns = first_ns
        self._note = self._recording.note(self._lane, VOLATILE, "acknowledged, not durable yet")
