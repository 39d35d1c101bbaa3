"""Whether an account's limits have room for a stream (`max_bytes` is reserved when the stream is made).

Flat limits count every replica; tiered limits (`R1`, `R3`) are stated per tier and count each stream once.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.fields import BOOL, INT64, row
from tnats.jetstream.stream.config import Storage, StreamConfig
from tnats.records import frozen


@frozen
class AccountLimits:
    """The limits of an account or of one of its tiers; -1: none."""

    max_memory: int = row("max_memory", INT64, default=-1)
    max_storage: int = row("max_storage", INT64, default=-1)
    max_streams: int = row("max_streams", INT64, default=-1)
    max_consumers: int = row("max_consumers", INT64, default=-1)
    max_ack_pending: int = row("max_ack_pending", INT64, default=-1)
    memory_max_stream_bytes: int = row("memory_max_stream_bytes", INT64, default=-1)
    storage_max_stream_bytes: int = row("storage_max_stream_bytes", INT64, default=-1)
    max_bytes_required: bool = row("max_bytes_required", BOOL, default=False)

    def bytes_max(self, storage: Storage) -> int:
        """The bound on all streams of this kind of storage together."""
        return self.max_memory if storage == Storage.MEMORY else self.max_storage

    def stream_bytes_max(self, storage: Storage) -> int:
        """The bound on one stream."""
        return self.memory_max_stream_bytes if storage == Storage.MEMORY else self.storage_max_stream_bytes


@frozen
class Quotas:
    """The limits of one account: flat, or one set per tier; with neither, JetStream is not enabled for it."""

    flat: AccountLimits | None = None
    tiers: Mapping[str, AccountLimits] = attrs.field(factory=dict)

    @property
    def is_enabled(self) -> bool:
        """Whether the account may use JetStream."""
        return self.flat is not None or bool(self.tiers)

    @property
    def is_limited(self) -> bool:
        """Whether there is a bound on bytes at all."""
        return bool(self.tiers) or (self.flat is not None and (self.flat.max_memory >= 0 or self.flat.max_storage >= 0))

    def select(self, replicas: int) -> tuple[AccountLimits, bool] | None:
        """(limits that govern streams of so many replicas, whether they are a tier's); None: no such stream allowed."""
        if self.tiers:
            tier = self.tiers.get(tier_name(replicas))
            return None if tier is None else (tier, True)
        return None if self.flat is None else (self.flat, False)


def tier_name(replicas: int) -> str:
    """The tier that streams of so many replicas belong to."""
    return f"R{replicas}"


def reserved_bytes(config: StreamConfig, is_tiered: bool) -> int:
    """What the stream reserves of its account's limit."""
    return max(config.max_bytes, 0) * (1 if is_tiered else config.num_replicas)


def check(config: StreamConfig, quotas: Quotas, others: list[StreamConfig]) -> ApiError | None:
    """Why the account has no room for a checked configuration, or None.

    `others`: the account's other streams (an updated stream is not among them).
    """
    selected = quotas.select(config.num_replicas)
    if selected is None:
        return errors.NO_LIMITS()
    limits, is_tiered = selected
    if is_tiered:
        others = [other for other in others if other.num_replicas == config.num_replicas]
    if 0 <= limits.max_streams <= len(others):
        return errors.MAXIMUM_STREAMS_LIMIT()
    if limits.max_bytes_required and config.max_bytes <= 0:
        return errors.STREAM_MAX_BYTES_REQUIRED()
    stream_bytes_max = limits.stream_bytes_max(config.storage)
    if 0 < stream_bytes_max < config.max_bytes:
        return errors.STREAM_MAX_STREAM_BYTES_EXCEEDED()
    bytes_max = limits.bytes_max(config.storage)
    if bytes_max >= 0:
        reserved = sum(reserved_bytes(other, is_tiered) for other in others if other.storage == config.storage)
        if reserved + reserved_bytes(config, is_tiered) > bytes_max:
            return bytes_exceeded(config.storage)
    return None


def bytes_exceeded(storage: Storage) -> ApiError:
    """The error of a bound on all streams of this kind of storage together."""
    return errors.MEMORY_RESOURCES_EXCEEDED() if storage == Storage.MEMORY else errors.STORAGE_RESOURCES_EXCEEDED()
