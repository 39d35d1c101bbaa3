"""Pull requests of any length are such that servers take them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jetstream.service_world import Stage, play

from tnats.client import connect
from tnats.client.jetstream import AckPolicy, ConsumerConfig, JetStream, StreamConfig
from tnats.client.jetstream.consumer import HEARTBEAT_FROM_NS, heartbeat_ns


@given(st.integers(HEARTBEAT_FROM_NS, 10 * HEARTBEAT_FROM_NS))
def test_heartbeats_fit_twice_into_the_wait(wait_ns: int) -> None:
    """Also where the wait is an odd number of nanoseconds, as what is left of a longer one is."""
    assert 0 < 2 * heartbeat_ns(wait_ns) <= wait_ns


def test_what_does_not_wait_wants_no_heartbeats() -> None:
    """A fetch of what is there is answered, however long it could wait; so is one of an odd number of nanoseconds."""

    async def scene(stage: Stage) -> object:
        async with connect("nats://server", runtime=stage.runtime) as client:
            js = JetStream(client)
            stream = await js.create_stream(StreamConfig("S", subjects=["s"]))
            consumer = await stream.create_consumer(ConsumerConfig(durable_name="c", ack_policy=AckPolicy.NONE))
            nothing = await consumer.fetch(1, no_wait=True, timeout_s=60)
            await js.publish("s", b"1")
            await js.publish("s", b"2")
            first = await consumer.fetch(1, timeout_s=20.000000003)
            second = await consumer.fetch(1, timeout_s=11.999999999)
            return [[delivery.data for delivery in found] for found in (nothing, first, second)]

    assert play(1, scene).unwrap() == [[], [b"1"], [b"2"]]
