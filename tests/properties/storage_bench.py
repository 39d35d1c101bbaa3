"""What the storage tests share: a clock that only sleeping moves, and a seeded order of tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio
import trio._core._run as trio_run
import trio.testing

from tnats.storage.encryption import Cipher, Encryption


@attrs.frozen
class Form:
    """How a store's files are written."""

    name: str
    encryption: Encryption | None = None
    is_packing: bool = False


PLAIN = Form("plain")
PACKED = Form("packed", None, True)
CHACHA = Form("chacha", Encryption("first key"))
AES_PACKED = Form("aes, packed", Encryption("first key", Cipher.AES), True)
FORMS = (PLAIN, PACKED, CHACHA, AES_PACKED)


class StepClock:
    """Time that passes only by sleeping; a sleep is one checkpoint."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.deadline_ns = 0
        self.scope = trio.CancelScope()

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns

    async def sleep_ns(self, duration_ns: int) -> None:
        self.now_ns += duration_ns
        await trio.lowlevel.checkpoint()

    async def sleep_until_ns(self, deadline_ns: int) -> None:
        await self.sleep_ns(max(0, deadline_ns - self.now_ns))

    def deadline(self, deadline_ns: int) -> trio.CancelScope:
        """One task waits here at a time; `idle` lets its deadline pass."""
        self.scope, self.deadline_ns = trio.CancelScope(), deadline_ns
        return self.scope

    async def idle(self) -> None:
        """Let time pass until the waiting task's deadline."""
        await trio.testing.wait_all_tasks_blocked()
        self.now_ns = max(self.now_ns, self.deadline_ns)
        self.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run with a seeded order of tasks, so that a failure repeats."""
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True
    trio_run._r.seed(11)
    try:
        trio.run(test)
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = False
