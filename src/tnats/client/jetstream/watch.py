"""Watching subjects of a stream: what they hold, and then what happens, in the order of the stream.

The reading is an ordered one, so it outlives lost connections and misses nothing: where it had to begin anew it goes
on after the last message that it gave. Buckets and object stores are watched this way (ADR-8, ADR-20).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from tnats.client.jetstream.delivery import Delivery
from tnats.client.jetstream.ordered import OrderedMessages

T = TypeVar("T")


class Watch(Generic[T]):
    """Made by `watch` of a bucket or store: `async with kv.watch() as entries: async for entry in entries`.

    Gives None once, after everything that was there when the watch began; not with `updates_only`.
    """

    def __init__(
        self, messages: OrderedMessages, convert: Callable[[Delivery], T | None], *, tells_caught_up: bool
    ) -> None:
        """`convert` makes of a message what the watch gives, or None where it is passed over."""
        self._messages = messages
        self._convert = convert
        self._tells_caught_up = tells_caught_up
        self._left_count = 0
        self._is_first = True

    async def __aenter__(self) -> Watch[T]:
        """Raises StreamNotFound, JetStreamUnavailable."""
        await self._messages.__aenter__()
        self._left_count = self._messages.pending_count
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._messages.__aexit__(exc_type, exc, trace)

    def __aiter__(self) -> Watch[T]:
        return self

    async def __anext__(self) -> T | None:
        while True:
            if not self._tells_caught_up:
                message = await anext(self._messages)
            else:
                # What was to come may have been removed meanwhile, so waiting for it alone could last for ever.
                found = await self._messages.next_present() if self._left_count > 0 else None
                if found is None:
                    self._tells_caught_up = False
                    return None
                message = found
                if self._is_first:
                    self._is_first, self._left_count = False, self._messages.pending_count
                self._left_count = min(self._left_count - 1, message.metadata.pending_count)
            item = self._convert(message)
            if item is not None:
                return item

    async def present(self) -> list[T]:
        """The items up to the None: what was there when the watch began."""
        items = []
        while (item := await anext(self)) is not None:
            items.append(item)
        return items
