"""W2, W4 with push consumers: the server sends unasked, to whoever listens.

Verbs are those of `jetstream_consume`; `fetch` listens for a while. Consumers: P shares its messages among those that
listen in its group; Q sends to everybody, with flow control and heartbeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tnats.client.jetstream import AckPolicy, ConsumerConfig, Delivery, JetStream
from tnats.harness.sim.jetstream_consume import ACK_WAIT_NS, STREAM, ConsumeDrill, Consuming
from tnats.harness.sim.jetstream_worker import Worker
from tnats.limits import SECOND_NS

LISTENS_S = 0.2
"""How long it listens where nothing is said."""


class Listening(Consuming):
    """See the module."""

    async def take(self, js: JetStream, consumer: str, count: int, wait_s: float) -> list[Delivery]:
        found: list[Delivery] = []
        clock = js.client.runtime.clock
        async with js.stream(STREAM).consumer(consumer).pushed() as messages:
            with clock.deadline(clock.mono_ns() + round((wait_s or LISTENS_S) * SECOND_NS)):
                async for delivery in messages:
                    found.append(delivery)
                    if len(found) == count:
                        break
        self.drill.recording.probe("messages were pushed", len(found))
        return found


class PushDrill(ConsumeDrill):
    """What is pushed is pushed until it is acknowledged, to one of a group, within all limits."""

    worker_kind: ClassVar[type[Worker]] = Listening
    follows: ClassVar[bool] = False
    probes: ClassVar[tuple[str, ...]] = (*ConsumeDrill.probes, "messages were pushed")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return ("P", "P", "Q")

    def consumers(self) -> Sequence[ConsumerConfig]:
        shared = ConsumerConfig("P", deliver_subject="push.p", deliver_group="workers", ack_policy=AckPolicy.EXPLICIT)
        alone = ConsumerConfig("Q", deliver_subject="push.q", ack_policy=AckPolicy.EXPLICIT)
        shared.ack_wait_ns = alone.ack_wait_ns = ACK_WAIT_NS
        shared.max_ack_pending, alone.max_ack_pending = 10, 25
        alone.flow_control, alone.idle_heartbeat_ns = True, SECOND_NS // 2
        return shared, alone
