"""C29: at the moment when an acknowledgement leaves the server, would its message outlive a loss of power?

Property: in a server that acknowledges what is synced, the message of every acknowledgement is on the medium, in a file
whose name is, when the bytes of the acknowledgement are handed to the kernel. No fault is needed to see it broken.
Method: the disk is cloned and crashed without mercy; then the message's own bytes are looked for in the store's files.
An acknowledgement may leave before the message is applied, which is when its bytes are known: the clone waits for them.
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
WAITING_MAX = 20
"""Acknowledgements whose message is not known yet; the oldest ones are let go of (their messages may be removed)."""


Place = tuple[str, int, int]
"""A stream, which of its lives it was, a sequence."""


class AckAudit:
    """Looks at what one server writes to its clients."""

    def __init__(
        self,
        drive: SimDrive,
        rng: random.Random,
        life_of: Callable[[str], int],
        content_of: Callable[[str, int, int], bytes | None],
    ) -> None:
        """`life_of(stream)`: which of its lives it is now. `content_of(stream, life, seq)`: bytes that only this
        message has, None when it has none, is removed or not applied, or the stream lives another life.
        """
        self.audited_count = 0
        self.volatile: list[str] = []
        """A line for each acknowledgement whose message would have been lost."""
        self._drive = drive
        self._rng = rng
        self._life_of = life_of
        self._content_of = content_of
        self._known: dict[Place, None] = {}
        self._waiting: dict[Place, DiskImage] = {}
        """What would have been left when they were acknowledged."""

    def on_write(self, data: bytes) -> None:
        """The server writes to a client (`Host.on_write`)."""
        if b'"seq":' in data:
            named = [(found[1].decode(), int(found[2])) for found in ACK.finditer(data)]
            places = dict.fromkeys((stream, self._life_of(stream), seq) for stream, seq in named)
            new = [place for place in places if place not in self._known]
            if new:
                image = self._drive.image.clone()
                image.crash(CrashPolicy.STRICT, self._rng)
                self._known.update(dict.fromkeys(new))
                self._waiting.update(dict.fromkeys(new, image))
        self.look()

    def look(self) -> None:
        """Judge the acknowledgements whose messages are known by now."""
        for place, image in list(self._waiting.items()):
            content = self._content_of(*place)
            if content is None:
                continue
            del self._waiting[place]
            self.audited_count += 1
            if not any(content in file for file in durable_files(image)):
                stream, _, seq = place
                self.volatile.append(f"{stream} acknowledged {seq}, and a loss of power would have taken it")
        for place in list(self._waiting)[:-WAITING_MAX]:
            del self._waiting[place]


def durable_files(image: DiskImage) -> Iterator[bytes]:
    """The files that hold messages."""
    for path in image.walk():
        if any(fnmatchcase(path, pattern) for pattern in FILES):
            yield image.content(path)
