"""Making a stream log durable, and giving its files up: removals, compaction, checkpoints, segments written anew.

* A removed message gets a `record.GAP` at the next checkpoint, and if it is to be erased, its content is overwritten
  (`hot.ERASED`). Not before, so that no content goes before its removal is durable. Gaps are merged when a segment is
  given up. So a sequence of which no file knows anything is *lost*, never silently skipped.
* Until the checkpoint's note is durable the files tell of none of these removals, or the journal tells of all. A limit
  pushes out by what is there: a replay over files of which some messages are missing, but not all that went, would
  keep others.
* A sealed segment that is mostly dead is compacted: its live messages are appended again, which of several records
  about one sequence makes the last count. A segment without live messages is *doomed*: it goes when the note of the
  checkpoint that made it superfluous is durable; on a full disk when the journal tells all that it told.
* A segment with damaged bytes is never compacted, and set aside instead of removed.
"""

from __future__ import annotations

import struct

import attrs
import trio

from tnats.limits import STREAM_REWRITE_BYTES_MAX
from tnats.runtime.api import DiskError, File
from tnats.storage import hot, record, segment
from tnats.storage.errors import NO_SPACE, DataDamaged, StoreFrozen, StoreFull
from tnats.storage.group import Group
from tnats.storage.index import MessageIndex
from tnats.storage.index_columns import REMOVED
from tnats.storage.ranges import merged
from tnats.storage.stream_files import StreamFiles
from tnats.storage.stream_reader import StreamReader
from tnats.storage.stream_rewrite import Rewrite
from tnats.storage.stream_segment import Segment
from tnats.storage.stream_writer import WRITE_BATCH_MAX, StreamWriter

NOTE = struct.Struct("<QQQQQQ")
"""A checkpoint's note: first and last sequence, messages (with those that were lost when the log was opened), bytes;
number and end of the segment up to which all that was ever written is durable."""


GAPS_MERGED_MIN = 1024
"""So few removals are kept one by one."""


