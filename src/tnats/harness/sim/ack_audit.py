"""C29: at the moment when an acknowledgement leaves the server, would its message outlive a loss of power?

Property: in a server that acknowledges what is synced, the message of every acknowledgement is on the medium, in a file
whose name is, when the bytes of the acknowledgement are handed to the kernel. No fault is needed to see it broken.
Method: the disk is cloned and crashed without mercy; then the message's own bytes are looked for in the store's files.
Cost: one copy-on-write clone and a search through the store's files for each acknowledgement.
Source: the contract's K2; Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014, asks it offline.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from tnats.runtime.sim.disk import SimDrive
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage

ACK = re.compile(rb'\{"stream":"(\w+)", ?"seq":(\d+)(?=[,}])')
FILES = ("*/journal/*", "*/streams/*")


class AckAudit:
    """Looks at what one server writes to its clients."""

    def __init__(self, drive: SimDrive, rng: random.Random, content_of: Callable[[str, int], bytes | None]) -> None:
        """`content_of(stream, seq)`: bytes that only this message has, None when it has none (or is removed)."""
        self.audited_count = 0
        self.volatile: list[str] = []
        """A line for each acknowledgement whose message would have been lost."""
        self._drive = drive
        self._rng = rng
        self._content_of = content_of
        self._known: dict[tuple[str, int], None] = {}

    def on_write(self, data: bytes) -> None:
        """The server writes to a client (`Host.on_write`)."""
        if b'"seq":' not in data:
            return
        wanted: dict[tuple[str, int], bytes] = {}
        for found in ACK.finditer(data):
            place = found[1].decode(), int(found[2])
            content = self._content_of(*place) if place not in self._known else None
            if content is not None:
                wanted[place] = content
        if not wanted:
            return
        image = self._drive.image.clone()
        image.crash(CrashPolicy.STRICT, self._rng)
        files = list(durable_files(image))
        for place, content in wanted.items():
            self.audited_count += 1
            self._known[place] = None
            if not any(content in file for file in files):
                stream, seq = place
                self.volatile.append(f"{stream} acknowledged {seq}, and a loss of power would have taken it")


def durable_files(image: DiskImage) -> Iterator[bytes]:
    """The files that hold messages."""
    for path in image.walk():
        if any(fnmatchcase(path, pattern) for pattern in FILES):
            yield image.content(path)
