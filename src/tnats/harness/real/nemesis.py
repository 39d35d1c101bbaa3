"""Carries out fault records on real processes and their stores.

Faults come one at a time: each is done whole (server stopped, damaged, started again) before the next begins. What
was done stands in the history as the nemesis's operations. A server that does not start after a fault is noted and
tried again by the next fault, and at the end.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from tnats.harness.contract import Observed, PowerLoss
from tnats.harness.faults import AfterAcks, At, Every, Fault
from tnats.harness.history import Recorder
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.processes import ServerProcess
from tnats.harness.real.stores import Store
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime

POLL_NS = 20_000_000


class Nemesis:
    """Troubles one server. `ack_count` tells how many acknowledgements clients have got."""

    def __init__(
        self,
        runtime: Runtime,
        recorder: Recorder,
        observed: Observed,
        server: ServerProcess,
        store: Store,
        rng: random.Random,
        ack_count: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._recorder = recorder
        self._observed = observed
        self._server = server
        self._store = store
        self._rng = rng
        self._ack_count = ack_count
        self._lock = trio.Lock()
        self.start_failure = ""
        """Why the last start failed; empty when it went well."""
        self._kinds: dict[str, Callable[[Fault], Awaitable[None]]] = {
            "P_KILL": self._kill,
            "P_TERM": self._terminate,
            "P_CRASHLOOP": self._crash_loop,
            "P_PAUSE": self._pause,
            "D_POWER": self._power,
            "D_BITFLIP": self._damage,
            "D_TRUNC": self._damage,
        }

    def missing(self, faults: tuple[Fault, ...]) -> list[str]:
        """Faults that cannot be carried out here, for their kind or for when they are to happen."""
        return [
            str(fault)
            for fault in faults
            if fault.kind not in self._kinds or not isinstance(fault.anchor, At | Every | AfterAcks)
        ]

    async def run(self, faults: tuple[Fault, ...]) -> None:
        """Carry out all of them, each at its time, until cancelled."""
        start_ns = self._runtime.clock.mono_ns()
        async with trio.open_nursery() as nursery:
            for fault in faults:
                nursery.start_soon(self._follow, fault, start_ns)

    async def _follow(self, fault: Fault, start_ns: int) -> None:
        clock = self._runtime.clock
        match fault.anchor:
            case At(time_ns):
                await clock.sleep_until_ns(start_ns + time_ns)
                await self.carry_out(fault)
            case Every(period_ns, first_ns):
                due_ns = start_ns + first_ns
                while True:
                    await clock.sleep_until_ns(due_ns)
                    await self.carry_out(fault)
                    due_ns = max(due_ns + period_ns, clock.mono_ns())
            case AfterAcks(count):
                while self._ack_count() < count:
                    await clock.sleep_ns(POLL_NS)
                await self.carry_out(fault)

    async def carry_out(self, fault: Fault) -> None:
        """One fault, whole."""
        async with self._lock:
            await self._kinds[fault.kind](fault)

    @asynccontextmanager
    async def between_faults(self) -> AsyncIterator[None]:
        """A moment at which no fault is half done."""
        async with self._lock:
            yield

    async def heal(self) -> None:
        """End what lasts, and have the server running. Sets `start_failure`."""
        async with self._lock:
            self._server.resume()
            if not self._server.is_running:
                await self._start()

    async def _start(self) -> None:
        try:
            await self._server.start()
        except CouldNotRun as exc:
            self.start_failure = str(exc)
            self._recorder.nemesis("start-failed", str(exc))
        else:
            self.start_failure = ""
            self._recorder.nemesis("start", self._server.name)
            self._observed.reports.append((await self._server.health()).text)

    async def _down(self, fault: Fault) -> None:
        await self._runtime.clock.sleep_ns(fault.number("down_ns", SECOND_NS))

    async def _kill(self, fault: Fault) -> None:
        self._recorder.nemesis("kill", self._server.name)
        await self._server.kill()
        await self._down(fault)
        await self._start()

    async def _crash_loop(self, fault: Fault) -> None:
        """A server that dies while it starts; the nemesis waits for service after the last time alone."""
        for _ in range(fault.number("times_count", 3)):
            self._recorder.nemesis("kill", self._server.name)
            await self._server.kill()
            await self._down(fault)
            await self._server.launch()
            await self._runtime.clock.sleep_ns(fault.number("up_ns", SECOND_NS // 2))
        await self._server.kill()
        await self._start()

    async def _terminate(self, fault: Fault) -> None:
        self._recorder.nemesis("stop", self._server.name)
        await self._server.stop()
        await self._down(fault)
        await self._start()

    async def _pause(self, fault: Fault) -> None:
        self._recorder.nemesis("pause", self._server.name)
        self._server.pause()
        await self._runtime.clock.sleep_ns(fault.number("for_ns", SECOND_NS))
        self._server.resume()
        self._recorder.nemesis("resume", self._server.name)

    async def _power(self, fault: Fault) -> None:
        policy = fault.word("policy", "strict")
        self._recorder.nemesis("power-loss", [self._server.name, policy])
        await self._server.kill()
        killed_ns = self._recorder.time_ns()
        await self._store.power_loss(policy)
        self._server.boot_count += 1
        await self._down(fault)
        self._observed.power_losses.append(PowerLoss(killed_ns, self._recorder.time_ns()))
        await self._start()

    async def _damage(self, fault: Fault) -> None:
        """`stop=term` or `stop=kill` ends the server first and starts it after; without, it goes on running."""
        stop = fault.word("stop", "")
        if stop == "term":
            await self._server.stop()
        elif stop == "kill":
            await self._server.kill()
        files = [(path, size) for path, size in await self._store.files(fault.word("files", "any")) if size]
        if files:
            path, size = self._rng.choice(files)
            if fault.kind == "D_BITFLIP":
                bits = fault.number("bits_count", 2)
                await self._store.flip(path, bits)
                self._recorder.nemesis("bitflip", [path.removeprefix(str(self._store.path)), size, bits])
            else:
                cut = await self._store.truncate(path)
                self._recorder.nemesis("truncate", [path.removeprefix(str(self._store.path)), size, cut])
        if stop:
            await self._down(fault)
            await self._start()
