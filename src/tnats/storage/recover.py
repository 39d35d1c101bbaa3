"""What a journal's files say after a restart: the groups, and what was damaged. Pure: bytes in, state out.

Rules (docs/storage.md has the reasons)
-----
* The *promise* of a part is the largest of: its two slots, what any valid record in it carries, the end named by its
  footer. Everything before it was durable and may have been acknowledged.
* A hole, or missing bytes, before the promise is **damage**: it is named and the part is kept, never shortened.
* A hole beyond the promise is a **torn tail**: an unfinished write. Valid records behind such a hole belong to the same
  unfinished write; they are kept where they continue their group's index without a gap and dropped otherwise.
* When a slot of the last part is unreadable, the promise is not known, and a hole in the tail is damage.
* Indexes of a group run without gaps. Where they do not, the missing ones are **lost**, and are never given out again.
  When damage may have swallowed entries of which nothing else tells (nothing valid follows in the group), every such
  group goes on behind the largest number of entries that the damaged bytes could have held.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

import attrs

from tnats.records import define
from tnats.runtime.api import Buffer
from tnats.storage import hot, record, segment
from tnats.storage.ranges import merged, without
from tnats.storage.record import Finding
from tnats.storage.segment import DATA_START, SegmentHeader

if TYPE_CHECKING:
    from tnats.storage.cipher import FileCipher

ENTRY_SIZE_MIN = 16
"""No entry or message takes fewer bytes than this: bounds how many a damaged range can have held."""

MISSING_PART_BYTES = 256 * 1024 * 1024
"""What a part that is not there at all is taken to have held: with large notes in front it is longer than most."""

_RANGE = struct.Struct("<QQ")


@define
class GroupState:
    """One group of a journal: the part of its log that the journal holds.

    `runs` holds where the entries from floor + 1 to `last` stand, as (first index, places) in order of the index, with
    holes where entries are lost. A place is part number << 32 | file offset.
    """

    number: int
    name: str
    floor: int = 0
    last: int = 0
    note: bytes = b""
    runs: list[tuple[int, array[int]]] = attrs.field(factory=list)
    lost: list[tuple[int, int]] = attrs.field(factory=list)
    """Ranges (first, last) of indexes that were used but cannot be read."""
    state_at: int = 0
    """Number of the newest part that holds this group's state."""
    leased: int = 0
    """Sequences up to here may have been used: durable (see `lease`)."""
    gaps: list[tuple[int, int]] = attrs.field(factory=list)
    """Ranges of removed sequences that stand here and in no file, until the next checkpoint."""

    def record(self, floor: int, last: int, note: bytes) -> hot.Record:
        """The record of this group's state, with these in place of its own."""
        lease = self.leased.to_bytes(8, "little") if self.leased else b""
        return (record.GROUP, self.number, floor, last, self.name.encode(), lease, note)

    def gap_records(self, gaps: list[tuple[int, int]]) -> list[hot.Record]:
        """The record that adds to `gaps`, if there is anything to add: one, so all of it is told or nothing."""
        more = b"".join(_RANGE.pack(*each) for each in gaps[1:])
        return [(record.GAP, self.number, first, last - first + 1, b"", b"", more) for first, last in gaps[:1]]

    def keep_gaps(self, first: int, count: int, more: Buffer) -> None:
        """What a record adds to `gaps`."""
        self.gaps = merged([*self.gaps, (first, first + count - 1), *_RANGE.iter_unpack(more)])

    def place(self, index: int) -> int:
        """Where entry `index` stands; 0 when it is gone or lost."""
        for first, places in reversed(self.runs):
            if first <= index:
                return places[index - first] if self.floor < index < first + len(places) else 0
        return 0

    def add(self, index: int, place: int) -> None:
        """Note where entry `index` stands: the next one, or one that was written anew."""
        if index <= self.floor:
            return
        if index > self.last + 1:
            self.skip(index - 1)
        if index == self.last + 1:
            first, places = self.runs[-1] if self.runs else (0, array("Q"))
            if first + len(places) != index:
                places = array("Q")
                self.runs.append((index, places))
            places.append(place)
            self.last = index
        elif self.place(index):
            first, places = next(run for run in reversed(self.runs) if run[0] <= index)
            places[index - first] = place
        else:
            self.runs.append((index, array("Q", [place])))
            self.runs.sort(key=lambda run: run[0])
            self.lost = without(self.lost, [(index, index)])

    def skip(self, last: int) -> None:
        """Count the indexes up to `last` as used and lost."""
        if last > self.last:
            self.lost.append((self.last + 1, last))
            self.last = last

    def raise_floor(self, floor: int) -> None:
        """Forget the entries up to `floor`."""
        if floor <= self.floor:
            return
        self.floor = floor
        self.last = max(self.last, floor)
        while self.runs and self.runs[0][0] + len(self.runs[0][1]) <= floor + 1:
            del self.runs[0]
        if self.runs and self.runs[0][0] <= floor:
            first, places = self.runs[0]
            del places[: floor + 1 - first]
            self.runs[0] = (floor + 1, places)
        self.lost = [(max(first, floor + 1), last) for first, last in self.lost if last > floor]


