"""How streams are shown: tables of many, facts of one, and their messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tnats.cli.output import data_record, print_parts
from tnats.cli.tables import Fact, print_facts
from tnats.cli.values import show_count, show_duration, show_flag, show_size, show_time
from tnats.client.jetstream import StoredMessage, StreamConfig, StreamInfo, StreamState
from tnats.jetstream.api.messages import ClusterInfo, StreamSourceInfo
from tnats.limits import SECOND_NS
from tnats.notation import format_time


def stream_rows(
    infos: Iterable[StreamInfo], now_ns: int, *, detailed: bool = False
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """(columns, rows) of a table of streams."""
    rows: list[Sequence[str]] = []
    for info in infos:
        state, config = info.state, info.config
        age_ns = now_ns - state.last_ts_ns if state.last_ts_ns else 0
        row = [config.name, show_count(state.messages), show_size(state.bytes)]
        if detailed:
            lost = len(state.lost.msgs) if state.lost else 0
            row += [show_count(state.consumer_count), show_count(state.num_deleted), show_count(lost)]
            row += [config.storage.value, show_replicas(info.cluster, config.num_replicas)]
        else:
            row += [info.config.description, show_time(info.created_ns)]
        rows.append([*row, show_duration(age_ns // SECOND_NS * SECOND_NS, "never" if not age_ns else "now")])
    if detailed:
        columns = ["Stream", "#Messages", "#Size", "#Consumers", "#Deleted", "#Lost", "Storage", "Replicas", "#Last"]
    else:
        columns = ["Name", "#Messages", "#Size", "Description", "Created", "#Last message"]
    return columns, rows


def show_replicas(cluster: ClusterInfo | None, count: int) -> str:
    """The leader with a star, and the followers, one that is behind with an exclamation mark."""
    if cluster is None or not cluster.leader:
        return str(count)
    peers = [f"{cluster.leader}*", *(peer.name + ("" if peer.current else "!") for peer in cluster.replicas)]
    return ", ".join(sorted(peers))


def print_stream(info: StreamInfo, *, only_state: bool = False) -> None:
    """One stream, for people."""
    sections: list[tuple[str, Iterable[Fact]]] = [] if only_state else config_sections(info.config)
    if info.cluster is not None and info.cluster.leader and not only_state:
        sections.append(("Cluster", cluster_facts(info.cluster)))
    if info.mirror is not None:
        sections.append(("Mirror", origin_facts(info.mirror)))
    sections += [("Source", origin_facts(source)) for source in info.sources]
    sections.append(("State", state_facts(info.state)))
    print_facts(f"Stream {info.config.name}, created {show_time(info.created_ns)}", sections)


def config_sections(config: StreamConfig) -> list[tuple[str, Iterable[Fact]]]:
    """What it was told."""
    transform, republish = config.subject_transform, config.republish
    return [
        (
            "",
            [
                ("Description", config.description),
                ("Subjects", ", ".join(config.subjects)),
                ("Replicas", str(config.num_replicas)),
                ("Storage", config.storage.value),
                ("Compression", config.compression.value if config.compression.value != "none" else ""),
                ("Placement", show_placement(config)),
            ],
        ),
        (
            "Options",
            [
                ("Retention", config.retention.value),
                ("Acknowledgements", show_flag(not config.no_ack)),
                ("Discard", config.discard.value + (", per subject" if config.discard_new_per_subject else "")),
                ("Duplicate window", show_duration(config.duplicate_window_ns, "none")),
                ("Direct get", show_flag(config.allow_direct)),
                ("Mirror direct get", show_flag(config.mirror_direct)),
                ("Delete", show_flag(not config.deny_delete)),
                ("Purge", show_flag(not config.deny_purge)),
                ("Rollup", show_flag(config.allow_rollup_hdrs)),
                ("Message TTL", show_flag(config.allow_msg_ttl)),
                ("Delete marker TTL", show_duration(config.subject_delete_marker_ttl_ns, "")),
                ("Counter", "yes" if config.allow_msg_counter else ""),
                ("Atomic batches", "yes" if config.allow_atomic else ""),
                ("Fast batches", "yes" if config.allow_batched else ""),
                ("Schedules", "yes" if config.allow_msg_schedules else ""),
                ("Sealed", "yes" if config.sealed else ""),
                ("First sequence", str(config.first_seq) if config.first_seq else ""),
                ("Transform", f"{transform.src} to {transform.dest}" if transform else ""),
                ("Republish", f"{republish.src} to {republish.dest}" if republish else ""),
            ],
        ),
        (
            "Limits",
            [
                ("Messages", show_count(config.max_msgs or -1)),
                ("Per subject", show_count(config.max_msgs_per_subject or -1)),
                ("Bytes", show_size(config.max_bytes or -1)),
                ("Age", show_duration(config.max_age_ns)),
                ("Message size", show_size(config.max_msg_size or -1)),
                ("Consumers", show_count(config.max_consumers or -1)),
                ("Consumer inactivity", show_duration(config.consumer_limits.inactive_threshold_ns, "")),
                ("Consumer pending", str(config.consumer_limits.max_ack_pending or "")),
            ],
        ),
        ("Metadata", sorted(config.metadata.items())),
    ]


def show_placement(config: StreamConfig) -> str:
    """Where it may live."""
    placement = config.placement
    return "" if placement is None else " ".join(filter(None, (placement.cluster, *placement.tags)))


def cluster_facts(cluster: ClusterInfo) -> list[Fact]:
    """Who holds it."""
    facts = [("Name", cluster.name), ("Leader", cluster.leader)]
    for peer in cluster.replicas:
        state = "offline" if peer.offline else "current" if peer.current else "outdated"
        facts.append(("Replica", f"{peer.name}, {state}" + (f", {peer.lag:,} behind" if peer.lag else "")))
    return facts


def origin_facts(source: StreamSourceInfo) -> list[Fact]:
    """How far a mirror or source has come."""
    error = source.error or {}
    return [
        ("Stream", source.name),
        ("Lag", show_count(source.lag)),
        ("Last seen", "never" if source.active_ns < 0 else show_duration(source.active_ns, "now")),
        ("Filter", source.filter_subject),
        ("Error", str(error.get("description", ""))),
    ]


def state_facts(state: StreamState) -> list[Fact]:
    """What it holds."""
    lost = state.lost
    return [
        ("Messages", show_count(state.messages)),
        ("Bytes", show_size(state.bytes)),
        ("First sequence", f"{state.first_seq:,} @ {show_time(state.first_ts_ns)}"),
        ("Last sequence", f"{state.last_seq:,} @ {show_time(state.last_ts_ns)}"),
        ("Subjects", show_count(state.num_subjects)),
        ("Deleted messages", show_count(state.num_deleted) if state.num_deleted else ""),
        ("Lost messages", f"{len(lost.msgs):,} ({show_size(lost.bytes)})" if lost else ""),
        ("Active consumers", show_count(state.consumer_count)),
    ]


def stored_record(message: StoredMessage) -> dict[str, Any]:
    """A message of a stream for JSON: as `message_record`, with its place."""
    record: dict[str, Any] = {
        "subject": message.subject,
        "sequence": message.sequence,
        "time": format_time(message.time_ns),
    }
    if message.headers is not None:
        record["headers"] = message.headers
    return {**record, **data_record(message.data)}


def print_stored(message: StoredMessage) -> None:
    """A message of a stream for people."""
    title = f"[{message.sequence}] Subject: {message.subject} Received: {format_time(message.time_ns)}"
    print_parts(title, message.headers, message.data)
