"""Long files of commands: read and written piece by piece, without holding up the connection."""

from __future__ import annotations

from tnats.cli.output import Advance
from tnats.runtime.api import Disk, File

PIECE_BYTES = 256 * 1024


class FileReader:
    """A file as an asynchronous iterator over its pieces."""

    def __init__(self, file: File, advance: Advance) -> None:
        self._file = file
        self._advance = advance
        self._offset = 0

    def __aiter__(self) -> FileReader:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._file.pread(min(PIECE_BYTES, self._file.size() - self._offset), self._offset)
        if not piece:
            raise StopAsyncIteration
        self._offset += len(piece)
        self._advance(len(piece))
        return piece


class FileWriter:
    """A new file that pieces are appended to. It is durable once `finish` has returned."""

    def __init__(self, file: File, advance: Advance) -> None:
        self._file = file
        self._advance = advance
        self.byte_count = 0

    def write(self, piece: bytes) -> None:
        """Append a piece."""
        self._file.pwrite([piece], self.byte_count)
        self.byte_count += len(piece)
        self._advance(len(piece))

    async def finish(self) -> None:
        """Bring it to the disk."""
        await self._file.sync()


async def open_new(disk: Disk, path: str) -> File:
    """The file, empty, whatever it held. Raises DiskError."""
    file = await disk.open(path, create=True)
    await file.truncate(0)
    return file
