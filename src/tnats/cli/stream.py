"""`tnats stream`: administer streams, and look into them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, BinaryIO

import click

from tnats.cli.config_options import read_config
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
from tnats.cli.output import json_option, note, print_json, print_outcome
from tnats.cli.stream_backup import backup, restore
from tnats.cli.stream_config import configure, stream_options
from tnats.cli.stream_show import print_stored, print_stream, stored_record, stream_rows
from tnats.cli.tables import print_table
from tnats.cli.values import DURATION, show_count, show_counted
from tnats.client.jetstream import JetStream, MessageNotFound, StreamConfig, StreamInfo
from tnats.jetstream.api.fields import to_object


@click.group("stream", cls=CommandGroup)
def command() -> None:
    """Administer streams, and look into them."""


command.add_command(backup)
command.add_command(restore)


@command.command("ls")
@click.option("--subject", default="", help="Only streams with subjects that overlap this one.")
@names_option
@json_option
@jetstream_options
def ls(js_session: JetStreamSession, subject: str, only_names: bool, as_json: bool) -> int:
    """List the streams."""

    async def work(js: JetStream) -> None:
        if only_names:
            print_names(sorted(await js.stream_names(subject=subject)))
            return
        print_list(
            sorted(await js.stream_infos(subject=subject), key=lambda info: info.config.name),
            as_json,
            title="Streams",
            record=to_object,
            table=lambda infos: stream_rows(infos, js.client.runtime.clock.wall_ns()),
            nothing="No streams",
        )

    return js_session.run(work)


@command.command("info")
@click.argument("stream")
@click.option("--state", "only_state", is_flag=True, help="Only what it holds.")
@json_option
@jetstream_options
def info(js_session: JetStreamSession, stream: str, only_state: bool, as_json: bool) -> int:
    """Show the configuration and the state of STREAM."""

    async def work(js: JetStream) -> None:
        show(await js.stream(stream).info(), as_json, only_state=only_state)

    return js_session.run(work)


def show(found: StreamInfo, as_json: bool, *, only_state: bool = False) -> None:
    """Print a stream."""
    if as_json:
        print_json(to_object(found.state if only_state else found))
    else:
        print_stream(found, only_state=only_state)


@command.command("add")
@click.argument("stream")
@stream_options(editing=False)
@defaults_option
@json_option
@jetstream_options
def add(js_session: JetStreamSession, stream: str, config_file: BinaryIO | None, as_json: bool, **given: Any) -> int:
    """Make STREAM. Without --subjects it takes the subject that is its name."""
    config = StreamConfig(allow_direct=True) if config_file is None else read_config(StreamConfig, config_file)
    config.name = stream
    configure(config, given)

    async def work(js: JetStream) -> None:
        made = await js.create_stream(config)
        show(await made.info(), as_json)

    return js_session.run(work)


@command.command("edit")
@click.argument("stream")
@stream_options(editing=True)
@dry_run_option
@force_option
@json_option
@jetstream_options
def edit(
    js_session: JetStreamSession,
    stream: str,
    config_file: BinaryIO | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Change the configuration of STREAM: what the options name, nothing else."""

    async def work(js: JetStream) -> None:
        handle = js.stream(stream)
        before = (await handle.info()).config
        config = deepcopy(before)
        if config_file is not None:
            config = read_config(StreamConfig, config_file)
            config.name = stream
        configure(config, given)
        if is_change_wanted(before, config, f"Change stream {stream}?", dry_run=dry_run, force=force):
            show(await handle.update(config), as_json)

    return js_session.run(work)


@command.command("rm")
@click.argument("stream")
@force_option
@json_option
@jetstream_options
def rm(js_session: JetStreamSession, stream: str, force: bool, as_json: bool) -> int:
    """Remove STREAM with its messages and consumers."""
    confirm(f"Remove stream {stream} with all its messages?", force=force)

    async def work(js: JetStream) -> None:
        await js.stream(stream).delete()
        print_outcome(f"Removed stream {stream}", as_json, stream=stream, removed=True)

    return js_session.run(work)


@command.command("purge")
@click.argument("stream")
@click.option("--subject", default="", help="Only messages on this subject, wildcards allowed.")
@click.option("--seq", "below_sequence", default=0, help="Only messages before this sequence.")
@click.option("--keep", default=0, help="All but this many of the newest.")
@force_option
@json_option
@jetstream_options
def purge(
    js_session: JetStreamSession, stream: str, subject: str, below_sequence: int, keep: int, force: bool, as_json: bool
) -> int:
    """Remove messages of STREAM."""
    if below_sequence and keep:
        raise click.UsageError("give --seq or --keep, not both")
    confirm(f"Remove messages of stream {stream}?", force=force)

    async def work(js: JetStream) -> None:
        count = await js.stream(stream).purge(subject=subject, below_sequence=below_sequence, keep=keep)
        text = f"Removed {show_counted(count, 'message')} of stream {stream}"
        print_outcome(text, as_json, stream=stream, purged=count)

    return js_session.run(work)


