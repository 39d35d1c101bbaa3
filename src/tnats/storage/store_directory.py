"""The directory of a store: made, refused when it is not ours or cannot be read, and identified."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from tnats.runtime.api import Clock, Disk, DiskError
from tnats.storage import segment
from tnats.storage.errors import StoreRefused
from tnats.storage.record import Finding
from tnats.storage.segment import DATA_START, SegmentHeader

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing

IDENTITY = 4
"""Segment role of the identity file."""
DELETED = ".deleted"
"""Behind the name of a stream's directory that is being removed."""
FILE_BYTES_MAX = 64 * 1024


async def make_directory(disk: Disk, directory: str) -> None:
    """Make the store directory with its parents, durably. Raises StoreRefused, DiskError."""
    try:
        await disk.mkdir(directory, parents=True)
    except DiskError as exc:
        if exc.errno not in (errno.EEXIST, errno.ENOTDIR):
            raise
        raise StoreRefused(f"{directory}: storage directory is not a directory; name another one as store_dir") from exc
    parent = directory.rstrip("/")
    while parent.strip("/"):
        parent = parent.rpartition("/")[0]
        try:
            await disk.sync_dir(parent or "/")
        except DiskError as exc:
            if exc.errno not in (errno.EACCES, errno.EPERM):
                raise
            return  # not ours to sync, so not ours either to have made


async def refuse_others(disk: Disk, directory: str) -> None:
    """Raises StoreRefused when `directory` holds another program's store, DiskError when it cannot be listed."""
    for entry in await disk.list(directory):
        if entry.name == "jetstream" and entry.is_directory:
            raise StoreRefused(
                f"{directory} holds a store of nats-server (directory `jetstream`); it was not touched. "
                "Give this server a directory of its own and copy the streams by backup and restore"
            )


async def identify(
    disk: Disk, clock: Clock, entropy: Callable[[int], bytes], root: str, findings: list[Finding]
) -> bytes:
    """The store's id; drawn and stored if this is a new store. Raises StoreRefused, DiskError."""
    path = f"{root}/identity"
    try:
        data = await disk.read_file(path, bytes_max=FILE_BYTES_MAX)
    except DiskError as exc:
        if exc.errno != errno.ENOENT:
            raise
        if any(entry.name != "identity.tmp" for entry in await disk.list(root)):
            raise StoreRefused(
                f"{path} is missing, but {root} holds data: restore the file, or move the data away"
            ) from exc
        store_id = entropy(16)
        header = SegmentHeader(IDENTITY, 0, "store", store_id, 0, clock.wall_ns())
        await disk.write_file(path, bytes(header.area()))
        return store_id
    header_found, found = segment.read_header(data, path)
    findings += found
    if header_found is None or header_found.role != IDENTITY:
        raise StoreRefused(f"{path} is damaged in both copies: restore it from a backup")
    if found:
        file = await disk.open(path)
        try:
            for offset, copy in segment.wrong_headers(header_found, data):
                file.pwrite([copy], offset)
            await file.sync()
        finally:
            file.close()
    return header_found.store_id


async def refuse_unopenable(disk: Disk, root: str, keys: KeyRing | None) -> None:
    """Raises StoreRefused when a file of the store is encrypted under a key that is not given, before any is touched.

    Without keys the newest part of the journal tells: every start under a key begins one.
    """
    paths = [path for path in await list_paths(disk, f"{root}/journal") if path.endswith(".part")]
    if keys is None:
        paths = paths[-1:]
    else:
        for directory in await list_paths(disk, f"{root}/streams"):
            paths += [path for path in await list_paths(disk, directory) if path.endswith(".seg")]
        paths += [path for path in await list_paths(disk, root) if path.endswith("/used")]
    for path in paths:
        file = await disk.open(path, readonly=True)
        try:
            segment.read_header(await file.pread(DATA_START, 0), path, keys)
        finally:
            file.close()


async def list_paths(disk: Disk, directory: str) -> list[str]:
    """What stands in a directory; nothing if there is none. Raises DiskError."""
    try:
        return [f"{directory}/{entry.name}" for entry in await disk.list(directory)]
    except DiskError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return []


async def remove_directory(disk: Disk, path: str) -> None:
    """Remove a stream's files: whole at any moment, or for the next start to finish. Raises DiskError."""
    await disk.rename(path, path + DELETED)
    await disk.sync_dir(path.rpartition("/")[0])  # from here on no start takes them for anything else
    await remove_tree(disk, path + DELETED)


async def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory with all that is in it. Raises DiskError."""
    for entry in await disk.list(path):
        inner = f"{path}/{entry.name}"
        if entry.is_directory:
            await remove_tree(disk, inner)
        else:
            await disk.unlink(inner)
    await disk.rmdir(path)
