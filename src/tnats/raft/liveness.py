"""One sign of life per pair of nodes, instead of a heartbeat per group: what lets idle groups sleep.

A host keeps one `PeerLiveness` for all its groups. Each beat names the boot of the node that sends it. When a peer
falls silent for `silence_ticks`, or comes back as another boot, the host steps `PeerLost(peer)` into its sleeping
groups that the peer belongs to; they wake up, and their ordinary election timers go on.
"""

from __future__ import annotations

from tnats.raft.messages import NodeId
from tnats.records import define


@define
class _Peer:
    boot: int
    silent_ticks: int = 0
    lost: bool = False


class PeerLiveness:
    """Pure: `tick` every host tick, `heard` for every beat. Both return the peers to call lost, mostly nobody."""

    def __init__(self, beat_ticks: int, silence_ticks: int) -> None:
        self.beat_ticks = beat_ticks
        self.silence_ticks = silence_ticks
        self.elapsed = 0
        self.peers: dict[NodeId, _Peer] = {}

    def tick(self) -> tuple[bool, list[NodeId]]:
        """Whether a beat is due to every peer, and who has just been lost."""
        lost = []
        for node, peer in self.peers.items():
            peer.silent_ticks += 1
            if peer.silent_ticks >= self.silence_ticks and not peer.lost:
                peer.lost = True
                lost.append(node)
        self.elapsed += 1
        due = self.elapsed >= self.beat_ticks
        if due:
            self.elapsed = 0
        return due, lost

    def heard(self, node: NodeId, boot: int) -> bool:
        """Note a beat. Whether the peer is another boot than before: its groups forgot that they sleep."""
        peer = self.peers.get(node)
        if peer is None:
            self.peers[node] = _Peer(boot)
            return False
        restarted = peer.boot != boot
        peer.boot = boot
        peer.silent_ticks = 0
        peer.lost = False
        return restarted
