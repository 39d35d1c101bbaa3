"""What a stream has stored and not yet brought to its segment files: it stands in memory, and in the journal.

It is written when enough has gathered, without a task where the file is at hand. Where it has become too long nothing
may come to it: what is published waits in line (`ingest`), and what is taken over from other streams waits too. While
the disk is full, a checkpoint is tried now and then, which makes room if anything can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.limits import STREAM_GATHERED_BYTES, STREAM_UNWRITTEN_BYTES_MAX
from tnats.storage.errors import StorageError, StoreFull
from tnats.storage.message_log import MessageLog

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService


class Backlog:
    """That of one stream."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self._is_writing = False

    def is_too_long(self) -> bool:
        """So much stands in memory only that nothing may come to it."""
        return self._log.unwritten_bytes > STREAM_UNWRITTEN_BYTES_MAX

    def has_grown(self, stream: StreamService) -> None:
        """Something was stored: write it, if that is worth it."""
        log = self._log
        if log.unwritten_bytes > STREAM_GATHERED_BYTES and not log.write_nowait():
            if not isinstance(log.trouble, StoreFull):
                self._start(stream)

    def shorten(self, stream: StreamService) -> None:
        """Have it written. Where the disk is full, nothing is taken in meanwhile."""
        if isinstance(self._log.trouble, StoreFull):
            stream.ingest.pause(stream, self._log.trouble)
        self._start(stream)

    async def wait_short(self, stream: StreamService) -> None:
        """Return when messages may be stored again. Raises StorageError."""
        while self.is_too_long():
            self.shorten(stream)
            if self._log.trouble is not None:
                raise self._log.trouble
            await self._log.write()

    def _start(self, stream: StreamService) -> None:
        if not self._is_writing:
            self._is_writing = True
            stream.host.spawn(self._write, stream)

    async def _write(self, stream: StreamService) -> None:
        log = self._log
        try:
            if isinstance(log.trouble, StoreFull):
                await stream.checkpoint(anyway=True)
            else:
                await log.write()
        except StorageError:
            pass  # publishers are told, and the health check
        finally:
            self._is_writing = False
        if log.trouble is not None and not isinstance(log.trouble, StoreFull):
            stream.fail(log.trouble)
        stream.ingest.move(stream)
