"""Bytes on their way out: small operations joined as they come, large ones kept apart and not copied again.

The buffer knows no connection state. While connected it belongs to the link; while disconnected the client keeps
one that gathers publishes, which the next link takes over whole.
"""

from __future__ import annotations

from tnats.runtime.api import Buffer, Conn

JOIN_BYTES_MAX = 16 * 1024
"""Operations up to this size are copied into one run; above, the copy costs more than a further buffer."""

BUFFERS_PER_WRITE_MAX = 256


class Outbound:
    """An ordered queue of bytes with its exact size in `byte_count`. Its owner bounds it."""

    __slots__ = ("_chunks", "_run", "byte_count")

    def __init__(self) -> None:
        self._chunks: list[Buffer] = []
        self._run = bytearray()
        self.byte_count = 0

    def append(self, operation: bytes) -> None:
        """Add a complete operation."""
        if len(operation) <= JOIN_BYTES_MAX:
            self._run += operation
        else:
            self._close_run()
            self._chunks.append(operation)
        self.byte_count += len(operation)

    def take_over(self, other: Outbound) -> None:
        """Append everything that `other` holds, and empty it."""
        other._close_run()
        self._close_run()
        self._chunks += other._chunks
        self.byte_count += other.byte_count
        other._chunks, other.byte_count = [], 0

    def write_to(self, conn: Conn) -> bool:
        """Hand over what `conn` takes now; True when nothing is left. Raises ConnectionBroken."""
        self._close_run()
        while self._chunks:
            batch = self._chunks[:BUFFERS_PER_WRITE_MAX]
            accepted = conn.write(batch)
            if not accepted:
                return False
            self.byte_count -= accepted
            whole_count = 0
            for chunk in batch:
                if accepted < len(chunk):
                    break
                accepted -= len(chunk)
                whole_count += 1
            del self._chunks[:whole_count]
            if accepted:
                self._chunks[0] = memoryview(self._chunks[0])[accepted:]
        return True

    def _close_run(self) -> None:
        if self._run:
            self._chunks.append(self._run)
            self._run = bytearray()
