"""`tnats bench js`: throughput and latency of streams and consumers."""

from __future__ import annotations

from typing import Any

import click

from tnats.cli.bench import clients_option, measure, messages_option, size_option
from tnats.cli.bench_load import STEP_COUNT, Result, Span, share
from tnats.cli.config_options import STORAGE, to_storage
from tnats.cli.jetstream import JetStreamSession, jetstream_options
from tnats.cli.output import Advance, json_option
from tnats.cli.values import SIZE
from tnats.client import Client, ClientError
from tnats.client.jetstream import (
    AckPolicy,
    ConsumerConfig,
    Delivery,
    JetStream,
    MessageStream,
    OrderedMessages,
    StreamConfig,
)
from tnats.runtime.api import Runtime

STREAM = "benchstream"
CONSUMER = "tnats-bench"

stream_option = click.option("--stream", default=STREAM, show_default=True, help="The stream to use.")
batch_option = click.option(
    "--batch", default=500, show_default=True, type=click.IntRange(min=1), help="Messages on their way at a time."
)


@click.group("js")
def command() -> None:
    """Publish to a stream, then read it back: `bench js pub async SUBJECT --create`, `bench js consume`."""


@command.group("pub")
def publish() -> None:
    """Publish to a stream, with acknowledgement."""


def publish_options(function: Any) -> Any:
    """Decorator: the options of every way to publish."""
    for option in (
        jetstream_options,
        json_option,
        clients_option,
        size_option,
        messages_option,
        click.option("--max-bytes", type=SIZE, default="1GB", show_default=True, help="Size of a stream that is made."),
        click.option("--replicas", default=1, show_default=True, help="Copies of a stream that is made."),
        click.option("--storage", type=STORAGE, default="file", show_default=True, help="Of a stream that is made."),
        click.option("--create", is_flag=True, help="Make the stream, or empty it if it is there."),
        stream_option,
    ):
        function = option(function)
    return function


@publish.command("async")
@click.argument("subject")
@batch_option
@publish_options
def publish_ahead(batch: int, **given: Any) -> int:
    """Publish on SUBJECT, up to --batch messages ahead of their acknowledgements."""

    async def load(
        js: JetStream, subject: str, payload: bytes, count: int, advance: Advance, latencies_ns: list[int]
    ) -> None:
        async with js.publisher(pending_count_max=batch) as publisher:
            for _ in range(count):
                await publisher.publish(subject, payload)
                advance(1)

    return run_publish("js pub async", load, **given)


@publish.command("sync")
@click.argument("subject")
@publish_options
def publish_one_by_one(**given: Any) -> int:
    """Publish on SUBJECT, each client one message after the other, and report their latency."""

    async def load(
        js: JetStream, subject: str, payload: bytes, count: int, advance: Advance, latencies_ns: list[int]
    ) -> None:
        now_ns = js.client.runtime.clock.mono_ns
        before_ns = now_ns()
        for _ in range(count):
            await js.publish(subject, payload)
            after_ns = now_ns()
            latencies_ns.append(after_ns - before_ns)
            before_ns = after_ns
            advance(1)

    return run_publish("js pub sync", load, **given)


def run_publish(
    kind: str,
    load: Any,
    *,
    js_session: JetStreamSession,
    subject: str,
    stream: str,
    create: bool,
    storage: str,
    replicas: int,
    max_bytes: int,
    messages: int,
    size_bytes: int,
    clients: int,
    as_json: bool,
) -> int:
    """Publish with every client at once, and print what was measured."""
    result = Result(kind, subject, size_bytes)
    payload = bytes(size_bytes)
    config = StreamConfig(
        stream,
        subjects=[subject],
        storage=to_storage(storage),
        num_replicas=replicas,
        max_bytes=max_bytes,
        allow_direct=True,
    )

    async def prepare(client: Client) -> None:
        if create:
            js = js_session.open(client)
            await js.create_stream(config)
            await js.stream(stream).purge()

    async def one(runtime: Runtime, client: Client, index: int, advance: Advance) -> Span:
        count = share(messages, clients, index)
        start_ns = runtime.clock.mono_ns()
        await load(js_session.open(client), subject, payload, count, advance, result.latencies_ns)
        return Span(start_ns, runtime.clock.mono_ns(), count, count * size_bytes)

    return measure(js_session.session, result, clients, messages, one, as_json, prepare)


