"""`tnats object`: object stores (ADR-20)."""

from __future__ import annotations

import os.path
import sys
from collections.abc import Sequence
from typing import Any

import click

from tnats.cli.buckets import bucket_options, bucket_settings, follow
from tnats.cli.config_options import STORAGE
from tnats.cli.files import FileReader, FileWriter, open_new
from tnats.cli.jetstream import (
    CommandGroup,
    JetStreamSession,
    confirm,
    force_option,
    jetstream_options,
    names_option,
)
from tnats.cli.listing import Table, print_list, print_names
from tnats.cli.output import json_option, print_json, print_outcome, progress_bar, write_bytes
from tnats.cli.pub import parse_headers
from tnats.cli.stream_backup import progress_option
from tnats.cli.tables import print_facts
from tnats.cli.values import DURATION, SIZE, show_count, show_duration, show_flag, show_size, show_time
from tnats.client.jetstream import JetStream
from tnats.client.object_store import (
    ObjectInfo,
    ObjectMeta,
    ObjectNotFound,
    ObjectStore,
    StoreConfig,
    create_store,
    delete_store,
    open_store,
    store_names,
)
from tnats.client.object_store.info import CHUNK_BYTES
from tnats.client.object_store.store import Status
from tnats.jetstream.api.fields import to_object
from tnats.limits import SECOND_NS
from tnats.notation import format_time


@click.group("object", cls=CommandGroup)
def command() -> None:
    """Use object stores."""


# ---------------------------------------------------------------- stores


@command.command("add")
@click.argument("bucket")
@click.option("--description", default="", help="What it is for.")
@click.option("--ttl", "ttl_ns", type=DURATION, default="0", help="How long objects are kept.")
@click.option("--storage", type=STORAGE, default="file", show_default=True, help="Where objects are kept.")
@click.option("--replicas", default=1, show_default=True, help="Copies in a cluster.")
@bucket_options
@json_option
@jetstream_options
def add(js_session: JetStreamSession, bucket: str, as_json: bool, **given: Any) -> int:
    """Make the object store BUCKET."""
    config = StoreConfig(bucket, **bucket_settings(**given))

    async def work(js: JetStream) -> None:
        await show_status(await create_store(js, config), as_json)

    return js_session.run(work)


@command.command("status")
@click.argument("bucket")
@json_option
@jetstream_options
def status(js_session: JetStreamSession, bucket: str, as_json: bool) -> int:
    """Show the settings and the size of BUCKET."""

    async def work(js: JetStream) -> None:
        await show_status(await open_store(js, bucket), as_json)

    return js_session.run(work)


async def show_status(store: ObjectStore, as_json: bool) -> None:
    """Print a store."""
    found = await store.status()
    if as_json:
        print_json(to_object(found.info))
        return
    config = found.config
    facts = [
        ("Description", config.description),
        ("Size", show_size(found.bytes)),
        ("Sealed", show_flag(found.is_sealed)),
        ("Storage", config.storage.value),
        ("Compressed", show_flag(config.compressed)),
        ("Replicas", str(config.replicas)),
        ("Age limit", show_duration(round(config.ttl_s * SECOND_NS))),
        ("Size limit", show_size(config.bytes_max or -1)),
        ("Stream", found.info.config.name),
    ]
    print_facts(f"Object store {config.name}, created {show_time(found.info.created_ns)}", [("", facts)])


@command.command("ls")
@click.argument("bucket", required=False)
@names_option
@json_option
@jetstream_options
def ls(js_session: JetStreamSession, bucket: str | None, only_names: bool, as_json: bool) -> int:
    """List the object stores, or the objects of BUCKET."""

    async def work(js: JetStream) -> None:
        if bucket is None:
            await list_stores(js, only_names, as_json)
        else:
            await list_objects(await open_store(js, bucket), only_names, as_json)

    return js_session.run(work)


async def list_stores(js: JetStream, only_names: bool, as_json: bool) -> None:
    """Print all stores."""
    names = sorted(await store_names(js))
    if only_names:
        print_names(names)
        return
    print_list(
        [await (await open_store(js, name)).status() for name in names],
        as_json,
        title="Object stores",
        record=lambda found: to_object(found.info),
        table=store_rows,
        nothing="No object stores",
    )


