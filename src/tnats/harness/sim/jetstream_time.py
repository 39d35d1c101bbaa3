"""W10 on one server: messages with lifetimes of their own, schedules, fast batches.

| verb | arguments | what it does |
|---|---|---|
| `publish` | subject, ttl | publishes a new value that lives so many milliseconds; 0: for ever |
| `schedule` | after | a message for "fired.*" in so many milliseconds |
| `fast` | count | a fast batch, committed |

No clock is moved here, so that what is due when can be told exactly; what moved clocks may do to ages is in
`jetstream_publish`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from tnats.client.jetstream import JetStream, StreamConfig
from tnats.harness.checkers import ack_unique, order, timed
from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.sim.bodies import payload
from tnats.harness.sim.jetstream import SERVER, JetStreamDrill
from tnats.harness.sim.jetstream_faults import STEADY_KINDS
from tnats.harness.sim.jetstream_worker import OPERATION_S, Ending, Worker
from tnats.harness.sim.plan import Operation
from tnats.limits import MILLISECOND_NS, SECOND_NS
from tnats.notation import format_time

STREAM = "T"
MARKER_TTL_NS = SECOND_NS
"""No lifetime is shorter: a message would be kept until then."""
TTLS_MS = (0, 1000, 2000, 5000, 60_000)
DELAYS_MS = (50, 500, 2000, 5000, 60_000)


class Timekeeper(Worker):
    """See the module."""

    drill: TimeDrill

    async def perform(self, js: JetStream, operation: Operation) -> None:
        if operation.verb == "publish":
            await self._publish(js, operation.word("subject"), operation.number("ttl"))
        elif operation.verb == "schedule":
            await self._schedule(js, operation.number("after"))
        elif operation.verb == "fast":
            await self._fast(js, operation.number("count"))
        else:
            raise operation.unknown_verb()

    async def prove(self, js: JetStream) -> None:
        await self.until(lambda: self._publish(js, "t.live", 1000))
        await self.until(lambda: self._schedule(js, 500))
        await self.until(lambda: self._fast(js, 3))
        await self.drill.wait_ns(3 * SECOND_NS)

    async def _publish(self, js: JetStream, subject: str, ttl_ms: int) -> bool:
        value = self.new_value()
        extra: dict[str, Any] = {"ttl_ns": ttl_ms * MILLISECOND_NS} if ttl_ms else {}
        headers = {"Nats-TTL": f"{ttl_ms // 1000}s"} if ttl_ms else {}
        return await self._one(js, value, subject, headers, extra)

    async def _schedule(self, js: JetStream, after_ms: int) -> bool:
        value = self.new_value()
        after_ns = after_ms * MILLISECOND_NS
        target = f"fired.{self.name}"
        headers = {
            "Nats-Schedule": f"@at {format_time(self.drill.wall_ns() + after_ns)}",
            "Nats-Schedule-Target": target,
        }
        extra = {"at_ns": self.drill.recorder.time_ns() + after_ns, "target": target}
        return await self._one(js, value, f"plan.{value}", headers, extra)

    async def _one(
        self, js: JetStream, value: str, subject: str, headers: dict[str, str], extra: dict[str, Any]
    ) -> bool:
        async def publish(ending: Ending) -> None:
            ack = await js.publish(subject, payload(value, 10), headers=headers, timeout_s=OPERATION_S, retries=0)
            ending.extra = {"seq": ack.seq, "duplicate": ack.duplicate, "acked_ns": self.drill.recorder.time_ns()}

        return (await self.attempt(js, "publish", value, publish, stream=STREAM, subject=subject, **extra)).is_ok

    async def _fast(self, js: JetStream, count: int) -> bool:
        values = [self.new_value() for _ in range(count)]

        async def publish(ending: Ending) -> None:
            async with js.fast_batch(step_count=5) as batch:
                for value in values:
                    await batch.publish("t.fast", payload(value, 10))
                ack = await batch.commit()
            ending.extra = {"seq": ack.seq, "count": ack.count}
            self.drill.recording.probe("a fast batch was committed")

        return (await self.attempt(js, "fast", values, publish, stream=STREAM, subject="t.fast")).is_ok


class TimeDrill(JetStreamDrill):
    """Lifetimes and schedules are kept to the second, schedules fire once, fast batches keep their order."""

    worker_kind: ClassVar[type[Worker]] = Timekeeper
    kinds: ClassVar[tuple[str, ...]] = STEADY_KINDS
    probes: ClassVar[tuple[str, ...]] = (
        *kinds,
        "a crash was tried on a copy of the disk",
        "an acknowledgement was audited",
        "a fast batch was committed",
        "a message had outlived its time",
        "a schedule had fired",
        "a marker was found",
    )

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        draw = rng.random()
        if draw < 0.5:
            return "publish", {"subject": f"t.{rng.choice('abc')}", "ttl": rng.choice(TTLS_MS)}
        if draw < 0.85:
            return "schedule", {"after": rng.choice(DELAYS_MS)}
        return "fast", {"count": rng.choice((1, 2, 10, 30))}

    def streams(self) -> Sequence[StreamConfig]:
        return (
            StreamConfig(
                STREAM,
                subjects=["t.*", "plan.*", "fired.*"],
                allow_msg_ttl=True,
                allow_msg_schedules=True,
                allow_batched=True,
                allow_rollup_hdrs=True,
                subject_delete_marker_ttl_ns=MARKER_TTL_NS,
                allow_direct=True,
            ),
        )

    def wall_ns(self) -> int:
        """The server's wall clock; machines that came later are a little behind it."""
        return self._world.nodes[SERVER].oscillator.wall_ns()

    def results(self, evidence: Evidence) -> Iterator[Result]:
        yield ack_unique.check(evidence)
        yield result("C5", "sequences follow time", order.against_time(evidence.acked()))
        yield timed.check(evidence)
        if evidence.restarted:  # no look aside
            self._probe(evidence)

    def _probe(self, evidence: Evidence) -> None:
        held = list(evidence.replicas[0].messages.values())
        values = {stored.value for stored in held}
        ended = [op for op in evidence.acked() if "ttl_ns" in op.invoke.extra and op.value not in values]
        self.recording.probe("a message had outlived its time", len(ended))
        self.recording.probe("a schedule had fired", sum(stored.subject.startswith("fired.") for stored in held))
        self.recording.probe("a marker was found", sum(timed.MARKER in (stored.headers or {}) for stored in held))
