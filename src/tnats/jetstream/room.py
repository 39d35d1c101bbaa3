"""Readers that are behind: who has much to send waits for them, so that nobody is cut off for reading slowly."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import TypeVar

import trio

from tnats.jetstream.ports import Bus
from tnats.runtime.api import Clock

Loaded = TypeVar("Loaded")


def begin_within(sizes: Sequence[int], room: int, *, beside: int) -> int:
    """How many messages of these sizes begin within `room` bytes: at least one. `beside`: what each takes besides."""
    if sum(sizes) + beside * len(sizes) <= room:
        return len(sizes)
    return 1 + bisect_left(list(accumulate([size + beside for size in sizes])), room, hi=len(sizes) - 1)


async def load_for(
    subject: bytes, load: Callable[[], Awaitable[Loaded]], bus: Bus, clock: Clock, until_ns: int
) -> Loaded:
    """What `load` gives, when somebody whom `subject` reaches has room for it (`Bus.room`), or nobody is there.

    From `until_ns` on it is given anyway. Nothing is kept while it waits: hundreds may wait for one reader. What was
    loaded while others took the room is loaded once more. Raises as `load`.
    """
    while True:
        while (is_behind := bus.room(subject) == 0) and clock.mono_ns() < until_ns:
            await _wait_for_room(subject, bus, clock, until_ns)
        loaded = await load()
        if is_behind or bus.room(subject) != 0:
            return loaded


async def _wait_for_room(subject: bytes, bus: Bus, clock: Clock, until_ns: int) -> None:
    """Return when there may be room, and at `until_ns`."""
    moved = trio.Event()

    def told(subject: bytes) -> None:
        moved.set()

    bus.on_room(subject, told)
    try:
        with clock.deadline(until_ns):
            await moved.wait()
    finally:
        bus.forget_room(subject, told)