class StreamCheckpoints:
    """See the module. One thing at a time moves messages and replaces files."""

    def __init__(
        self, files: StreamFiles, index: MessageIndex, writer: StreamWriter, reader: StreamReader, compact_below: float
    ) -> None:
        self.gaps: list[tuple[int, int]] = []
        """Ranges of sequences that were removed since the last checkpoint."""
        self._gaps_max = GAPS_MERGED_MIN
        """When neighbours among them are merged."""
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

    async def run(self, group: Group) -> bytes:
        """See `MessageLog.checkpoint`."""
        files = self._files
        if isinstance(files.trouble, StoreFrozen):
            raise files.trouble
        async with self._working:
            files.check_open()
            made_from = files.next_number
            while True:
                try:
                    return await self._run(group)
                except StoreFull:
                    if not await self._give_up_dead(group, made_from):
                        raise

    async def _run(self, group: Group) -> bytes:
        files, index = self._files, self._index
        files.trouble = None
        await self._writer.write_held()
        if files.trouble is not None:
            raise files.trouble
        state = (index.start, index.last, index.messages + self.lost, index.bytes)
        self._noted_start = index.start
        try:
            await self._compact()
            doomed = await self._write_removals(group)
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
            await self._remove(self._doomed)
            self._durable_start = self._noted_start
            await self._rewrite_stale(STREAM_REWRITE_BYTES_MAX)

    async def free(self, group: Group) -> None:
        """See `StreamLog`."""
        async with self._working:
            self._files.check_open()
            if isinstance(self._files.trouble, StoreFrozen):
                raise self._files.trouble
            while await self._give_up_dead(group, self._files.next_number):
                pass

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

    def note_gap(self, sequence: int) -> None:
        """A message was removed."""
        self.gaps.append((sequence, sequence))
        if len(self.gaps) > self._gaps_max:  # most are next to each other
            self.gaps[:] = merged(self.gaps)
            self._gaps_max = max(GAPS_MERGED_MIN, 2 * len(self.gaps))

    async def _write_removals(self, group: Group) -> list[Segment]:
        """Erase removed messages in place and write the gaps; returns the segments that nothing needs any more.

        What is removed during the flush waits for the next checkpoint: a message that was pushed out by one that is
        lost again must be there.
        """
        files, start = self._files, self._noted_start
        doomed, erasing = [], []
        for each in files.segments.values():
            if each.live == 0 and each is not files.current:
                if each not in self._doomed:
                    self.gaps += self._gaps_of(each, start)
                doomed.append(each)
            elif each.erasures:
                erasing.append((each, len(each.erasures)))
        gaps, self.gaps = self.gaps, []
        records: list[hot.Record] = [
            (record.GAP, 0, max(first, start), last - max(first, start) + 1, b"", b"", b"")
            for first, last in merged(gaps)
            if last >= start
        ]
        try:
            if erasing or len(records) > 1 or self._durable_start < start:
                await self._tell(group, gaps)
            else:
                await group.flush()
            for each, count in erasing:
                await self._erase(each, count)
            if erasing:
                await self._sync(doomed)  # what a gap tells of is erased: who replays its removal does not look for it
            await self._writer.append(records, [0] * len(records))
        except BaseException:
            self.gaps += gaps
            raise
        return doomed

    async def _tell(self, group: Group, gaps: list[tuple[int, int]]) -> None:
        """Have the journal tell of all removals since the last checkpoint: these, and what is below the start.

        Raises StoreFull, StoreFrozen.
        """
        below = (self._durable_start, self._index.start - 1)
        await group.keep_gaps(merged([*gaps, below] if below[0] <= below[1] else gaps))

    async def _erase(self, holder: Segment, count: int) -> None:
        """Overwrite the first `count` of a segment's messages that wait for it."""
        file = await self._files.open(holder)
        holder.is_dirty = True
        for _ in range(count):
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

    async def _give_up_dead(self, group: Group, made_from: int) -> bool:
        """With the disk full, dead segments go before a note says so; whether there are any. Those with numbers from
        `made_from` on were made for this, and their room is not enough. Raises StoreFull, StoreFrozen.

        Until the next checkpoint the journal keeps what they told of removals.
        """
        files = self._files
        dead = [each for each in files.segments.values() if each.live == 0 and each is not files.current]
        dead = [each for each in dead if each.number < made_from]
        if not dead:
            return False
        # What was moved out of them, and what a checkpoint that came to nothing told of removals.
        await self._sync(dead)
        told = [gap for each in dead for gap in self._gaps_of(each, self._durable_start)]
        self.gaps[:] = merged([*self.gaps, *told])
        await self._tell(group, self.gaps)
        await self._remove(dead)
        return True

    def _gaps_of(self, dead: Segment, start: int) -> list[tuple[int, int]]:
        """What a segment tells of removals from `start` on: when it is to go, something else has to."""
        below = max(start, dead.lowest), min(self._index.start - 1, dead.highest)
        gaps = self._index.absent(dead.lowest, dead.highest, REMOVED)
        return [below, *gaps] if below[0] <= below[1] else gaps

    async def _remove(self, going: list[Segment]) -> None:
        """Remove dead segments, and forget those that are gone. Raises StoreFull, StoreFrozen."""
        files = self._files
        for each in sorted(going, key=lambda each: each.is_damaged):  # setting one aside takes room
            try:
                each.close()
                if each.is_damaged:
                    await segment.set_aside(files.disk, each.path)
                else:
                    await files.disk.unlink(each.path)
            except DiskError as exc:
                raise files.failure(exc) from exc
            files.segments.pop(each.number, None)
            if each in self._doomed:
                self._doomed.remove(each)

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
                except (DataDamaged, DiskError):
                    break  # the segment stays as it is
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
            rewrite = Rewrite(files.disk, self._index, each, files.keys, self._durable_start, self.gaps)
            try:
                found = await rewrite.run(header)
            except DiskError as exc:
                if exc.errno in NO_SPACE:
                    return False
                raise files.freeze(exc) from exc
            each.is_damaged |= bool(found)
            files.report([attrs.evolve(finding, group=files.name) for finding in found])
        return False
