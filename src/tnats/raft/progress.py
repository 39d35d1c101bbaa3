"""What a leader knows of one member: how far it matches, what is in flight to it, whether it counts.

States (as in etcd's raft): PROBE sends one message and waits for its answer, REPLICATE streams optimistically within
a window, SNAPSHOT waits until a snapshot has arrived there.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum


class Flow(IntEnum):
    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


class Progress:
    """One member as its leader sees it.

    match         highest index known to be durable there
    next          index to send next; next > match
    sound         its acknowledgements count (`Standing.SOUND` in its latest answer)
    active        heard from since the last check of the quorum
    incarnation   boot that the answers come from
    commit_sent   highest commit index told to it
    round         latest read round it answered
    loading       entries for it are being read from disk
    """

    __slots__ = (
        "active",
        "commit_sent",
        "flow",
        "incarnation",
        "inflight",
        "inflight_bytes",
        "loading",
        "match",
        "next",
        "probe_sent",
        "round",
        "sound",
    )

    def __init__(self, next_index: int, incarnation: int = 0) -> None:
        self.match = 0
        self.next = next_index
        self.flow = Flow.PROBE
        self.sound = False
        self.active = False
        self.incarnation = incarnation
        self.commit_sent = 0
        self.round = 0
        self.probe_sent = False
        self.loading = False
        self.inflight: deque[tuple[int, int]] = deque()
        self.inflight_bytes = 0

    def probe(self, next_index: int) -> None:
        """Back to one message at a time from `next_index` on."""
        self.flow = Flow.PROBE
        self.next = max(next_index, self.match + 1)
        self.probe_sent = False
        self.loading = False
        self.inflight.clear()
        self.inflight_bytes = 0

    def replicate(self) -> None:
        self.probe(self.match + 1)
        self.flow = Flow.REPLICATE

    def wait_snapshot(self) -> None:
        self.probe(self.match + 1)
        self.flow = Flow.SNAPSHOT

    def forget(self, next_index: int, incarnation: int) -> None:
        """The member came back without its memory: nothing it acknowledged before counts."""
        self.match = 0
        self.sound = False
        self.incarnation = incarnation
        self.commit_sent = 0
        self.round = 0
        self.probe(next_index)

    def sent(self, last_index: int, size: int) -> None:
        self.next = last_index + 1
        self.inflight.append((last_index, size))
        self.inflight_bytes += size

    def acknowledged(self, index: int) -> bool:
        """Note that everything up to `index` is durable there. Whether that is news."""
        inflight = self.inflight
        while inflight and inflight[0][0] <= index:
            self.inflight_bytes -= inflight.popleft()[1]
        if index <= self.match:
            return False
        self.match = index
        if self.next <= index:
            self.next = index + 1
        return True
