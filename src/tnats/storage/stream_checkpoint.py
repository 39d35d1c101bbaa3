"""Making a stream log durable, and giving its files up: removals, compaction, checkpoints, segments written anew.

* A removed message gets a `record.GAP` at the next checkpoint, and if it is to be erased, its content is overwritten
  (`hot.ERASED`). Not before, so that no content goes before its removal is durable. Gaps are merged when a segment is
  given up. So a sequence of which no file knows anything is *lost*, never silently skipped.
* A sealed segment that is mostly dead is compacted: its live messages are appended again, which of several records
  about one sequence makes the last count. A segment without live messages is *doomed*: it goes when the note of the
  checkpoint that made it superfluous is durable.
* A segment with damaged bytes is never compacted, and set aside instead of removed.
"""

from __future__ import annotations

import struct

import attrs
import trio

from tnats.limits import STREAM_REWRITE_BYTES_MAX
from tnats.runtime.api import DiskError, File
from tnats.storage import hot, record, segment
from tnats.storage.errors import NO_SPACE, DataDamaged, StorageError, StoreFrozen, StoreFull
from tnats.storage.index import MessageIndex
from tnats.storage.index_columns import REMOVED
from tnats.storage.message_log import Flush
from tnats.storage.stream_files import StreamFiles
from tnats.storage.stream_reader import StreamReader
from tnats.storage.stream_rewrite import Rewrite
from tnats.storage.stream_segment import Segment, merged
from tnats.storage.stream_writer import WRITE_BATCH_MAX, StreamWriter

NOTE = struct.Struct("<QQQQQQ")
"""A checkpoint's note: first and last sequence, messages (with those that were lost when the log was opened), bytes;
number and end of the segment up to which all that was ever written is durable."""


