"""W8 on one server: a stream under publishes, batches and removals, and its mirror."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import ClassVar

import attrs

from tnats.client.jetstream import JetStream, StreamConfig, StreamSource
from tnats.harness.checkers import mirror
from tnats.harness.checkers.evidence import Evidence, Result
from tnats.harness.sim.jetstream_publish import PublishDrill, Publisher
from tnats.harness.sim.jetstream_worker import Worker
from tnats.limits import SECOND_NS

ORIGIN, MIRROR = "S", "M"


class Mirrored(Publisher):
    """As a publisher; and in the end the mirror has caught up."""

    async def prove(self, js: JetStream) -> None:
        await self.until(lambda: self._one(js, ORIGIN, "s.live"))
        await self.wait_mirrored(js, ORIGIN)

    async def wait_mirrored(self, js: JetStream, stream: str) -> None:
        """Return when the mirror has all of a stream."""
        while True:
            origin, image = [(await js.stream(name).info()).state.last_seq for name in (stream, MIRROR)]
            self.state = f"waiting for the mirror, at {image} of {origin}"
            if image == origin:
                return
            await self.drill.wait_ns(SECOND_NS // 10)


class FollowedDrill(PublishDrill):
    """A stream under publishes, batches and removals, for others that follow it."""

    SYNCS: ClassVar[tuple[str, ...]] = ("always",)
    probes: ClassVar[tuple[str, ...]] = (*PublishDrill.kinds, "a batch was committed", "messages were removed")

    @classmethod
    def draw_parameters(cls, rng: random.Random) -> dict[str, int | str]:
        return {"what_if": 0}

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        while True:
            verb, arguments = super().draw_operation(rng, parameters)
            if verb != "add" and arguments.get("stream", ORIGIN) == ORIGIN:
                return verb, arguments


class MirrorDrill(FollowedDrill):
    """A mirror has what its origin acknowledged, at the same sequences, and catches up."""

    worker_kind: ClassVar[type[Worker]] = Mirrored

    def streams(self) -> Sequence[StreamConfig]:
        origin = super().streams()[0]
        image = attrs.evolve(origin, name=MIRROR, subjects=[], mirror=StreamSource(ORIGIN), duplicate_window_ns=0)
        return (origin, attrs.evolve(image, allow_atomic=False))

    def evidence(self) -> Iterator[Evidence]:
        yield next(iter(super().evidence()))

    def results(self, evidence: Evidence) -> Iterator[Result]:
        yield from super().results(evidence)
        yield mirror.check(evidence, self.readings_of(MIRROR))
