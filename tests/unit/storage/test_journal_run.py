"""The journal's task on the real disk, when it is cancelled."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import trio
from trio.testing import wait_all_tasks_blocked

from tnats.runtime.live.clock import LiveClock
from tnats.runtime.live.disk import LiveDisk
from tnats.storage.group import Ticket
from tnats.storage.journal import JournalOptions
from tnats.storage.journal_open import open_journal


def test_a_sync_that_was_begun_is_awaited(tmp_path: Path) -> None:
    """Cancelled when a sync is begun that it does not await yet, it awaits it, and none is begun behind it: no
    descriptor is left.
    """
    tickets: list[Ticket] = []

    async def body() -> None:
        options = JournalOptions(part_bytes=1 << 20)
        directory = f"{tmp_path}/journal"
        journal = await open_journal(
            LiveDisk(), LiveClock(), os.urandom, directory, store_id=bytes(16), options=options
        )
        group = journal.group("a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            tickets.append(group.append_nowait([b"entry"], wake=False))
            journal.write_nowait()
        tickets.append(group.append_nowait([b"too late"], wake=False))
        journal.write_nowait()
        journal.parts.close()

    before = sorted(os.listdir("/proc/self/fd"))
    trio.run(body)
    for thread in threading.enumerate():
        if thread.name == "tnats-sync":
            thread.join(30)  # it closes its end of a pipe
    assert [(ticket.done, ticket.error) for ticket in tickets] == [(True, None), (False, None)]
    assert sorted(os.listdir("/proc/self/fd")) == before
