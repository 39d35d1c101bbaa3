"""Opening a journal: read every part, let `recover` judge, and begin a new part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tnats.runtime.api import Clock, Disk, DiskError, File
from tnats.storage import segment
from tnats.storage.errors import StoreFrozen
from tnats.storage.journal import Journal, JournalOptions
from tnats.storage.journal_parts import JournalParts, OpenPart
from tnats.storage.record import Finding
from tnats.storage.recover import PartContent, Recovery, recover

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing


async def open_journal(
    disk: Disk,
    clock: Clock,
    entropy: Callable[[int], bytes],
    directory: str,
    *,
    store_id: bytes,
    options: JournalOptions,
    keys: KeyRing | None = None,
) -> Journal:
    """Read what stands in `directory` (made if missing; its parent exists), and begin a new part.

    Raises StoreRefused, StoreFull, StoreFrozen, DiskError. What was found damaged is in `findings`.
    """
    await disk.mkdir(directory)
    await disk.sync_dir(directory.rpartition("/")[0])
    contents = []
    files: dict[int, OpenPart] = {}
    for entry in await disk.list(directory):
        path = f"{directory}/{entry.name}"
        stem, _, extension = entry.name.partition(".")
        if extension == "part.tmp":
            await disk.unlink(path)
        elif extension == "part" and stem.isdecimal():
            file = await disk.open(path)
            content = await read_part(file, int(stem), entry.size, store_id, keys)
            contents.append(content)
            if content.header is not None:
                files[content.number] = OpenPart(
                    file, content.header.seed, content.cipher, segment.is_current(content.header, keys)
                )
            else:
                file.close()
    recovery = recover(contents, directory)
    try:
        await _secure(files, recovery, {content.number: content.wrong_headers for content in contents})
    except DiskError as exc:
        # What it read may be gone after the next loss of power, and its sequences be used again: nobody may see it.
        for part in files.values():
            part.file.close()
        raise StoreFrozen(f"journal {directory} takes no writes: {exc}") from exc
    parts = JournalParts(disk, clock, entropy, directory, store_id, options.part_bytes, recovery, files, keys)
    journal = Journal(parts, clock, options, recovery, is_encrypted=keys is not None)
    await journal.begin()
    return journal


async def _secure(
    files: Mapping[int, OpenPart], recovery: Recovery, wrong_headers: Mapping[int, list[tuple[int, bytes]]]
) -> None:
    """Make durable what was read and is about to be built on, and what was corrected. Raises DiskError.

    The last run's sync may have failed, and a failed sync can leave pages that count as clean though the medium does
    not have them: another sync would write nothing. So what nothing says was durable is written again.
    """
    for part in recovery.parts:
        right = [*wrong_headers[part.number], *((offset, bytes([value])) for offset, value in part.corrected)]
        for offset, correct in right:
            files[part.number].file.pwrite([correct], offset)
        if right:
            await files[part.number].file.sync()
    if recovery.parts and recovery.parts[-1].number in files:
        file = files[recovery.parts[-1].number].file
        if recovery.unproved is not None:
            offset, data = recovery.unproved
            file.pwrite([data], offset)
        await file.sync()


async def read_part(file: File, number: int, size: int, store_id: bytes, keys: KeyRing | None = None) -> PartContent:
    """A part's bytes and its header, if it is the right one. Raises StoreRefused, DiskError."""
    data = await file.pread(size, 0)
    header, findings = segment.read_header(data, file.path, keys)
    if header is not None and (header.role, header.number, header.store_id) != (segment.JOURNAL, number, store_id):
        findings.append(Finding("foreign", file.path, text="belongs to another store or place"))
        header = None
    cipher = None if header is None else segment.cipher_of(header, keys)
    wrong_headers = segment.wrong_headers(header, data) if header is not None and findings else []
    return PartContent(number, file.path, data, header, findings, cipher, wrong_headers)
