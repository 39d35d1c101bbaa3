"""The options that describe a consumer, as a table: for `consumer add` and `consumer edit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tnats.cli.config_options import Option, apply_options, config_options, split_commas, words_option
from tnats.cli.values import DURATION, MOMENT, PAIR, SIZE, until_ns
from tnats.client import ClientError
from tnats.client.jetstream import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy, ReplayPolicy
from tnats.notation import parse_duration

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = (
    Option("--description", "description", str, "What it is for."),
    words_option("--ack", "ack_policy", AckPolicy, "What acknowledges a message [pull: explicit].", editable=False),
    Option("--bps", "rate_limit_bps", int, "Bits per second, at most.", editable=False),
    Option("--deliver-group", "deliver_group", str, "Group whose members share what is pushed."),
    Option("--flow-control", "flow_control", bool, "Push with flow control.", editable=False),
    Option("--heartbeat", "idle_heartbeat_ns", DURATION, "Push a sign of life when idle.", editable=False),
    Option("--headers-only/--no-headers-only", "headers_only", bool, "Deliver no payloads."),
    Option("--max-deliver", "max_deliver", int, "How often a message is delivered."),
    Option("--max-pending", "max_ack_pending", int, "Messages on their way without acknowledgement."),
    Option("--max-waiting", "max_waiting", int, "Pull requests that may wait.", editable=False),
    Option("--max-pull-batch", "max_batch", int, "Messages that one pull request may ask for."),
    Option("--max-pull-expire", "max_expires_ns", DURATION, "How long a pull request may wait."),
    Option("--max-pull-bytes", "max_bytes", SIZE, "Bytes that one pull request may ask for."),
    words_option("--replay", "replay_policy", ReplayPolicy, "How fast messages are sent.", editable=False),
    Option("--sample", "sample_freq", click.IntRange(0, 100), "Percentage of acknowledgements to measure.", str),
    Option("--target", "deliver_subject", str, "Push to this subject."),
    Option("--wait", "ack_wait_ns", DURATION, "When a message comes again without acknowledgement."),
    Option("--inactive-threshold", "inactive_threshold_ns", DURATION, "How long it may be unused."),
    Option("--memory", "mem_storage", bool, "Keep its state in memory.", editable=False),
    Option("--replicas", "num_replicas", int, "Copies in a cluster; 0: as the stream."),
    Option("--metadata", "metadata", PAIR, "NAME:VALUE of one's own; may be repeated.", dict, many=True),
)
"""Options that set one field each."""

PARTS = (
    click.option("--filter", "filters", multiple=True, help="Only these subjects; may be repeated."),
    click.option("--backoff", default=None, help="Waits between deliveries of a message, with commas: 1s,5s,1m."),
)

STARTS = (
    click.option(
        "--deliver", default=None, help="Begin at: all, new, last, subject, a sequence, or as far back as 1h."
    ),
    click.option("--pull", is_flag=True, help="Wait to be asked for messages; the default without --target."),
    click.option("--ephemeral", is_flag=True, help="Give it no durable name: inactivity removes it."),
    click.option("--pause", type=MOMENT, default=None, help="Deliver nothing until then, or for so long."),
    click.option("--pinned-groups", multiple=True, help="Priority groups, each pinned to one client."),
    click.option(
        "--pinned-ttl",
        "pinned_ttl_ns",
        type=DURATION,
        default=None,
        help="When a pinned client that is away loses its place.",
    ),
    click.option("--overflow-groups", multiple=True, help="Priority groups that are served past a bound."),
    click.option("--prioritized-groups", multiple=True, help="Priority groups served by priority."),
)

_GROUPS = {
    "pinned_groups": PriorityPolicy.PINNED_CLIENT,
    "overflow_groups": PriorityPolicy.OVERFLOW,
    "prioritized_groups": PriorityPolicy.PRIORITIZED,
}

_DELIVER = {
    "all": DeliverPolicy.ALL,
    "new": DeliverPolicy.NEW,
    "last": DeliverPolicy.LAST,
    "subject": DeliverPolicy.LAST_PER_SUBJECT,
}


def consumer_options(*, editing: bool) -> Callable[[F], F]:
    """Decorator: adds the options; `configure` takes what click makes of them."""
    return config_options(OPTIONS, (*PARTS, *(() if editing else STARTS)), editing=editing)


def configure(config: ConsumerConfig, given: dict[str, Any]) -> None:
    """Change `config` as the options say, but for where it starts. Raises ClientError."""
    apply_options(config, OPTIONS, given)
    filters = split_commas(given["filters"])
    if filters:
        config.filter_subject = filters[0] if len(filters) == 1 else ""
        config.filter_subjects = filters if len(filters) > 1 else []
    if given["backoff"]:
        config.backoff_ns = [DURATION.convert(text.strip(), None, None) for text in given["backoff"].split(",")]


def configure_start(config: ConsumerConfig, name: str, given: dict[str, Any], now_ns: int) -> None:
    """Set what only a new consumer is told. `now_ns`: the wall clock. Raises ClientError."""
    if given["pull"] and config.deliver_subject:
        raise ClientError("give --pull or --target, not both")
    if given["ephemeral"]:
        config.name = name
    else:
        config.name = config.durable_name = name
    if given["deliver"]:
        _set_start(config, given["deliver"], now_ns)
    if given["pause"]:
        config.pause_until_ns = until_ns(given["pause"], now_ns)
    for option, policy in _GROUPS.items():
        if given[option]:
            config.priority_policy, config.priority_groups = policy, list(given[option])
    if given["pinned_ttl_ns"] is not None:
        config.priority_timeout_ns = given["pinned_ttl_ns"]


def _set_start(config: ConsumerConfig, text: str, now_ns: int) -> None:
    if text in _DELIVER:
        config.deliver_policy = _DELIVER[text]
    elif text.isdigit():
        config.deliver_policy, config.opt_start_seq = DeliverPolicy.BY_START_SEQUENCE, int(text)
    elif (duration_ns := parse_duration(text)) is not None:
        config.deliver_policy, config.opt_start_time_ns = DeliverPolicy.BY_START_TIME, now_ns - duration_ns
    else:
        raise ClientError(f"--deliver {text!r}: give {', '.join(_DELIVER)}, a sequence, or a duration such as 1h")
