"""Opening a store: its directory, identity, keys, how the last run ended, the journal, and what belongs to nobody."""

from __future__ import annotations

from collections.abc import Callable

from tnats.runtime.api import Clock, Disk
from tnats.storage import segment
from tnats.storage.encryption import make_keys
from tnats.storage.journal import Journal
from tnats.storage.journal_open import open_journal
from tnats.storage.marker import RunMarker
from tnats.storage.record import Finding, alarms
from tnats.storage.segment import DATA_START, QUARANTINE
from tnats.storage.store import Store, StoreOptions, StorePlace
from tnats.storage.store_directory import (
    DELETED,
    identify,
    make_directory,
    refuse_others,
    refuse_unopenable,
    remove_directory,
    remove_tree,
)
from tnats.storage.used import UsedSequences


async def open_store(
    disk: Disk,
    clock: Clock,
    entropy: Callable[[int], bytes],
    directory: str,
    *,
    boot_id: str,
    options: StoreOptions,
) -> Store:
    """Open the store in `directory`, made if missing.

    Raises StoreLocked, StoreRefused (another program's or version's), StorageError, DiskError.
    """
    await make_directory(disk, directory)
    await refuse_others(disk, directory)
    lock = await disk.lock(f"{directory}/tnats.lock")
    try:
        root = f"{directory}/tnats"
        await disk.mkdir(root)
        await disk.sync_dir(directory)
        findings: list[Finding] = []
        store_id = await identify(disk, clock, entropy, root, findings)
        keys = make_keys(options.encryption, store_id, entropy)
        await refuse_unopenable(disk, root, keys)
        place = StorePlace(disk, clock, entropy, root, store_id, keys)
        marker = RunMarker(disk, clock, f"{root}/marker", boot_id)
        await marker.read()
        used = UsedSequences(disk, clock, entropy, f"{root}/used", store_id, keys)
        await used.load()
        journal = await _open_journal(place, options, marker, findings)
        is_damaged = bool(alarms([*findings, *marker.findings, *journal.findings]))
        if not is_damaged:
            used.keep({group.name: group.state.number for group in journal.groups})
        await disk.mkdir(f"{root}/streams")
        await disk.sync_dir(root)
        adopted = await _sweep(place, journal, marker.incarnation, findings, is_damaged=is_damaged)
        return Store(place, options, lock, marker, used, journal, adopted, findings)
    except BaseException:
        lock.release()
        raise


async def _open_journal(
    place: StorePlace, options: StoreOptions, marker: RunMarker, findings: list[Finding]
) -> Journal:
    directory = f"{place.root}/journal"
    journal = await open_journal(
        place.disk,
        place.clock,
        place.entropy,
        directory,
        store_id=place.store_id,
        options=options.journal,
        keys=place.keys,
    )
    if marker.incarnation > 1 and journal.was_empty:
        findings.append(Finding("missing", directory, text="all parts of the journal"))
    if marker.incarnation == 1 and journal.groups:  # it is written before any group is
        marker.distrust("missing", 0)
    await marker.write(is_clean=False)  # after the first part is there, and before anything is acknowledged
    return journal


async def _sweep(
    place: StorePlace, journal: Journal, incarnation: int, findings: list[Finding], *, is_damaged: bool
) -> set[str]:
    """Finish deletions, and see to directories of groups that the journal has not dropped and does not know.

    If it may have lost something they are taken up again; if not, they are put aside: what they hold may be all that is
    left of something. Returns the names of those that were taken up.
    """
    disk = place.disk
    known = {f"{group.state.number:010d}" for group in journal.groups}
    streams = f"{place.root}/streams"
    adopted: set[str] = set()
    for entry in await disk.list(streams):
        path = f"{streams}/{entry.name}"
        if entry.name.endswith(DELETED):
            await remove_tree(disk, path)
        elif entry.name in known or entry.name == QUARANTINE:
            continue
        elif not is_damaged and entry.name.isdecimal() and journal.has_dropped(int(entry.name)):
            await remove_directory(disk, path)
        elif not await disk.list(path):
            await disk.rmdir(path)
        elif is_damaged and (name := await _adopt(place, journal, path, entry.name)):
            adopted.add(name)
            findings.append(Finding("orphan", path, group=name, text="taken up without its journal"))
        else:
            await disk.mkdir(f"{streams}/{QUARANTINE}")
            aside = f"{streams}/{QUARANTINE}/{entry.name}-{incarnation}"
            await disk.rename(path, aside)
            findings.append(Finding("orphan", aside, text="stream that the journal does not know"))
    return adopted


async def _adopt(place: StorePlace, journal: Journal, path: str, directory_name: str) -> str:
    """Find the name of a stream in the headers of its segments (most of them say it), and take it up.

    Returns the name; empty if there is none.
    """
    if not directory_name.isdecimal():
        return ""
    votes: dict[str, int] = {}
    for entry in await place.disk.list(path):
        if entry.name.endswith(".seg"):
            file = await place.disk.open(f"{path}/{entry.name}", readonly=True)
            header, _ = segment.read_header(await file.pread(DATA_START, 0), file.path, place.keys)
            file.close()
            if header is not None and (header.role, header.store_id) == (segment.STREAM, place.store_id):
                votes[header.group] = votes.get(header.group, 0) + 1
    names = [name for name in votes if not journal.knows(name)]
    if not names:
        return ""
    name = max(names, key=lambda name: votes[name])
    journal.adopt(int(directory_name), name)
    return name
