"""Looking at a store that no server runs on: everything that is damaged is named, and what is derivable is put right.

Looking changes nothing. It goes the way of a start: the journal is judged by `recover`, each stream's index is built
from its segments, and what the journal still has of the stream counts as there.

A repair writes only bytes that other bytes prove: a flipped bit, the second copy of a header. It removes nothing, it
shortens nothing, and a record that can be read is never touched. What else a start puts right (torn tails, spare
copies) is left to it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from tnats.records import define, frozen
from tnats.runtime.api import Clock, Disk, DiskError
from tnats.storage import record, segment
from tnats.storage.encryption import Encryption, make_keys
from tnats.storage.errors import StoreRefused
from tnats.storage.journal_open import read_part
from tnats.storage.marker import MARKER_OFFSETS, MARKER_SEED
from tnats.storage.record import Finding, alarms
from tnats.storage.recover import GroupState, PartContent, Recovery, recover
from tnats.storage.segment import QUARANTINE, SegmentHeader
from tnats.storage.store_directory import DELETED, FILE_BYTES_MAX, IDENTITY, refuse_others, refuse_unopenable
from tnats.storage.stream_checkpoint import NOTE
from tnats.storage.stream_log import StreamLogOptions
from tnats.storage.stream_open import open_stream_log
from tnats.storage.used import UsedSequences

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing

SequencesOf = Callable[[bytes], tuple[int, int] | None]
"""The first and last sequence that a journal entry of a stream appends, or uses up in other ways; None for other
entries. A first one of 0 stands for the one behind those that were used before.
"""


@frozen
class StreamSummary:
    """One stream as the store has it. `group` is its name in the journal."""

    group: str
    directory: str
    first: int
    last: int
    messages: int
    """Messages in the segments; what the journal alone has comes on top at the next start."""


@frozen
class Correction:
    """Bytes that are provably wrong on the disk, and the right ones."""

    path: str
    offset: int
    data: bytes


@define
class Report:
    streams: list[StreamSummary] = attrs.field(factory=list)
    findings: list[Finding] = attrs.field(factory=list)
    corrections: list[Correction] = attrs.field(factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is damaged. An unfinished write, which nobody was promised, is no damage."""
        return not self.corrections and not alarms(self.findings)


async def check_store(
    disk: Disk,
    clock: Clock,
    entropy: Callable[[int], bytes],
    directory: str,
    sequences_of: SequencesOf,
    encryption: Encryption | None = None,
) -> Report:
    """Look at the store in `directory`, encrypted under any of the keys in `encryption`.

    Raises StoreLocked, StoreRefused, DiskError; then nothing was looked at.
    """
    root = f"{directory}/tnats"
    await refuse_others(disk, directory)
    try:
        identity = await disk.read_file(f"{root}/identity", bytes_max=FILE_BYTES_MAX)
    except DiskError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        raise StoreRefused(f"{directory} holds no store ({root}/identity is missing)") from exc
    lock = await disk.lock(f"{directory}/tnats.lock")
    try:
        return await _Check(disk, clock, entropy, root, sequences_of).run(identity, encryption)
    finally:
        lock.release()


async def repair_store(disk: Disk, directory: str, report: Report) -> None:
    """Write the corrections of a report, durably. Raises StoreLocked, DiskError."""
    lock = await disk.lock(f"{directory}/tnats.lock")
    try:
        for path in dict.fromkeys(each.path for each in report.corrections):
            file = await disk.open(path)
            try:
                for each in report.corrections:
                    if each.path == path:
                        file.pwrite([each.data], each.offset)
                await file.sync()
            finally:
                file.close()
    finally:
        lock.release()


