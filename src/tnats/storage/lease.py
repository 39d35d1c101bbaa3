"""Leases on sequences, which tell after a loss of power how far a stream's sequences may have been used.

Under a sync interval a loss of power can take messages that were acknowledged, and with them the knowledge of which
sequences they had. None may be given to another message. So a stream uses sequences up to its *lease* only, which
stands in the journal and is durable before a sequence above the one before it is used. It is extended long before it
runs out, by a sync that nobody waits for; what is appended beyond it all the same is acknowledged when it is durable.
After a loss of power the stream goes on behind its lease.

This module decides when a lease is extended, and by how much: that is what a loss of power costs in sequences. A group
of the journal carries it out.
"""

from __future__ import annotations

from tnats.limits import LEASE_NS, LEASE_SEQUENCES_MAX, LEASE_SEQUENCES_MIN


class LeasePace:
    """A lease lasts twice LEASE_NS at the rate at which sequences are used, and is extended when half of it is left."""

    __slots__ = ("_asked_at_ns", "_asked_for", "_lease", "extend_above")

    def __init__(self, leased: int) -> None:
        self._lease = leased
        self.extend_above = leased - LEASE_SEQUENCES_MIN // 2
        """A sequence above it needs an extension."""
        self._asked_for = 0
        """The sequence that needed the last extension; 0: there was none."""
        self._asked_at_ns = 0

    def extend(self, sequence: int, now_ns: int) -> int:
        """The lease to ask for, now that `sequence` is about to be used."""
        count = LEASE_SEQUENCES_MIN
        if self._asked_for:
            used, elapsed_ns = sequence - self._asked_for, max(1, now_ns - self._asked_at_ns)
            count = min(max(count, 2 * used * LEASE_NS // elapsed_ns), LEASE_SEQUENCES_MAX)
        self._asked_for, self._asked_at_ns = sequence, now_ns
        self._lease = max(self._lease, sequence + count)
        self.extend_above = self._lease - count // 2
        return self._lease

    def refused(self, leased: int) -> None:
        """What was asked for is not to be had: the lease is as it was."""
        self._lease = leased
        self.extend_above = min(self.extend_above, leased)
