"""What a bucket can be told, and the stream that it becomes (ADR-8, "Configuration")."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from tnats.client.errors import ClientError
from tnats.client.jetstream.bucket_names import bucket_stream
from tnats.client.options import nanoseconds
from tnats.jetstream.stream.config import (
    DUPLICATE_WINDOW_NS,
    Compression,
    Discard,
    Placement,
    Republish,
    Storage,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from tnats.limits import SECOND_NS
from tnats.records import frozen

STREAM_PREFIX = "KV_"
WHAT = "bucket"  # what errors call it
HISTORY_MAX = 64

_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")


@frozen
class BucketConfig:
    """A bucket. -1 or 0 stand for "no limit"; sizes in bytes, times in seconds."""

    name: str
    description: str = ""
    history: int = 1
    """Values kept per key, 1 to 64."""
    ttl_s: float = 0
    """After this a value ends by itself."""
    value_bytes_max: int = -1
    bytes_max: int = -1
    storage: Storage = Storage.FILE
    replicas: int = 1
    compressed: bool = False
    limit_marker_ttl_s: float = 0
    """With a value here, keys may have a lifetime of their own, and a value that ends leaves a marker this long."""
    mirror: StreamSource | None = None
    """The bucket of which this one is a read-only copy."""
    sources: Sequence[StreamSource] = ()
    """Buckets whose keys are taken over into this one."""
    placement: Placement | None = None
    republish: Republish | None = None
    metadata: dict[str, str] = attrs.Factory(dict)


def stream_name(bucket: str) -> str:
    """The stream behind a bucket. Raises ClientError for what cannot be a bucket's name."""
    return bucket_stream(STREAM_PREFIX, bucket, WHAT)


def subject_prefix(bucket: str) -> str:
    """What stands before the keys of a bucket."""
    return f"$KV.{bucket}."


def checked_key(key: str) -> str:
    """`key`; raises ClientError for what cannot be one (ADR-8, "Keys")."""
    if not _KEY.fullmatch(key) or key.startswith(".") or key.endswith(".") or ".." in key:
        raise ClientError(f"key {key!r}: a key has letters, digits, -/_= and, inside, single dots")
    return key


def checked_filter(pattern: str) -> str:
    """A key, in which whole tokens may be `*` and the last one `>`. Raises ClientError."""
    tokens = pattern.split(".")
    if tokens[-1] == ">":
        tokens.pop()
    if not all(token == "*" or _KEY.fullmatch(token) for token in tokens):
        raise ClientError(f"filter {pattern!r}: give a key, with * for one token or > for the rest")
    return pattern


def to_stream(config: BucketConfig) -> StreamConfig:
    """The stream of a bucket. Raises ClientError."""
    if not 1 <= config.history <= HISTORY_MAX:
        raise ClientError(f"bucket {config.name!r}: history is {config.history}, it can be 1 to {HISTORY_MAX}")
    max_age_ns = nanoseconds(config.ttl_s)
    stream = StreamConfig(
        stream_name(config.name),
        description=config.description,
        max_consumers=-1,
        max_msgs=-1,
        max_bytes=config.bytes_max or -1,
        max_age_ns=max_age_ns,
        max_msgs_per_subject=config.history,
        max_msg_size=config.value_bytes_max or -1,
        discard=Discard.NEW,
        storage=config.storage,
        num_replicas=config.replicas,
        duplicate_window_ns=min(max_age_ns, DUPLICATE_WINDOW_NS) if max_age_ns else DUPLICATE_WINDOW_NS,
        placement=config.placement,
        republish=config.republish,
        compression=Compression.S2 if config.compressed else Compression.NONE,
        allow_direct=True,
        allow_rollup_hdrs=True,
        deny_delete=True,
        metadata=dict(config.metadata),
    )
    if config.limit_marker_ttl_s:
        if config.limit_marker_ttl_s < 1:
            raise ClientError(f"bucket {config.name!r}: a limit marker lives for 1 s at least")
        stream.allow_msg_ttl = True
        stream.subject_delete_marker_ttl_ns = nanoseconds(config.limit_marker_ttl_s)
    if config.mirror is not None:
        stream.mirror = attrs.evolve(config.mirror, name=_prefixed(config.mirror.name))
        stream.mirror_direct = True
        stream.duplicate_window_ns = 0
        return stream
    stream.subjects = [subject_prefix(config.name) + ">"]
    stream.sources = [_source(source, config.name) for source in config.sources]
    return stream


def from_stream(stream: StreamConfig) -> BucketConfig:
    """The bucket that a stream is."""
    mirror = stream.mirror and attrs.evolve(stream.mirror, name=_bare(stream.mirror.name))
    return BucketConfig(
        _bare(stream.name),
        description=stream.description,
        history=stream.max_msgs_per_subject,
        ttl_s=stream.max_age_ns / SECOND_NS,
        value_bytes_max=stream.max_msg_size,
        bytes_max=stream.max_bytes,
        storage=stream.storage,
        replicas=stream.num_replicas,
        compressed=stream.compression != Compression.NONE,
        limit_marker_ttl_s=stream.subject_delete_marker_ttl_ns / SECOND_NS,
        mirror=mirror,
        sources=tuple(attrs.evolve(source, name=_bare(source.name)) for source in stream.live_sources()),
        placement=stream.placement,
        republish=stream.republish,
        metadata=stream.metadata,
    )


def _source(source: StreamSource, bucket: str) -> StreamSource:
    """Another bucket's keys under this bucket's prefix."""
    origin = _bare(source.name)
    transforms = source.subject_transforms or [
        SubjectTransform(subject_prefix(origin) + ">", subject_prefix(bucket) + ">")
    ]
    return attrs.evolve(source, name=_prefixed(source.name), subject_transforms=transforms)


def _prefixed(name: str) -> str:
    return name if name.startswith(STREAM_PREFIX) else STREAM_PREFIX + name


def _bare(name: str) -> str:
    return name.removeprefix(STREAM_PREFIX)
