"""The thread that carries out syncs.

A lone publisher waits for every step of the way there and back, so there are few: a request through a pipe wakes the
thread, an eventfd wakes the task that waits for the outcome. Meanwhile the disk is at work already (`write_ahead`): as
long as it answers promptly, since the call waits where the device's queue is full, and everything with it.
The thread's loop is compiled (`hot`) and holds no lock of the interpreter, which the reactor's thread has while it
computes.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import trio

from tnats.limits import WRITE_AHEAD_BYTES_MAX, WRITE_AHEAD_SYNC_NS_MAX
from tnats.runtime.live.sync.calls import DESCRIPTOR_BITS, REQUEST_SIZE
from tnats.runtime.live.sync.hot import carry_out_syncs, write_ahead


class SyncThread:
    """Carries out fdatasync calls one after another, in the order they were begun. It ends with the trio run."""

    def __init__(self) -> None:
        """Raises OSError: no descriptors."""
        self._idle_events: list[int] = []
        self._busy_count = 0
        """Calls in line or under way."""
        self._busy_since_ns = 0
        self._is_prompt = False
        """The disk did not take long when it was asked last."""
        pipe, self._requests = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._requests, False)
        threading.Thread(target=_work, args=(pipe,), name="tnats-sync", daemon=True).start()
        trio.lowlevel.spawn_system_task(self._end_with_run, name="tnats-sync-end")

    def begin(self, descriptor: int, unsynced_bytes: int) -> int:
        """Put a call in line; the eventfd that `outcome` is to be told. Raises OSError: it is not in line.

        A little that is to be written is begun here; more could make the device's queue full, and who fills it waits.
        """
        if not self._busy_count:
            self._busy_since_ns = time.monotonic_ns()
            if self._is_prompt and unsynced_bytes <= WRITE_AHEAD_BYTES_MAX:
                write_ahead(descriptor)
        event = self._idle_events.pop() if self._idle_events else os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            os.write(self._requests, (descriptor << DESCRIPTOR_BITS | event).to_bytes(REQUEST_SIZE, sys.byteorder))
        except OSError:
            self._idle_events.append(event)
            raise
        self._busy_count += 1
        return event

    async def outcome(self, event: int) -> int:
        """Await the end of a call: 0 or its errno. `event` goes to another one then."""
        await trio.lowlevel.wait_readable(event)
        outcome = os.eventfd_read(event)
        self._idle_events.append(event)
        self._busy_count -= 1
        if not self._busy_count:
            self._is_prompt = time.monotonic_ns() - self._busy_since_ns <= WRITE_AHEAD_SYNC_NS_MAX
        return outcome - 1

    async def _end_with_run(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            os.close(self._requests)
            for event in self._idle_events:
                os.close(event)


def _work(pipe: int) -> None:
    carry_out_syncs(pipe)
    os.close(pipe)
