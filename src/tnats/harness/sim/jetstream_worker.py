"""One client machine of a drill of JetStream: does what the plan says, one operation after another, and writes it down.

Written down is what Jepsen's rules ask for (`tnats.harness.history`): an operation that was refused for certain is a
`fail`, one whose end nobody knows an `info`. A worker whose machine dies in the middle of something does not know
either, and goes on as another process.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from tnats.client import ClientError, Status
from tnats.client.jetstream import Consumer, ConsumerNotFound, JetStream, Stream, StreamNotFound
from tnats.harness.sim.plan import Operation
from tnats.harness.workloads.access import Indeterminate, Refused
from tnats.harness.workloads.jetstream import outcome
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime

if TYPE_CHECKING:
    from tnats.harness.sim.jetstream import JetStreamDrill

OPERATION_S = 1.0
RETRY_NS = SECOND_NS // 10
CONFLICT = "conflict"


class Ending:
    """How an operation ended: its value, and what it was told besides."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.extra: dict[str, Any] = {}
        self.type = "ok"
        self.error: str | None = None

    @property
    def is_ok(self) -> bool:
        return self.type == "ok"


class Worker:
    """See the module. Outlives its machine's incarnations."""

    def __init__(self, drill: JetStreamDrill, name: str, number: int, operations: list[Operation]) -> None:
        self.drill = drill
        self.name = name
        self.number = number
        self.state = "not started"
        """For people: where it stands."""
        self.last_seq: dict[str, int] = {}
        """By stream or subject: the highest sequence that it was told of."""
        self._operations = operations
        self._done = 0
        self._count = 0
        self._open: tuple[str, Any, dict[str, Any]] | None = None
        self.rng: random.Random
        self.nursery: trio.Nursery
        """What goes on beside its operations, as long as its client lives."""

    # ------------------------------------------------------------------ the machine

    async def run(self, runtime: Runtime) -> None:
        """The machine's main function: everything that is left to do, then the proof that everything works."""
        from tnats.harness.sim.jetstream import connected

        self.rng = runtime.chance.rng("worker")
        if self._open is not None:
            f, value, extra = self._open
            self._end("info", f, value, "the machine died", extra)
        while True:
            self.state = "connecting"
            try:
                async with connected(runtime, self.name) as client:
                    js = JetStream(client, timeout_s=OPERATION_S)
                    async with trio.open_nursery() as self.nursery:
                        await self.begin(js)
                        await self._use(js)
                        self.nursery.cancel_scope.cancel()
                    return
            except* ClientError as group:
                self.state = f"connecting: {group.exceptions[0]}"
            await runtime.clock.sleep_ns(RETRY_NS)

    async def _use(self, js: JetStream) -> None:
        while self._done < len(self._operations):
            operation = self._operations[self._done]
            self.state = f"waiting for {operation}"
            await self.drill.wait_until(operation.at_ns)
            self._done += 1
            await self._wait_connected(js)
            self.state = f"performing {operation}"
            await self.perform(js, operation)
        await self.drill.healed.wait()
        self.state = "proving that all works"
        await self.prove(js)
        self.state = "done"
        self.drill.has_proved(self.name)

    async def _wait_connected(self, js: JetStream) -> None:
        """Most operations are worth something on a connection alone; some go on without."""
        tries = self.rng.choice((0, 5, 50))
        while tries and js.client.status is not Status.CONNECTED:
            tries -= 1
            await self.drill.wait_ns(RETRY_NS)

    # ------------------------------------------------------------------ what a subclass fills in

    async def begin(self, js: JetStream) -> None:
        """At each start of the machine: make what a client forgets with it."""

    async def perform(self, js: JetStream, operation: Operation) -> None:
        """One operation of the plan."""

    async def prove(self, js: JetStream) -> None:
        """Return once everything works again."""

    # ------------------------------------------------------------------ writing down

    def new_value(self) -> str:
        """A value that nobody else writes."""
        self._count += 1
        return f"{self.name}-{self._count}"

    async def until(self, attempt: Callable[[], Awaitable[bool]]) -> None:
        """Try until it succeeds."""
        while not await attempt():
            await self.drill.wait_ns(RETRY_NS)

    async def attempt(
        self, js: JetStream, f: str, value: Any, action: Callable[[Ending], Awaitable[None]], **extra: Any
    ) -> Ending:
        """Carry out one operation and write it down, with whatever it raises.

        `extra` are further keys of the whole operation; `action` puts those of its end into the record it is given.
        """
        drill = self.drill
        self._open = (f, value, extra)
        note = drill.recording.note(self.name, f, shown(value, extra))
        drill.recorder.invoke(self.number, f, value, **extra)
        ending = Ending(value)
        try:
            with outcome(js.client):
                await action(ending)
        except Refused as exc:
            ending.type, ending.error = "fail", CONFLICT if exc.is_conflict else str(exc)
            drill.recording.probe("an operation was refused")
        except Indeterminate as exc:
            ending.type, ending.error = "info", str(exc)
            drill.recording.probe("nobody knows whether an operation took effect")
        told = {**extra, **ending.extra} if ending.is_ok else extra
        self._end(ending.type, f, ending.value, ending.error, told)
        kind = "ack" if ending.is_ok else "refused" if ending.type == "fail" else "unknown"
        text = shown(value, told) + (f": {ending.error}" if ending.error else "")
        drill.recording.note(self.name, kind, text, cause=note.index)
        if ending.is_ok:
            await drill.acked()
        return ending

    async def attempt_delete(
        self, js: JetStream, asset: Stream | Consumer, value: Any, probe: str, **extra: Any
    ) -> Ending:
        """Delete a stream or consumer, `probe` says that it was there; an operation that failed where it was not."""

        async def delete(ending: Ending) -> None:
            try:
                await asset.delete()
            except (ConsumerNotFound, StreamNotFound):
                ending.type, ending.error = "fail", "not there"
            else:
                self.drill.recording.probe(probe)

        return await self.attempt(js, "delete", value, delete, **extra)

    def _end(self, type: Any, f: str, value: Any, error: str | None, extra: dict[str, Any]) -> None:
        self._open = None
        self.drill.recorder.end(self.number, type, f, value, error=error, **extra)


def shown(value: Any, extra: dict[str, Any]) -> str:
    """An operation for people."""
    return " ".join([str(value), *(f"{name}={each}" for name, each in extra.items())])
