"""One replica of one consensus group: `step(input) -> Ready`, and nothing else.

The machine is Raft (Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm", and Ongaro's thesis)
with protocol-aware recovery of damaged storage (Alagappan et al., FAST '18). It has no clock (ticks are inputs), no
randomness of its own (a `random.Random` comes in), and does no I/O: what it wants done it says in a `Ready`.

The host's duties

 1. Feed every input to `step` (or a batch of them to `step_batch`), one at a time, and carry out each `Ready`
    before the next call, or at least start to, in the order of the calls.
 2. `persist`: write in order. What carries a lower number reaches the disk first. When everything up to a number
    would survive power loss, step `Persisted(number)`. Several may share one sync. If a write or a sync fails, step
    `StorageFailed`, and never pretend that a retry succeeded.
 3. `messages`: send them now; what must wait for the disk has waited inside. They may be lost, delayed, reordered or
    duplicated. Let a connection deliver in order where that is cheap: order costs nothing and saves probes.
 4. `committed`: apply in order, each entry once; step `Applied(index)` when done, batches may be pipelined. Entries
    that are not DATA only move the index. The applied state that a restart restores must not be ahead of the log
    that it restores.
 5. `loads`: read entries back and step `Loaded` with at least the first of them, verified; a record that cannot be
    verified is `Faulty`. Reads see what was handed over for persisting before.
 6. `snapshot_reads`, `snapshot_writes`: parts of snapshots; step `SnapshotPart`, and after the last write
    `SnapshotStored` when size and digest have been verified and all is durable. `persist.snapshot` then makes it the
    base of the log: load it into the state machine before anything after it is applied.
 7. Take snapshots at an applied index with `snapshot_meta`, verify, step `SnapshotTaken`. Keep the last verified
    snapshot until the next is verified, and the log after it until `Compact`.
 8. `reads`: answer these questions from the applied state, now; those that are not `ok` must be asked again.
 9. Call `step(Tick())` at a steady pace, except while `quiescent`; then the liveness of nodes
    (`tnats.raft.liveness`) stands in, and `PeerLost` wakes the group.
10. On start, restore with `tnats.raft.recovery.recover`, which tells a torn tail from damage. Say so if unsynced
    writes were lost (`dirty`). One replica of a group runs once.
11. `InvariantBroken` means that the replica contradicts itself: stop the node.

Order inside a Ready: persist, snapshot writes, messages, committed, loads, snapshot reads, reads. Messages need not
wait for the persist of the same Ready.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from tnats.errors import ensure
from tnats.raft import messages as m
from tnats.raft.applying import Applying
from tnats.raft.core import Core
from tnats.raft.effects import (
    Accepted,
    Applied,
    Campaign,
    Compact,
    Faulty,
    Input,
    Loaded,
    PeerLost,
    Persisted,
    Propose,
    ProposeChange,
    Purpose,
    Read,
    ReadReady,
    Ready,
    Receive,
    Refused,
    SnapshotPart,
    SnapshotStored,
    SnapshotTaken,
    StorageFailed,
    Tick,
    TransferLeader,
)
from tnats.raft.election import Election
from tnats.raft.following import Following
from tnats.raft.identity import supersedes
from tnats.raft.log import Log
from tnats.raft.membership import Membership, MembershipLog
from tnats.raft.messages import Message, NodeId, SnapshotMeta, Standing
from tnats.raft.options import Options
from tnats.raft.reads import Reads
from tnats.raft.reconfiguration import propose_change
from tnats.raft.recovery import Restored
from tnats.raft.relearn import Relearning
from tnats.raft.repair import Repair
from tnats.raft.replication import Replication
from tnats.raft.roles import Cause, Role
from tnats.raft.snapshots import Snapshots


class Machine:
    """One replica. Only `step`, `step_batch`, `snapshot_meta` and the read-only properties are for the host."""

    def __init__(self, node: NodeId, restored: Restored, options: Options, rng: random.Random) -> None:
        log = Log(
            restored.snapshot,
            list(restored.terms),
            base=restored.base,
            commit=restored.commit,
            applied=restored.applied,
            faulty=list(restored.faulty),
        )
        self.core = Core(
            node,
            options,
            rng,
            hard=restored.hard,
            log=log,
            memberships=MembershipLog(list(restored.memberships)),
            memory=restored.memory,
        )
        self.snapshots = Snapshots(self.core)
        self.replication = Replication(self.core, self._committed_as_leader, self.snapshots.send)
        self.election = Election(self.core, self.replication.lead)
        self.following = Following(self.core)
        self.reads = Reads(self.core, self.replication)
        self.repair = Repair(self.core, self.snapshots)
        self.relearning = Relearning(self.core, self.replication)
        self.applying = Applying(self.core)
        self.proposals: list[Accepted | Refused] = []
        self._inputs: dict[type, Callable[..., None]] = {
            Receive: self._receive,
            Persisted: self._persisted,
            Propose: self._propose,
            Applied: self._applied,
            Tick: self._tick,
            Loaded: self._loaded,
            Read: self._read,
            ProposeChange: self._propose_change,
            TransferLeader: self._transfer,
            Campaign: self._campaign,
            SnapshotTaken: self._snapshot_taken,
            Compact: self._compact,
            SnapshotPart: self.snapshots.part_read,
            SnapshotStored: self._snapshot_stored,
            Faulty: self._faulty,
            StorageFailed: self._storage_failed,
            PeerLost: self._peer_lost,
        }
        self._receivers: dict[type, Callable[..., None]] = {
            m.Append: self._append,
            m.AppendReply: self._append_reply,
            m.Heartbeat: self._heartbeat,
            m.HeartbeatReply: self._heartbeat_reply,
            m.VoteRequest: self.election.answer,
            m.VoteReply: self.election.hear,
            m.SnapshotChunk: self.snapshots.chunk,
            m.SnapshotReply: self.snapshots.answered,
            m.TimeoutNow: self._timeout_now,
            m.ReadIndex: self.reads.asked_by,
            m.ReadIndexReply: self.reads.answered,
            m.Relearn: self.relearning.asked,
            m.RelearnReply: self.relearning.told,
            m.RepairRequest: self.repair.asked,
            m.RepairReply: self.repair.answered,
            m.Forgotten: self.relearning.accused,
        }

    # What a host may look at

    @property
    def node(self) -> NodeId:
        return self.core.node

    @property
    def role(self) -> Role:
        return self.core.role

    @property
    def term(self) -> int:
        return self.core.term

    @property
    def leader(self) -> NodeId:
        """Who leads as far as this replica knows; 0: nobody."""
        return self.core.leader

    @property
    def standing(self) -> Standing:
        return self.core.standing

    @property
    def quiescent(self) -> bool:
        """Asleep: needs no ticks until an input other than a tick arrives."""
        return self.core.quiescent

    @property
    def log(self) -> Log:
        return self.core.log

    @property
    def membership(self) -> Membership:
        return self.core.membership

    def snapshot_meta(self, index: int, size: int, digest: int) -> SnapshotMeta | None:
        """The meta data of a snapshot of the state applied up to `index`.

        None if the configuration in force there is not known, after damage: try again at a later index.
        """
        log = self.core.log
        ensure(log.snapshot.index < index <= log.applied, f"no snapshot can be taken at {index}")
        term = log.term(index)
        ensure(term is not None, "the term of an applied entry is known")
        membership = self.core.memberships.at(index)
        return SnapshotMeta(index, term or 0, membership, size, digest) if membership is not None else None

    # Stepping

    def step(self, event: Input) -> Ready:
        """Take one input; return what is to be done."""
        self._take(event)
        return self._ready()

    def step_batch(self, events: Iterable[Input]) -> Ready:
        """Take several inputs; return what is to be done for all of them: one persist, one sync."""
        for event in events:
            self._take(event)
        return self._ready()

    def _take(self, event: Input) -> None:
        core = self.core
        term, leader, role = core.term, core.leader, core.role
        self._inputs[type(event)](event)
        if core.leader != leader or core.role is not role or core.term != term:
            self.reads.leadership_changed()

    def _ready(self) -> Ready:
        core = self.core
        if core.role is Role.LEADER:
            self.reads.start_round()
            self.replication.notify_commit()
        committed = self.applying.take()
        ready = core.take()
        ready.committed = committed
        if self.proposals:
            ready.proposals, self.proposals = self.proposals, []
        return ready

    # Time and sleep

    def _tick(self, _: Tick) -> None:
        core = self.core
        if core.quiescent:
            return
        if core.failed:
            self.relearning.tick()
            return
        self.reads.tick()
        if core.role is Role.LEADER:
            if self.reads.waiting:
                self.replication.idle_elapsed = 0
            self.replication.tick()
            self.relearning.promote_returned()
        else:
            self.election.tick()
        if core.standing is not Standing.SOUND:
            self.relearning.tick()
            self.repair.tick()
        if self.snapshots.sending or self.snapshots.receiving is not None:
            self.snapshots.tick()

    def _wake(self) -> None:
        core = self.core
        if core.quiescent:
            core.quiescent = False
            self.replication.idle_elapsed = 0
            core.election_elapsed = 0

    def _peer_lost(self, _: PeerLost) -> None:
        self._wake()

    # Messages

    def _receive(self, receive: Receive) -> None:
        message = receive.message
        core = self.core
        if message.target != core.node or (core.failed and not isinstance(message, m.RepairRequest)):
            return
        kind = type(message)
        if core.quiescent and not (kind is m.Heartbeat and message.quiesce):  # type: ignore[attr-defined]
            self._wake()
        if message.incarnation != core.seen.get(message.source) and not self._meet(message):
            return
        if kind in _INFORMATIONAL or (kind is m.SnapshotChunk and not message.leads):  # type: ignore[attr-defined]
            self._receivers[kind](message)
            return
        if message.term != core.term and not self._settle_term(message):
            return
        if kind in _FROM_LEADER:
            self._follow_leader(message.source)
        self._receivers[kind](message)

    def _meet(self, message: Message) -> bool:
        """A boot of the sender that was not known. Whether it is a later one; an earlier one is told."""
        core = self.core
        seen = core.seen.get(message.source)
        if seen is None or supersedes(message.incarnation, seen):
            core.seen[message.source] = message.incarnation
            core.hard_changed = True
            return True
        core.send(m.Forgotten(*core.header(message.source), seen, 0, 0))
        return False

    def _settle_term(self, message: Message) -> bool:
        """Bring two different terms together (paper 5.1). Whether the message still has a say."""
        core = self.core
        kind = type(message)
        if message.term < core.term:
            if kind in _FROM_LEADER:
                self.following.refuse_stale(message.source)
            elif isinstance(message, m.VoteRequest):
                core.send(m.VoteReply(*core.header(message.source), message.pre, False, core.standing))
            return False
        if isinstance(message, m.VoteRequest):
            if self.election.has_lease() and not message.transfer:
                return False
            if message.pre:
                return True
        if isinstance(message, m.VoteReply) and message.pre and message.granted:
            return True
        core.follow(message.term, message.source if kind in _FROM_LEADER else 0, Cause.HIGHER_TERM)
        return True

    def _follow_leader(self, source: NodeId) -> None:
        core = self.core
        if core.leader == source and core.role is Role.FOLLOWER:
            return
        ensure(
            core.role is not Role.LEADER and core.leader in (0, source),
            f"two leaders in term {core.term}: {core.leader} and {source}",
        )
        core.move(Cause.LEADER_SEEN, source)

    def _append(self, message: m.Append) -> None:
        self.following.append(message)
        self.relearning.check()

    def _append_reply(self, message: m.AppendReply) -> None:
        if self.core.role is Role.LEADER:
            self.replication.acknowledge(message)

    def _heartbeat(self, message: m.Heartbeat) -> None:
        self.following.heartbeat(message, may_sleep=not self.reads.asked)

    def _heartbeat_reply(self, message: m.HeartbeatReply) -> None:
        if self.core.role is Role.LEADER:
            self.replication.heartbeat_answered(message)
            if self.reads.waiting:
                self.reads.prove()

    def _timeout_now(self, message: m.TimeoutNow) -> None:
        if message.source == self.core.leader and self.election.may_campaign():
            self.election.campaign(Cause.TOLD, transfer=True)

    # Proposals

    def _propose(self, propose: Propose) -> None:
        self._wake()
        self.proposals.append(self.replication.propose(propose.payloads))

    def _propose_change(self, propose: ProposeChange) -> None:
        self._wake()
        self.proposals.append(propose_change(self.core, self.replication, propose.change))

    def _transfer(self, transfer: TransferLeader) -> None:
        self._wake()
        refused = self.replication.transfer(transfer.target)
        if refused is not None:
            self.proposals.append(refused)

    def _read(self, read: Read) -> None:
        self._wake()
        if self.reads.ask(read.context) is not None:
            self.core.reads.append(ReadReady(read.context, 0, ok=False))

    def _campaign(self, _: Campaign) -> None:
        self._wake()
        if self.core.role is not Role.LEADER and self.election.may_campaign():
            self.election.pre_campaign()

    # Completions

    def _persisted(self, done: Persisted) -> None:
        core = self.core
        if core.failed:
            return
        grew = core.persisted(done.number)
        own = [message for message in core.messages if message.target == core.node]
        if own:
            core.messages = [message for message in core.messages if message.target != core.node]
            for message in own:
                if message.term == core.term and message.incarnation == core.incarnation:
                    self._receivers[type(message)](message)
        if grew and core.role is Role.LEADER:
            self.replication.own_disk()
        if core.memory:
            self.relearning.check()

    def _applied(self, applied: Applied) -> None:
        self.applying.applied(applied.index)
        if self.reads.proven:
            self.reads.release()

    def _loaded(self, loaded: Loaded) -> None:
        load = loaded.load
        ensure(loaded.entries and loaded.entries[0].index == load.first, "loaded something else")
        if load.purpose is Purpose.APPEND:
            self.replication.loaded(load, loaded.entries)
        elif load.purpose is Purpose.REPAIR:
            self.repair.loaded(load, loaded.entries)
        else:
            self.applying.loaded(loaded.entries)

    def _storage_failed(self, failed: StorageFailed) -> None:
        core = self.core
        core.failed = True
        core.held.clear()
        core.durable_messages.clear()
        core.refresh_standing(failed.reason)
        self.reads.storage_failed()

    # Consequences

    def _committed_as_leader(self) -> None:
        """The commit index moved under our lead: a leader that is no voter any more goes (thesis 4.2.2)."""
        core = self.core
        if not core.change_pending() and not core.membership.is_voter(core.node):
            self.replication.notify_commit()
            core.move(Cause.REMOVED)

    # Snapshots and damage

    def _snapshot_taken(self, taken: SnapshotTaken) -> None:
        log = self.core.log
        meta = taken.meta
        ensure(log.snapshot.index < meta.index <= log.applied, "a snapshot is of applied state and newer than the last")
        log.snapshot = meta
        core = self.core
        core.memberships.release(meta.index)
        members = core.membership.by_node
        core.seen = {node: seen for node, seen in core.seen.items() if node in members}

    def _compact(self, compact: Compact) -> None:
        log = self.core.log
        index = min(compact.index, log.stable)
        log.release(index)
        self.core.refresh_standing()

    def _snapshot_stored(self, stored: SnapshotStored) -> None:
        self.snapshots.stored(stored)
        self.applying.settle()
        self.relearning.check()

    def _faulty(self, faulty: Faulty) -> None:
        core = self.core
        self._wake()
        core.log.mark_faulty(faulty.first, faulty.last)
        self.applying.load_failed()
        core.refresh_standing()
        self.repair.ask()


_FROM_LEADER = frozenset((m.Append, m.Heartbeat, m.SnapshotChunk, m.TimeoutNow))
_INFORMATIONAL = frozenset(
    (
        m.Relearn,
        m.RelearnReply,
        m.RepairRequest,
        m.RepairReply,
        m.Forgotten,
        m.SnapshotReply,
        m.ReadIndex,
        m.ReadIndexReply,
    )
)
