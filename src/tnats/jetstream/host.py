"""What all services of a node share, and what they may ask of the node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio

from tnats.ids import Nuid
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.meta.catalogue import Catalogue
from tnats.jetstream.options import JetStreamOptions
from tnats.jetstream.ports import Log
from tnats.jetstream.stream.batches import BatchBudget
from tnats.jetstream.stream.config import StreamConfig
from tnats.jetstream.usage import UsageMeter
from tnats.records import define
from tnats.runtime.api import Runtime
from tnats.storage.store import Store
from tnats.subjects.draw import Draw
from tnats.timers import Timers

if TYPE_CHECKING:
    from tnats.jetstream.account import AccountService


class Sleeper(Protocol):
    """A stream or a consumer that waits for a moment."""

    def tick(self, now_ns: int) -> None:
        """The moment has come; set the next one in here."""


def wake(sleeper: Sleeper, now_ns: int) -> None:
    """The moment has come that one waits for."""
    sleeper.tick(now_ns)


@define(eq=False)
class Host:
    """One per node. `nursery` is where services start tasks of their own."""

    runtime: Runtime
    options: JetStreamOptions
    log: Log
    store: Store
    catalogue: Catalogue
    timers: Timers[Sleeper]
    nursery: trio.Nursery
    budget: BatchBudget
    draw: Draw
    nuid: Nuid
    accounts: dict[str, AccountService] = attrs.field(factory=dict)
    meter: UsageMeter = attrs.field(default=attrs.Factory(lambda host: UsageMeter(host.log), takes_self=True))
    is_ending: bool = False
    """No task is started any more."""

    def wall_ns(self) -> int:
        return self.runtime.clock.wall_ns()

    def mono_ns(self) -> int:
        return self.runtime.clock.mono_ns()

    def refusal(self, account: AccountService, config: StreamConfig) -> ApiError | None:
        """Why a stream may take no message now: the bounds of the server, or of the account, are reached."""
        return self.meter.refusal(account, config, self.accounts, self.options, self.mono_ns())

    def spawn(self, work: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Start a task. What it raises, if it is an Exception, is reported and harms nobody else.

        At the end nothing is started: what is left to do, the last checkpoint does.
        """
        if self.is_ending:
            return
        self.nursery.start_soon(self._guard, work, args)

    async def _guard(self, work: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        try:
            await work(*args)
        except Exception as bug:
            self.runtime.process.on_bug(bug, f"jetstream {work.__qualname__}")
