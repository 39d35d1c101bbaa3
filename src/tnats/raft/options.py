"""Settings of a consensus group. Times are in ticks of the host's clock."""

from __future__ import annotations

from tnats import limits
from tnats.errors import TnatsError
from tnats.records import frozen


@frozen
class Options:
    """`election_ticks`: silence after which a follower campaigns, drawn anew from [n, 2n) for each election.

    relearn_ticks   how often a replica that is not sound asks again
    overrun_ticks   how long a leader's own disk or state machine may stall before it hands over
    quiesce_ticks   idle time after which a group falls asleep; 0: never
    """

    election_ticks: int = 10
    heartbeat_ticks: int = 2
    relearn_ticks: int = 4
    overrun_ticks: int = 30
    quiesce_ticks: int = 20
    append_bytes_max: int = limits.RAFT_APPEND_BYTES_MAX
    inflight_appends_max: int = limits.RAFT_INFLIGHT_APPENDS_MAX
    inflight_bytes_max: int = limits.RAFT_INFLIGHT_BYTES_MAX
    uncommitted_bytes_max: int = limits.RAFT_UNCOMMITTED_BYTES_MAX
    apply_bytes_max: int = limits.RAFT_APPLY_BYTES_MAX
    apply_backlog_max: int = limits.RAFT_APPLY_BACKLOG_MAX
    cache_bytes_max: int = limits.RAFT_CACHE_BYTES_MAX
    snapshot_chunk_bytes: int = limits.RAFT_SNAPSHOT_CHUNK_BYTES
    reads_pending_max: int = limits.RAFT_READS_PENDING_MAX

    def __attrs_post_init__(self) -> None:
        if not 0 < self.heartbeat_ticks < self.election_ticks:
            raise TnatsError(
                f"raft: heartbeat_ticks {self.heartbeat_ticks} must be below election_ticks {self.election_ticks}"
            )
        if self.apply_bytes_max < 1 or self.append_bytes_max < 1 or self.inflight_appends_max < 1:
            raise TnatsError("raft: every bound must let at least one entry through")