@define
class PartContent:
    """One part as read from the disk; `header` is None when it is unreadable."""

    number: int
    path: str
    data: bytes | bytearray
    header: SegmentHeader | None
    findings: list[Finding]
    cipher: FileCipher | None = None
    wrong_headers: list[tuple[int, bytes]] = attrs.field(factory=list)
    """Offset and right bytes of header copies that are not as they should be."""


@define
class PartSummary:
    """What later has to be known of an old part."""

    number: int
    path: str
    damaged: bool = False
    end: int = 0
    """Where its records end, as a later part will say or says; 0 if that is not known."""
    tops: dict[int, int] = attrs.field(factory=dict)
    """Group number -> highest index of an entry in this part."""
    corrected: list[tuple[int, int]] = attrs.field(factory=list)


@define
class Recovery:
    """The outcome."""

    groups: dict[int, GroupState] = attrs.field(factory=dict)
    parts: list[PartSummary] = attrs.field(factory=list)
    findings: list[Finding] = attrs.field(factory=list)
    next_part: int = 1
    next_group: int = 1
    seal: tuple[int, int] | None = None
    """(number, end) of the last part, to be written into the next one."""
    carried: list[hot.Record] = attrs.field(factory=list)
    """Entries kept from behind a torn hole, to be written into the next part."""
    unproved: tuple[int, memoryview] | None = None
    """(file offset, bytes) of the last part's records that nothing says were ever durable."""
    images: dict[int, bytes | bytearray] = attrs.field(factory=dict)
    """The bytes of the parts in the clear, by number: verified and corrected where records stand."""
    damaged_bytes: int = 0
    """How much of the journal could not be read: bounds how many lost entries and messages there can be."""


def recover(parts: list[PartContent], directory: str) -> Recovery:
    """Replay the parts, given in the order of their numbers."""
    replay = _Replay(directory)
    scans = _scan_parts(parts)
    for position, (part, scan) in enumerate(zip(parts, scans, strict=True)):
        replay.part(part, scan, is_last=position == len(parts) - 1)
    return replay.finish()


@define
class _PartScan:
    scan: segment.Scan
    seal: int | None
    """Where the next part says that this one ends."""
    sealed: bool
    promise: int
    slots_readable: bool


def _scan_parts(parts: list[PartContent]) -> list[_PartScan | None]:
    """Scan from the last part to the first, since each part says where the one before it ends."""
    seals: dict[int, int] = {}
    scans: list[_PartScan | None] = []
    for part in reversed(parts):
        if part.header is None:
            scans.append(None)
            continue
        seed, seal = part.header.seed, seals.get(part.number)
        if seal is not None and seal < len(part.data):
            part.data = part.data[:seal]
        scan = segment.scan(part.data, seed, part.path, cipher=part.cipher)
        part.data = scan.raw
        promise, slots_readable, findings = segment.read_promise(part.data, seed, part.path)
        scan.findings += findings
        sealed = bool(scan.records) and scan.records[-1][2] == record.FOOTER
        promise = max([promise, seal or 0, scan.end if sealed else 0, *(found[8] for found in scan.records)])
        scans.append(_PartScan(scan, seal, sealed, promise, slots_readable))
        for found in scan.records:
            if found[2] == record.SEAL:
                seals[found[4]] = found[5]
    return scans[::-1]


