"""W14 on one server: atomic batches as transactions over several lists, and reads of all lists at once.

| verb | arguments | what it does |
|---|---|---|
| `append` | keys, count | a batch that appends so many values to each of the lists |
| `guarded` | keys, count | reads all lists, then the same, on the condition that these lists are as they were read |
| `read` | | reads all lists, by one request |

A list is a subject: what is published there is appended. The history is that of Elle's list-append (C8b).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from tnats.client.jetstream import JetStream, StreamConfig, WrongLastSequence
from tnats.harness.checkers import converged, list_append
from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.sim.bodies import payload, value_of
from tnats.harness.sim.jetstream import JetStreamDrill
from tnats.harness.sim.jetstream_worker import Ending, Worker
from tnats.harness.sim.plan import Operation

STREAM = "L"
KEYS = ("a", "b", "c")
READ_COUNT_MAX = 2000


class Appender(Worker):
    """See the module."""

    async def perform(self, js: JetStream, operation: Operation) -> None:
        if operation.verb == "read":
            await self._read(js)
            return
        if operation.verb not in ("append", "guarded"):
            raise operation.unknown_verb()
        keys, count = operation.word("keys").split(","), operation.number("count", 1)
        await self._append(js, keys, count, is_guarded=operation.verb == "guarded")

    async def prove(self, js: JetStream) -> None:
        await self.until(lambda: self._append(js, KEYS, 1, is_guarded=False))
        await self.until(lambda: self._read(js))

    async def _read(self, js: JetStream) -> bool:
        async def read(ending: Ending) -> None:
            lists, _ = await self._lists(js)
            ending.value = [["r", key, lists[key]] for key in KEYS]

        return (await self.attempt(js, "txn", [["r", key, None] for key in KEYS], read)).is_ok

    async def _append(self, js: JetStream, keys: Sequence[str], count: int, *, is_guarded: bool) -> bool:
        appends = [("append", key, self.new_value()) for key in keys for _ in range(count)]
        read_keys = keys if is_guarded else ()

        async def append(ending: Ending) -> None:
            lists: dict[str, list[str]] = {}
            lasts: dict[str, int] = {}
            if is_guarded:
                lists, lasts = await self._lists(js)
            batch = js.atomic_batch()
            guarded: dict[str, None] = {}
            for _, key, value in appends:
                conditions: Any = {}
                if is_guarded and key not in guarded:
                    conditions["expected_last_subject_sequence"] = lasts[key]
                    guarded[key] = None
                await batch.publish(f"l.{key}", payload(value, 5), **conditions)
            try:
                await batch.commit()
            except WrongLastSequence:
                self.drill.recording.probe("a transaction found its lists changed")
                raise
            ending.value = [*(("r", key, lists[key]) for key in read_keys), *appends]
            self.drill.recording.probe("a transaction over several lists was committed", int(len(keys) > 1))

        return (await self.attempt(js, "txn", [*(("r", key, None) for key in read_keys), *appends], append)).is_ok

    async def _lists(self, js: JetStream) -> tuple[dict[str, list[str]], dict[str, int]]:
        """What all lists hold at one moment, and the last sequence of each."""
        lists: dict[str, list[str]] = {key: [] for key in KEYS}
        lasts = dict.fromkeys(KEYS, 0)
        for message in await js.stream(STREAM).direct_get_batch(READ_COUNT_MAX):
            key = message.subject.partition(".")[2]
            lists[key].append(value_of(message.data))
            lasts[key] = message.sequence
        return lists, lasts


class TransactionDrill(JetStreamDrill):
    """Batches over several subjects are transactions: they and reads of everything happen one after another."""

    worker_kind: ClassVar[type[Worker]] = Appender
    OPERATIONS: ClassVar[tuple[int, int]] = (25, 60)
    probes: ClassVar[tuple[str, ...]] = (
        *JetStreamDrill.kinds,
        "nobody knows whether an operation took effect",
        "a transaction over several lists was committed",
        "a transaction found its lists changed",
    )

    @classmethod
    def draw_parameters(cls, rng: random.Random) -> dict[str, int | str]:
        return {"what_if": 0}

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        draw = rng.random()
        if draw < 0.3:
            return "read", {}
        keys = ",".join(rng.sample(KEYS, rng.choice((1, 2, 2, 3))))
        return "append" if draw < 0.65 else "guarded", {"keys": keys, "count": rng.choice((1, 1, 2, 5))}

    def streams(self) -> Sequence[StreamConfig]:
        return (StreamConfig(STREAM, subjects=["l.*"], allow_direct=True, allow_atomic=True),)

    def results(self, evidence: Evidence) -> Iterator[Result]:
        yield list_append.check(evidence.history)
        yield result("C1", "committed transactions are there", missing(evidence))
        yield converged.check(evidence)


def missing(evidence: Evidence) -> Iterator[str]:
    """Values of committed transactions that a replica does not hold."""
    for replica in evidence.readings:
        if replica.failure:
            yield f"{replica.node}: {replica.failure}"
            continue
        held = {stored.value for stored in replica.messages.values()}
        for operation in evidence.history.operations("txn"):
            if operation.is_ok:
                for key, value in list_append.appends_of(operation.value):
                    if value not in held:
                        yield f"{value} was appended to {key}; {replica.node} does not hold it"
