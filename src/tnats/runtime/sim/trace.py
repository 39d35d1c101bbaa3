"""What happened, as a hash: equal hashes of two runs mean the same task steps and seam calls in the same order.

Every event is four integers: virtual time, kind, subject (a connection, a file, a task), and what (a length with
a checksum, a count). They are hashed in large portions. With `keep_lines` the same events are kept as text too,
so that two runs that differ can be compared line by line.
"""

from __future__ import annotations

import hashlib
from array import array

from tnats.runtime.sim.timeline import Timeline

PORTION = 8192

STEP = 0
KINDS = (
    "step",
    "connect",
    "accept",
    "read",
    "write",
    "close",
    "broken",
    "listen",
    "sleep",
    "offload",
    "entropy",
    "rng",
    "log",
    "node",
    "disk",
    "rule",
    "note",
)
CONNECT, ACCEPT, READ, WRITE, CLOSE, BROKEN, LISTEN, SLEEP, OFFLOAD, ENTROPY, RNG, LOG = range(1, 13)
NODE, DISK, RULE, NOTE = range(13, len(KINDS))


class Trace:
    """A running hash over the events of one simulated world."""

    def __init__(self, timeline: Timeline, *, keep_lines: bool = False) -> None:
        self.lines: list[str] | None = [] if keep_lines else None
        self.event_count = 0
        self._timeline = timeline
        self._hash = hashlib.blake2b(digest_size=16)
        self._pending: list[int] = []

    def add(self, kind: int, subject: int, what: int) -> None:
        """One event now; the integers are below 2**63."""
        pending = self._pending
        pending += (self._timeline.now_ns, kind, subject, what)
        if self.lines is not None:
            self.lines.append(f"{self._timeline.now_ns} {KINDS[kind]} {subject} {what}")
        if len(pending) >= PORTION:
            self._flush()

    def steps(self, tasks: list[int]) -> None:
        """A batch of task steps, in running order."""
        pending = self._pending
        pending += (self._timeline.now_ns, STEP, len(tasks))
        pending += tasks
        if self.lines is not None:
            self.lines.append(f"{self._timeline.now_ns} step {' '.join(map(str, tasks))}")
        if len(pending) >= PORTION:
            self._flush()

    def _flush(self) -> None:
        self.event_count += len(self._pending) // 4
        self._hash.update(array("q", self._pending).tobytes())
        self._pending.clear()

    def hexdigest(self) -> str:
        """The hash over all events so far."""
        self._flush()
        return self._hash.hexdigest()
