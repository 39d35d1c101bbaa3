"""Writing a sealed segment anew, in its place: packed or not, and under the present key.

The new file has the old one's number and its records in the same order, so nothing changes about which record of a
sequence counts. It is written under a temporary name, synced, and renamed over the old one: at any moment one of the
two is there, whole. A segment from which a live message is missing is left as it is; what an unfinished write has left
behind is not taken over.

What goes over: live messages; removals, as gaps; and messages whose removal may not be durable yet, as they are. What
does not: messages that stand elsewhere by now (synced before this begins), and what was removed or erased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from tnats.records import define
from tnats.runtime.api import Disk
from tnats.storage import hot, record, segment
from tnats.storage.index import MessageIndex
from tnats.storage.index_columns import REMOVED
from tnats.storage.packing import Packer, dictionary_of
from tnats.storage.ranges import merged, without
from tnats.storage.record import Finding
from tnats.storage.segment import DATA_START, SegmentHeader
from tnats.storage.stream_segment import Segment

if TYPE_CHECKING:
    from tnats.storage.cipher import FileCipher, KeyRing

STEP_RECORDS = 500
"""Records that are packed or sealed before others get their turn: a few milliseconds."""

FILLER: hot.Record = (record.PAD, 0, 0, 0, b"", b"", bytes(segment.BLOCK_SIZE))
"""Keeps the two copies of a dictionary in different blocks where there are few messages."""

Item = tuple[hot.Record, int]
"""A record that goes over, and the offset where the message stood; 0 for other records."""


@define
class Rewrite:
    """One segment on its way."""

    disk: Disk
    index: MessageIndex
    holder: Segment
    keys: KeyRing | None
    start: int
    """First sequence as it is durable: removals behind it are to be told."""
    pending: list[tuple[int, int]]
    """Ranges of sequences whose removal may not be durable; so may be that of all below the index's start."""
    _moved: list[tuple[int, int, int]] = attrs.field(factory=list)
    """(sequence, old offset, new offset)"""
    _sampled: tuple[int, int] = (1, 0)
    _dictionaries: list[int] = attrs.field(factory=list)
    _unpacked_bytes: int = 0

    async def run(self, header: SegmentHeader) -> list[Finding]:
        """Replace the file by one with this header; if the old one has damage, say so instead. Raises DiskError."""
        items = await self._read()
        if isinstance(items, Finding):
            return [items]
        header, cipher = segment.new_header(header, self.keys)
        if header.is_packed:
            items = await self._pack(items)
        body = await self._layout(items, header, cipher)
        await segment.write_temporary(self.disk, self.holder.path, header.area(), body)
        await segment.give_name(self.disk, self.holder.path)
        self._take_over(header, cipher, DATA_START + len(body))
        await self.disk.sync_dir(self.holder.path.rpartition("/")[0])
        self.holder.is_new = False
        return []

    async def _read(self) -> list[Item] | Finding:
        """What goes over, or what is damaged."""
        holder = self.holder
        file = await self.disk.open(holder.path, readonly=True)
        try:
            data = bytearray(await file.pread(file.size(), 0))
        finally:
            file.close()
        scan = segment.scan(data, holder.seed, holder.path, cipher=holder.cipher)
        packer: Packer | None = None
        items: list[Item] = []
        gaps: list[tuple[int, int]] = []
        for place, found in enumerate(scan.records):
            if found[2] == record.DICTIONARY:
                packer = Packer(record.take_apart(scan.data, found, 0).body)
            elif found[2] == record.GAP:
                gaps.append((found[4], found[4] + found[5] - 1))
            elif found[2] == hot.ERASED:
                gaps.append((found[4], found[4]))
            elif found[2] in (record.MESSAGE, record.PACKED):
                offset, sequence = found[0], found[4]
                at = self.index.place(sequence)
                is_live = at == holder.number << 32 | offset
                if is_live or (at == REMOVED and self._is_pending(sequence)):
                    message = _plain(record.take_apart(scan.data, found, 0), packer)
                    if message is None:
                        return Finding("damaged", holder.path, offset, offset + found[1], text=f"message {sequence}")
                    items.append((message, offset))
                elif at == REMOVED:
                    gaps.append((sequence, sequence))
            if place % STEP_RECORDS == 0:
                await trio.lowlevel.checkpoint()
        base = holder.number << 32
        if sum(self.index.place(each[2]) == base | offset for each, offset in items if offset) < holder.live:
            damage = scan.holes[0] if scan.holes else (scan.end, max(len(data), holder.end))
            return Finding("damaged", holder.path, *damage)
        if scan.holes:  # what cannot be read may have told of removals
            known = self.index.absent(holder.lowest, holder.highest, REMOVED)
            gaps += without(known, merged(self.pending))
        for first, last in merged(gaps):
            if last >= self.start:
                first = max(first, self.start)
                self.holder.note(first, last)
                items.append(((record.GAP, 0, first, last - first + 1, b"", b"", b""), 0))
        return items

    def _is_pending(self, sequence: int) -> bool:
        if self.start <= sequence < self.index.start:
            return True
        return any(first <= sequence <= last for first, last in self.pending)

    async def _pack(self, items: list[Item]) -> list[Item]:
        messages = [each for each, _ in items if each[0] == record.MESSAGE]
        total = sum(len(each[5]) + len(each[6]) for each in messages)
        dictionary, count = dictionary_of((bytes(each[5]) + bytes(each[6]) for each in messages), total)
        packer = Packer(dictionary)
        copy: list[Item] = []
        if count:
            sampled = [each[2] for each in messages[:count]]
            self._sampled = min(sampled), max(sampled)
            copy = [((record.DICTIONARY, 0, *self._sampled, b"", b"", dictionary), 0)]
        packed = list(copy)
        for place, (each, offset) in enumerate(items):
            self._unpacked_bytes += record.record_size(*each[4:])
            smaller = packer.pack(each) if each[0] == record.MESSAGE else None
            packed.append((smaller or each, offset))
            if place % STEP_RECORDS == 0:
                await trio.lowlevel.checkpoint()
        between = sum(record.record_size(*each[4:]) for each, _ in packed)
        return [*packed, *([(FILLER, 0)] if copy and between < 2 * segment.BLOCK_SIZE else []), *copy]

    async def _layout(self, items: list[Item], header: SegmentHeader, cipher: FileCipher | None) -> bytearray:
        """The bytes behind the header area."""
        out = bytearray()
        for at in range(0, len(items), STEP_RECORDS):
            batch = items[at : at + STEP_RECORDS]
            base = DATA_START + len(out)
            records = [each for each, _ in batch]
            packed, offsets = segment.pack(records, base, header.seed, base, cipher)
            out += packed
            for (each, old), new in zip(batch, offsets, strict=True):
                if each[0] == record.DICTIONARY:
                    self._dictionaries.append(new)
                elif old:
                    self._moved.append((each[2], old, new))
            await trio.lowlevel.checkpoint()
        end = DATA_START + len(out)
        return out + record.pack_one(record.FOOTER, offset=end, seed=header.seed, index=header.number + 1)

    def _take_over(self, header: SegmentHeader, cipher: FileCipher | None, end: int) -> None:
        """The new file counts from now on. What was removed meanwhile and is to be erased is, at its new place."""
        holder, index = self.holder, self.index
        base = holder.number << 32
        doomed = {sequence for _, sequence in holder.erasures}
        holder.erasures.clear()
        for sequence, old, new in self._moved:
            if index.place(sequence) == base | old:
                index.move(sequence, base | new)
            elif sequence in doomed:
                holder.erasures.append((new, sequence))
        holder.close()
        holder.seed, holder.cipher, holder.end = header.seed, cipher, end
        holder.is_new, holder.is_stale, holder.is_packed = True, False, header.is_packed
        holder.dictionaries, holder.sampled = self._dictionaries, self._sampled
        holder.unpacked_bytes = self._unpacked_bytes


def _plain(found: record.Record, packer: Packer | None) -> hot.Record | None:
    if found.kind == record.MESSAGE:
        return (record.MESSAGE, 0, found.index, found.stamp, found.key, found.head, found.body)
    message = None if packer is None else packer.expand(found)
    if message is None:
        return None
    return (record.MESSAGE, 0, message.sequence, message.time_ns, message.subject, message.headers, message.payload)