def store_rows(statuses: Sequence[Status]) -> Table:
    """The table of all stores."""
    rows = [
        [found.config.name, found.config.description, show_size(found.bytes), show_time(found.info.created_ns)]
        for found in statuses
    ]
    return ["Store", "Description", "#Size", "Created"], rows


async def list_objects(store: ObjectStore, only_names: bool, as_json: bool) -> None:
    """Print the objects of a store."""
    infos = await store.list()
    if only_names:
        print_names(found.name for found in infos)
        return
    print_list(
        infos,
        as_json,
        title=f"Object store {store.bucket}",
        record=object_record,
        table=object_rows,
        nothing=f"No objects in store {store.bucket}",
    )


@command.command("seal")
@click.argument("bucket")
@force_option
@json_option
@jetstream_options
def seal(js_session: JetStreamSession, bucket: str, force: bool, as_json: bool) -> int:
    """Make BUCKET read-only, for good."""
    confirm(f"Seal object store {bucket}? It cannot be undone.", force=force)

    async def work(js: JetStream) -> None:
        await (await open_store(js, bucket)).seal()
        print_outcome(f"Sealed object store {bucket}", as_json, bucket=bucket, sealed=True)

    return js_session.run(work)


# ---------------------------------------------------------------- objects


@command.command("put")
@click.argument("bucket")
@click.argument("file", required=False)
@click.option("--name", default="", help="Name of the object; else FILE.")
@click.option("--description", default="", help="What it is.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME:VALUE", help="Add a header; may be repeated.")
@click.option("--chunk-size", type=SIZE, default=str(CHUNK_BYTES), help="Bytes per chunk [default: 128KB].")
@progress_option
@force_option
@json_option
@jetstream_options
def put(
    js_session: JetStreamSession,
    bucket: str,
    file: str | None,
    name: str,
    description: str,
    headers: tuple[str, ...],
    chunk_size: int,
    progress: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Put FILE into BUCKET, or what standard input gives (then --name is needed)."""
    if not name and file is None:
        raise click.UsageError("give FILE or --name")
    meta = ObjectMeta(
        name or os.path.normpath(file or ""), description, parse_headers(headers) or {}, chunk_bytes=chunk_size
    )

    async def work(js: JetStream) -> None:
        store = await open_store(js, bucket)
        if not force and await exists(store, meta.name):
            confirm(f"Replace object {meta.name} of store {bucket}?", force=False)
        if file is None:
            info = await store.put(meta, sys.stdin.buffer.read())
        else:
            source = await js.client.runtime.disk.open(file, readonly=True)
            try:
                with progress_bar(meta.name, source.size(), shown=progress, in_bytes=True) as advance:
                    info = await store.put(meta, FileReader(source, advance))
            finally:
                source.close()
        show_object(info, as_json)

    return js_session.run(work)


async def exists(store: ObjectStore, name: str) -> bool:
    """Whether there is an object of this name."""
    try:
        await store.info(name)
    except ObjectNotFound:
        return False
    return True


@command.command("get")
@click.argument("bucket")
@click.argument("name")
@click.option("-O", "--output", default="", help='File to write, "-" for standard output; else the object\'s name.')
@progress_option
@force_option
@json_option
@jetstream_options
def get(
    js_session: JetStreamSession, bucket: str, name: str, output: str, progress: bool, force: bool, as_json: bool
) -> int:
    """Write the object NAME into a file. The file appears when all of it has come and its digest is right."""
    path = output or os.path.basename(name)
    if path == "-" and as_json:
        raise click.UsageError("give a file or --json: standard output cannot take both")
    if output != "-" and os.path.exists(path):
        confirm(f"Overwrite {path}?", force=force)

    async def work(js: JetStream) -> None:
        store = await open_store(js, bucket)
        async with store.get(name) as reader:
            if output == "-":
                async for piece in reader:
                    write_bytes(bytes(piece))
                return
            disk = js.client.runtime.disk
            partial = f"{path}.part"
            file = await open_new(disk, partial)
            try:
                with progress_bar(name, reader.info.size, shown=progress, in_bytes=True) as advance:
                    writer = FileWriter(file, advance)
                    async for piece in reader:
                        writer.write(bytes(piece))
                    await writer.finish()
            except BaseException:
                await disk.unlink(partial)
                raise
            finally:
                file.close()
            await disk.rename(partial, path)
        text = f"Wrote {show_size(writer.byte_count)} to {path}"
        print_outcome(text, as_json, bucket=bucket, name=name, file=path, bytes=writer.byte_count)

    return js_session.run(work)


@command.command("info")
@click.argument("bucket")
@click.argument("name", required=False)
@json_option
@jetstream_options
def info(js_session: JetStreamSession, bucket: str, name: str | None, as_json: bool) -> int:
    """Show what is known of the object NAME, or of BUCKET."""

    async def work(js: JetStream) -> None:
        store = await open_store(js, bucket)
        if name is None:
            await show_status(store, as_json)
        else:
            show_object(await store.info(name), as_json)

    return js_session.run(work)


@command.command("rm")
@click.argument("bucket")
@click.argument("name", required=False)
@force_option
@json_option
@jetstream_options
def rm(js_session: JetStreamSession, bucket: str, name: str | None, force: bool, as_json: bool) -> int:
    """Remove the object NAME; without NAME the whole BUCKET."""
    confirm(f"Remove {f'object {name} of ' if name else ''}object store {bucket}?", force=force)

    async def work(js: JetStream) -> None:
        if name is None:
            await delete_store(js, bucket)
            print_outcome(f"Removed object store {bucket}", as_json, bucket=bucket, removed=True)
        else:
            await (await open_store(js, bucket)).delete(name)
            print_outcome(f"Removed object {name} of store {bucket}", as_json, bucket=bucket, name=name, removed=True)

    return js_session.run(work)


@command.command("watch")
@click.argument("bucket")
@click.option("--updates", "updates_only", is_flag=True, help="Begin with the next change.")
@click.option("--count", default=0, type=click.IntRange(min=0), help="Stop after so many records.")
@json_option
@jetstream_options
def watch(js_session: JetStreamSession, bucket: str, updates_only: bool, count: int, as_json: bool) -> int:
    """Print the objects of BUCKET and what happens to them, until interrupted."""

    def show(found: ObjectInfo) -> None:
        if as_json:
            print_json(object_record(found))
        else:
            verb = "DEL" if found.deleted else "PUT"
            click.echo(f"[{show_time(found.mtime_ns)}] {verb} {bucket} > {found.name}: {show_size(found.size)}")

    async def work(js: JetStream) -> None:
        store = await open_store(js, bucket)
        await follow(store.watch(updates_only=updates_only), count, show)

    return js_session.run(work)


# ---------------------------------------------------------------- showing


def object_record(info: ObjectInfo) -> dict[str, object]:
    """An object for JSON."""
    return {**to_object(info), "mtime": format_time(info.mtime_ns)}


def show_object(info: ObjectInfo, as_json: bool) -> None:
    """Print an object."""
    if as_json:
        print_json(object_record(info))
        return
    headers = [(name, value) for name, values in info.headers.items() for value in values]
    facts = [
        ("Description", info.description),
        ("Size", show_size(info.size)),
        ("Time", show_time(info.mtime_ns)),
        ("Chunks", show_count(info.chunks)),
        ("Digest", info.digest),
        ("Link", link_text(info)),
    ]
    sections = [("", facts), ("Headers", headers), ("Metadata", sorted(info.metadata.items()))]
    print_facts(f"Object {info.name} of store {info.bucket}", sections)


def object_rows(infos: Sequence[ObjectInfo]) -> Table:
    """The table of a store's objects."""
    rows = [[found.name, show_size(found.size), show_time(found.mtime_ns), link_text(found)] for found in infos]
    return ["Name", "#Size", "Time", "Link"], rows


def link_text(info: ObjectInfo) -> str:
    """Where a link leads."""
    link = info.link
    return "" if link is None else f"{link.bucket} > {link.name}" if link.name else f"store {link.bucket}"
