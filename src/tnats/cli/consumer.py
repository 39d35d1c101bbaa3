"""`tnats consumer`: administer consumers, and get messages from them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, BinaryIO

import click

from tnats.cli.config_options import read_config
from tnats.cli.consumer_config import configure, configure_start, consumer_options
from tnats.cli.consumer_show import consumer_rows, print_consumer
from tnats.cli.edit import dry_run_option, is_change_wanted
from tnats.cli.jetstream import (
    CommandGroup,
    JetStreamSession,
    confirm,
    defaults_option,
    force_option,
    jetstream_options,
    names_option,
)
from tnats.cli.listing import print_list, print_names
from tnats.cli.output import data_record, json_option, print_json, print_outcome, print_parts, write_bytes
from tnats.cli.values import DURATION, MOMENT, show_time, until_ns
from tnats.client import ClientError, TimedOut
from tnats.client.jetstream import (
    AckPolicy,
    Action,
    Consumer,
    ConsumerConfig,
    ConsumerInfo,
    Delivery,
    JetStream,
)
from tnats.jetstream.api.fields import to_object
from tnats.limits import SECOND_NS
from tnats.notation import format_time

raw_option = click.option("-r", "--raw", is_flag=True, help="Payloads only, one a line.")
ack_option = click.option("--ack/--no-ack", default=True, help="Acknowledge what is received.")


@click.group("consumer", cls=CommandGroup)
def command() -> None:
    """Administer consumers, and get messages from them."""


@command.command("ls")
@click.argument("stream")
@names_option
@json_option
@jetstream_options
def ls(js_session: JetStreamSession, stream: str, only_names: bool, as_json: bool) -> int:
    """List the consumers of STREAM."""

    async def work(js: JetStream) -> None:
        if only_names:
            print_names(sorted(await js.stream(stream).consumer_names()))
        else:
            await show_all(js, stream, as_json)

    return js_session.run(work)


@command.command("report")
@click.argument("stream")
@json_option
@jetstream_options
def report(js_session: JetStreamSession, stream: str, as_json: bool) -> int:
    """Compare the consumers of STREAM."""
    return js_session.run(lambda js: show_all(js, stream, as_json))


async def show_all(js: JetStream, stream: str, as_json: bool) -> None:
    """Print all consumers of a stream."""
    print_list(
        sorted(await js.stream(stream).consumer_infos(), key=lambda info: info.name),
        as_json,
        title=f"Consumers of stream {stream}",
        record=to_object,
        table=consumer_rows,
        nothing=f"No consumers of stream {stream}",
    )


@command.command("info")
@click.argument("stream")
@click.argument("consumer")
@json_option
@jetstream_options
def info(js_session: JetStreamSession, stream: str, consumer: str, as_json: bool) -> int:
    """Show the configuration and the state of CONSUMER."""

    async def work(js: JetStream) -> None:
        show(await js.stream(stream).consumer(consumer).info(), as_json)

    return js_session.run(work)


def show(found: ConsumerInfo, as_json: bool) -> None:
    """Print a consumer."""
    if as_json:
        print_json(to_object(found))
    else:
        print_consumer(found)


@command.command("add")
@click.argument("stream")
@click.argument("consumer", default="")
@consumer_options(editing=False)
@defaults_option
@json_option
@jetstream_options
def add(
    js_session: JetStreamSession,
    stream: str,
    consumer: str,
    config_file: BinaryIO | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Make CONSUMER on STREAM: one to pull from, unless --target names a subject to push to.

    Without a name it is ephemeral and gets one.
    """
    if config_file is not None:
        config = read_config(ConsumerConfig, config_file)
    else:
        config = ConsumerConfig(ack_policy=AckPolicy.NONE if given["set_target"] else AckPolicy.EXPLICIT)
    configure(config, given)

    async def work(js: JetStream) -> None:
        configure_start(config, consumer, given, js.client.runtime.clock.wall_ns())
        made = await js.stream(stream).create_consumer(config, action=Action.CREATE)
        show(await made.info(), as_json)

    return js_session.run(work)