class _Check:
    """One look at a store."""

    def __init__(
        self, disk: Disk, clock: Clock, entropy: Callable[[int], bytes], root: str, sequences_of: SequencesOf
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.entropy = entropy
        self.root = root
        self.sequences_of = sequences_of
        self.store_id = b""
        self.keys: KeyRing | None = None
        self.report = Report()

    async def run(self, identity: bytes, encryption: Encryption | None) -> Report:
        path = f"{self.root}/identity"
        header, findings = segment.read_header(identity, path)
        if header is None or header.role != IDENTITY:
            raise StoreRefused(f"{path} is damaged in both copies: restore it from a backup")
        self.store_id = header.store_id
        self.keys = make_keys(encryption, self.store_id, self.entropy)
        await refuse_unopenable(self.disk, self.root, self.keys)
        self.report.findings += findings
        self.compare_headers(path, identity, header)
        await self.check_marker()
        parts = await self.read_parts()
        recovery = recover(parts, f"{self.root}/journal")
        if not parts:
            recovery.findings.append(Finding("missing", f"{self.root}/journal", text="all parts of the journal"))
        self.report.findings += recovery.findings
        for part in recovery.parts:
            self.correct(part.path, part.corrected)
        await self.check_streams(parts, recovery)
        return self.report

    def correct(self, path: str, corrected: list[tuple[int, int]]) -> None:
        self.report.corrections += [Correction(path, offset, bytes([value])) for offset, value in corrected]

    def compare_headers(self, path: str, area: bytes | bytearray, header: SegmentHeader) -> None:
        self.report.corrections += [
            Correction(path, offset, copy) for offset, copy in segment.wrong_headers(header, area)
        ]

    async def check_marker(self) -> None:
        path = f"{self.root}/marker"
        try:
            data = await self.disk.read_file(path, bytes_max=FILE_BYTES_MAX)
        except DiskError as exc:
            if exc.errno != errno.ENOENT:
                raise
            self.report.findings.append(Finding("missing", path))
            return
        found = [
            segment.read_record(data, offset, MARKER_SEED, path, self.report.findings) for offset in MARKER_OFFSETS
        ]
        if any(slot is None or slot.kind != record.MARKER for slot in found):
            self.report.findings.append(Finding("damaged", path, 0, max(1, len(data)), text="state of the last run"))

    async def read_parts(self) -> list[PartContent]:
        parts = []
        for path, number, size in await self.numbered(f"{self.root}/journal", "part"):
            file = await self.disk.open(path, readonly=True)
            try:
                part = await read_part(file, number, size, self.store_id, self.keys)
            finally:
                file.close()
            if part.header is not None:
                self.compare_headers(path, part.data, part.header)
            parts.append(part)
        return parts

    async def numbered(self, directory: str, extension: str) -> list[tuple[str, int, int]]:
        """Path, number and size of the files NUMBER.EXTENSION in `directory`, which may be missing."""
        found = []
        for name, size in await self.names(directory):
            stem, _, rest = name.partition(".")
            if rest == extension and stem.isdecimal():
                found.append((f"{directory}/{name}", int(stem), size))
        return found

    async def names(self, directory: str) -> list[tuple[str, int]]:
        try:
            return [(entry.name, entry.size) for entry in await self.disk.list(directory)]
        except DiskError as exc:
            if exc.errno != errno.ENOENT:
                raise
            return []

    async def check_streams(self, parts: list[PartContent], recovery: Recovery) -> None:
        contents = {part.number: part for part in parts}
        used = UsedSequences(self.disk, self.clock, self.entropy, f"{self.root}/used", self.store_id, self.keys)
        await used.load()
        self.report.findings += used.findings
        present = {name for name, _ in await self.names(f"{self.root}/streams")}
        for known in recovery.groups.values():
            if used.find(known.name, known.number).last and f"{known.number:010d}" not in present:
                directory = f"{self.root}/streams/{known.number:010d}"
                self.report.findings.append(Finding("missing", directory, group=known.name, text="all segments"))
        for name, _ in await self.names(f"{self.root}/streams"):
            directory = f"{self.root}/streams/{name}"
            group = recovery.groups.get(int(name)) if name.isdecimal() else None
            if name == QUARANTINE or name.endswith(DELETED):
                continue
            if group is None:
                if await self.names(directory):
                    self.report.findings.append(
                        Finding("orphan", directory, text="stream that the journal does not know")
                    )
                continue
            await self.check_stream(directory, group, contents)

    async def check_stream(self, directory: str, group: GroupState, parts: dict[int, PartContent]) -> None:
        name = group.name or f"#{group.number}"
        note = group.note[: NOTE.size]
        options = StreamLogOptions()
        log = await open_stream_log(
            self.disk,
            self.clock,
            self.entropy,
            directory,
            name=name,
            store_id=self.store_id,
            options=options,
            note=note,
            gaps=group.gaps,
            first_sequence=None,
            readonly=True,
            keys=self.keys,
        )
        messages = log.index.messages
        used = log.recovery.noted[0]
        for first, last in self.journaled(group, parts):
            log.index.extend(last)
            log.index.skip(first or used + 1, last)
            used = max(used, last)
        log.end_recovery()
        self.report.findings += log.findings
        self.report.streams.append(StreamSummary(name, directory, log.index.start, log.index.last, messages))
        for path, number, size in await self.numbered(directory, "seg"):
            await self.check_segment(path, number, size, name)

    def journaled(self, group: GroupState, parts: dict[int, PartContent]) -> list[tuple[int, int]]:
        """What `sequences_of` says of the entries of the journal."""
        found = []
        for run_first, places in group.runs:
            for index, place in enumerate(places, run_first):
                part = parts[place >> 32]
                if index <= group.floor or place == 0 or part.header is None:
                    continue
                entry = record.unpack(part.data, place & 0xFFFFFFFF, 0, part.header.seed)
                if entry is not None and part.cipher is not None:
                    entry = part.cipher.open_record(entry)
                sequences = None if entry is None else self.sequences_of(entry.body)
                if sequences is not None:
                    found.append(sequences)
        return found

    async def check_segment(self, path: str, number: int, size: int, name: str) -> None:
        """Find what can be put right: the index does not keep it."""
        file = await self.disk.open(path, readonly=True)
        try:
            data = bytearray(await file.pread(size, 0))
        finally:
            file.close()
        header, _ = segment.read_header(data, path, self.keys)
        if header is not None and (header.group, header.number) == (name, number):
            self.compare_headers(path, data, header)
            self.correct(path, segment.scan(data, header.seed, path).corrected)
