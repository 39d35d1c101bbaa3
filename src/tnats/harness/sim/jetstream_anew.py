"""W8 with W9 on one server: an origin that is deleted and made anew under the stream that gathers from it.

| verb | arguments | what it does |
|---|---|---|
| `anew` | | deletes the origin `S`, and makes it anew |

and those of `jetstream_sources`. What the origin had when it was deleted may have come to the other stream or not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import ClassVar

import attrs

from tnats.client.jetstream import JetStream
from tnats.harness.checkers import mirror, sourced
from tnats.harness.checkers.evidence import Evidence, Result
from tnats.harness.sim.bodies import value_of
from tnats.harness.sim.jetstream_mirror import MIRROR, ORIGIN
from tnats.harness.sim.jetstream_sources import GATHERING, TAKEN, Gathered, SourcesDrill
from tnats.harness.sim.jetstream_worker import Ending, Worker
from tnats.harness.sim.plan import Operation
from tnats.limits import SECOND_NS

READ_COUNT_MAX = 1000
LOOKS = 50
"""For a message that is to come: ten seconds long."""


class Renewer(Gathered):
    """As one who publishes; and now and then the origin begins a new life."""

    async def perform(self, js: JetStream, operation: Operation) -> None:
        if operation.verb == "anew":
            await self._renew(js)
        else:
            await super().perform(js, operation)

    async def prove(self, js: JetStream) -> None:
        await self.until(lambda: self._make(js))
        while not await self._comes(js):
            await self.until(lambda: self._make(js))
        await self.wait_other(js)
        await self.wait_mirrored(js, GATHERING)

    async def _renew(self, js: JetStream) -> None:
        await self.attempt_delete(js, js.stream(ORIGIN), ORIGIN, "an origin was deleted", stream=ORIGIN)
        await self._make(js)

    async def _make(self, js: JetStream) -> bool:
        async def make(ending: Ending) -> None:
            await js.create_stream(self.drill.streams()[0])

        return (await self.attempt(js, "create", ORIGIN, make, stream=ORIGIN)).is_ok

    async def _comes(self, js: JetStream) -> bool:
        """Whether a new message of the origin is gathered; not, when somebody has it made anew meanwhile."""
        value = self.new_value()
        await self.until(lambda: self._one(js, ORIGIN, TAKEN, value))
        for _ in range(LOOKS):
            self.state = f"waiting for {value} of {ORIGIN}"
            found = await js.stream(GATHERING).direct_get_batch(READ_COUNT_MAX, next_on=TAKEN)
            if value in [value_of(message.data) for message in found]:
                return True
            await self.drill.wait_ns(SECOND_NS // 5)
        return False


class AnewDrill(SourcesDrill):
    """An origin that takes the place of another is gathered from its beginning, and nothing of the one before is lost
    or comes again.
    """

    worker_kind: ClassVar[type[Worker]] = Renewer
    probes: ClassVar[tuple[str, ...]] = (*SourcesDrill.kinds, "an origin was deleted", "two lives were gathered")

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        if rng.random() < 0.06:
            return "anew", {}
        return super().draw_operation(rng, parameters)

    def results(self, evidence: Evidence) -> Iterator[Result]:
        if evidence is not self.origins[ORIGIN].evidence:
            yield from super().results(evidence)
            return
        origin = attrs.evolve(self.origins[ORIGIN], is_made_anew=True, is_windowed=not self.clocks_moved())
        gatherings = self.readings_of(GATHERING)
        yield sourced.check({**self.origins, ORIGIN: origin}, gatherings)
        yield mirror.check_image(zip(gatherings, self.readings_of(MIRROR), strict=True))
        lives = {
            sourced.told_source(stored).life for stored in gatherings[0].messages.values() if stored.subject == TAKEN
        }
        self.recording.probe("two lives were gathered", int(len(lives) > 1))
