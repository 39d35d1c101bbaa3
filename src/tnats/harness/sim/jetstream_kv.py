"""W3, W13 on one server: key-value buckets as registers, and watchers of all keys.

| verb | arguments | what it does |
|---|---|---|
| `put`, `create`, `delete` | key | writes a new value, or a mark |
| `update` | key, from | only if the revision is the one it saw `last`, or the one `before` |
| `get`, `get-direct` | key | reads: at the leader, or from any replica |

The accesses are those of a run against a real server (`tnats.harness.workloads`), and so are the checkers: C7, C8, C9.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import ClassVar

from tnats.client.jetstream import JetStream, StreamConfig
from tnats.client.kv import BucketConfig
from tnats.client.kv.config import to_stream
from tnats.harness.checkers import compare_and_set, converged, kv_linearizable, read_sanity, watched
from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.history import History
from tnats.harness.registers import WRITES
from tnats.harness.sim.jetstream import JetStreamDrill
from tnats.harness.sim.jetstream_worker import OPERATION_S, Ending, Worker
from tnats.harness.sim.plan import Operation
from tnats.harness.workloads.jetstream import JetStreamRegister, decode
from tnats.harness.workloads.register import DELETED
from tnats.limits import SECOND_NS

BUCKET = "registers"
KEYS = ("a", "b", "c")
VERBS = {"get": 30, "get-direct": 15, "put": 20, "update": 22, "create": 8, "delete": 8}
"""How often each is drawn."""
LIVE = "live"
HISTORY = 64


class Registers(Worker):
    """See the module."""

    drill: KvDrill

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._seen: dict[str, tuple[int, int]] = {}
        """By key: the revision that it saw last, and the one before."""
        self.watched: list[tuple[int, str]] = []

    async def begin(self, js: JetStream) -> None:
        self.access = JetStreamRegister(js.client, self.name, OPERATION_S, BUCKET)
        self.watched = self.drill.watches[f"{self.name}, {len(self.drill.watches) + 1}"] = []
        self.nursery.start_soon(self._watch, self.watched)

    async def _watch(self, seen: list[tuple[int, str]]) -> None:
        """What happens to all keys, once it has caught up."""
        async with self.access.kv.watch() as entries:
            await entries.present()
            async for entry in entries:
                assert entry is not None
                seen.append((entry.revision, decode(entry.value)))

    async def perform(self, js: JetStream, operation: Operation) -> None:
        if operation.verb not in VERBS:
            raise operation.unknown_verb()
        await self._do(js, operation.verb, operation.word("key"), before=operation.word("from") == "before")

    async def prove(self, js: JetStream) -> None:
        for key in (LIVE, *KEYS):
            await self.until(lambda key=key: self._do(js, "put" if key == LIVE else "get", key))  # type: ignore[misc]
        revision = self._seen[LIVE][0]
        self.state = f"watching up to {revision}"
        while not self.watched or self.watched[-1][0] < revision:
            await self._do(js, "put", LIVE)
            await self.drill.wait_ns(SECOND_NS // 5)

    async def _do(self, js: JetStream, f: str, key: str, *, before: bool = False) -> bool:
        extra: dict[str, object] = {"connection": self.number, "node": self.name}
        value: str | None = None
        if not f.startswith("get"):
            value = f"{DELETED if f == 'delete' else ''}{self.new_value()}"
        last = self._seen.get(key, (0, 0))
        if f == "update":
            extra["revision"] = last[before]

        async def act(ending: Ending) -> None:
            if f.startswith("get"):
                found, seq = await self.access.get(key, direct=f == "get-direct")
            else:
                assert value is not None
                found, seq = value, await self._write(f, key, value, last[before])
            ending.value = [key, found]
            ending.extra = {"seq": seq}
            self._seen[key] = seq, last[0]

        return (await self.attempt(js, f, [key, value], act, **extra)).is_ok

    async def _write(self, f: str, key: str, value: str, revision: int) -> int:
        if f == "put":
            return await self.access.put(key, value)
        if f == "create":
            return await self.access.create(key, value)
        if f == "delete":
            return await self.access.delete(key, value)
        return await self.access.update(key, value, revision)


class KvDrill(JetStreamDrill):
    """Keys are linearizable registers, direct reads show a committed past, watchers miss nothing."""

    worker_kind: ClassVar[type[Worker]] = Registers
    OPERATIONS: ClassVar[tuple[int, int]] = (40, 100)
    probes: ClassVar[tuple[str, ...]] = (
        *JetStreamDrill.probes,
        "an operation was refused",
        "nobody knows whether an operation took effect",
        "an update found another revision",
    )

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.watches: dict[str, list[tuple[int, str]]] = {}

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        f = rng.choices(list(VERBS), weights=list(VERBS.values()))[0]
        arguments: dict[str, object] = {"key": rng.choice(KEYS)}
        if f == "update":
            arguments["from"] = rng.choice(("last", "last", "last", "before"))
        return f, arguments

    def streams(self) -> Sequence[StreamConfig]:
        return (to_stream(BucketConfig(BUCKET, history=HISTORY)),)

    def results(self, evidence: Evidence) -> Iterator[Result]:
        yield result("C1", "acknowledged writes are there", lost(evidence))
        if not evidence.restarted:  # a look aside
            return
        conflicts = [event for event in evidence.history.events if event.error == "conflict"]
        self.recording.probe("an update found another revision", len(conflicts))
        yield converged.check(evidence)
        yield compare_and_set.check(evidence)
        yield kv_linearizable.check(evidence)
        yield read_sanity.check(evidence)
        yield watched.check(writes(evidence.history), self.watches)


def writes(history: History) -> Iterator[tuple[int, str]]:
    """Revision and value of each write that succeeded."""
    for operation in history.operations(*WRITES):
        if operation.is_ok:
            yield operation.told("seq"), operation.result[1]


def lost(evidence: Evidence) -> Iterator[str]:
    """C1: the history of a key is long enough to hold all revisions, so every write is there."""
    for replica in evidence.readings:
        if replica.failure:
            yield f"{replica.node}: {replica.failure}"
            continue
        for seq, value in writes(evidence.history):
            stored = replica.messages.get(seq)
            if stored is None or stored.value != value:
                told = "nothing" if stored is None else stored.value
                yield f"{value} was acknowledged as revision {seq}; {replica.node} holds {told} there"
