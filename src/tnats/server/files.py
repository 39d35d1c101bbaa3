"""The files by which scripts find a running server: its process id and its ports."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

import orjson

from tnats.runtime.api import Disk, DiskError
from tnats.server.log import ServerLog

PORTS_PROGRAM = "nats-server"
"""The ports file is named as nats-server names it, since that is the name scripts wait for."""


async def write_pid_file(disk: Disk, path: str, pid: int) -> None:
    """Write the process id. Raises DiskError with a line for the log."""
    try:
        await disk.write_file(path, str(pid).encode())
    except DiskError as error:
        raise DiskError(f"Could not write pidfile ({path}): {error}", error.errno) from None


def ports_path(directory: str, pid: int) -> str:
    """Where the ports file of the process is."""
    return posixpath.join(directory, f"{PORTS_PROGRAM}_{pid}.ports")


async def write_ports_file(disk: Disk, path: str, ports: Mapping[str, Sequence[str]]) -> None:
    """Write the URLs by kind (`nats`, `monitoring`, ...) as JSON. Raises DiskError with a line for the log."""
    try:
        await disk.write_file(path, orjson.dumps(dict(ports)))
    except DiskError as error:
        raise DiskError(f"Error writing ports file ({path}): {error}", error.errno) from None


async def remove(disk: Disk, path: str, log: ServerLog) -> None:
    """Remove a file of ours at the end; one that is gone already is fine."""
    try:
        await disk.unlink(path)
    except DiskError as error:
        log.debug(f"{path} was not removed: {error}")
