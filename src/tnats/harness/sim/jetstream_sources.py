"""W8 on one server, in a chain: two streams under publishes, batches and removals, a stream that gathers from both, and
the mirror of that.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import ClassVar

import attrs

from tnats.client.jetstream import JetStream, MessageNotFound, StreamConfig, StreamSource
from tnats.harness.checkers import mirror, sourced
from tnats.harness.checkers.evidence import Evidence, Result
from tnats.harness.checkers.sourced import Origin
from tnats.harness.sim.jetstream_mirror import MIRROR, ORIGIN, FollowedDrill, Mirrored
from tnats.harness.sim.jetstream_worker import Worker
from tnats.limits import SECOND_NS

OTHER, GATHERING = "R", "G"
TAKEN = "s.a"
"""What is taken from `ORIGIN`; from `OTHER` it is everything."""


class Gathered(Mirrored):
    """As a publisher; and in the end all of it has come through the chain."""

    async def prove(self, js: JetStream) -> None:
        await self.until(lambda: self._one(js, ORIGIN, TAKEN))
        await self._wait_gathered(js, ORIGIN, TAKEN)
        await self.wait_other(js)
        await self.wait_mirrored(js, GATHERING)

    async def wait_other(self, js: JetStream) -> None:
        """Publish to `OTHER`, and return when that has come through the chain."""
        await self.until(lambda: self._one(js, OTHER, "r.live"))
        await self._wait_gathered(js, OTHER, "r.live")

    async def _wait_gathered(self, js: JetStream, stream: str, subject: str) -> None:
        wanted, place = self.last_seq[subject], 0
        while place < wanted:
            self.state = f"waiting for {stream}'s {wanted}, {place} has come"
            await self.drill.wait_ns(SECOND_NS // 10)
            try:
                message = await js.stream(GATHERING).get(last_on=subject)
            except MessageNotFound:
                continue
            words = (message.headers or {}).get(sourced.HEADER, [""])[0].split()
            place = int(words[1])


class SourcesDrill(FollowedDrill):
    """What two streams acknowledged comes once and in their order to a third that gathers it, and on to its mirror."""

    worker_kind: ClassVar[type[Worker]] = Gathered

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.origins: dict[str, Origin] = {}

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        verb, arguments = super().draw_operation(rng, parameters)
        if verb == "publish" and "expect" not in arguments and rng.random() < 0.6:
            arguments.update(stream=OTHER, subject=f"r.{rng.choice('ab')}")
        return verb, arguments

    def streams(self) -> Sequence[StreamConfig]:
        origin = super().streams()[0]
        other = attrs.evolve(origin, name=OTHER, subjects=["r.*"], allow_atomic=False)
        gathering = attrs.evolve(other, name=GATHERING, subjects=[])
        gathering.sources = [StreamSource(ORIGIN, filter_subject=TAKEN), StreamSource(OTHER)]
        return (
            origin,
            other,
            gathering,
            attrs.evolve(other, name=MIRROR, subjects=[], mirror=StreamSource(GATHERING), duplicate_window_ns=0),
        )

    def evidence(self) -> Iterator[Evidence]:
        origin, other, *_ = super().evidence()
        self.origins = {ORIGIN: Origin(origin, TAKEN), OTHER: Origin(other)}
        yield origin
        yield other

    def results(self, evidence: Evidence) -> Iterator[Result]:
        yield from super().results(evidence)
        if evidence is self.origins[ORIGIN].evidence:
            gatherings = self.readings_of(GATHERING)
            yield sourced.check(self.origins, gatherings)
            yield mirror.check_image(zip(gatherings, self.readings_of(MIRROR), strict=True))