# ---------------------------------------------------------------- reading


@command.command("consume")
@click.option("--consumer", default=CONSUMER, show_default=True, help="The durable consumer; made if it is not there.")
@click.option("--acks", type=click.Choice(["explicit", "all", "none"]), default="explicit", help="How it acknowledges.")
@click.option("--double-ack", is_flag=True, help="Wait for the server's word on each acknowledgement.")
@stream_option
@batch_option
@messages_option
@clients_option
@json_option
@jetstream_options
def consume(
    js_session: JetStreamSession,
    consumer: str,
    acks: str,
    double_ack: bool,
    stream: str,
    batch: int,
    messages: int,
    clients: int,
    as_json: bool,
) -> int:
    """Read --messages of the stream by one consumer that all clients share."""

    async def prepare(client: Client) -> None:
        handle = await checked_stream(js_session, client, stream, messages)
        if consumer in await handle.consumer_names():
            await handle.consumer(consumer).delete()
        await handle.create_consumer(
            ConsumerConfig(durable_name=consumer, ack_policy=AckPolicy(acks), max_ack_pending=2 * batch * clients)
            if acks != "none"
            else ConsumerConfig(durable_name=consumer)
        )

    async def done(delivery: Delivery) -> None:
        if double_ack:
            await delivery.ack_sync()
        elif acks != "none":
            await delivery.ack()

    async def one(runtime: Runtime, client: Client, index: int, advance: Advance) -> Span:
        source = js_session.open(client).stream(stream).consumer(consumer).messages(count_max=batch)
        return await read_load(runtime, source, share(messages, clients, index), advance, done)

    return measure(js_session.session, Result("js consume", stream, 0), clients, messages, one, as_json, prepare)


@command.command("ordered")
@stream_option
@batch_option
@messages_option
@clients_option
@json_option
@jetstream_options
def ordered(js_session: JetStreamSession, stream: str, batch: int, messages: int, clients: int, as_json: bool) -> int:
    """Read --messages of the stream with every client, in order and without acknowledgements."""

    async def prepare(client: Client) -> None:
        await checked_stream(js_session, client, stream, messages)

    async def one(runtime: Runtime, client: Client, index: int, advance: Advance) -> Span:
        source = js_session.open(client).stream(stream).ordered(count_max=batch)
        return await read_load(runtime, source, messages, advance, None)

    total = messages * clients
    return measure(js_session.session, Result("js ordered", stream, 0), clients, total, one, as_json, prepare)


async def checked_stream(js_session: JetStreamSession, client: Client, stream: str, count: int) -> Any:
    """The stream. Raises ClientError when it does not hold so many messages."""
    handle = js_session.open(client).stream(stream)
    held = (await handle.info()).state.messages
    if held < count:
        raise ClientError(f"stream {stream!r} holds {held} messages, --messages asks for {count}")
    return handle


async def read_load(
    runtime: Runtime, source: MessageStream | OrderedMessages, count: int, advance: Advance, done: Any
) -> Span:
    """Read `count` messages; `done` is awaited with each."""
    byte_count = 0
    start_ns = runtime.clock.mono_ns()
    async with source as messages:
        for number in range(1, count + 1):
            delivery = await anext(messages)
            byte_count += delivery.size
            if done is not None:
                await done(delivery)
            if number % STEP_COUNT == 0:
                advance(STEP_COUNT)
        end_ns = runtime.clock.mono_ns()
    return Span(start_ns, end_ns, count, byte_count)
