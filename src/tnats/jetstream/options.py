"""What JetStream is told by the server's configuration."""

from __future__ import annotations

import attrs

from tnats.jetstream.stream.batches import BatchLimits
from tnats.jetstream.stream.config import Storage
from tnats.jetstream.stream.quotas import Quotas
from tnats.limits import MIB
from tnats.records import frozen
from tnats.storage.encryption import Encryption


@frozen
class JetStreamOptions:
    """Sizes in bytes, -1 for none (`max_file`: three quarters of the disk); durations in nanoseconds."""

    store_dir: str
    server_name: str = ""
    domain: str = ""
    sync_interval_ns: int = 0
    """0: a publish is acknowledged when it is durable. Otherwise power loss may take what came in the last interval."""
    encryption: Encryption | None = None
    """How the store is encrypted."""
    max_memory: int = -1
    max_file: int = -1
    is_strict: bool = True
    """Unknown fields in requests are errors."""
    duplicate_window_ns_max: int = 0
    max_ack_pending: int = 0
    max_request_batch: int = 0
    ingest_msgs_max: int = 100_000
    ingest_bytes_max: int = 128 * MIB
    """Published to one stream and not stored yet, or not answered; beyond it publishers are told 429."""
    requests_max: int = 10_000
    info_requests_max: int = 10_000
    batch_limits: BatchLimits = attrs.field(factory=BatchLimits)
    max_payload: int = MIB
    accounts: dict[str, Quotas] = attrs.field(factory=dict)
    """All accounts, and what each may have of JetStream."""

    def bytes_max(self, storage: Storage) -> int:
        """The server's bound on all streams of this kind of storage together."""
        return self.max_memory if storage == Storage.MEMORY else self.max_file
