"""W12 on one server: an object store, in which every object has one writer and everybody reads.

| verb | arguments | what it does |
|---|---|---|
| `put` | object, size | stores new content under the worker's object of that number |
| `delete` | object | removes it |
| `get` | of, object | reads an object of some worker, to the end |
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from tnats.client import ClientError
from tnats.client.jetstream import JetStream, StreamConfig
from tnats.client.object_store import ObjectDamaged, ObjectMeta, ObjectNotFound, ObjectStore, StoreConfig
from tnats.client.object_store.config import to_stream
from tnats.harness.checkers import objects
from tnats.harness.checkers.evidence import Evidence, Result
from tnats.harness.sim.bodies import payload, value_of
from tnats.harness.sim.jetstream import JetStreamDrill
from tnats.harness.sim.jetstream_worker import Ending, Worker
from tnats.harness.sim.plan import Operation
from tnats.harness.workloads.access import Indeterminate

STORE = "files"
CHUNK_BYTES = 512
OBJECTS = 2
SIZES = (0, 100, 700, 3000, 9000)


@contextmanager
def many_steps() -> Iterator[None]:
    """A refusal of one step says nothing of those before it."""
    try:
        yield
    except ClientError as exc:
        raise Indeterminate(f"{type(exc).__name__}: {exc}") from None


class Keeper(Worker):
    """See the module."""

    async def begin(self, js: JetStream) -> None:
        self.store = ObjectStore(js, STORE)

    async def perform(self, js: JetStream, operation: Operation) -> None:
        number = operation.number("object")
        if operation.verb == "put":
            await self._put(js, f"{self.name}.{number}", operation.number("size"))
        elif operation.verb == "delete":
            await self._delete(js, f"{self.name}.{number}")
        elif operation.verb == "get":
            await self._get(js, f"{operation.word('of')}.{number}")
        else:
            raise operation.unknown_verb()

    async def prove(self, js: JetStream) -> None:
        for number in range(OBJECTS):
            await self.until(lambda number=number: self._get(js, f"{self.name}.{number}"))  # type: ignore[misc]
        await self.until(lambda: self._put(js, f"{self.name}.0", 2000))
        await self.until(lambda: self._get(js, f"{self.name}.0"))

    async def _put(self, js: JetStream, name: str, size: int) -> bool:
        value = self.new_value()

        async def put(ending: Ending) -> None:
            with many_steps():
                await self.store.put(ObjectMeta(name, chunk_bytes=CHUNK_BYTES), payload(value, size))
            self.drill.recording.probe("an object of several chunks was put", int(size > CHUNK_BYTES))

        return (await self.attempt(js, "put", [name, value], put)).is_ok

    async def _delete(self, js: JetStream, name: str) -> bool:
        async def delete(ending: Ending) -> None:
            with many_steps():
                try:
                    await self.store.delete(name)
                except ObjectNotFound:
                    ending.type, ending.error = "fail", "not there"  # an earlier put may still come

        return (await self.attempt(js, "delete", [name, None], delete)).is_ok

    async def _get(self, js: JetStream, name: str) -> bool:
        async def get(ending: Ending) -> None:
            try:
                data = await self.store.get_bytes(name)
            except ObjectNotFound:
                ending.value = [name, None]
            except ObjectDamaged:
                self.drill.recording.probe("an object changed while it was read")
                ending.value = [name, objects.DAMAGED]
            else:
                ending.value = [name, value_of(data)]

        return (await self.attempt(js, "get", [name, None], get)).is_ok


class ObjectDrill(JetStreamDrill):
    """Objects are whole, and what their writer put there last."""

    worker_kind: ClassVar[type[Worker]] = Keeper
    OPERATIONS: ClassVar[tuple[int, int]] = (20, 50)
    probes: ClassVar[tuple[str, ...]] = (
        *JetStreamDrill.kinds,
        "an acknowledgement was audited",
        "an operation was refused",
        "nobody knows whether an operation took effect",
        "an object of several chunks was put",
    )

    @classmethod
    def draw_parameters(cls, rng: random.Random) -> dict[str, int | str]:
        return {"what_if": 0}

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        number, draw = rng.randrange(OBJECTS), rng.random()
        if draw < 0.4:
            return "put", {"object": number, "size": rng.choice(SIZES)}
        if draw < 0.5:
            return "delete", {"object": number}
        return "get", {"of": f"c{rng.randint(1, int(parameters['clients']))}", "object": number}

    def streams(self) -> Sequence[StreamConfig]:
        return (to_stream(StoreConfig(STORE)),)

    async def read(self, when: str) -> None:
        """What is in the stream is the client's affair; that it can be read is the workers' proof."""

    def evidence(self) -> Iterator[Evidence]:
        yield Evidence(self.recorder.history)

    def results(self, evidence: Evidence) -> Iterator[Result]:
        yield objects.check(evidence)
