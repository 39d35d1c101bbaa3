"""The configuration of a consumer: one row per field (ADR-13, ADR-42, ADR-17)."""

from __future__ import annotations

import enum

from tnats.jetstream.api.fields import (
    BOOL,
    DURATION,
    INT,
    TEXT,
    TIME,
    UINT64,
    Choice,
    ListOf,
    MapOf,
    Record,
    Update,
    row,
)
from tnats.limits import SECOND_NS
from tnats.records import define
from tnats.subjects.tokens import to_bytes

ACK_WAIT_NS = 30 * SECOND_NS
MAX_ACK_PENDING = 1000
MAX_WAITING = 512
INACTIVE_THRESHOLD_NS = 5 * SECOND_NS
HEARTBEAT_NS_MIN = 100_000_000
MAX_EXPIRES_NS_MIN = 1_000_000
PINNED_TTL_NS = 120 * SECOND_NS
FLOW_CONTROL_HEARTBEAT_NS = SECOND_NS
GROUP_NAME_CHARS_MAX = 16


class DeliverPolicy(enum.StrEnum):
    """Where in the stream delivery begins."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"
    LAST_PER_SUBJECT = "last_per_subject"


class AckPolicy(enum.StrEnum):
    """What acknowledges a message."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"


class ReplayPolicy(enum.StrEnum):
    """How fast messages are sent."""

    INSTANT = "instant"
    ORIGINAL = "original"


class PriorityPolicy(enum.StrEnum):
    """How pull requests of a priority group are served."""

    NONE = "none"
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"


class Action(enum.StrEnum):
    """What a create request may do."""

    CREATE_OR_UPDATE = ""
    CREATE = "create"
    UPDATE = "update"


@define
class ConsumerConfig:
    """A consumer's configuration. Times and durations are nanoseconds."""

    durable_name: str = row("durable_name", TEXT, default="", omit=True)
    name: str = row("name", TEXT, default="", omit=True)
    description: str = row("description", TEXT, default="", omit=True)
    deliver_policy: DeliverPolicy = row(
        "deliver_policy", Choice(DeliverPolicy), default=DeliverPolicy.ALL, update=Update.FIXED
    )
    opt_start_seq: int = row("opt_start_seq", UINT64, default=0, omit=True, update=Update.FIXED)
    opt_start_time_ns: int | None = row("opt_start_time", TIME, default=None, omit=True, update=Update.FIXED)
    ack_policy: AckPolicy = row(
        "ack_policy",
        Choice(AckPolicy),
        default=AckPolicy.NONE,
        update=Update.FIXED,
        level=lambda policy: 4 if policy == AckPolicy.FLOW_CONTROL else 0,
    )
    ack_wait_ns: int = row("ack_wait", DURATION, default=0, omit=True)
    max_deliver: int = row("max_deliver", INT, default=0, omit=True)
    backoff_ns: list[int] = row("backoff", ListOf(DURATION), factory=list, omit=True)
    filter_subject: str = row("filter_subject", TEXT, default="", omit=True)
    filter_subjects: list[str] = row("filter_subjects", ListOf(TEXT), factory=list, omit=True)
    replay_policy: ReplayPolicy = row(
        "replay_policy", Choice(ReplayPolicy), default=ReplayPolicy.INSTANT, update=Update.FIXED
    )
    rate_limit_bps: int = row("rate_limit_bps", UINT64, default=0, omit=True)
    sample_freq: str = row("sample_freq", TEXT, default="", omit=True)
    max_waiting: int = row("max_waiting", INT, default=0, omit=True, update=Update.FIXED)
    max_ack_pending: int = row("max_ack_pending", INT, default=0, omit=True)
    flow_control: bool = row("flow_control", BOOL, default=False, omit=True, update=Update.FIXED)
    headers_only: bool = row("headers_only", BOOL, default=False, omit=True)
    max_batch: int = row("max_batch", INT, default=0, omit=True)
    max_expires_ns: int = row("max_expires", DURATION, default=0, omit=True)
    max_bytes: int = row("max_bytes", INT, default=0, omit=True)
    deliver_subject: str = row("deliver_subject", TEXT, default="", omit=True, update=Update.RULED)
    deliver_group: str = row("deliver_group", TEXT, default="", omit=True)
    idle_heartbeat_ns: int = row("idle_heartbeat", DURATION, default=0, omit=True, update=Update.FIXED)
    inactive_threshold_ns: int = row("inactive_threshold", DURATION, default=0, omit=True)
    num_replicas: int = row("num_replicas", INT, default=0)
    mem_storage: bool = row("mem_storage", BOOL, default=False, omit=True, update=Update.FIXED)
    direct: bool = row("direct", BOOL, default=False, omit=True, update=Update.FIXED)
    sourcing: bool = row("sourcing", BOOL, default=False, omit=True, update=Update.FIXED)
    metadata: dict[str, str] = row("metadata", MapOf(TEXT), factory=dict, omit=True)
    pause_until_ns: int | None = row(
        "pause_until", TIME, default=None, omit=True, update=Update.RULED, level=lambda until: 1 if until else 0
    )
    priority_groups: list[str] = row(
        "priority_groups", ListOf(TEXT), factory=list, omit=True, level=lambda groups: 1 if groups else 0
    )
    priority_policy: PriorityPolicy = row(
        "priority_policy",
        Choice(PriorityPolicy, "unknown priority policy: {raw}"),
        default=PriorityPolicy.NONE,
        omit=True,
        level=lambda policy: 0 if policy == PriorityPolicy.NONE else 1,
    )
    priority_timeout_ns: int = row("priority_timeout", DURATION, default=0, omit=True)

    @property
    def is_push(self) -> bool:
        """Whether messages are sent unasked, to `deliver_subject`."""
        return bool(self.deliver_subject)

    def filters(self) -> list[str]:
        """The subject filters; empty: the whole stream."""
        return [self.filter_subject] if self.filter_subject else list(self.filter_subjects)

    def patterns(self) -> tuple[bytes, ...]:
        """The same as subjects stand on the wire."""
        return tuple(map(to_bytes, self.filters()))


@define
class CreateConsumerRequest:
    """The body of CONSUMER.CREATE and CONSUMER.DURABLE.CREATE."""

    stream_name: str = row("stream_name", TEXT, default="")
    config: ConsumerConfig = row("config", Record(ConsumerConfig), factory=ConsumerConfig)
    action: Action = row("action", Choice(Action, "unknown consumer action: {raw}"), default=Action.CREATE_OR_UPDATE)
    pedantic: bool = row("pedantic", BOOL, default=False, omit=True)
