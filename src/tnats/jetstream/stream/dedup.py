"""Message ids of the duplicate window (Nats-Msg-Id; ADR-1 and the JetStream documentation, "Message deduplication").

An id counts for `window_ns` from the time of its message, whether the message is still there or not. Rebuilt
after a restart from a snapshot or from the stored messages of the window.
"""

from __future__ import annotations

from collections import deque


class DuplicateWindow:
    """Ids with the sequence and time of their message, oldest first."""

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self.last = (b"", 0)
        """Id and sequence of the newest message that had an id (Nats-Expected-Last-Msg-Id)."""
        self._known: dict[bytes, tuple[int, int]] = {}
        self._order: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, msg_id: bytes, now_ns: int) -> int:
        """The sequence stored under this id within the window, 0 if there is none.

        Changes nothing: the leader alone asks, and its replicas must remain alike.
        """
        seq, ts_ns = self._known.get(msg_id, (0, 0))
        return seq if ts_ns > now_ns - self.window_ns else 0

    def add(self, msg_id: bytes, seq: int, ts_ns: int) -> None:
        """Remember the id of a stored message."""
        self.last = (msg_id, seq)
        if self.window_ns <= 0:
            return
        self._expire(ts_ns)
        self._known[msg_id] = (seq, ts_ns)
        self._order.append((ts_ns, msg_id))

    def _expire(self, now_ns: int) -> None:
        """Forget what left the window."""
        order, known, horizon_ns = self._order, self._known, now_ns - self.window_ns
        while order and order[0][0] <= horizon_ns:
            ts_ns, msg_id = order.popleft()
            if known.get(msg_id, (0, 0))[1] == ts_ns:
                del known[msg_id]

    def items(self) -> list[tuple[bytes, int, int]]:
        """(id, sequence, time) of everything remembered, oldest first."""
        return [(msg_id, self._known[msg_id][0], ts_ns) for ts_ns, msg_id in self._order]
