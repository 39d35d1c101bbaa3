"""How consumers are shown: tables of many, and facts of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tnats.cli.stream_show import cluster_facts
from tnats.cli.tables import Fact, print_facts
from tnats.cli.values import show_count, show_duration, show_flag, show_size, show_time
from tnats.client.jetstream import ConsumerConfig, ConsumerInfo, PriorityPolicy
from tnats.jetstream.api.messages import SequenceInfo
from tnats.limits import SECOND_NS


def consumer_rows(infos: Iterable[ConsumerInfo]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """(columns, rows) of a table of consumers."""
    rows: list[Sequence[str]] = [
        [
            info.name,
            "push" if info.config and info.config.is_push else "pull",
            info.config.ack_policy.value if info.config else "",
            show_count(info.num_pending),
            show_count(info.num_ack_pending),
            show_count(info.num_redelivered),
            show_count(info.num_waiting),
            show_count(info.ack_floor.stream_seq),
            "paused" if info.paused else "",
        ]
        for info in infos
    ]
    columns = ["Consumer", "Mode", "Ack", "#Unprocessed", "#Ack pending", "#Redelivered", "#Waiting", "#Ack floor", ""]
    return columns, rows


def print_consumer(info: ConsumerInfo) -> None:
    """One consumer, for people."""
    sections: list[tuple[str, Iterable[Fact]]] = []
    if info.config is not None:
        sections += [("Configuration", config_facts(info.config)), ("Metadata", sorted(info.config.metadata.items()))]
    if info.cluster is not None and info.cluster.leader:
        sections.append(("Cluster", cluster_facts(info.cluster)))
    sections.append(("State", state_facts(info)))
    print_facts(f"Consumer {info.name} of stream {info.stream_name}, created {show_time(info.created_ns)}", sections)


def config_facts(config: ConsumerConfig) -> list[Fact]:
    """What it was told."""
    start = config.deliver_policy.value
    if config.opt_start_seq:
        start += f" {config.opt_start_seq:,}"
    elif config.opt_start_time_ns is not None:
        start += f" {show_time(config.opt_start_time_ns)}"
    return [
        ("Description", config.description),
        ("Durable", show_flag(bool(config.durable_name))),
        ("Delivery subject", config.deliver_subject),
        ("Delivery group", config.deliver_group),
        ("Filter", ", ".join(config.filters())),
        ("Deliver", start),
        ("Ack policy", config.ack_policy.value),
        ("Ack wait", show_duration(config.ack_wait_ns, "")),
        ("Backoff", ", ".join(show_duration(wait_ns, "0s") for wait_ns in config.backoff_ns)),
        ("Replay", config.replay_policy.value),
        ("Deliveries", show_count(config.max_deliver or -1)),
        ("Ack pending", show_count(config.max_ack_pending or -1)),
        ("Waiting pulls", show_count(config.max_waiting) if config.max_waiting else ""),
        ("Pull batch", show_count(config.max_batch) if config.max_batch else ""),
        ("Pull expires", show_duration(config.max_expires_ns, "")),
        ("Pull bytes", show_size(config.max_bytes) if config.max_bytes else ""),
        ("Rate limit", f"{config.rate_limit_bps:,} bit/s" if config.rate_limit_bps else ""),
        ("Heartbeat", show_duration(config.idle_heartbeat_ns, "")),
        ("Flow control", "yes" if config.flow_control else ""),
        ("Headers only", "yes" if config.headers_only else ""),
        ("Inactive threshold", show_duration(config.inactive_threshold_ns, "")),
        ("Replicas", str(config.num_replicas or "")),
        ("Memory storage", "yes" if config.mem_storage else ""),
        ("Priority", "" if config.priority_policy is PriorityPolicy.NONE else config.priority_policy.value),
        ("Priority groups", ", ".join(config.priority_groups)),
    ]


def state_facts(info: ConsumerInfo) -> list[Fact]:
    """Where it stands."""
    facts = [
        ("Last delivered", show_place(info.delivered)),
        ("Acknowledged to", show_place(info.ack_floor)),
        ("Ack pending", show_count(info.num_ack_pending)),
        ("Redelivered", show_count(info.num_redelivered)),
        ("Waiting pulls", show_count(info.num_waiting)),
        ("Unprocessed", show_count(info.num_pending)),
        ("Active interest", show_flag(info.push_bound) if info.config and info.config.is_push else ""),
        ("Paused for", show_duration(info.pause_remaining_ns // SECOND_NS * SECOND_NS, "0s") if info.paused else ""),
    ]
    for group in info.priority_groups:
        holder = f"pinned to {group.pinned_client_id}" if group.pinned_client_id else "free"
        facts += [(f"Group {group.group}", holder)]
    return facts


def show_place(place: SequenceInfo) -> str:
    """Its own count, the stream's, and when that was."""
    when = f", {show_time(place.last_active_ns)}" if place.last_active_ns is not None else ""
    return f"{place.consumer_seq:,} (stream {place.stream_seq:,}{when})"
