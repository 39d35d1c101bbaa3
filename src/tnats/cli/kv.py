"""`tnats kv`: key-value buckets (ADR-8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tnats.cli.buckets import bucket_options, bucket_settings, follow
from tnats.cli.config_options import STORAGE
from tnats.cli.jetstream import (
    CommandGroup,
    JetStreamSession,
    confirm,
    force_option,
    jetstream_options,
    names_option,
)
from tnats.cli.listing import Table, print_list, print_names
from tnats.cli.output import data_record, json_option, note, print_json, print_outcome, write_bytes
from tnats.cli.pub import read_body
from tnats.cli.tables import print_facts, print_table
from tnats.cli.values import DURATION, SIZE, show_count, show_counted, show_duration, show_flag, show_size, show_time
from tnats.client.jetstream import (
    ExternalStream,
    JetStream,
    Republish,
    StreamSource,
)
from tnats.client.kv import (
    BucketConfig,
    Entry,
    KeyValue,
    bucket_names,
    create_bucket,
    delete_bucket,
    open_bucket,
)
from tnats.client.kv.bucket import Status
from tnats.jetstream.api.fields import to_object
from tnats.limits import SECOND_NS
from tnats.notation import format_time


@click.group("kv", cls=CommandGroup)
def command() -> None:
    """Use key-value buckets."""


# ---------------------------------------------------------------- buckets


@command.command("add")
@click.argument("bucket")
@click.option("--description", default="", help="What it is for.")
@click.option("--history", default=1, show_default=True, type=click.IntRange(1, 64), help="Values kept per key.")
@click.option("--storage", type=STORAGE, default="file", show_default=True, help="Where values are kept.")
@click.option("--ttl", "ttl_ns", type=DURATION, default="0", help="How long values are kept.")
@click.option(
    "--marker-ttl",
    "marker_ttl_ns",
    type=DURATION,
    default="0",
    help="Keys may have a lifetime; how long its mark stays.",
)
@click.option("--replicas", default=1, show_default=True, help="Copies in a cluster.")
@click.option("--max-value-size", type=SIZE, default="-1", help="Largest value.")
@bucket_options
@click.option("--republish-source", default=">", help="Keys to publish again.")
@click.option("--republish-destination", default="", help="Where they are published again.")
@click.option("--republish-headers", is_flag=True, help="Publish again without the value.")
@click.option("--mirror", default="", help="Be a copy of this bucket.")
@click.option("--mirror-domain", default="", help="The domain of that bucket.")
@click.option("--source", "sources", multiple=True, help="Take over this bucket's keys; may be repeated.")
@json_option
@jetstream_options
def add(js_session: JetStreamSession, bucket: str, as_json: bool, **given: Any) -> int:
    """Make BUCKET."""
    config = make_config(bucket, **given)

    async def work(js: JetStream) -> None:
        await show_status(await create_bucket(js, config), as_json)

    return js_session.run(work)


def make_config(
    bucket: str,
    *,
    marker_ttl_ns: int,
    max_value_size: int,
    republish_source: str,
    republish_destination: str,
    republish_headers: bool,
    mirror: str,
    mirror_domain: str,
    sources: tuple[str, ...],
    **shared: Any,
) -> BucketConfig:
    """The settings that the options of `kv add` describe."""
    origin = StreamSource(mirror) if mirror else None
    if origin is not None and mirror_domain:
        origin.external = ExternalStream(f"$JS.{mirror_domain}.API")
    return BucketConfig(
        bucket,
        limit_marker_ttl_s=marker_ttl_ns / SECOND_NS,
        value_bytes_max=max_value_size,
        republish=Republish(republish_source, republish_destination, republish_headers)
        if republish_destination
        else None,
        mirror=origin,
        sources=[StreamSource(name) for name in sources],
        **bucket_settings(**shared),
    )


@command.command("info")
@click.argument("bucket")
@json_option
@jetstream_options
def info(js_session: JetStreamSession, bucket: str, as_json: bool) -> int:
    """Show the settings and the size of BUCKET."""

    async def work(js: JetStream) -> None:
        await show_status(await open_bucket(js, bucket), as_json)

    return js_session.run(work)


command.add_command(info, "status")


async def show_status(kv: KeyValue, as_json: bool) -> None:
    """Print a bucket."""
    status = await kv.status()
    if as_json:
        print_json(to_object(status.info))
        return
    config = status.config
    facts = [
        ("Description", config.description),
        ("History", str(config.history)),
        ("Values", show_count(status.value_count)),
        ("Size", show_size(status.bytes)),
        ("Storage", config.storage.value),
        ("Compressed", show_flag(config.compressed)),
        ("Replicas", str(config.replicas)),
        ("Age limit", show_duration(round(config.ttl_s * SECOND_NS))),
        ("Marker TTL", show_duration(round(config.limit_marker_ttl_s * SECOND_NS), "")),
        ("Value limit", show_size(config.value_bytes_max or -1)),
        ("Size limit", show_size(config.bytes_max or -1)),
        ("Mirror of", config.mirror.name if config.mirror else ""),
        ("Sources", ", ".join(source.name for source in config.sources)),
        ("Stream", status.info.config.name),
    ]
    print_facts(f"Bucket {config.name}, created {show_time(status.info.created_ns)}", [("", facts)])


@command.command("ls")
@click.argument("bucket", required=False)
@click.argument("key", required=False)
@names_option
@click.option("-v", "--verbose", is_flag=True, help="With revision and time of each key.")
@click.option("--display-value", is_flag=True, help="With the values too.")
@json_option
@jetstream_options
def ls(
    js_session: JetStreamSession,
    bucket: str | None,
    key: str | None,
    only_names: bool,
    verbose: bool,
    display_value: bool,
    as_json: bool,
) -> int:
    """List the buckets, or the keys of BUCKET, or those of them that match KEY."""

    async def work(js: JetStream) -> None:
        if bucket is None:
            await list_buckets(js, only_names, as_json)
        else:
            await list_keys(await open_bucket(js, bucket), key, verbose or display_value, display_value, as_json)

    return js_session.run(work)


async def list_buckets(js: JetStream, only_names: bool, as_json: bool) -> None:
    """Print all buckets."""
    names = sorted(await bucket_names(js))
    if only_names:
        print_names(names)
        return
    print_list(
        [await (await open_bucket(js, name)).status() for name in names],
        as_json,
        title="Buckets",
        record=lambda status: to_object(status.info),
        table=bucket_rows,
        nothing="No buckets",
    )


def bucket_rows(statuses: Sequence[Status]) -> Table:
    """The table of all buckets."""
    rows = [
        [
            status.config.name,
            status.config.description,
            show_count(status.value_count),
            show_size(status.bytes),
            show_time(status.info.created_ns),
        ]
        for status in statuses
    ]
    return ["Bucket", "Description", "#Values", "#Size", "Created"], rows


async def list_keys(kv: KeyValue, key: str | None, verbose: bool, with_values: bool, as_json: bool) -> None:
    """Print the keys of a bucket."""
    filters = [key] if key else []
    async with kv.watch(*filters, ignore_deletes=True, headers_only=not with_values) as entries:
        found = await entries.present()
    if as_json:
        for entry in found:
            print_json(entry_record(entry, with_value=with_values))
    elif verbose and found:
        print_table(f"Bucket {kv.bucket}", *entry_rows(found, with_values=with_values))
    else:
        print_names(entry.key for entry in found)
    if not found and not as_json:
        note(f"No keys in bucket {kv.bucket}")


@command.command("compact")
@click.argument("bucket")
@click.option(
    "--older-than",
    "older_than_ns",
    type=DURATION,
    default="30m",
    show_default=True,
    help="Marks that are older go too.",
)
@force_option
@json_option
@jetstream_options
def compact(js_session: JetStreamSession, bucket: str, older_than_ns: int, force: bool, as_json: bool) -> int:
    """Free what removed keys of BUCKET still hold."""
    confirm(f"Remove what deleted keys of bucket {bucket} hold?", force=force)

    async def work(js: JetStream) -> None:
        count = await (await open_bucket(js, bucket)).purge_deletes(older_than_s=older_than_ns / SECOND_NS)
        text = f"Cleared {show_counted(count, 'removed key')} of bucket {bucket}"
        print_outcome(text, as_json, bucket=bucket, cleared=count)

    return js_session.run(work)


# ---------------------------------------------------------------- keys


@command.command("get")
@click.argument("bucket")
@click.argument("key")
@click.option("--revision", default=0, help="Of this revision.")
@click.option("--raw", is_flag=True, help="The value only.")
@json_option
@jetstream_options
def get(js_session: JetStreamSession, bucket: str, key: str, revision: int, raw: bool, as_json: bool) -> int:
    """Show the value of KEY."""

    async def work(js: JetStream) -> None:
        entry = await (await open_bucket(js, bucket)).get(key, revision=revision)
        if raw:
            write_bytes(entry.value + b"\n")
        else:
            show_entry(entry, as_json)

    return js_session.run(work)


@command.command("put")
@click.argument("bucket")
@click.argument("key")
@click.argument("value", required=False)
@json_option
@jetstream_options
def put(js_session: JetStreamSession, bucket: str, key: str, value: str | None, as_json: bool) -> int:
    """Set KEY to VALUE, or to what standard input gives."""
    data = read_body(value, None)
    return write(js_session, bucket, key, as_json, lambda kv: kv.put(key, data))


@command.command("create")
@click.argument("bucket")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--ttl", "ttl_ns", type=DURATION, default=None, help="How long the key lives.")
@json_option
@jetstream_options
def create(
    js_session: JetStreamSession, bucket: str, key: str, value: str | None, ttl_ns: int | None, as_json: bool
) -> int:
    """Set KEY, which must have no value, to VALUE or to what standard input gives."""
    data = read_body(value, None)
    ttl_s = None if ttl_ns is None else ttl_ns / SECOND_NS
    return write(js_session, bucket, key, as_json, lambda kv: kv.create(key, data, ttl_s=ttl_s))


@command.command("update")
@click.argument("bucket")
@click.argument("key")
@click.argument("value")
@click.argument("revision", type=int)
@json_option
@jetstream_options
def update(js_session: JetStreamSession, bucket: str, key: str, value: str, revision: int, as_json: bool) -> int:
    """Set KEY to VALUE if its newest revision is REVISION."""
    data = read_body(value, None)
    return write(js_session, bucket, key, as_json, lambda kv: kv.update(key, data, revision))


def write(js_session: JetStreamSession, bucket: str, key: str, as_json: bool, call: Any) -> int:
    """Run one call that gives a revision."""

    async def work(js: JetStream) -> None:
        revision = await call(await open_bucket(js, bucket))
        print_outcome(f"{bucket} > {key}: revision {revision}", as_json, bucket=bucket, key=key, revision=revision)

    return js_session.run(work)


@command.command("rm")
@click.argument("bucket")
@click.argument("key", required=False)
@force_option
@json_option
@jetstream_options
def rm(js_session: JetStreamSession, bucket: str, key: str | None, force: bool, as_json: bool) -> int:
    """Remove KEY, whose history stays; without KEY the whole BUCKET."""
    confirm(f"Remove {f'key {key} of ' if key else ''}bucket {bucket}?", force=force)

    async def work(js: JetStream) -> None:
        if key is None:
            await delete_bucket(js, bucket)
            print_outcome(f"Removed bucket {bucket}", as_json, bucket=bucket, removed=True)
        else:
            await (await open_bucket(js, bucket)).delete(key)
            print_outcome(f"Removed {bucket} > {key}", as_json, bucket=bucket, key=key, removed=True)

    return js_session.run(work)


@command.command("purge")
@click.argument("bucket")
@click.argument("key")
@click.option("--ttl", "ttl_ns", type=DURATION, default=None, help="How long the mark of the removal stays.")
@force_option
@json_option
@jetstream_options
def purge(js_session: JetStreamSession, bucket: str, key: str, ttl_ns: int | None, force: bool, as_json: bool) -> int:
    """Remove KEY with its history."""
    confirm(f"Remove key {key} of bucket {bucket} with its history?", force=force)

    async def work(js: JetStream) -> None:
        await (await open_bucket(js, bucket)).purge(key, ttl_s=None if ttl_ns is None else ttl_ns / SECOND_NS)
        print_outcome(f"Removed {bucket} > {key} and its history", as_json, bucket=bucket, key=key, purged=True)

    return js_session.run(work)


@command.command("history")
@click.argument("bucket")
@click.argument("key")
@json_option
@jetstream_options
def history(js_session: JetStreamSession, bucket: str, key: str, as_json: bool) -> int:
    """Show the kept revisions of KEY."""

    async def work(js: JetStream) -> None:
        entries = await (await open_bucket(js, bucket)).history(key)
        if as_json:
            for entry in entries:
                print_json(entry_record(entry))
        else:
            print_table(f"History of {bucket} > {key}", *entry_rows(entries, with_values=True))

    return js_session.run(work)


@command.command("watch")
@click.argument("bucket")
@click.argument("key", default=">")
@click.option("--history", "include_history", is_flag=True, help="Begin with all kept revisions.")
@click.option("--deletes/--no-deletes", default=True, help="Show removals.")
@click.option("--updates", "updates_only", is_flag=True, help="Begin with the next change.")
@click.option("--revision", default=0, help="Begin at this revision.")
@click.option("--count", default=0, type=click.IntRange(min=0), help="Stop after so many entries.")
@json_option
@jetstream_options
def watch(
    js_session: JetStreamSession,
    bucket: str,
    key: str,
    include_history: bool,
    deletes: bool,
    updates_only: bool,
    revision: int,
    count: int,
    as_json: bool,
) -> int:
    """Print what BUCKET, or the keys that match KEY, hold and what happens to them, until interrupted."""

    async def work(js: JetStream) -> None:
        kv = await open_bucket(js, bucket)
        entries = kv.watch(
            key,
            include_history=include_history,
            ignore_deletes=not deletes,
            updates_only=updates_only,
            from_revision=revision,
        )
        await follow(entries, count, lambda entry: show_entry(entry, as_json))

    return js_session.run(work)


# ---------------------------------------------------------------- showing


def entry_record(entry: Entry, *, with_value: bool = True) -> dict[str, Any]:
    """An entry for JSON."""
    record: dict[str, Any] = {
        "bucket": entry.bucket,
        "key": entry.key,
        "revision": entry.revision,
        "created": format_time(entry.created_ns),
        "operation": entry.operation.value,
    }
    return {**record, **data_record(entry.value)} if with_value else record


def show_entry(entry: Entry, as_json: bool) -> None:
    """Print an entry."""
    if as_json:
        print_json(entry_record(entry))
        return
    head = f"[{show_time(entry.created_ns)}] {entry.operation.value} {entry.bucket} > {entry.key}"
    click.secho(f"{head} revision {entry.revision}", fg="cyan")
    if entry.is_live:
        write_bytes(entry.value + b"\n")


def entry_rows(entries: list[Entry], *, with_values: bool) -> tuple[list[str], list[list[str]]]:
    """(columns, rows) of a table of entries."""
    columns = ["Key", "#Revision", "Operation", "Created", *(["#Size", "Value"] if with_values else [])]
    rows = []
    for entry in entries:
        row = [entry.key, str(entry.revision), entry.operation.value, show_time(entry.created_ns)]
        if with_values:
            row += [show_size(len(entry.value)), entry.value[:80].decode("utf-8", "replace")]
        rows.append(row)
    return columns, rows
