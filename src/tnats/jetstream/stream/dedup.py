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
        self._seq_by_id: dict[bytes, int] = {}
        self._order: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._seq_by_id)

    def find(self, msg_id: bytes, now_ns: int) -> int:
        """The sequence stored under this id within the window, 0 if there is none."""
        self.expire(now_ns)
        return self._seq_by_id.get(msg_id, 0)

    def add(self, msg_id: bytes, seq: int, ts_ns: int) -> None:
        """Remember the id of a stored message."""
        self.last = (msg_id, seq)
        if self.window_ns <= 0:
            return
        self.expire(ts_ns)
        self._seq_by_id[msg_id] = seq
        self._order.append((ts_ns, msg_id))

    def expire(self, now_ns: int) -> None:
        """Forget what left the window."""
        order, horizon_ns = self._order, now_ns - self.window_ns
        while order and order[0][0] <= horizon_ns:
            _, msg_id = order.popleft()
            self._seq_by_id.pop(msg_id, None)

    def items(self) -> list[tuple[bytes, int, int]]:
        """(id, sequence, time) of everything in the window, oldest first."""
        return [(msg_id, self._seq_by_id[msg_id], ts_ns) for ts_ns, msg_id in self._order if msg_id in self._seq_by_id]
