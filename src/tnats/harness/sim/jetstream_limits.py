"""W10 on one server: streams that refuse what is new, hold so many bytes, roll up, or know ids for a moment.

| verb | arguments | what it does |
|---|---|---|
| `roll` | subject, scope | publishes a message that takes the place of its subject's (`sub`) or the stream's (`all`) |

and those of `jetstream_publish`. Streams: F refuses what would be too much, P what would be too much on a subject, Y
holds so many bytes, R is rolled up, W knows ids for a moment, after which `again` stores its message once more.

No clock is moved here, so that it can be told whether an id was still known; what moved clocks do is in
`jetstream_publish`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import ClassVar

import attrs

from tnats.client.jetstream import Discard, JetStream, StreamConfig
from tnats.harness.checkers import ack_unique, converged, dedup, full, order, removal
from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.checkers.removal import Limits
from tnats.harness.sim.jetstream import JetStreamDrill
from tnats.harness.sim.jetstream_faults import STEADY_KINDS
from tnats.harness.sim.jetstream_publish import SIZES, Publisher, fresh
from tnats.harness.sim.jetstream_worker import Worker
from tnats.harness.sim.plan import Operation
from tnats.limits import SECOND_NS

MESSAGES_MAX, PER_SUBJECT_MAX, BYTES_MAX = 8, 2, 5000
WINDOW_NS = SECOND_NS
STREAMS = ("F", "P", "Y", "R", "W")
LIMITS = {
    "F": Limits(messages_max=MESSAGES_MAX, refuses_new=True),
    "P": Limits(per_subject_max=PER_SUBJECT_MAX, refuses_new=True),
    "Y": Limits(bytes_max=BYTES_MAX),
}


class Filler(Publisher):
    """See the module."""

    async def perform(self, js: JetStream, operation: Operation) -> None:
        if operation.verb == "roll":
            await self._roll(js, operation.word("subject"), operation.word("scope"))
        else:
            await super().perform(js, operation)

    async def prove(self, js: JetStream) -> None:
        for stream in STREAMS:
            subject = f"{stream.lower()}.live.{self.name}"
            await self.until(lambda stream=stream, subject=subject: self._room(js, stream, subject))  # type: ignore[misc]

    async def _room(self, js: JetStream, stream: str, subject: str) -> bool:
        """Publish; where there is no room, make some."""
        if await self._one(js, stream, subject):
            return True
        self.last_seq[stream] = (await js.stream(stream).info()).state.last_seq + 1
        await self._remove(js, "purge", stream, 0)
        return False

    async def _roll(self, js: JetStream, subject: str, scope: str) -> None:
        rolled = await self._one(
            js, "R", subject, conditions={"headers": {"Nats-Rollup": scope}}, extra={"rollup": scope}
        )
        self.drill.recording.probe("a message took the place of others", rolled)


class LimitsDrill(JetStreamDrill):
    """Limits are kept and take no more than they must; what is refused had no room; ids are known as long as told."""

    worker_kind: ClassVar[type[Worker]] = Filler
    kinds: ClassVar[tuple[str, ...]] = STEADY_KINDS
    probes: ClassVar[tuple[str, ...]] = (
        *kinds,
        "an acknowledgement was audited",
        "an operation was refused",
        "a message took the place of others",
        "an id was known no more",
        "a stream was full",
    )

    @classmethod
    def draw_parameters(cls, rng: random.Random) -> dict[str, int | str]:
        return {"what_if": rng.choice((0, 20))}

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        draw, stream = rng.random(), rng.choice(STREAMS)
        subject = f"{stream.lower()}.{rng.choice('ab')}"
        if draw < 0.15:
            return "again", {}
        if draw < 0.3:
            return "roll", {"subject": f"r.{rng.choice('ab')}", "scope": rng.choice(("sub", "sub", "all"))}
        if draw < 0.4:
            return rng.choice(("remove", "remove", "purge")), {"stream": rng.choice("FP"), "back": rng.randrange(6)}
        size = rng.choice(SIZES) if stream == "Y" else 10
        return "publish", {"stream": stream, "subject": subject, "size": size, "id": int(stream == "W")}

    def streams(self) -> Sequence[StreamConfig]:
        plain = StreamConfig("R", subjects=["r.>"], allow_rollup_hdrs=True, allow_direct=True)
        full = attrs.evolve(plain, discard=Discard.NEW, allow_rollup_hdrs=False)
        return (
            attrs.evolve(full, name="F", subjects=["f.>"], max_msgs=MESSAGES_MAX),
            attrs.evolve(
                full, name="P", subjects=["p.>"], max_msgs_per_subject=PER_SUBJECT_MAX, discard_new_per_subject=True
            ),
            attrs.evolve(plain, name="Y", subjects=["y.>"], max_bytes=BYTES_MAX),
            plain,
            attrs.evolve(plain, name="W", subjects=["w.>"], duplicate_window_ns=WINDOW_NS),
        )

    def results(self, evidence: Evidence) -> Iterator[Result]:
        stream = evidence.replicas[0].name
        limits = LIMITS.get(stream, Limits())
        yield ack_unique.check(evidence)
        yield removal.check(evidence, limits)
        yield result("C5", "sequences follow time", order.against_time(fresh(evidence)))
        yield converged.check(evidence)
        if limits.refuses_new:
            yield full.check(evidence, limits)
            self.recording.probe("a stream was full", len(full.refusals(evidence)))
        if stream == "W":
            yield dedup.check_window(evidence, WINDOW_NS)
            self.recording.probe("an id was known no more", len(evidence.acked()) - len(dedup.values(evidence)))