@command.command("edit")
@click.argument("stream")
@click.argument("consumer")
@consumer_options(editing=True)
@dry_run_option
@force_option
@json_option
@jetstream_options
def edit(
    js_session: JetStreamSession,
    stream: str,
    consumer: str,
    config_file: BinaryIO | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Change the configuration of CONSUMER: what the options name, nothing else."""

    async def work(js: JetStream) -> None:
        handle = js.stream(stream).consumer(consumer)
        before = (await handle.info()).config
        if before is None:
            raise ClientError(f"consumer {consumer!r}: the server does not tell its configuration")
        config = deepcopy(before)
        if config_file is not None:
            config = read_config(ConsumerConfig, config_file)
            config.name, config.durable_name = before.name, before.durable_name
        configure(config, given)
        question = f"Change consumer {consumer} of stream {stream}?"
        if is_change_wanted(before, config, question, dry_run=dry_run, force=force):
            await js.stream(stream).create_consumer(config, action=Action.UPDATE)
            show(await handle.info(), as_json)

    return js_session.run(work)


@command.command("rm")
@click.argument("stream")
@click.argument("consumer")
@force_option
@json_option
@jetstream_options
def rm(js_session: JetStreamSession, stream: str, consumer: str, force: bool, as_json: bool) -> int:
    """Remove CONSUMER with its state."""
    confirm(f"Remove consumer {consumer} of stream {stream}?", force=force)

    async def work(js: JetStream) -> None:
        await js.stream(stream).consumer(consumer).delete()
        text = f"Removed consumer {consumer} of stream {stream}"
        print_outcome(text, as_json, stream=stream, consumer=consumer, removed=True)

    return js_session.run(work)


@command.command("pause")
@click.argument("stream")
@click.argument("consumer")
@click.argument("until", type=MOMENT)
@force_option
@json_option
@jetstream_options
def pause(
    js_session: JetStreamSession, stream: str, consumer: str, until: tuple[str, int], force: bool, as_json: bool
) -> int:
    """Let CONSUMER deliver nothing UNTIL a time (2026-11-29T12:00:00Z) or for a duration (1h)."""
    confirm(f"Pause consumer {consumer} of stream {stream}?", force=force)

    async def work(js: JetStream) -> None:
        moment_ns = until_ns(until, js.client.runtime.clock.wall_ns())
        answer = await js.stream(stream).consumer(consumer).pause(moment_ns)
        text = f"Paused until {show_time(answer.pause_until_ns)}" if answer.paused else "Not paused: that is past"
        print_outcome(text, as_json, **to_object(answer))

    return js_session.run(work)


@command.command("resume")
@click.argument("stream")
@click.argument("consumer")
@force_option
@json_option
@jetstream_options
def resume(js_session: JetStreamSession, stream: str, consumer: str, force: bool, as_json: bool) -> int:
    """End the pause of CONSUMER."""
    confirm(f"Resume consumer {consumer} of stream {stream}?", force=force)

    async def work(js: JetStream) -> None:
        answer = await js.stream(stream).consumer(consumer).resume()
        print_outcome(f"Consumer {consumer} goes on", as_json, **to_object(answer))

    return js_session.run(work)


@command.command("reset")
@click.argument("stream")
@click.argument("consumer")
@click.option("--seq", "sequence", default=0, help="Begin at this sequence; else at the first unacknowledged message.")
@force_option
@json_option
@jetstream_options
def reset(js_session: JetStreamSession, stream: str, consumer: str, sequence: int, force: bool, as_json: bool) -> int:
    """Let CONSUMER deliver again what it has delivered."""
    confirm(f"Reset consumer {consumer} of stream {stream}?", force=force)

    async def work(js: JetStream) -> None:
        show(await js.stream(stream).consumer(consumer).reset(sequence), as_json)

    return js_session.run(work)


@command.command("unpin")
@click.argument("stream")
@click.argument("consumer")
@click.argument("group")
@force_option
@json_option
@jetstream_options
def unpin(js_session: JetStreamSession, stream: str, consumer: str, group: str, force: bool, as_json: bool) -> int:
    """Let another client take the place that GROUP of CONSUMER is pinned to."""
    confirm(f"Unpin group {group} of consumer {consumer}?", force=force)

    async def work(js: JetStream) -> None:
        await js.stream(stream).consumer(consumer).unpin(group)
        text = f"Unpinned group {group} of consumer {consumer}"
        print_outcome(text, as_json, stream=stream, consumer=consumer, group=group, unpinned=True)

    return js_session.run(work)


@command.command("next")
@click.argument("stream")
@click.argument("consumer")
@click.option("--count", default=1, show_default=True, type=click.IntRange(min=1), help="Messages to fetch.")
@click.option("--wait", "wait_ns", type=DURATION, help="Wait for them this long.  [default: --timeout]")
@ack_option
@click.option("--nak", "answer", flag_value="nak", help="Give what is received back.")
@click.option("--term", "answer", flag_value="term", help="Let what is received not come again, without success.")
@raw_option
@json_option
@jetstream_options
def next_messages(
    js_session: JetStreamSession,
    stream: str,
    consumer: str,
    count: int,
    wait_ns: int | None,
    ack: bool,
    answer: str | None,
    raw: bool,
    as_json: bool,
) -> int:
    """Fetch messages from the pull consumer CONSUMER."""
    wait_s = (js_session.timeout_ns if wait_ns is None else wait_ns) / SECOND_NS

    async def work(js: JetStream) -> None:
        handle = js.stream(stream).consumer(consumer)
        deliveries = await handle.fetch(count, timeout_s=wait_s)
        for delivery in deliveries:
            show_delivery(delivery, raw, as_json)
            if answer == "nak":
                await delivery.nak()
            elif answer == "term":
                await delivery.term()
            elif ack:
                await delivery.ack_sync()
        await js.client.flush()
        if not deliveries:
            raise TimedOut(f"consumer {consumer!r} of stream {stream!r}: no message within {wait_s:g} s")

    return js_session.run(work)


@command.command("sub")
@click.argument("stream")
@click.argument("consumer")
@click.option("--count", default=0, type=click.IntRange(min=0), help="Stop after so many messages.")
@ack_option
@raw_option
@json_option
@jetstream_options
def sub(
    js_session: JetStreamSession, stream: str, consumer: str, count: int, ack: bool, raw: bool, as_json: bool
) -> int:
    """Print the messages of CONSUMER, push or pull, until interrupted or until --count of them have come."""

    async def work(js: JetStream) -> None:
        handle = js.stream(stream).consumer(consumer)
        config = (await handle.info()).config
        acknowledges = ack and config is not None and config.ack_policy is not AckPolicy.NONE
        received = 0
        async with open_messages(handle, config) as messages:
            async for delivery in messages:
                show_delivery(delivery, raw, as_json)
                if acknowledges:
                    await delivery.ack()
                received += 1
                if received == count:
                    break

    return js_session.run(work)


def open_messages(consumer: Consumer, config: ConsumerConfig | None) -> Any:
    """The context manager that gives the messages of a consumer of either kind."""
    return consumer.pushed() if config is not None and config.is_push else consumer.messages()


def show_delivery(delivery: Delivery, raw: bool, as_json: bool) -> None:
    """Print a delivered message."""
    place = delivery.metadata
    if raw:
        write_bytes(delivery.data + b"\n")
        return
    if as_json:
        record: dict[str, Any] = {
            "subject": delivery.subject,
            "stream": place.stream,
            "sequence": place.stream_sequence,
            "delivery": place.delivery_count,
            "pending": place.pending_count,
            "time": format_time(place.time_ns),
        }
        if delivery.headers is not None:
            record["headers"] = delivery.headers
        print_json({**record, **data_record(delivery.data)})
        return
    title = (
        f"[{place.stream_sequence}] Subject: {delivery.subject} Received: {format_time(place.time_ns)} "
        f"Delivery: {place.delivery_count} Pending: {place.pending_count}"
    )
    print_parts(title, delivery.headers, delivery.data)