@command.command("get")
@click.argument("stream")
@click.argument("sequence", type=int, required=False)
@click.option("-S", "--last-for", default="", help="The newest message on this subject.")
@json_option
@jetstream_options
def get(js_session: JetStreamSession, stream: str, sequence: int | None, last_for: str, as_json: bool) -> int:
    """Show one message of STREAM: by SEQUENCE or by --last-for."""
    if (sequence is None) == (not last_for):
        raise click.UsageError("give SEQUENCE or --last-for")

    async def work(js: JetStream) -> None:
        message = await js.stream(stream).get(sequence or 0, last_on=last_for)
        if as_json:
            print_json(stored_record(message))
        else:
            print_stored(message)

    return js_session.run(work)


@command.command("rmm")
@click.argument("stream")
@click.argument("sequence", type=int)
@force_option
@json_option
@jetstream_options
def rmm(js_session: JetStreamSession, stream: str, sequence: int, force: bool, as_json: bool) -> int:
    """Remove one message of STREAM, and overwrite its bytes."""
    confirm(f"Remove message {sequence} of stream {stream}?", force=force)

    async def work(js: JetStream) -> None:
        await js.stream(stream).delete_message(sequence)
        text = f"Removed message {sequence} of stream {stream}"
        print_outcome(text, as_json, stream=stream, sequence=sequence, removed=True)

    return js_session.run(work)


@command.command("seal")
@click.argument("stream")
@force_option
@json_option
@jetstream_options
def seal(js_session: JetStreamSession, stream: str, force: bool, as_json: bool) -> int:
    """Make STREAM read-only, for good."""
    confirm(f"Seal stream {stream}? It cannot be undone.", force=force)

    async def work(js: JetStream) -> None:
        await js.stream(stream).seal()
        print_outcome(f"Sealed stream {stream}", as_json, stream=stream, sealed=True)

    return js_session.run(work)


@command.command("subjects")
@click.argument("stream")
@click.argument("filter", default=">")
@names_option
@json_option
@jetstream_options
def subjects(js_session: JetStreamSession, stream: str, filter: str, only_names: bool, as_json: bool) -> int:
    """List the subjects of STREAM that match FILTER, those with most messages first."""

    async def work(js: JetStream) -> None:
        counts = await js.stream(stream).subject_counts(filter)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if only_names:
            print_names(sorted(counts))
        elif as_json:
            print_json(dict(ranked))
        elif ranked:
            print_table(
                f"Subjects of stream {stream}",
                ["Subject", "#Messages"],
                [(subject, show_count(count)) for subject, count in ranked],
            )
        else:
            note("No subjects")

    return js_session.run(work)


@command.command("view")
@click.argument("stream")
@click.argument("size", type=click.IntRange(min=1), default=10)
@click.option("--id", "sequence", type=int, default=0, help="Begin at this sequence.")
@click.option(
    "--since", "since_ns", type=DURATION, default=None, help="Begin with messages that are younger than this."
)
@click.option("--subject", default="", help="Only messages on this subject, wildcards allowed.")
@click.option("--raw", is_flag=True, help="Payloads only, one a line.")
@json_option
@jetstream_options
def view(
    js_session: JetStreamSession,
    stream: str,
    size: int,
    sequence: int,
    since_ns: int | None,
    subject: str,
    raw: bool,
    as_json: bool,
) -> int:
    """Show SIZE messages of STREAM, the oldest first."""
    if raw and as_json:
        raise click.UsageError("give --raw or --json, not both")

    async def work(js: JetStream) -> None:
        handle = js.stream(stream)
        start_ns = None if since_ns is None else js.client.runtime.clock.wall_ns() - since_ns
        following, found = sequence, 0
        while found < size:
            try:
                message = await handle.get(following, next_on=subject or ">", from_time_ns=start_ns)
            except MessageNotFound:
                break
            found += 1
            following, start_ns = message.sequence + 1, None
            if as_json:
                print_json(stored_record(message))
            elif raw:
                click.echo(message.data)
            else:
                print_stored(message)
        if not found:
            note("No such messages")

    return js_session.run(work)


@command.command("report")
@click.option("--subject", default="", help="Only streams with subjects that overlap this one.")
@click.option("-m", "--messages", "key", flag_value="messages", help="Sort by messages.")
@click.option("-o", "--consumers", "key", flag_value="consumer_count", help="Sort by consumers.")
@click.option("-n", "--name", "key", flag_value="name", help="Sort by name.")
@click.option("-b", "--bytes", "key", flag_value="bytes", default=True, help="Sort by bytes [default].")
@json_option
@jetstream_options
def report(js_session: JetStreamSession, subject: str, key: str, as_json: bool) -> int:
    """Compare the streams: sizes, consumers, lost messages, replicas."""

    def rank(found: StreamInfo) -> tuple[int, str]:
        return (0 if key == "name" else -getattr(found.state, key)), found.config.name

    async def work(js: JetStream) -> None:
        infos = sorted(await js.stream_infos(subject=subject), key=rank)
        if as_json:
            for found in infos:
                print_json({"name": found.config.name, **to_object(found.state)})
        else:
            print_table("Streams", *stream_rows(infos, js.client.runtime.clock.wall_ns(), detailed=True))

    return js_session.run(work)
