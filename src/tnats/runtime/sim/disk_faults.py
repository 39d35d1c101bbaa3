"""Faults of a simulated disk: rules that meet operations as they happen, and damage done to a disk at rest.

A `DiskFault` says which operations it meets (kinds, path pattern, after how many, how often, how likely) and what
then happens (its effect). The first rule with an effect wins; delays add up. Damage at rest is plain
functions on a `DiskImage`. Everything drawn comes from the `random.Random` that is passed in.

| effect | meaning |
|---|---|
| `Fail(errno, written=...)` | the call fails: EIO, ENOSPC (perhaps after a short write), EROFS, EMFILE, EACCES |
| `SyncFault("once")` | sync fails once and the pages count as clean: a later sync answers well, the data is lost |
| `SyncFault("sticky")` | sync fails, and keeps failing while the rule stands; the data stays volatile |
| `SyncFault("silent")` | sync answers well, the pages count as clean, the data is lost |
| `SyncFault("lying")` | sync answers well, the data is still volatile |
| `Flip(bits)` | so many bits are flipped in what is read or written |
| `Misdirect(path, offset)` | a write lands in another file and offset; the intended place keeps its old content |
| `Lose()` | a write is acknowledged and lands nowhere |
| `Delay(...)` | the call takes longer; with a chance of stalling |
"""

from __future__ import annotations

import fnmatch
import random
from typing import Literal

from tnats.records import define, frozen
from tnats.runtime.sim.disk_image import DiskImage
from tnats.runtime.sim.disk_nodes import PAGE_SIZE

Kind = Literal[
    "open",
    "create",
    "write",
    "read",
    "sync",
    "resize",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "list",
    "sync_dir",
    "free",
    "lock",
]
CHANGING: tuple[Kind, ...] = ("create", "write", "resize", "rename", "unlink", "mkdir", "rmdir")
"""Kinds that a read-only file system refuses."""


@frozen
class Fail:
    errno: int
    written: int = 0
    """Bytes of a write that land before the error."""


@frozen
class SyncFault:
    variant: Literal["once", "sticky", "silent", "lying"]


@frozen
class Flip:
    bits: int = 1


@frozen
class Misdirect:
    path: str | None = None
    """None: the same file."""
    offset: int = 0


@frozen
class Lose:
    pass


@frozen
class Delay:
    """Multiplies the drawn latency, adds to it, and with `stall_chance` stalls for up to `stall_ns` more."""

    factor: float = 1.0
    added_ns: int = 0
    stall_chance: float = 0.0
    stall_ns: int = 0


Effect = Fail | SyncFault | Flip | Misdirect | Lose | Delay


@define
class DiskFault:
    """One rule. `seen` counts the operations it met, `fired` how often it took effect."""

    kinds: tuple[Kind, ...]
    effect: Effect
    glob: str = "*"
    skip: int = 0
    """So many matching operations pass before the first hit."""
    times: int | None = None
    """How many hits before the rule is spent; None: until it is removed."""
    chance: float = 1.0
    seen: int = 0
    fired: int = 0

    def meets(self, kind: Kind, path: str, rng: random.Random) -> bool:
        """Whether this rule hits the operation; counts it."""
        if kind not in self.kinds or not fnmatch.fnmatchcase(path, self.glob):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.times is not None and self.fired >= self.times):
            return False
        if self.chance < 1.0 and rng.random() >= self.chance:
            return False
        self.fired += 1
        return True


def flip_bits(data: bytes, count: int, rng: random.Random) -> bytes:
    """`data` with `count` distinct bits flipped."""
    changed = bytearray(data)
    for bit in rng.sample(range(len(data) * 8), min(count, len(data) * 8)):
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


# ------------------------------------------------------------------ damage at rest


def matching(image: DiskImage, glob: str) -> list[str]:
    """The files whose path fits the pattern."""
    return [path for path in image.walk() if fnmatch.fnmatchcase(path, glob)]


def written(image: DiskImage, path: str) -> bytes:
    """What a file holds before the room that was only set aside: damage to that tells nothing."""
    content = image.content(path)
    return content.rstrip(b"\0") or content


def damage_bits(image: DiskImage, path: str, count: int, rng: random.Random) -> None:
    """Flip `count` bits of a file."""
    image.overwrite(path, flip_bits(written(image, path), count, rng), 0)


def damage_bit(image: DiskImage, path: str, bit: int) -> None:
    """Flip the bit `bit` (counted from the least significant bit of byte 0) of a file."""
    byte = image.content(path)[bit // 8]
    image.overwrite(path, bytes([byte ^ 1 << bit % 8]), bit // 8)


def damage_block(image: DiskImage, path: str, rng: random.Random, *, block_size: int = PAGE_SIZE) -> None:
    """Zero one drawn block of a file."""
    block = rng.randrange(max(1, -(-len(written(image, path)) // block_size)))
    image.overwrite(path, bytes(block_size), block * block_size)


def damage_tail(image: DiskImage, path: str, rng: random.Random) -> None:
    """Cut a drawn number of bytes off a file, small cuts likelier than large ones (Zipf)."""
    size = len(written(image, path))
    if size:
        image.cut(path, size - min(size, int(size ** rng.random())))


def save_chunks(image: DiskImage, path: str, rng: random.Random, *, share: float = 0.5) -> dict[int, bytes]:
    """Take a drawn share of a file's pages, to be put back later as stale data (a lost write)."""
    content = image.content(path)
    offsets = range(0, len(content), PAGE_SIZE)
    return {offset: content[offset : offset + PAGE_SIZE] for offset in offsets if rng.random() < share}


def restore_chunks(image: DiskImage, path: str, chunks: dict[int, bytes]) -> None:
    """Put saved pages back."""
    for offset, data in chunks.items():
        image.overwrite(path, data, offset)
