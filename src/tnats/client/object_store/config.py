"""What an object store can be told, and the stream that it becomes (ADR-20, "Object store")."""

from __future__ import annotations

import attrs

from tnats.client.jetstream.bucket_names import bucket_stream
from tnats.client.options import nanoseconds
from tnats.jetstream.stream.config import Compression, Discard, Placement, Storage, StreamConfig
from tnats.limits import SECOND_NS
from tnats.records import frozen

STREAM_PREFIX = "OBJ_"
WHAT = "object store"  # what errors call it


@frozen
class StoreConfig:
    """An object store. -1 or 0 stand for "no limit"; sizes in bytes, times in seconds."""

    name: str
    description: str = ""
    ttl_s: float = 0
    """After this an object ends by itself."""
    bytes_max: int = -1
    storage: Storage = Storage.FILE
    replicas: int = 1
    compressed: bool = False
    placement: Placement | None = None
    metadata: dict[str, str] = attrs.Factory(dict)


def stream_name(bucket: str) -> str:
    """The stream behind a store. Raises ClientError for what cannot be a store's name."""
    return bucket_stream(STREAM_PREFIX, bucket, WHAT)


def to_stream(config: StoreConfig) -> StreamConfig:
    """The stream of a store. Raises ClientError."""
    return StreamConfig(
        stream_name(config.name),
        description=config.description,
        subjects=[f"$O.{config.name}.C.>", f"$O.{config.name}.M.>"],
        max_consumers=-1,
        max_msgs=-1,
        max_msgs_per_subject=-1,
        max_bytes=config.bytes_max or -1,
        max_age_ns=nanoseconds(config.ttl_s),
        discard=Discard.NEW,
        storage=config.storage,
        num_replicas=config.replicas,
        placement=config.placement,
        compression=Compression.S2 if config.compressed else Compression.NONE,
        allow_direct=True,
        allow_rollup_hdrs=True,
        metadata=dict(config.metadata),
    )


def from_stream(stream: StreamConfig) -> StoreConfig:
    """The store that a stream is."""
    return StoreConfig(
        stream.name.removeprefix(STREAM_PREFIX),
        description=stream.description,
        ttl_s=stream.max_age_ns / SECOND_NS,
        bytes_max=stream.max_bytes,
        storage=stream.storage,
        replicas=stream.num_replicas,
        compressed=stream.compression != Compression.NONE,
        placement=stream.placement,
        metadata=stream.metadata,
    )
