"""What workloads ask of the system under test, whatever stands behind it: real processes or simulated nodes.

One access is one client connection to one node, used by one worker. A call either returns, or raises `Refused`
(it definitely did not take effect) or `Indeterminate` (it may have, or may yet).
"""

from __future__ import annotations

from typing import Protocol

from tnats.records import frozen


class Refused(Exception):
    """It did not happen and will not; the text says why. `is_conflict`: the expected revision was another."""

    def __init__(self, text: str, *, is_conflict: bool = False) -> None:
        super().__init__(text)
        self.is_conflict = is_conflict


class Indeterminate(Exception):
    """Nobody knows whether it happened."""


@frozen
class Acknowledged:
    """A publish that the server has accepted."""

    stream: str
    seq: int
    is_duplicate: bool


@frozen
class Delivered:
    """A message as a consumer got it."""

    seq: int
    value: str


class LogAccess(Protocol):
    """A stream used as a log."""

    node: str

    async def publish(self, value: str) -> Acknowledged: ...

    async def fetch(self, count: int) -> list[Delivered]:
        """The next messages of this access's own consumer, oldest first; empty when there are none now."""


class RegisterAccess(Protocol):
    """A key-value bucket used as registers. Writes return the revision, which is the stream's sequence."""

    node: str

    async def put(self, key: str, value: str) -> int: ...

    async def create(self, key: str, value: str) -> int:
        """Only if the key is absent or deleted."""

    async def update(self, key: str, value: str, revision: int) -> int:
        """Only if the key's newest revision is this one."""

    async def delete(self, key: str, marker: str) -> int:
        """Leave a marker, with a text that tells it from every other."""

    async def get(self, key: str, *, direct: bool) -> tuple[str | None, int]:
        """Value (or the text of a marker, or None) and its revision (0: none); `direct`: from any replica."""
