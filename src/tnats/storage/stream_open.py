"""Opening a stream's message log: its index is built by scanning the segments.

It goes from the last record to the first, since of several about one sequence the last counts. Everything that was
written since the last checkpoint is also in the journal, so the caller replays that afterwards. What the files hold
beyond it is used too: it is a second copy for the day when the journal is damaged.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from tnats.runtime.api import Clock, Disk, DiskError, File
from tnats.storage import hot, record, segment
from tnats.storage.index import MAX, MessageIndex
from tnats.storage.index_columns import LOST
from tnats.storage.record import Finding
from tnats.storage.segment import SegmentHeader
from tnats.storage.stream_checkpoint import NOTE
from tnats.storage.stream_files import StreamFiles
from tnats.storage.stream_log import StreamLog, StreamLogOptions
from tnats.storage.stream_recovery import Hole
from tnats.storage.stream_segment import Segment

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing


async def open_stream_log(
    disk: Disk,
    clock: Clock,
    entropy: Callable[[int], bytes],
    directory: str,
    *,
    name: str,
    store_id: bytes,
    options: StreamLogOptions,
    note: bytes = b"",
    gaps: Sequence[tuple[int, int]] = (),
    first_sequence: int | None = 1,
    is_adopted: bool = False,
    noted_first: int = 0,
    last_sequence: int | None = None,
    erase_again: bool = False,
    readonly: bool = False,
    keys: KeyRing | None = None,
) -> StreamLog:
    """Open the log in `directory`, whose parent exists. `note` is what the last durable checkpoint returned, `gaps` the
    ranges of sequences, in order, that are known to be removed though no file may tell of it.

    The caller then replays the journal entries behind the checkpoint and calls `end_recovery`.

    `first_sequence` is for a log without a note; None takes the lowest sequence that is found. `is_adopted`: the
    journal has lost the note. The first one is then what is known to have been the first at some time (`noted_first`):
    what is missing behind it may have been removed since, but may be lost as well. If that is not known, it is the
    lowest that is found, unless some of the files cannot be read: then it is `first_sequence`. What the files hold
    behind `last_sequence` is kept apart until the replay comes to it (`StreamRecovery`); None: nothing is.
    `erase_again` after an end that was not clean: erasures may not have reached the medium. `readonly` only looks, and
    leaves no file open. Raises StoreRefused, DiskError.
    """
    if not readonly:
        await disk.mkdir(directory)
        await disk.sync_dir(directory.rpartition("/")[0])
    files = StreamFiles(disk, clock, entropy, directory, name, store_id, options.segment_bytes, keys)
    finds_start = not note and (is_adopted or first_sequence is None)
    start = 1 if finds_start else first_sequence or 1
    last, messages, durable = start - 1, 0, (0, 0)
    if note:
        start, last, messages, _, *end = NOTE.unpack(note)
        durable = (end[0], end[1])
    log = StreamLog(files, MessageIndex(start), last_sequence, options, gaps)
    log.recovery.noted = (last, messages) if note else (0, 0)
    log.recovery.durable = durable
    files.next_number = max(1, durable[0] + (durable[1] > 0))  # of lower numbers all counts as durable
    opening = _Opening(log, gaps, erase_again=erase_again, readonly=readonly)
    for gap in gaps:
        opening.skip(*gap)
    await opening.read_files()
    if finds_start:
        log.index.raise_start(opening.find_start(first_sequence, noted_first))
    opening.finish(last)
    return log


class _Opening:
    """Builds a log's index from its segments."""

    def __init__(self, log: StreamLog, gaps: Sequence[tuple[int, int]], *, erase_again: bool, readonly: bool) -> None:
        self.log = log
        self.gaps = gaps
        self.files = log.files
        self.recovery = log.recovery
        self.readonly = readonly
        self.erase_again = erase_again
        self.durable = log.recovery.durable
        self.latest_time_of = 0
        """Highest sequence that was found."""

    async def read_files(self) -> None:
        """Take what the segments hold, the newest first."""
        files = self.files
        for entry in reversed(await files.disk.list(files.directory)):
            path = f"{files.directory}/{entry.name}"
            stem, _, extension = entry.name.partition(".")
            if extension == "seg.tmp" and not self.readonly:
                await files.disk.unlink(path)
            elif extension == "seg" and stem.isdecimal():
                files.next_number = max(files.next_number, int(stem) + 1)
                await self.read_segment(path, int(stem), entry.size)

    def find_start(self, first_sequence: int | None, noted_first: int) -> int:
        """The first sequence of a log without a note: see `open_stream_log`."""
        found = [each.lowest for each in self.files.segments.values() if each.highest]
        if noted_first:
            found.append(noted_first)
        elif first_sequence is not None and (self.recovery.holes or not found):
            found.append(first_sequence)
        return min(found, default=1)

    def finish(self, last: int) -> None:
        """All is read. `last`: sequence up to which all were used."""
        for each in self.indexes():
            each.extend(min(last, self.end_of(each)))
            each.settle()
        self.recovery.begin()
        self.files.segments = dict(sorted(self.files.segments.items()))

    async def read_segment(self, path: str, number: int, size: int) -> None:
        files = self.files
        file = await files.disk.open(path, readonly=self.readonly)
        data = await file.pread(size, 0)
        header, findings = segment.read_header(data, path, files.keys)
        files.findings += findings
        if header is not None and not files.is_ours(header, number):
            self.recovery.foreign.append(path)
            header = None
        if header is not None and len(data) == segment.DATA_START and not self.readonly:
            file.close()
            await files.disk.unlink(path)  # it was prepared for a run that ended before it was needed
            return
        seed = header.seed if header is not None else 0
        is_unsure = number >= self.durable[0]
        holder = files.segments[number] = Segment(
            number, path, seed, len(data), file, is_dirty=is_unsure, is_new=is_unsure
        )
        if header is None:
            self.take_holes(holder, [(0, max(1, len(data)))], b"")
            is_open_end = False
        else:
            holder.cipher = segment.cipher_of(header, files.keys)
            holder.is_stale = not segment.is_current(header, files.keys)
            holder.is_packed = header.is_packed
            is_simple = holder.cipher is None and not holder.is_packed and not findings
            found = self.take_at_once(holder, data) if is_simple else None
            if found is None:
                is_open_end = self.take_records(holder, header, bytearray(data), findings)
            else:
                is_open_end = found
                self.write_again(holder, file, data)
        if len(files.segments) == 1 and is_open_end and not self.readonly and not holder.is_stale:  # the newest one
            files.current = holder
            return
        file.close()
        holder.file = None

    def take_holes(self, holder: Segment, holes: list[tuple[int, int]], data: bytes | bytearray) -> None:
        holder.is_damaged = bool(holes)
        self.recovery.holes += [Hole(holder, start, end, _messages_in(data, start, end)) for start, end in holes]

    def promised_end(self, holder: Segment) -> int:
        """Where the records of a segment that is not sealed end at least."""
        number, end = self.durable
        return end if holder.number == number else 0

    def take_at_once(self, holder: Segment, data: bytes) -> bool | None:
        """Take a segment that is what most are: nothing but messages in order, known from nowhere else.

        Returns whether more may be written behind them; None, and nothing has happened, if it is not as simple.
        """
        first, end, subjects, sizes, places, times_ns = hot.scan_messages(
            data, segment.DATA_START, holder.seed, holder.number << 32
        )
        is_open_end = end == len(data) >= max(segment.DATA_START, self.promised_end(holder))
        footer = None if is_open_end else record.unpack(data, end, 0, holder.seed)
        if not is_open_end and (footer is None or footer.kind != record.FOOTER):
            return None
        return is_open_end if self.take_run(holder, first, subjects, sizes, places, times_ns) else None

    def take_records(
        self, holder: Segment, header: SegmentHeader, data: bytearray, header_findings: list[Finding]
    ) -> bool:
        """Take a segment record by record; whether more may be written behind them."""
        file = holder.file
        scan = segment.scan(data, header.seed, holder.path, cipher=holder.cipher)
        is_sealed = bool(scan.records) and scan.records[-1][2] == record.FOOTER
        holes = list(scan.holes)
        if not is_sealed and scan.end < self.promised_end(holder):
            tail = holes.pop()[0] if holes and holes[-1][1] > scan.end else scan.end
            holes.append((tail, self.promised_end(holder)))
        self.take_holes(holder, holes, data)
        self.files.findings += scan.findings
        if not self.readonly and file is not None:
            for offset, copy in segment.wrong_headers(header, data) if header_findings else ():
                file.pwrite([copy], offset)
                data[offset : offset + len(copy)] = copy
                holder.is_dirty = True
            holder.is_dirty |= bool(scan.corrected)
            for offset, value in scan.corrected:
                file.pwrite([bytes([value])], offset)
            self.write_again(holder, file, data)
        records = holder.find_packed(scan.records) if holder.is_packed else scan.records
        if not self.take_found(holder, records, scan.data):
            for found in reversed(records):
                self.take(holder, found, scan.data)
        return not holes and not is_sealed and scan.end == len(data)

    def indexes(self) -> list[MessageIndex]:
        """The log's index, and the one for what is kept apart."""
        beyond = self.recovery.beyond
        return [self.log.index] if beyond is None else [self.log.index, beyond]

    def end_of(self, index: MessageIndex) -> int:
        """The last sequence that belongs into an index."""
        beyond = self.recovery.beyond
        return MAX if beyond is None or index is beyond else beyond.start - 1

    def index_of(self, sequence: int) -> MessageIndex:
        """The index that a sequence belongs into."""
        beyond = self.recovery.beyond
        return self.log.index if beyond is None or sequence < beyond.start else beyond

    def skip(self, first: int, last: int) -> None:
        """Count a range as removed."""
        for index in self.indexes():
            start, end = max(first, index.start), min(last, self.end_of(index))
            if start <= end:
                index.skip(start, end)

    def write_again(self, holder: Segment, file: File, data: bytes | bytearray) -> None:
        """See `StreamLog`; the next checkpoint syncs it."""
        start = self.promised_end(holder)
        if holder.number < self.durable[0] or start >= len(data) or self.files.trouble is not None:
            return
        try:
            file.pwrite([memoryview(data)[start:]], start)
        except DiskError as exc:
            self.files.freeze(exc)

    def take_found(self, holder: Segment, records: list[hot.Found], data: bytes | bytearray) -> bool:
        """`take_run` for records that are messages in order; False if they are not."""
        messages = records[:-1] if records and records[-1][2] == record.FOOTER else records
        if not messages:
            return True
        first = messages[0][4]
        if any(each[4] != sequence or each[2] != record.MESSAGE for sequence, each in enumerate(messages, first)):
            return False
        base, front = holder.number << 32, hot.HEADER_SIZE
        view = memoryview(data)
        subjects = [bytes(view[each[0] + front : each[0] + front + each[6]]) for each in messages]
        sizes = array("I", [each[1] - (6 if each[7] else 10) for each in messages])
        places = array("Q", [base | each[0] for each in messages])
        times_ns = array("Q", [each[5] for each in messages])
        return self.take_run(holder, first, subjects, sizes, places, times_ns)

    def take_run(
        self,
        holder: Segment,
        first: int,
        subjects: list[bytes],
        sizes: array[int],
        places: array[int],
        times_ns: array[int],
    ) -> bool:
        """Take the messages of a whole segment at once; False if something is known of them from elsewhere."""
        count = len(subjects)
        last = first + count - 1
        if not count:
            return True
        if first < self.log.index.start or not self.is_unknown(first, last):
            return False
        for index in self.indexes():
            start, end = max(first, index.start), min(last, self.end_of(index)) + 1
            if start < end:
                part = slice(start - first, end - first)
                index.put_found(start, subjects[part], sizes[part], places[part], times_ns[part])
        if last > self.latest_time_of:
            self.latest_time_of = last
            self.log.last_time_ns = times_ns[-1]
        holder.hold_run(first, count, sum(sizes))
        return True

    def is_unknown(self, first: int, last: int) -> bool:
        """Whether nothing was found yet of any of these sequences."""
        for index in self.indexes():
            start, end = max(first, index.start), min(last, self.end_of(index), index.last)
            if start <= end and index.absent(start, end, LOST) != [(start, end)]:
                return False
        return True

    def take(self, holder: Segment, found: hot.Found, data: bytes | bytearray) -> None:
        position, _, kind, _, index, stamp, key_size = found[:7]
        if kind == record.MESSAGE:
            start = position + hot.HEADER_SIZE
            self.place(holder, found, bytes(data[start : start + key_size]))
        elif kind == hot.ERASED:
            holder.note(index, index)
            self.skip(index, index)
            if self.erase_again:
                holder.erasures.append((position, index))
        elif kind == record.GAP:
            holder.note(index, index + stamp - 1)
            self.skip(index, index + stamp - 1)

    def is_told(self, sequence: int) -> bool:
        """Whether the journal tells that a message is removed, which its file need not have heard of."""
        at = bisect_right(self.gaps, sequence, key=itemgetter(0))
        return at > 0 and self.gaps[at - 1][1] >= sequence

    def place(self, holder: Segment, found: hot.Found, subject: bytes) -> None:
        offset, record_size, _, _, sequence, stamp, key_size, head_size = found[:8]
        log = self.log
        if sequence < log.index.start:
            return
        if sequence > self.latest_time_of:
            self.latest_time_of = sequence
            log.last_time_ns = stamp
        into = self.index_of(sequence)
        if into.place(sequence) != LOST:
            holder.note(sequence, sequence)
            if self.is_told(sequence):
                holder.erasures.append((offset, sequence))  # nobody comes to it again who knows whether it had to be
            return  # a later record about this sequence counts
        body_size = record_size - hot.HEADER_SIZE - key_size - head_size
        size = 30 + key_size + body_size + (4 + head_size if head_size else 0)
        into.put(sequence, subject, size, holder.number << 32 | offset, stamp)
        holder.hold(sequence, size)


def _messages_in(data: bytes | bytearray, start: int, end: int) -> list[tuple[int, int]]:
    """See `Hole`. An erasure leaves size, kind and sequence of a message readable however far it came."""
    found = []
    while start < end:
        kind = data[start + 16] if record.plausible(data, start) else 0
        if kind not in (record.MESSAGE, record.PACKED, hot.ERASED):
            return []
        size, sequence = struct.unpack_from("<8xI12xQ", data, start)
        found.append((start, sequence))
        start += record.aligned(size)
    return found
