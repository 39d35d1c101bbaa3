"""The options that describe a stream, as a table: which option sets which field, for `stream add` and `stream edit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tnats.cli.config_options import Option, apply_options, config_options, words_option
from tnats.cli.values import DURATION, PAIR, SIZE
from tnats.client import ClientError
from tnats.client.jetstream import (
    Compression,
    ConsumerLimits,
    Discard,
    PersistMode,
    Placement,
    Republish,
    Retention,
    Storage,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

F = TypeVar("F", bound=Callable[..., Any])


OPTIONS = (
    Option("--subjects", "subjects", str, "Subjects to take; several with commas or by repeating.", many=True),
    Option("--description", "description", str, "What it is for."),
    words_option("--storage", "storage", Storage, "Where messages are kept.", editable=False),
    words_option("--compression", "compression", Compression, "How files are compressed."),
    Option("--replicas", "num_replicas", int, "Copies in a cluster."),
    Option("--ack/--no-ack", "no_ack", bool, "Acknowledge publishes.", lambda value: not value),
    words_option("--retention", "retention", Retention, "When messages may go.", work=Retention.WORKQUEUE),
    words_option("--discard", "discard", Discard, "Which message gives way at a limit."),
    Option("--discard-per-subject/--no-discard-per-subject", "discard_new_per_subject", bool, "Refuse per subject."),
    Option("--first-sequence", "first_seq", int, "Sequence of the first message.", editable=False),
    Option("--max-age", "max_age_ns", DURATION, "How long messages are kept."),
    Option("--max-bytes", "max_bytes", SIZE, "How many bytes are kept."),
    Option("--max-consumers", "max_consumers", int, "How many consumers there may be."),
    Option("--max-msg-size", "max_msg_size", SIZE, "Largest message."),
    Option("--max-msgs", "max_msgs", int, "How many messages are kept."),
    Option("--max-msgs-per-subject", "max_msgs_per_subject", int, "How many messages are kept per subject."),
    Option("--dupe-window", "duplicate_window_ns", DURATION, "How long message ids are remembered."),
    Option("--allow-batch/--no-allow-batch", "allow_atomic", bool, "Atomic batches."),
    Option("--allow-fast/--no-allow-fast", "allow_batched", bool, "Fast batches."),
    Option("--allow-counter", "allow_msg_counter", bool, "The stream is a distributed counter.", editable=False),
    Option("--allow-rollup/--no-allow-rollup", "allow_rollup_hdrs", bool, "Messages may replace earlier ones."),
    Option("--deny-delete/--no-deny-delete", "deny_delete", bool, "Messages cannot be removed one by one."),
    Option("--deny-purge/--no-deny-purge", "deny_purge", bool, "The stream cannot be purged."),
    Option("--allow-direct/--no-allow-direct", "allow_direct", bool, "Any replica answers reads [new streams: yes]."),
    Option("--allow-mirror-direct/--no-allow-mirror-direct", "mirror_direct", bool, "Mirrors answer reads."),
    Option("--allow-msg-ttl", "allow_msg_ttl", bool, "Messages may have a lifetime of their own."),
    Option("--allow-schedules/--no-allow-schedules", "allow_msg_schedules", bool, "Messages may be schedules."),
    Option("--subject-del-markers-ttl", "subject_delete_marker_ttl_ns", DURATION, "How long delete markers stay."),
    words_option("--persist-mode", "persist_mode", PersistMode, "When a message counts as stored.", editable=False),
    Option("--metadata", "metadata", PAIR, "NAME:VALUE of one's own; may be repeated.", dict, many=True),
)
"""Options that set one field each."""

PARTS = (
    click.option("--tag", "tags", multiple=True, help="Place it on servers with this tag; may be repeated."),
    click.option("--cluster", default=None, help="Place it in this cluster."),
    click.option("--mirror", default=None, help="Be a copy of this stream."),
    click.option("--source", "sources", multiple=True, help="Take over this stream's messages; may be repeated."),
    click.option("--transform-source", default=None, help="Subjects to change."),
    click.option("--transform-destination", default=None, help="What they become."),
    click.option("--republish-source", default=None, help="Subjects to publish again."),
    click.option("--republish-destination", default=None, help="Where they are published again."),
    click.option("--republish-headers", is_flag=True, help="Publish again without the payload."),
    click.option(
        "--limit-consumer-inactive",
        "limit_consumer_inactive_ns",
        type=DURATION,
        default=None,
        help="Longest inactivity of a consumer.",
    ),
    click.option("--limit-consumer-max-pending", type=int, default=None, help="Most unacknowledged messages of one."),
)
"""Options that together make a part of the configuration."""

REMOVALS = (
    click.option("--no-mirror", is_flag=True, help="Be no mirror any more."),
    click.option("--no-transform", is_flag=True, help="Change subjects no more."),
    click.option("--no-republish", is_flag=True, help="Publish nothing again any more."),
)


def stream_options(*, editing: bool) -> Callable[[F], F]:
    """Decorator: adds the options; `configure` takes what click makes of them."""
    return config_options(OPTIONS, (*PARTS, *(REMOVALS if editing else ())), editing=editing)


def configure(config: StreamConfig, given: dict[str, Any]) -> None:
    """Change `config` as the options say. Raises ClientError where only half of a pair was given."""
    apply_options(config, OPTIONS, given)
    if given["tags"] or given["cluster"]:
        present = config.placement or Placement()
        config.placement = Placement(given["cluster"] or present.cluster, list(given["tags"]) or present.tags)
    if given["mirror"]:
        config.mirror = StreamSource(given["mirror"])
    if given["sources"]:
        config.sources = [StreamSource(name) for name in given["sources"]]
    transform = _pair(given, "transform_source", "transform_destination")
    if transform:
        config.subject_transform = SubjectTransform(*transform)
    republish = _pair(given, "republish_source", "republish_destination")
    if republish:
        config.republish = Republish(*republish, headers_only=given["republish_headers"])
    limits = config.consumer_limits
    inactive_ns, max_pending = given["limit_consumer_inactive_ns"], given["limit_consumer_max_pending"]
    config.consumer_limits = ConsumerLimits(
        limits.inactive_threshold_ns if inactive_ns is None else inactive_ns,
        limits.max_ack_pending if max_pending is None else max_pending,
    )
    for flag, field in (("no_mirror", "mirror"), ("no_transform", "subject_transform"), ("no_republish", "republish")):
        if given.get(flag):
            setattr(config, field, None)


def _pair(given: dict[str, Any], source: str, destination: str) -> tuple[str, str] | None:
    if not given[source] and not given[destination]:
        return None
    if not given[destination]:
        raise ClientError(f"--{source.replace('_', '-')} needs --{destination.replace('_', '-')}")
    return given[source] or ">", given[destination]
