"""The one way to change replicated state: propose, and get it back committed, in order.

`LocalLog` is the form for a single replica: an entry is committed when the journal has it. A Raft group offers the
same interface; there, the entries that come back may also be other nodes', and a ticket fails when leadership is lost.

The owner's loop: `await committed()`, apply the entries to its state and store, answer who proposed. After a
checkpoint of what it applied, `checkpointed` lets the journal forget. At the start, `replay` gives what came after the
last checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from tnats.records import define
from tnats.runtime.api import Buffer
from tnats.storage.errors import DataDamaged
from tnats.storage.group import Group, Ticket


@define
class Entry:
    """One committed entry. A lost one (damaged beyond repair) has no body: its effects are unknown."""

    index: int
    term: int
    body: Buffer | None


class CommitLog(Protocol):
    """See the module."""

    @property
    def note(self) -> bytes:
        """The note of the last checkpoint."""

    def propose_nowait(self, bodies: Sequence[Buffer], *, frees_space: bool = False) -> Ticket:
        """Propose entries, in order. The ticket is done when they are committed, and fails when they may not be.

        Entries that remove something may go in when others are refused for lack of space: `frees_space`.

        Raises StoreFrozen, StoreBusy.
        """

    async def committed(self) -> list[Entry]:
        """The entries committed since the last call, in order of the index; waits for at least one."""

    def checkpointed(self, index: int, note: bytes) -> Ticket:
        """The effects of every entry up to `index` are durable elsewhere; `note` describes them."""


class LocalLog:
    """A `CommitLog` of one replica, over one group of the journal."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._ready: list[Entry] = []
        self._wake = trio.Event()

    @property
    def note(self) -> bytes:
        return self.group.note

    @property
    def floor(self) -> int:
        """Entries up to here are checkpointed."""
        return self.group.floor

    async def replay(self) -> list[Entry]:
        """The entries behind the last checkpoint, to be applied before anything is proposed.

        A run of lost entries is given as one Entry without a body, with the index of the last of them.
        """
        group = self.group
        readable = await group.read_run()
        entries = []
        index = group.floor + 1
        while index <= group.last:
            lost = next((last for first, last in group.lost if first <= index <= last), 0)
            if lost:
                entries.append(Entry(lost, 0, None))
                index = lost + 1
                continue
            if index in readable:
                entries.append(Entry(index, *readable.pop(index)))
            else:
                try:
                    found = await group.read(index)
                    entries.append(Entry(index, found.stamp, found.body))
                except DataDamaged:
                    entries.append(Entry(index, 0, None))
            index += 1
        return entries

    def propose_nowait(self, bodies: Sequence[Buffer], *, frees_space: bool = False) -> Ticket:
        first = self.group.proposed + 1
        entries = [Entry(first + offset, 0, body) for offset, body in enumerate(bodies)]

        def commit(ticket: Ticket) -> None:
            if ticket.error is None:
                self._ready += entries
                self._wake.set()

        return self.group.append_nowait(bodies, callback=commit, frees_space=frees_space)

    async def committed(self) -> list[Entry]:
        while not self._ready:
            await self._wake.wait()
            self._wake = trio.Event()
        ready, self._ready = self._ready, []
        return ready

    def checkpointed(self, index: int, note: bytes) -> Ticket:
        return self.group.set_state_nowait(index, note)