class _Replay:
    """Applies the records of all parts in order, and keeps the books of what damage may have swallowed."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.result = Recovery()
        self.unknown_bytes = 0
        """Damaged bytes of which no later table has told what they were."""
        self.accounted: set[int] = set()
        """Groups with a record behind the last damage."""

    def part(self, part: PartContent, found: _PartScan | None, *, is_last: bool) -> None:
        result = self.result
        if result.parts and part.number != result.next_part:
            self.missing(result.next_part, part.number - 1)
        summary = PartSummary(part.number, part.path)
        result.parts.append(summary)
        result.next_part = part.number + 1
        result.findings += part.findings
        if found is None:
            summary.damaged = True
            self.damaged(part.path, 0, max(len(part.data), DATA_START), "header unreadable")
            self.swallow(max(0, MISSING_PART_BYTES - len(part.data)))  # what stands there need not be the part
            return
        scan = found.scan
        if part.cipher is None:
            result.images[part.number] = scan.data
        summary.corrected = scan.corrected
        summary.end = found.seal or 0
        result.findings += scan.findings
        holes = list(scan.holes)
        promise = found.promise
        if is_last and not found.slots_readable and not found.sealed and part.header is not None:
            # One batch more may have been promised than is known.
            if len(part.data) < part.header.size:
                promise = part.header.size
            elif holes:
                promise = max(promise, holes[-1][1])
        if scan.end < promise:
            if holes and holes[-1][0] >= scan.end:
                holes[-1] = (holes[-1][0], max(holes[-1][1], promise))
            else:
                holes.append((scan.end, promise))
        self.walk(part, summary, scan, holes, promise)
        if is_last:
            if found.sealed:
                self.missing(part.number + 1, part.number + 1)
                result.next_part += 1
            torn = [start for start, _ in holes if start >= promise]
            summary.end = torn[0] if torn else max(promise, scan.end)
            result.seal = (part.number, summary.end)
            if found.promise < scan.end:
                result.unproved = (found.promise, memoryview(scan.raw)[found.promise : scan.end])

    def missing(self, first: int, last: int) -> None:
        text = f"journal parts {first} to {last}"
        self.result.findings.append(Finding("missing", self.directory, first, last + 1, text=text))
        self.swallow(MISSING_PART_BYTES * (last - first + 1))

    def damaged(self, path: str, start: int, end: int, text: str = "") -> None:
        self.result.findings.append(Finding("damaged", path, start, end, text=text))
        self.swallow(end - start)

    def swallow(self, size: int) -> None:
        self.unknown_bytes += size
        self.result.damaged_bytes += size
        self.accounted.clear()

    def walk(
        self,
        part: PartContent,
        summary: PartSummary,
        scan: segment.Scan,
        holes: list[tuple[int, int]],
        promise: int,
    ) -> None:
        torn = False
        waiting = holes[::-1]
        for each in scan.records:
            while waiting and waiting[-1][0] < each[0]:
                torn |= self.hole(part.path, summary, waiting.pop(), promise)
            self.apply(part.number, summary, each, scan.data, torn=torn)
        while waiting:
            self.hole(part.path, summary, waiting.pop(), promise)

    def hole(self, path: str, summary: PartSummary, hole: tuple[int, int], promise: int) -> bool:
        """Judge a hole; returns whether it is an unfinished write."""
        start, end = hole
        if start >= promise:
            self.result.findings.append(Finding("torn", path, start, end))
            return True
        summary.damaged = True
        self.damaged(path, start, min(end, promise))
        return False

    def apply(self, part: int, summary: PartSummary, found: hot.Found, data: bytes | bytearray, *, torn: bool) -> None:
        offset, _, kind, number, index, stamp = found[:6]
        groups = self.result.groups
        if kind not in (record.ENTRY, record.GROUP, record.DROP):
            if kind == record.LEASE and number in groups:
                groups[number].leased = max(groups[number].leased, index)
            elif kind == record.GAP and number in groups and not torn:
                groups[number].keep_gaps(index, stamp, record.take_apart(data, found, 0).body)
            return
        group = groups.get(number)
        if group is None:
            self.result.next_group = max(self.result.next_group, number + 1)  # also behind groups that are gone
            if torn and kind != record.GROUP:
                return
            group = groups[number] = GroupState(number, "")
        self.accounted.add(number)
        if kind == record.GROUP:
            taken = record.take_apart(data, found, 0)
            self.set_state(group, taken, part, torn=torn)
        elif kind == record.ENTRY:
            if torn:
                if index != group.last + 1:
                    return
                taken = record.take_apart(data, found, 0)
                self.result.carried.append((kind, number, index, stamp, b"", b"", taken.body))
            elif not group.state_at and not group.last:
                group.floor = group.last = index - 1
            group.add(index, part << 32 | offset)
            summary.tops[number] = max(index, summary.tops.get(number, 0))
        elif not torn:
            del groups[number]

    def set_state(self, group: GroupState, taken: record.Record, part: int, *, torn: bool) -> None:
        floor, last = taken.index, taken.stamp
        if torn and last > group.last:
            return
        group.name = taken.key.decode()
        if not group.state_at and not group.last:
            group.floor = group.last = floor
        group.skip(last)
        group.raise_floor(floor)
        group.note = taken.body
        group.gaps.clear()
        group.leased = max(group.leased, int.from_bytes(taken.head, "little"))
        group.state_at = part

    def finish(self) -> Recovery:
        result = self.result
        if self.unknown_bytes:
            for group in result.groups.values():
                if group.number not in self.accounted:
                    group.skip(group.last + self.unknown_bytes // ENTRY_SIZE_MIN + 1)
        for group in result.groups.values():
            name = group.name or f"#{group.number}"
            if not group.name:
                result.findings.append(Finding("damaged", self.directory, group=name, text="name of the group unknown"))
            result.findings += [
                Finding("lost", self.directory, first, last + 1, group=name, text="entries")
                for first, last in group.lost
            ]
        return result
