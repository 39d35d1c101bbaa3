"""W9 on one server: streams are made, filled, deleted and made again, each name by one worker.

| verb | arguments | what it does |
|---|---|---|
| `create` | stream | makes the worker's stream of that number, with a new description |
| `delete` | stream | deletes it |
| `fill` | stream, count | publishes to it |
| `look` | of, stream | reads the description and the messages of some worker's stream |

A stream's description is the value of its life, and its messages tell it: what is there of an earlier life is seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import ClassVar

from tnats.client.jetstream import JetStream, NameInUse, StreamConfig, StreamNotFound
from tnats.harness.checkers import objects
from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.sim.bodies import payload
from tnats.harness.sim.jetstream import JetStreamDrill
from tnats.harness.sim.jetstream_reading import read_stream
from tnats.harness.sim.jetstream_worker import OPERATION_S, Ending, Worker
from tnats.harness.sim.plan import Operation
from tnats.harness.workloads.access import Refused

STREAMS = 2


class Steward(Worker):
    """See the module."""

    drill: LifecycleDrill

    async def perform(self, js: JetStream, operation: Operation) -> None:
        number = operation.number("stream")
        name = f"{self.name}_{number}"
        if operation.verb == "create":
            await self._create(js, name)
        elif operation.verb == "delete":
            await self._delete(js, name)
        elif operation.verb == "fill":
            for _ in range(operation.number("count", 1)):
                await self._fill(js, name)
        elif operation.verb == "look":
            await self._look(js, f"{operation.word('of')}_{number}")
        else:
            raise operation.unknown_verb()

    async def prove(self, js: JetStream) -> None:
        for number in range(STREAMS):
            await self.until(lambda number=number: self._look(js, f"{self.name}_{number}"))  # type: ignore[misc]
        await self._delete(js, f"{self.name}_0")
        await self.until(lambda: self._create(js, f"{self.name}_0"))
        await self.until(lambda: self._fill(js, f"{self.name}_0"))
        await self.until(lambda: self._look(js, f"{self.name}_0"))

    async def _create(self, js: JetStream, name: str) -> bool:
        value = self.new_value()

        async def create(ending: Ending) -> None:
            try:
                config = StreamConfig(name, subjects=[f"life.{name}"], description=value, allow_direct=True)
                await js.create_stream(config)
            except NameInUse as exc:
                raise Refused(str(exc)) from None
            self.drill.recording.probe("a stream was made")

        ending = await self.attempt(js, "put", [name, value], create)
        return ending.is_ok or ending.type == "fail"

    async def _delete(self, js: JetStream, name: str) -> bool:
        return (await self.attempt_delete(js, js.stream(name), [name, None], "a stream was deleted")).is_ok

    async def _fill(self, js: JetStream, name: str) -> bool:
        """One message, that tells the life of the stream that it is meant for; whether it was acknowledged."""

        async def fill(ending: Ending) -> None:
            life = (await js.stream(name).info()).config.description
            await js.publish(f"life.{name}", payload(life, 0), timeout_s=OPERATION_S, retries=0)

        return (await self.attempt(js, "fill", name, fill)).is_ok

    async def _look(self, js: JetStream, name: str) -> bool:
        async def look(ending: Ending) -> None:
            try:
                config = (await js.stream(name).info()).config
                held = await read_stream(js, name, name)
                again = (await js.stream(name).info()).config
            except StreamNotFound:
                ending.value = [name, None]
                return
            ending.value = [name, config.description]
            if again.description == config.description:
                ending.extra = {"held": [stored.value for stored in held.messages.values()]}

        return (await self.attempt(js, "get", [name, None], look)).is_ok


class LifecycleDrill(JetStreamDrill):
    """What was made is there until it is deleted, what was deleted is gone, and a new life has nothing of the old."""

    worker_kind: ClassVar[type[Worker]] = Steward
    probes: ClassVar[tuple[str, ...]] = (*JetStreamDrill.kinds, "a stream was made", "a stream was deleted")

    @classmethod
    def draw_parameters(cls, rng: random.Random) -> dict[str, int | str]:
        return {"what_if": 0}

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        number, draw = rng.randrange(STREAMS), rng.random()
        if draw < 0.3:
            return "create", {"stream": number}
        if draw < 0.45:
            return "delete", {"stream": number}
        if draw < 0.7:
            return "fill", {"stream": number, "count": rng.choice((1, 3, 10))}
        return "look", {"of": f"c{rng.randint(1, int(parameters['clients']))}", "stream": number}

    async def read(self, when: str) -> None:
        """The workers have looked."""

    def evidence(self) -> Iterator[Evidence]:
        yield Evidence(self.recorder.history)

    def results(self, evidence: Evidence) -> Iterator[Result]:
        yield result("C12", "streams live until they are deleted", objects.faults(evidence, "stream"))
        yield result("C12", "a new life has nothing of the old", haunted(evidence))


def haunted(evidence: Evidence) -> Iterator[str]:
    """Messages of an earlier life. One whose fate nobody knows may come to the next."""
    history = evidence.history
    open_ended = {fill.value for fill in history.operations("fill") if fill.end is None}
    for look in history.operations("get"):
        name, life = look.result if look.is_ok else (None, None)
        if name in open_ended:
            continue
        for value in look.told("held") or ():
            if life is not None and value != life:
                yield f"stream {name} lives as {life} and holds a message of {value} (event {look.invoke.index})"
