"""The configuration of a stream: one row per field (ADR-8, ADR-10, ADR-43, ADR-44, ADR-49, ADR-50, ADR-51).

Everything that depends on the list of fields derives from these rows: codec, update rules (`stream.rules`), the
API level a configuration needs (`required_level`), documentation. A new field is a row here, its rule in
`stream.rules`, and its behaviour.
"""

from __future__ import annotations

import enum
from typing import Any

from tnats.jetstream.api import fields
from tnats.jetstream.api.fields import (
    BOOL,
    DURATION,
    INT,
    INT32,
    INT64,
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

REPLICAS_MAX = 5
DUPLICATE_WINDOW_NS = 120 * SECOND_NS
DUPLICATE_WINDOW_NS_MIN = 100_000_000
MAX_AGE_NS_MIN = 100_000_000
MARKER_TTL_NS_MIN = SECOND_NS


class Retention(enum.StrEnum):
    """When a message may go."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORKQUEUE = "workqueue"


class Discard(enum.StrEnum):
    """Which message gives way at a limit."""

    OLD = "old"
    NEW = "new"


class Storage(enum.StrEnum):
    """Where messages are kept."""

    FILE = "file"
    MEMORY = "memory"


class Compression(enum.StrEnum):
    """How segments are compressed."""

    NONE = "none"
    S2 = "s2"


class PersistMode(enum.StrEnum):
    """When a message counts as stored."""

    UNSET = ""
    DEFAULT = "default"
    ASYNC = "async"


@define
class Placement:
    """Where replicas may live."""

    cluster: str = row("cluster", TEXT, default="", omit=True)
    tags: list[str] = row("tags", ListOf(TEXT), factory=list, omit=True)
    preferred: str = row("preferred", TEXT, default="", omit=True)


@define
class SubjectTransform:
    """A source pattern and the destination its subjects become."""

    src: str = row("src", TEXT, default="")
    dest: str = row("dest", TEXT, default="")


@define
class ExternalStream:
    """How another account or domain is reached."""

    api: str = row("api", TEXT, default="")
    deliver: str = row("deliver", TEXT, default="")


@define
class SourceConsumer:
    """A consumer set up beforehand for sourcing (needs no right to create one)."""

    name: str = row("name", TEXT, default="")
    deliver_subject: str = row("deliver_subject", TEXT, default="")


@define
class StreamSource:
    """Another stream that this one mirrors or sources."""

    name: str = row("name", TEXT, default="")
    opt_start_seq: int = row("opt_start_seq", UINT64, default=0, omit=True)
    opt_start_time_ns: int | None = row("opt_start_time", TIME, default=None, omit=True)
    filter_subject: str = row("filter_subject", TEXT, default="", omit=True)
    subject_transforms: list[SubjectTransform] = row(
        "subject_transforms", ListOf(Record(SubjectTransform, "SubjectTransformConfig")), factory=list, omit=True
    )
    external: ExternalStream | None = row("external", Record(ExternalStream), default=None, omit=True)
    consumer: SourceConsumer | None = row(
        "consumer", Record(SourceConsumer, "StreamConsumerSource"), default=None, omit=True
    )

    def identity(self) -> tuple[object, ...]:
        """What tells one source of a stream from another."""
        external = self.external.api if self.external else ""
        transforms = tuple((transform.src, transform.dest) for transform in self.subject_transforms)
        return (self.name, external, self.filter_subject, transforms)


@define
class Republish:
    """Stored messages are published again under another subject."""

    src: str = row("src", TEXT, default="")
    dest: str = row("dest", TEXT, default="")
    headers_only: bool = row("headers_only", BOOL, default=False, omit=True)


@define
class ConsumerLimits:
    """Defaults and upper bounds for the stream's consumers."""

    inactive_threshold_ns: int = row("inactive_threshold", DURATION, default=0, omit=True)
    max_ack_pending: int = row("max_ack_pending", INT, default=0, omit=True)


def _level_when_set(level: int) -> Any:
    return lambda value: level if value else 0


@define
class StreamConfig:
    """A stream's configuration. -1 means "no limit" for counts and sizes; durations are nanoseconds."""

    name: str = row("name", TEXT, default="", update=Update.FIXED)
    description: str = row("description", TEXT, default="", omit=True)
    subjects: list[str] = row("subjects", ListOf(TEXT), factory=list, omit=True)
    retention: Retention = row("retention", Choice(Retention), default=Retention.LIMITS, update=Update.RULED)
    max_consumers: int = row("max_consumers", INT, default=0)
    max_msgs: int = row("max_msgs", INT64, default=0)
    max_bytes: int = row("max_bytes", INT64, default=0)
    max_age_ns: int = row("max_age", DURATION, default=0)
    max_msgs_per_subject: int = row("max_msgs_per_subject", INT64, default=0)
    max_msg_size: int = row("max_msg_size", INT32, default=0, omit=True)
    discard: Discard = row("discard", Choice(Discard), default=Discard.OLD)
    storage: Storage = row("storage", Choice(Storage), default=Storage.FILE, update=Update.RULED)
    num_replicas: int = row("num_replicas", INT, default=0)
    no_ack: bool = row("no_ack", BOOL, default=False, omit=True)
    duplicate_window_ns: int = row("duplicate_window", DURATION, default=0, omit=True)
    placement: Placement | None = row("placement", Record(Placement), default=None, omit=True)
    mirror: StreamSource | None = row("mirror", Record(StreamSource), default=None, omit=True, update=Update.RULED)
    sources: list[StreamSource | None] = row(
        "sources", ListOf(Record(StreamSource), items_nullable=True), factory=list, omit=True
    )
    compression: Compression = row(
        "compression", Choice(Compression, "unknown compression algorithm", is_text=True), default=Compression.NONE
    )
    first_seq: int = row("first_seq", UINT64, default=0, omit=True)
    subject_transform: SubjectTransform | None = row(
        "subject_transform", Record(SubjectTransform, "SubjectTransformConfig"), default=None, omit=True
    )
    republish: Republish | None = row("republish", Record(Republish, "RePublish"), default=None, omit=True)
    allow_direct: bool = row("allow_direct", BOOL, default=False)
    mirror_direct: bool = row("mirror_direct", BOOL, default=False)
    discard_new_per_subject: bool = row("discard_new_per_subject", BOOL, default=False, omit=True)
    sealed: bool = row("sealed", BOOL, default=False, update=Update.RULED)
    deny_delete: bool = row("deny_delete", BOOL, default=False, update=Update.RULED)
    deny_purge: bool = row("deny_purge", BOOL, default=False, update=Update.RULED)
    allow_rollup_hdrs: bool = row("allow_rollup_hdrs", BOOL, default=False)
    consumer_limits: ConsumerLimits = row(
        "consumer_limits", Record(ConsumerLimits, "StreamConsumerLimits"), factory=ConsumerLimits
    )
    allow_msg_ttl: bool = row("allow_msg_ttl", BOOL, default=False, update=Update.RULED, level=_level_when_set(1))
    subject_delete_marker_ttl_ns: int = row(
        "subject_delete_marker_ttl", DURATION, default=0, omit=True, level=_level_when_set(1)
    )
    allow_msg_counter: bool = row(
        "allow_msg_counter", BOOL, default=False, omit=True, update=Update.RULED, level=_level_when_set(2)
    )
    allow_atomic: bool = row("allow_atomic", BOOL, default=False, omit=True, level=_level_when_set(2))
    allow_msg_schedules: bool = row(
        "allow_msg_schedules", BOOL, default=False, omit=True, update=Update.RULED, level=_level_when_set(2)
    )
    persist_mode: PersistMode = row(
        "persist_mode",
        Choice(PersistMode),
        default=PersistMode.UNSET,
        omit=True,
        update=Update.RULED,
        level=lambda mode: 2 if mode == PersistMode.ASYNC else 0,
    )
    allow_batched: bool = row("allow_batched", BOOL, default=False, omit=True, level=_level_when_set(4))
    metadata: dict[str, str] = row("metadata", MapOf(TEXT), factory=dict, omit=True)

    def origins(self) -> list[StreamSource]:
        """What it copies: the origin of its mirror, or its sources."""
        return self.live_sources() if self.mirror is None else [self.mirror]

    def live_sources(self) -> list[StreamSource]:
        """The sources (a checked configuration holds no null ones)."""
        return [source for source in self.sources if source is not None]


@define
class StreamConfigRequest(StreamConfig):
    """The body of STREAM.CREATE and STREAM.UPDATE: a configuration, and whether to be pedantic about defaults."""

    pedantic: bool = row("pedantic", BOOL, default=False, omit=True)

    def config(self) -> StreamConfig:
        """The configuration alone (fields are shared, not copied)."""
        return StreamConfig(**{name: getattr(self, name) for name, _ in fields.rows_of(StreamConfig)})
