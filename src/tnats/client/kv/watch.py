"""Watching a bucket: what its keys hold, and then what happens to them, in the order of revisions (ADR-8, "Watch").

A watch reads the bucket's stream in order, so it outlives lost connections and misses nothing: where it had to begin
anew it goes on after the last revision that it gave.
"""

from __future__ import annotations

from types import TracebackType

from tnats import limits
from tnats.client.errors import ConnectionLost, NoResponders, TimedOut
from tnats.client.jetstream.delivery import Delivery
from tnats.client.jetstream.errors import NotFound
from tnats.client.jetstream.ordered import OrderedMessages
from tnats.client.kv.entry import Entry, from_delivery
from tnats.runtime.api import Clock


class Watch:
    """Made by `KeyValue.watch`: `async with kv.watch() as entries: async for entry in entries`.

    Gives None once, after everything that was there when the watch began; not with `updates_only`.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        messages: OrderedMessages,
        clock: Clock,
        *,
        ignore_deletes: bool,
        tells_caught_up: bool,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._messages = messages
        self._ignore_deletes = ignore_deletes
        self._tells_caught_up = tells_caught_up
        self._left_count = 0
        self._clock = clock

    async def __aenter__(self) -> Watch:
        """Raises StreamNotFound, JetStreamUnavailable."""
        await self._messages.__aenter__()
        self._left_count = self._messages.pending_count
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._messages.__aexit__(exc_type, exc, trace)

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Entry | None:
        while True:
            if self._tells_caught_up and self._left_count <= 0:
                self._tells_caught_up = False
                return None
            message = await (self._next_or_look() if self._tells_caught_up else anext(self._messages))
            if message is None:
                continue
            entry = from_delivery(self._bucket, message.subject.removeprefix(self._prefix), message)
            self._left_count = min(self._left_count - 1, entry.delta)
            if entry.is_live or not self._ignore_deletes:
                return entry

    async def _next_or_look(self) -> Delivery | None:
        """The next message, or None after a look at how many are left: what was to come may have been removed."""
        with self._clock.deadline(self._clock.mono_ns() + limits.CLIENT_WATCH_LOOK_NS):
            return await anext(self._messages)
        try:
            self._left_count = min(self._left_count, await self._messages.left_count())
        except (NotFound, NoResponders, TimedOut, ConnectionLost):
            pass  # the reading itself finds out
        return None

    async def present(self) -> list[Entry]:
        """The entries up to the None: what was there when the watch began."""
        entries = []
        while (entry := await anext(self)) is not None:
            entries.append(entry)
        return entries
