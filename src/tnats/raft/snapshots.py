"""Snapshots on the way between replicas (paper 7): in parts, one in flight, resumed where they stopped.

Both sides name a transfer by the snapshot's meta data (index, term, size, digest). The receiver says which offset it
wants next, so that a lost part, a reconnection or a sender that restarted costs one part. What has arrived becomes
the base of the log only after the host has verified size and digest and made it durable.

The leader sends to followers whose next entry it has released; any replica sends to one that asks for repair.
"""

from __future__ import annotations

from tnats.raft.core import Core
from tnats.raft.effects import Repaired, SnapshotPart, SnapshotRead, SnapshotStored, SnapshotWrite
from tnats.raft.membership import MembershipLog
from tnats.raft.messages import NodeId, SnapshotChunk, SnapshotMeta, SnapshotReply
from tnats.raft.progress import Flow
from tnats.raft.roles import Role
from tnats.records import define


@define
class Sending:
    """`idle_ticks`: since the last sign of life of the receiver."""

    meta: SnapshotMeta
    offset: int = 0
    reading: bool = False
    idle_ticks: int = 0


@define
class Receiving:
    meta: SnapshotMeta
    source: NodeId
    offset: int = 0
    storing: bool = False
    idle_ticks: int = 0


class Snapshots:
    """Owns the transfers of one replica: many going out, one coming in."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.sending: dict[NodeId, Sending] = {}
        self.receiving: Receiving | None = None

    # Sending

    def send(self, node: NodeId) -> None:
        """Begin to send the newest snapshot, unless one is on its way."""
        core = self.core
        progress = core.progress.get(node)
        if progress is not None and progress.flow is not Flow.SNAPSHOT:
            progress.wait_snapshot()
        if node not in self.sending and core.log.snapshot.index > 0:
            self.sending[node] = Sending(core.log.snapshot)
            self._read(node)

    def _read(self, node: NodeId) -> None:
        sending = self.sending[node]
        sending.reading = True
        sending.idle_ticks = 0
        self.core.snapshot_reads.append(
            SnapshotRead(node, sending.meta, sending.offset, self.core.options.snapshot_chunk_bytes)
        )

    def part_read(self, part: SnapshotPart) -> None:
        core = self.core
        node = part.read.node
        sending = self.sending.get(node)
        if sending is None or sending.meta != part.read.meta or not sending.reading:
            return
        sending.reading = False
        if part.data is None:
            self._stop_sending(node)
            return
        leads = core.role is Role.LEADER
        core.send(SnapshotChunk(*core.header(node), sending.meta, leads, part.read.offset, part.data))

    def answered(self, reply: SnapshotReply) -> None:
        core = self.core
        sending = self.sending.get(reply.source)
        if sending is None:
            return
        if reply.done:
            del self.sending[reply.source]
            progress = core.progress.get(reply.source)
            if progress is not None and progress.flow is Flow.SNAPSHOT:
                progress.probe(max(progress.match, reply.index) + 1)
        elif reply.index == sending.meta.index:
            sending.offset = reply.offset
            self._read(reply.source)

    def _stop_sending(self, node: NodeId) -> None:
        """Leave it. If the follower still needs a snapshot, its next sign of life begins with the newest one."""
        del self.sending[node]
        progress = self.core.progress.get(node)
        if progress is not None and progress.flow is Flow.SNAPSHOT:
            progress.probe(progress.match + 1)

    def tick(self) -> None:
        """Ask again after silence; forget a receiver or a sender that stays silent."""
        if self.receiving is not None and not self.receiving.storing:
            self.receiving.idle_ticks += 1
            if self.receiving.idle_ticks >= 4 * self.core.options.election_ticks:
                self.receiving = None
        for node, sending in list(self.sending.items()):
            sending.idle_ticks += 1
            if sending.idle_ticks >= 4 * self.core.options.election_ticks:
                self._stop_sending(node)
            elif sending.idle_ticks % self.core.options.election_ticks == 0 and not sending.reading:
                idle = sending.idle_ticks
                self._read(node)
                sending.idle_ticks = idle

    # Receiving

    def chunk(self, chunk: SnapshotChunk) -> None:
        core = self.core
        if not self._is_needed(chunk.meta):
            core.send_durable(SnapshotReply(*core.header(chunk.source), core.log.commit, 0, True))
            return
        if self._is_ambiguous(chunk.meta):
            return
        receiving = self.receiving
        if receiving is None or receiving.meta.index < chunk.meta.index or receiving.source == chunk.source:
            if receiving is None or receiving.meta != chunk.meta:
                receiving = self.receiving = Receiving(chunk.meta, chunk.source)
        elif receiving.meta != chunk.meta:
            return  # another sender's transfer is under way
        receiving.source = chunk.source
        receiving.idle_ticks = 0
        if receiving.storing:
            return
        if chunk.offset == receiving.offset:
            receiving.offset += len(chunk.data)
            last = receiving.offset >= chunk.meta.size
            core.snapshot_writes.append(SnapshotWrite(chunk.meta, chunk.offset, chunk.data, last))
            receiving.storing = last
            if last:
                return
        core.send(SnapshotReply(*core.header(chunk.source), chunk.meta.index, receiving.offset, False))

    def _is_needed(self, meta: SnapshotMeta) -> bool:
        """News, or a cure for what cannot be read here."""
        log = self.core.log
        if meta.index <= log.snapshot.index:
            return False
        if meta.index > log.commit or meta.index > log.last_index:
            return True
        return any(fault.first <= meta.index for fault in log.faulty)

    def _is_ambiguous(self, meta: SnapshotMeta) -> bool:
        """Whether damage hides if our log continues this snapshot. Repair finds out first: dropping what was
        acknowledged, or keeping what contradicts a commit, would both be wrong.
        """
        log = self.core.log
        return log.commit < meta.index <= log.last_index and log.term(meta.index) is None

    def stored(self, stored: SnapshotStored) -> None:
        """The host verified what arrived: make it the base, or start over."""
        core, log = self.core, self.core.log
        receiving = self.receiving
        if receiving is None or receiving.meta != stored.meta or not receiving.storing:
            return
        if not stored.ok:
            receiving.offset = 0
            receiving.storing = False
            core.send(SnapshotReply(*core.header(receiving.source), stored.meta.index, 0, False))
            return
        self.receiving = None
        if self._is_ambiguous(stored.meta):
            return
        if not self._is_needed(stored.meta):
            core.send_durable(SnapshotReply(*core.header(receiving.source), log.commit, 0, True))
            return
        meta = stored.meta
        faulty = bool(log.faulty)
        first = log.base + 1
        core.retract_acks(meta.index)
        kept = log.restore(meta)
        later = [m for m in core.memberships.chain if m.index > meta.membership.index] if kept else []
        core.memberships = MembershipLog([meta.membership, *later])
        core.installed = (meta, not kept)
        core.membership_now()
        if faulty:
            core.events.append(Repaired(first, meta.index))
        core.refresh_standing()
        core.send_durable(SnapshotReply(*core.header(receiving.source), meta.index, 0, True))
