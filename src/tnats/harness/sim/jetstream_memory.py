"""Publishing to streams in memory: what an end of the server leaves of them is their names, and nothing that they held.

Workers, verbs and arguments: `jetstream_publish`. Every operation is noted with the incarnation of the server in which
it began and, if it went well, ended. What is read is judged by what that incarnation acknowledged; what was under way
when one ended may have come to the next.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, ClassVar

import attrs

from tnats.client.jetstream import JetStream, Storage, StreamConfig
from tnats.harness.checkers import ack_unique, batch_atomic, counter, dedup, removal
from tnats.harness.checkers.evidence import Evidence, Replica, Result
from tnats.harness.history import Event, History
from tnats.harness.sim.jetstream import JetStreamDrill, of_stream
from tnats.harness.sim.jetstream_publish import PublishDrill, Publisher
from tnats.harness.sim.jetstream_worker import Ending, Worker
from tnats.harness.sim.plan import Operation


class Forgetful(Publisher):
    """As a publisher; and what it does belongs to an incarnation of the server."""

    _life = 0

    async def perform(self, js: JetStream, operation: Operation) -> None:
        if self._life != self.drill.server_life():  # which knows no sequence of the one before
            self._life = self.drill.server_life()
            self.last_seq.clear()
        await super().perform(js, operation)

    async def attempt(
        self, js: JetStream, f: str, value: Any, action: Callable[[Ending], Awaitable[None]], **extra: Any
    ) -> Ending:
        async def act(ending: Ending) -> None:
            await action(ending)
            ending.extra = {**ending.extra, "life": self.drill.server_life()}

        return await super().attempt(js, f, value, act, life=self.drill.server_life(), **extra)


class MemoryDrill(PublishDrill):
    """A stream in memory has what the server acknowledged since its start, and nothing from before."""

    worker_kind: ClassVar[type[Worker]] = Forgetful
    SYNCS: ClassVar[tuple[str, ...]] = ("always",)
    is_in_files: ClassVar[bool] = False
    probes: ClassVar[tuple[str, ...]] = (
        *JetStreamDrill.kinds,
        "a batch was committed",
        "messages were removed",
        "an incarnation ended with what it held",
    )

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._life_at: dict[int, int] = {}
        """By the number of a reading: in which incarnation it was made."""

    @classmethod
    def draw_parameters(cls, rng: random.Random) -> dict[str, int | str]:
        return {"what_if": 0}

    def streams(self) -> Sequence[StreamConfig]:
        return [attrs.evolve(config, storage=Storage.MEMORY) for config in super().streams()]

    async def read(self, when: str) -> None:
        before = len(self.readings)
        await super().read(when)
        self._life_at.update(dict.fromkeys(range(before, len(self.readings)), self.server_life()))

    def evidence(self) -> Iterator[Evidence]:
        for number, replica in enumerate(self.readings):
            life = self._life_at[number]
            history = of_life(of_stream(self.history, replica.name), life)
            self.recording.probe("an incarnation ended with what it held", int(self._is_missed(replica, life)))
            yield Evidence(history, [replica])

    def _is_missed(self, replica: Replica, life: int) -> bool:
        """Whether an earlier incarnation acknowledged something for this stream."""
        return any(
            publish.is_ok and publish.told("life") < life
            for publish in of_stream(self.history, replica.name).operations("publish")
        )

    def results(self, evidence: Evidence) -> Iterator[Result]:
        stream = evidence.replicas[0].name
        yield ack_unique.check(evidence)
        if stream == "N":
            yield counter.check(evidence)
            return
        yield removal.check(evidence, self.limits_of(stream))
        yield dedup.check(evidence, is_windowed=not self.clocks_moved() and stream != "A")
        if stream == "S":
            yield batch_atomic.check(evidence)


def of_life(history: History, life: int) -> History:
    """What one incarnation of the server acknowledged, and, without its end, what it may have carried out besides."""
    left_out: set[int] = set()
    begun: dict[int | str, Event] = {}
    for event in history.events:
        if event.type == "invoke":
            begun[event.process] = event
        begin = begun.get(event.process)
        if begin is None:  # the nemesis
            continue
        since, ended = begin.extra["life"], event.extra.get("life", 0)
        if since > life:
            left_out.add(event.index)
        elif event.type == "ok" and since == ended < life:
            left_out.update((begin.index, event.index))
        elif event.type == "ok" and since != ended:
            left_out.add(event.index)
    return History(event for event in history.events if event.index not in left_out)
