"""`tnats stream backup` and `restore`: a stream as a directory of two files, which the `nats` tool reads too."""

from __future__ import annotations

from typing import Any, BinaryIO

import click
import orjson

from tnats import limits
from tnats.cli.config_options import read_config
from tnats.cli.files import FileReader, FileWriter, open_new
from tnats.cli.jetstream import JetStreamSession, jetstream_options
from tnats.cli.output import json_option, print_outcome, progress_bar
from tnats.cli.values import SIZE, show_counted, show_size
from tnats.client import ClientError
from tnats.client.jetstream import JetStream, Placement, StreamConfig, StreamState
from tnats.jetstream.api.fields import Record, row, to_object
from tnats.jetstream.api.json_text import DecodeError
from tnats.records import define
from tnats.runtime.api import Disk

DESCRIPTION_FILE = "backup.json"
ARCHIVE_FILES = ("stream.arc.s2", "stream.tar.s2")
"""Where the chunks are: of the present format, which is written, and of servers before 2.15."""

progress_option = click.option("--progress/--no-progress", default=True, help="Show how far it is.")


@define
class Description:
    """What the description file says."""

    config: StreamConfig = row("config", Record(StreamConfig))
    state: StreamState = row("state", Record(StreamState))


@click.command("backup")
@click.argument("stream")
@click.argument("directory")
@click.option("--check", is_flag=True, help="Let the server look for damage first.")
@click.option("--consumers/--no-consumers", default=True, help="Back the consumers up as well.")
@click.option("--chunk-size", type=SIZE, default="0", help="Bytes per chunk.")
@click.option("--window-size", type=SIZE, default="0", help="Bytes that the server sends ahead.")
@progress_option
@json_option
@jetstream_options
def backup(
    js_session: JetStreamSession,
    stream: str,
    directory: str,
    check: bool,
    consumers: bool,
    chunk_size: int,
    window_size: int,
    progress: bool,
    as_json: bool,
) -> int:
    """Back STREAM up into DIRECTORY, which is made."""

    async def work(js: JetStream) -> None:
        disk = js.client.runtime.disk
        snapshot = js.stream(stream).snapshot(
            consumers=consumers, check=check, chunk_bytes=chunk_size, window_bytes=window_size
        )
        async with snapshot:
            await disk.mkdir(directory, parents=True)
            file = await open_new(disk, f"{directory}/{ARCHIVE_FILES[0]}")
            try:
                with progress_bar(
                    f"Backup of {stream}", snapshot.state.bytes, shown=progress, in_bytes=True
                ) as advance:
                    writer = FileWriter(file, advance)
                    async for chunk in snapshot:
                        writer.write(chunk)
                    await writer.finish()
            finally:
                file.close()
            description = to_object(Description(snapshot.config, snapshot.state))
            # Last, so that a backup which has it is whole.
            await disk.write_file(f"{directory}/{DESCRIPTION_FILE}", orjson.dumps(description))
            await disk.sync_dir(directory)
        state = snapshot.state
        text = f"Backed up {show_counted(state.messages, 'message')}, {show_size(state.bytes)}, of stream {stream} "
        text += f"in {show_size(writer.byte_count)}"
        print_outcome(text, as_json, stream=stream, messages=state.messages, archive_bytes=writer.byte_count)

    return js_session.run(work)


@click.command("restore")
@click.argument("directory")
@click.option("--config", "config_file", type=click.File("rb"), help="JSON file with another configuration.")
@click.option("--cluster", default="", help="Place it in this cluster.")
@click.option("--tag", "tags", multiple=True, help="Place it on servers with this tag; may be repeated.")
@click.option("--replicas", type=int, default=0, help="Copies in a cluster.")
@progress_option
@json_option
@jetstream_options
def restore(
    js_session: JetStreamSession,
    directory: str,
    config_file: BinaryIO | None,
    cluster: str,
    tags: tuple[str, ...],
    replicas: int,
    progress: bool,
    as_json: bool,
) -> int:
    """Make a stream out of the backup in DIRECTORY. There must be none of its name."""

    async def work(js: JetStream) -> None:
        disk = js.client.runtime.disk
        found = await read_description(disk, directory)
        config = found.config if config_file is None else read_config(StreamConfig, config_file)
        if cluster or tags:
            config.placement = Placement(cluster, list(tags))
        config.num_replicas = replicas or config.num_replicas
        file = await disk.open(f"{directory}/{await archive_name(disk, directory)}", readonly=True)
        try:
            with progress_bar(f"Restore of {config.name}", file.size(), shown=progress, in_bytes=True) as advance:
                info = await js.restore_stream(config, found.state, FileReader(file, advance))
        finally:
            file.close()
        text = f"Restored {show_counted(info.state.messages, 'message')} of stream {config.name}"
        print_outcome(text, as_json, **to_object(info))

    return js_session.run(work)


async def read_description(disk: Disk, directory: str) -> Any:
    """The description file. Raises ClientError, DiskError."""
    path = f"{directory}/{DESCRIPTION_FILE}"
    try:
        value = orjson.loads(await disk.read_file(path, bytes_max=limits.CLIENT_BACKUP_DESCRIPTION_BYTES_MAX))
        return Record(Description).decode(value, "Description", strict=False)
    except (orjson.JSONDecodeError, DecodeError, TypeError) as exc:
        raise ClientError(f"{path}: no description of a backup: {exc}") from None


async def archive_name(disk: Disk, directory: str) -> str:
    """The archive's file name. Raises ClientError, DiskError."""
    names = [entry.name for entry in await disk.list(directory)]
    for name in ARCHIVE_FILES:
        if name in names:
            return name
    raise ClientError(f"{directory}: no archive of a backup ({' or '.join(ARCHIVE_FILES)})")
