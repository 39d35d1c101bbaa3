"""W2, W4, W13 on one server: consumers that several workers share, and readers that follow in order.

| verb | arguments | what it does |
|---|---|---|
| `publish` | count | so many new messages, one after another |
| `fetch` | consumer, count, then, wait | asks for messages and does `then` with each |
| `info` | consumer | asks how far the consumer is |

`then`: `sync` (acknowledge and wait for the confirmation), `ack`, `nak`, `term`, `wpi`, `none` (as a worker that dies).
Consumers: C never gives up, B does after three deliveries with waits of its own. Every worker also follows the stream
by an ordered reader, through all its connections.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import ClassVar

from tnats.client.jetstream import AckPolicy, ConsumerConfig, Delivery, JetStream, Retention, StreamConfig
from tnats.harness.checkers import (
    ack_unique,
    at_least_once,
    confirmed_acks,
    consumer_limits,
    converged,
    exclusive,
    removal,
    watched,
)
from tnats.harness.checkers.consumer_limits import ConsumerLimits
from tnats.harness.checkers.deliveries import confirmed
from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.history import History
from tnats.harness.sim.bodies import payload, value_of
from tnats.harness.sim.jetstream import JetStreamDrill
from tnats.harness.sim.jetstream_faults import CLOCK
from tnats.harness.sim.jetstream_reading import ACCOUNT
from tnats.harness.sim.jetstream_worker import OPERATION_S, Ending, Worker
from tnats.harness.sim.plan import Operation
from tnats.limits import SECOND_NS
from tnats.records import frozen
from tnats.server.node import Node

STREAM = "S"
ACK_WAIT_NS = 4 * SECOND_NS
BACKOFF_NS = [SECOND_NS // 2, SECOND_NS]
THENS = ("sync", "sync", "sync", "ack", "nak", "term", "wpi", "none", "none")


@frozen
class Standing:
    """What a consumer would remember after a crash."""

    consumer: str
    floor: int
    delivered: int
    pending: frozenset[int]


class Consuming(Worker):
    """See the module."""

    drill: ConsumeDrill

    async def begin(self, js: JetStream) -> None:
        if self.drill.follows:
            name = f"{self.name}, {len(self.drill.watches) + 1}"
            self.seen = self.drill.watches[name] = []
            self.nursery.start_soon(self._follow, js)

    async def _follow(self, js: JetStream) -> None:
        async with js.stream(STREAM).ordered(count_max=20, expires_s=2.0) as messages:
            async for delivery in messages:
                self.seen.append((delivery.metadata.stream_sequence, value_of(delivery.data)))
            self.drill.recording.probe("an ordered reader made a new consumer", messages.reset_count)

    async def perform(self, js: JetStream, operation: Operation) -> None:
        if operation.verb == "publish":
            for _ in range(operation.number("count", 1)):
                await self._publish(js)
        elif operation.verb == "fetch":
            wait_s = operation.number("wait") / 1000
            await self._fetch(js, operation.word("consumer"), operation.number("count"), operation.word("then"), wait_s)
        elif operation.verb == "info":
            await self._info(js, operation.word("consumer"))
        else:
            raise operation.unknown_verb()

    async def prove(self, js: JetStream) -> None:
        await self.until(lambda: self._publish(js))
        for consumer in self.drill.consumers():
            await self.until(lambda name=consumer.durable_name: self._drain(js, name))  # type: ignore[misc]
        if self.drill.follows:
            last = (await js.stream(STREAM).info()).state.last_seq
            self.state = f"following up to {last}, now at {self.seen[-1][0] if self.seen else 0}"
            while not self.seen or self.seen[-1][0] < last:
                await self.drill.wait_ns(SECOND_NS // 10)

    async def _publish(self, js: JetStream) -> bool:
        value = self.new_value()

        async def publish(ending: Ending) -> None:
            ack = await js.publish("s.a", payload(value, 20), timeout_s=OPERATION_S, retries=0)
            ending.extra = {"seq": ack.seq, "duplicate": ack.duplicate}

        return (await self.attempt(js, "publish", value, publish, stream=STREAM, subject="s.a")).is_ok

    async def _fetch(self, js: JetStream, consumer: str, count: int, then: str, wait_s: float) -> int:
        """One fetch, and what is done with the messages; how many these were."""
        got: list[Delivery] = []

        async def fetch(ending: Ending) -> None:
            got.extend(await self.take(js, consumer, count, wait_s))
            ending.value = [
                [
                    each.metadata.stream_sequence,
                    value_of(each.data),
                    each.metadata.delivery_count,
                    each.metadata.consumer_sequence,
                ]
                for each in got
            ]
            ending.extra = {"life": self.drill.server_life()}
            if any(each.metadata.delivery_count > 1 for each in got):
                self.drill.recording.probe("a message was delivered again")

        life = self.drill.server_life()
        await self.attempt(js, "fetch", None, fetch, stream=STREAM, consumer=consumer, count=count, life=life)
        for each in got:
            await self._answer(js, consumer, each, then)
        return len(got)

    async def take(self, js: JetStream, consumer: str, count: int, wait_s: float) -> list[Delivery]:
        """Up to `count` messages; with `wait_s` 0 what is there now."""
        handle = js.stream(STREAM).consumer(consumer)
        return await handle.fetch(count, timeout_s=wait_s or OPERATION_S, no_wait=not wait_s)

    async def _answer(self, js: JetStream, consumer: str, delivery: Delivery, then: str) -> None:
        if then == "none":
            return

        async def answer(ending: Ending) -> None:
            if then == "sync":
                await delivery.ack_sync(timeout_s=OPERATION_S)
            elif then == "ack":
                await delivery.ack()
            elif then == "nak":
                await delivery.nak(delay_s=0.1)
            elif then == "term":
                await delivery.term("no use")
            else:
                await delivery.in_progress()

        seq = delivery.metadata.stream_sequence
        await self.attempt(js, "ack", seq, answer, stream=STREAM, consumer=consumer, kind=then)

    async def _info(self, js: JetStream, consumer: str) -> int:
        """How many messages the consumer still has to do with; -1 when it does not say."""
        left = [-1]

        async def ask(ending: Ending) -> None:
            info = await js.stream(STREAM).consumer(consumer).info()
            ending.extra = {"floor": info.ack_floor.stream_seq, "ack_pending": info.num_ack_pending}
            left[0] = info.num_pending + info.num_ack_pending

        await self.attempt(js, "info", None, ask, stream=STREAM, consumer=consumer)
        return left[0]

    async def _drain(self, js: JetStream, consumer: str) -> bool:
        """Take and acknowledge what is there; whether the consumer has nothing left."""
        await self._fetch(js, consumer, 10, "sync", 0.2)
        left = await self._info(js, consumer)
        self.state = f"draining {consumer}, {left} left"
        return left == 0


class ConsumeDrill(JetStreamDrill):
    """Everything is delivered until it is acknowledged, what is confirmed never again, within all limits."""

    worker_kind: ClassVar[type[Worker]] = Consuming
    THEMES: ClassVar[tuple[str, ...]] = (*JetStreamDrill.THEMES, CLOCK, CLOCK)
    retention: ClassVar[Retention] = Retention.LIMITS
    follows: ClassVar[bool] = True
    probes: ClassVar[tuple[str, ...]] = (
        *JetStreamDrill.probes,
        "an operation was refused",
        "nobody knows whether an operation took effect",
        "a message was delivered again",
        "a consumer was looked at on a copy of the disk",
    )
    workers: dict[str, Worker]

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.watches: dict[str, list[tuple[int, str]]] = {}
        self.standings: list[tuple[int, Standing, str]] = []

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        draw = rng.random()
        if draw < 0.4:
            return "publish", {"count": rng.choice((1, 1, 3, 10))}
        consumer = rng.choice(cls.names())
        if draw < 0.92:
            count, then, wait = rng.choice((1, 2, 5, 20)), rng.choice(THENS), rng.choice((0, 0, 300, 1500))
            return "fetch", {"consumer": consumer, "count": count, "then": then, "wait": wait}
        return "info", {"consumer": consumer}

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The consumers."""
        return ("C", "C", "B")

    def streams(self) -> Sequence[StreamConfig]:
        return (StreamConfig(STREAM, subjects=["s.*"], retention=self.retention, allow_direct=True),)

    def consumers(self) -> Sequence[ConsumerConfig]:
        """The durable consumers."""
        return (
            ConsumerConfig("C", ack_policy=AckPolicy.EXPLICIT, ack_wait_ns=ACK_WAIT_NS, max_ack_pending=25),
            ConsumerConfig("B", ack_policy=AckPolicy.EXPLICIT, max_deliver=3, backoff_ns=list(BACKOFF_NS)),
        )

    async def furnish(self, js: JetStream) -> None:
        for config in self.consumers():
            await js.stream(STREAM).create_consumer(config)

    async def look_further(self, node: Node, event_count: int, when: str) -> None:
        assert node.jetstream is not None
        self.recording.probe("a consumer was looked at on a copy of the disk")
        consumers = node.jetstream.accounts[ACCOUNT].streams[STREAM].consumers
        for config in self.consumers():
            name = config.durable_name
            if name not in consumers:
                self.standings.append((event_count, Standing(name, -1, -1, frozenset()), when))
                continue
            state = consumers[name].machine.state
            standing = Standing(
                name, state.floor_stream_seq, state.delivered_stream_seq, frozenset(state.pending.seqs())
            )
            self.standings.append((event_count, standing, when))

    def limits(self) -> dict[str, ConsumerLimits]:
        """What the consumers allow, by name."""
        return {
            config.durable_name: ConsumerLimits(config.max_deliver or -1, config.max_ack_pending or -1)
            for config in self.consumers()
        }

    def results(self, evidence: Evidence) -> Iterator[Result]:
        yield ack_unique.check(evidence)
        yield self.content(evidence)
        if not evidence.restarted:  # a look aside
            return
        yield converged.check(evidence)
        endless = [config.durable_name for config in self.consumers() if not config.max_deliver]
        yield at_least_once.check(evidence, endless)
        yield confirmed_acks.check(evidence)
        yield exclusive.check(
            evidence, {each.durable_name: each.backoff_ns or [ACK_WAIT_NS] for each in self.consumers()}
        )
        yield consumer_limits.check(evidence, self.limits())
        yield watched.check(((publish.told("seq"), publish.value) for publish in evidence.acked()), self.watches)
        yield result("C15", "confirmed acknowledgements survive a crash", self.forgotten(evidence.history))

    def content(self, evidence: Evidence) -> Result:
        """What is left in the stream."""
        return removal.check(evidence)

    def forgotten(self, history: History) -> Iterator[str]:
        """Confirmed acknowledgements that a power loss at some moment would have undone."""
        for event_count, standing, when in self.standings:
            for consumer, seq in confirmed(History(history.events[:event_count])):
                if consumer != standing.consumer:
                    continue
                is_done = seq <= standing.floor or (seq <= standing.delivered and seq not in standing.pending)
                if not is_done:
                    yield f"{when}: consumer {consumer} has forgotten the confirmed acknowledgement of {seq}"


class WorkQueueDrill(ConsumeDrill):
    """A work queue: every message is worked on until it is acknowledged, and then gone for good."""

    retention: ClassVar[Retention] = Retention.WORKQUEUE
    follows: ClassVar[bool] = False

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return ("W",)

    def consumers(self) -> Sequence[ConsumerConfig]:
        return (ConsumerConfig("W", ack_policy=AckPolicy.EXPLICIT, ack_wait_ns=ACK_WAIT_NS, max_ack_pending=25),)

    def content(self, evidence: Evidence) -> Result:
        return exclusive.check_queue(evidence)
