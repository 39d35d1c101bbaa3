"""The client's JetStream against our own server in one simulated world, where the server dies and comes back."""

from __future__ import annotations

import pytest
import trio
from tests.unit.jetstream.service_world import Stage, play

from tnats.client import Client, ConnectionLost, ConnectOptions, NoResponders, TimedOut, connect
from tnats.client.jetstream import AckPolicy, ConsumerConfig, JetStream, PubAck, Stream, StreamConfig
from tnats.limits import SECOND_NS

OPTIONS: ConnectOptions = {"reconnect_attempts_max": None, "ping_interval_s": 5}
COUNT = 60


async def publish_surely(js: JetStream, number: int) -> PubAck:
    """Publish one number until it is acknowledged: the id keeps it from being stored twice."""
    while True:
        try:
            return await js.publish("numbers", b"%d" % number, message_id=str(number), timeout_s=1)
        except (TimedOut, ConnectionLost, NoResponders):
            continue


async def make_stream(js: JetStream) -> Stream:
    return await js.create_stream(StreamConfig("NUMBERS", subjects=["numbers"], allow_direct=True))


async def trouble(stage: Stage, done: trio.Event) -> None:
    """Kill the server's process every few seconds and start it again."""
    while not done.is_set():
        await stage.sleep(2.3)
        await stage.restart()


async def write(stage: Stage, js: JetStream) -> list[int]:
    sequences = []
    for number in range(COUNT):
        sequences.append((await publish_surely(js, number)).seq)
        await stage.sleep(0.15)
    return sequences


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_each_number_once_and_in_order_across_restarts(seed: int) -> None:
    """Ids make publishes exact; an ordered reader sees every number once; a consumer loses none; the run repeats."""

    async def scene(stage: Stage) -> tuple[list[int], list[int], list[int]]:
        ordered: list[int] = []
        consumed: list[int] = []
        done = trio.Event()

        async def read_in_order(client: Client) -> None:
            async with JetStream(client, timeout_s=1).stream("NUMBERS").ordered(expires_s=4) as messages:
                while len(ordered) < COUNT:
                    ordered.append(int((await anext(messages)).data))

        async def consume(client: Client) -> None:
            config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait_ns=3 * SECOND_NS)
            consumer = await JetStream(client).stream("NUMBERS").create_consumer(config)
            async with consumer.messages(count_max=10, expires_s=4) as messages:
                while len(set(consumed)) < COUNT:
                    message = await anext(messages)
                    consumed.append(int(message.data))
                    await message.ack()

        async with (
            connect("nats://server", runtime=stage.runtime, **OPTIONS) as writer,
            connect("nats://server", runtime=stage.runtime, **OPTIONS) as reader,
            trio.open_nursery() as nursery,
        ):
            js = JetStream(writer)
            await make_stream(js)
            nursery.start_soon(trouble, stage, done)
            async with trio.open_nursery() as readers:
                readers.start_soon(read_in_order, reader)
                readers.start_soon(consume, reader)
                sequences = await write(stage, js)
            done.set()
            nursery.cancel_scope.cancel()
        return sequences, ordered, consumed

    outcome = play(seed, scene)
    sequences, ordered, consumed = outcome.unwrap()  # type: ignore[misc]
    assert sequences == list(range(1, COUNT + 1))
    assert ordered == list(range(COUNT))
    assert sorted(set(consumed)) == list(range(COUNT))
    assert play(seed, scene).trace_hash == outcome.trace_hash


def test_a_silent_server_is_asked_again() -> None:
    """A reader that waited across a restart is supplied again: what is published afterwards comes within seconds."""

    async def scene(stage: Stage) -> float:
        async with connect("nats://server", runtime=stage.runtime, **OPTIONS) as client:
            js = JetStream(client)
            stream = await make_stream(js)
            consumer = await stream.create_consumer(ConsumerConfig(name="c", inactive_threshold_ns=3600 * SECOND_NS))
            start_ns = stage.runtime.clock.mono_ns()
            async with consumer.messages(expires_s=2) as messages, trio.open_nursery() as nursery:

                async def publish_later() -> None:
                    await stage.sleep(30)
                    await stage.restart()
                    await publish_surely(js, 1)

                nursery.start_soon(publish_later)
                await anext(messages)
                return (stage.runtime.clock.mono_ns() - start_ns) / SECOND_NS

    assert 31 < play(1, scene).unwrap() < 35  # type: ignore[operator]


def test_a_fetch_does_not_wait_for_ever() -> None:
    """While the server is away a fetch and a publish end with an error within their time limits."""

    async def scene(stage: Stage) -> list[float]:
        clock = stage.runtime.clock
        spans = []
        async with connect("nats://server", runtime=stage.runtime, **OPTIONS) as client:
            js = JetStream(client, timeout_s=2)
            stream = await make_stream(js)
            consumer = await stream.create_consumer(ConsumerConfig(name="c", inactive_threshold_ns=3600 * SECOND_NS))
            stage.machine.kill()
            await stage.sleep(1)
            for call in (lambda: consumer.fetch(1, timeout_s=1), lambda: js.publish("numbers")):
                start_ns = clock.mono_ns()
                with pytest.raises(TimedOut):
                    await call()
                spans.append((clock.mono_ns() - start_ns) / SECOND_NS)
        return spans

    spans = play(1, scene).unwrap()
    assert spans == pytest.approx([3, 2], abs=0.01)


def test_a_wait_for_one_message_outlives_a_restart() -> None:
    """`next` asks again when its request ended with the connection, and keeps to its time limit."""

    async def scene(stage: Stage) -> bytes:
        clock = stage.runtime.clock
        async with connect("nats://server", runtime=stage.runtime, **OPTIONS) as client:
            js = JetStream(client)
            stream = await make_stream(js)
            consumer = await stream.create_consumer(ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))
            start_ns = clock.mono_ns()
            with pytest.raises(TimedOut):
                await consumer.next(timeout_s=3)
            assert (clock.mono_ns() - start_ns) / SECOND_NS == pytest.approx(3, abs=0.1)
            async with trio.open_nursery() as nursery:

                async def trouble_then_publish() -> None:
                    await stage.sleep(2)
                    await stage.restart()
                    await publish_surely(js, 7)

                nursery.start_soon(trouble_then_publish)
                return (await consumer.next(timeout_s=20)).data

    assert play(1, scene).unwrap() == b"7"