class StreamCheckpoints:
    """See the module. One thing at a time moves messages and replaces files."""

    def __init__(
        self, files: StreamFiles, index: MessageIndex, writer: StreamWriter, reader: StreamReader, compact_below: float
    ) -> None:
        self.gaps: list[tuple[int, int]] = []
        """Ranges of sequences that were removed since the last checkpoint."""
        self.lost = 0
        """How many messages were lost when the log was opened."""
        self.is_packing = False
        """Whether sealed segments are to be packed."""
        self._files = files
        self._index = index
        self._writer = writer
        self._reader = reader
        self._compact_below = compact_below
        self._doomed: list[Segment] = []
        """Dead segments that the last checkpoint made superfluous."""
        self._durable_start = self._noted_start = index.start
        """First sequence as the last checkpoint had it."""
        self._working = trio.Lock()

    async def run(self, flush: Flush) -> bytes:
        """See `MessageLog.checkpoint`."""
        files = self._files
        if isinstance(files.trouble, StoreFrozen):
            raise files.trouble
        async with self._working:
            files.check_open()
            await flush()
            while True:
                try:
                    return await self._run()
                except StoreFull:
                    if not self._doom_dead():
                        raise
                    await flush()
                    await self._release()

    async def _run(self) -> bytes:
        files, index = self._files, self._index
        files.trouble = None
        await self._writer.write_held()
        if files.trouble is not None:
            raise files.trouble
        state = (index.start, index.last, index.messages + self.lost, index.bytes)
        self._noted_start = index.start
        try:
            await self._compact()
            doomed = await self._write_removals()
        except DiskError as exc:
            files.trouble = files.failure(exc)
            raise files.trouble from exc
        current = files.current
        durable = (max(files.segments, default=0) + 1, 0) if current is None else (current.number, current.end)
        await self._sync(doomed)
        self._doomed += [each for each in doomed if each not in self._doomed]
        return NOTE.pack(*state, *durable)

    async def release(self) -> None:
        """See `MessageLog`."""
        async with self._working:
            self._files.check_open()
            await self._release()
            self._durable_start = self._noted_start
            await self._rewrite_stale(STREAM_REWRITE_BYTES_MAX)

    async def rewrite(self) -> bool:
        """Write some of the segments anew that are not as they should be; whether there are more. Raises StoreFrozen.

        They should be under the present key, and packed if `is_packing` says so. On a disk that is full, and where
        there is damage, they stay as they are.
        """
        async with self._working:
            self._files.check_open()
            if isinstance(self._files.trouble, StoreFrozen):
                raise self._files.trouble
            await self._sync(self._doomed)
            return await self._rewrite_stale(STREAM_REWRITE_BYTES_MAX)

    async def close(self) -> None:
        """Close the files when what is under way has come to its end; nothing new begins."""
        self._files.is_closed = True
        async with self._working:
            await self._files.close()

    # -------------------------------------------------------------- durability

    async def _sync(self, doomed: list[Segment]) -> None:
        """Make content and names of all segments durable, but for the doomed. Raises StoreFrozen, StoreFull."""
        files = self._files
        try:
            for each in list(files.segments.values()):
                if each.is_dirty and each not in doomed:
                    file = await self._open_to_sync(each)
                    each.is_dirty = False
                    await file.sync()
                    files.close_surplus(each)
            new = [each for each in files.segments.values() if each.is_new]
            if new:
                await files.disk.sync_dir(files.directory)
            for each in new:
                each.is_new = False
        except DiskError as exc:  # whatever the reason: what a failed sync left behind is unknown
            raise files.freeze(exc) from exc

    async def _open_to_sync(self, holder: Segment) -> File:
        try:
            return await self._files.open(holder)
        except DiskError as exc:
            self._files.trouble = self._files.failure(exc)
            raise self._files.trouble from exc

    # -------------------------------------------------------------- removals

    async def _write_removals(self) -> list[Segment]:
        """Erase removed messages in place and write the gaps; returns the segments that nothing needs any more."""
        files, start = self._files, self._index.start
        doomed = []
        for each in list(files.segments.values()):
            if each.live == 0 and each is not files.current:
                if each not in self._doomed:
                    self._take_gaps(each)
                doomed.append(each)
            elif each.erasures:
                await self._erase(each)
        gaps, self.gaps = self.gaps, []
        records: list[hot.Record] = [
            (record.GAP, 0, max(first, start), last - max(first, start) + 1, b"", b"", b"")
            for first, last in merged(gaps)
            if last >= start
        ]
        try:
            await self._writer.append(records, [0] * len(records))
        except StorageError:
            self.gaps += gaps
            raise
        return doomed

    def _take_gaps(self, dead: Segment) -> None:
        """What a segment tells of removals is to be told by another."""
        self.gaps += self._index.absent(dead.lowest, dead.highest, REMOVED)

    async def _erase(self, holder: Segment) -> None:
        file = await self._files.open(holder)
        holder.is_dirty = True
        while holder.erasures:
            offset, sequence = holder.erasures[0]
            front = await file.pread(hot.HEADER_SIZE, offset)
            size = int.from_bytes(front[8:12], "little") if len(front) == hot.HEADER_SIZE else 0
            if hot.HEADER_SIZE <= size <= holder.end - offset:
                body = bytes(size - hot.HEADER_SIZE)
                packed = hot.pack([(hot.ERASED, 0, sequence, 0, b"", b"", body)], offset, holder.seed, offset)[0]
                file.pwrite([packed], offset)
            else:
                holder.is_damaged = True
            first, last = holder.sampled
            holder.is_stale |= first <= sequence <= last
            holder.erasures.popleft()

    def _doom_dead(self) -> bool:
        """With the disk full, dead segments are to go before their gaps are written; whether there are any.

        Should the node die then, the journal has the removals of their messages, since no checkpoint is past them. Of
        older ones, gaps in a segment may be all that tells: such segments go only if there are no others.
        """
        dead = [each for each in self._files.segments.values() if each.live == 0 and each is not self._files.current]
        going = [each for each in dead if not each.has_gaps] or dead
        for each in going:
            if each not in self._doomed:
                self._take_gaps(each)
                self._doomed.append(each)
        return bool(going)

    async def _release(self) -> None:
        files = self._files
        for each in self._doomed:
            try:
                each.close()
                if each.is_damaged:
                    await segment.set_aside(files.disk, each.path)
                else:
                    await files.disk.unlink(each.path)
            except DiskError as exc:
                raise files.failure(exc) from exc
            files.segments.pop(each.number, None)
        self._doomed.clear()

    # -------------------------------------------------------------- moving messages

    async def _compact(self) -> None:
        """Write the live messages of sparse sealed segments again."""
        files = self._files
        for each in list(files.segments.values()):
            if each is files.current or each.is_damaged or not each.live:
                continue
            if each.live_bytes >= self._compact_below * each.used_bytes:
                continue
            records: list[hot.Record] = []
            places = []
            for sequence, place in self._index.standing(each.number, each.lowest, each.highest):
                if len(records) % WRITE_BATCH_MAX == 0:
                    await trio.lowlevel.checkpoint()
                if self._index.place(sequence) != place:
                    continue  # removed meanwhile
                try:
                    message = await self._reader.load(sequence)
                except DataDamaged:
                    break
                content = (message.subject, message.headers, message.payload)
                records.append((record.MESSAGE, 0, sequence, message.time_ns, *content))
                places.append(place)
            else:
                await self._writer.append(records, places)

    @property
    def stale_segments(self) -> list[Segment]:
        """Sealed segments that are to be written anew, under a new key also those that have no message any more."""
        return [
            each
            for each in self._files.segments.values()
            if (each.is_stale or (each.live and each.is_packed != self.is_packing))
            and each is not self._files.current
            and not each.is_damaged
            and each not in self._doomed
        ]

    async def _rewrite_stale(self, bytes_max: int) -> bool:
        files = self._files
        for each in self.stale_segments:
            if bytes_max <= 0:
                return True
            bytes_max -= each.end
            header = files.header(each.number, is_packed=self.is_packing)
            pending = [*self.gaps, (self._durable_start, self._index.start - 1)]
            try:
                found = await Rewrite(files.disk, self._index, each, files.keys, pending).run(header)
            except DiskError as exc:
                if exc.errno in NO_SPACE:
                    return False
                raise files.freeze(exc) from exc
            each.is_damaged |= bool(found)
            files.report([attrs.evolve(finding, group=files.name) for finding in found])
        return False
