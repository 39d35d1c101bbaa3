"""What the commands for buckets and for object stores share: the settings that both have, and watching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tnats.cli.config_options import to_storage
from tnats.cli.values import PAIR, SIZE
from tnats.client.jetstream import Placement
from tnats.client.jetstream.watch import Watch
from tnats.limits import SECOND_NS

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def bucket_options(command: F) -> F:
    """Decorator: adds the options that say the same of both; `bucket_settings` takes what click makes of them."""
    for option in (
        click.option("--metadata", type=PAIR, multiple=True, help="NAME:VALUE of one's own; may be repeated."),
        click.option("--compress/--no-compress", default=False, help="Compress its files."),
        click.option("--cluster", default="", help="Place it in this cluster."),
        click.option("--tags", multiple=True, help="Place it on servers with this tag; may be repeated."),
        click.option("--max-bucket-size", type=SIZE, default="-1", help="How many bytes are kept."),
    ):
        command = option(command)
    return command


def bucket_settings(
    *,
    ttl_ns: int,
    storage: str,
    max_bucket_size: int,
    tags: tuple[str, ...],
    cluster: str,
    compress: bool,
    metadata: tuple[tuple[str, str], ...],
    **plain: Any,
) -> dict[str, Any]:
    """The keywords of a `BucketConfig` or `StoreConfig`; `plain` are options that are settings as they stand."""
    return {
        "ttl_s": ttl_ns / SECOND_NS,
        "storage": to_storage(storage),
        "bytes_max": max_bucket_size,
        "placement": Placement(cluster, list(tags)) if cluster or tags else None,
        "compressed": compress,
        "metadata": dict(metadata),
        **plain,
    }


async def follow(watch: Watch[T], count: int, show: Callable[[T], None]) -> None:
    """Show what a watch gives, `count` items, or for ever with 0."""
    shown = 0
    async with watch as items:
        async for item in items:
            if item is None:
                continue
            show(item)
            shown += 1
            if shown == count:
                break
