"""Leading: replicating the log, counting acknowledgements, committing (paper 5.3, 5.4.2; thesis 10.2.1).

Rules beyond the paper

1. Pipelining: to a follower known to match, appends are sent without waiting, within a window of messages and bytes.
2. The leader writes its own disk in parallel; its own acknowledgement counts when its host says durable.
3. Only acknowledgements of SOUND voters, in the incarnation the leader knows, count toward a commit or a read.
4. Proposals are refused while too many bytes wait for a quorum, or too many committed entries wait to be applied.
5. A leader that has not heard from a quorum for an election timeout steps down (check quorum, thesis 6.2). Replicas
   that are not sound yet are heard: they are catching up with this very leader.
6. A leader whose own disk or state machine stalls while the others go on hands over (overrun).
7. A group that is idle and in agreement falls asleep; the liveness of nodes stands in for its heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable

from tnats.raft.core import Core
from tnats.raft.effects import Accepted, Load, Purpose, Refused
from tnats.raft.log import ENTRY_OVERHEAD_BYTES, entry_bytes
from tnats.raft.messages import (
    Append,
    AppendReply,
    Entry,
    EntryKind,
    Forgotten,
    Heartbeat,
    HeartbeatReply,
    NodeId,
    Standing,
    TimeoutNow,
)
from tnats.raft.progress import Flow, Progress
from tnats.raft.quorum import committed_index, majority
from tnats.raft.roles import Cause, Role


class Replication:
    """Owns the leader's timers. `on_commit` is called after the commit index moved, `send_snapshot` when a follower
    needs what the log no longer has.
    """

    def __init__(self, core: Core, on_commit: Callable[[], None], send_snapshot: Callable[[NodeId], None]) -> None:
        self.core = core
        self.on_commit = on_commit
        self.send_snapshot = send_snapshot
        self.heartbeat_elapsed = 0
        self.quorum_elapsed = 0
        self.transfer_elapsed = 0
        self.idle_elapsed = 0
        self.overrun_elapsed = 0
        self.overrun_marks = (0, 0)
        self.term_first = 0  # index of the entry that opened this term
        self.round = 0  # newest read round

    # Leading begins

    def lead(self) -> None:
        """Open the term with an empty entry: what was there before commits with it (paper 5.4.2, 8)."""
        core = self.core
        self.heartbeat_elapsed = self.quorum_elapsed = self.idle_elapsed = self.overrun_elapsed = 0
        self.overrun_marks = (0, 0)
        self.round = 0
        core.progress = {}
        self.follow_membership()
        self.term_first = core.log.last_index + 1
        self.append([Entry(self.term_first, core.term, EntryKind.NOOP, b"")])

    def follow_membership(self) -> None:
        """Track exactly the members of the configuration in force."""
        core = self.core
        members = core.membership.by_node
        for node in members:
            if node not in core.progress:
                core.progress[node] = Progress(core.log.last_index + 1, core.seen.get(node, 0))
        for node in [node for node in core.progress if node not in members]:
            del core.progress[node]
        own = core.progress.get(core.node)
        if own is not None:
            own.sound = own.active = True
            own.match = core.log.stable

    # Proposing

    def propose(self, payloads: list[bytes]) -> Accepted | Refused:
        core = self.core
        if core.role is not Role.LEADER:
            return Refused("not the leader", core.leader)
        if core.transfer_target:
            return Refused("leadership is being transferred", core.transfer_target)
        log = core.log
        size = sum(map(len, payloads)) + ENTRY_OVERHEAD_BYTES * len(payloads)
        waiting = log.bytes_after(log.commit)
        if waiting and waiting + size > core.options.uncommitted_bytes_max:
            return Refused(f"{waiting} bytes wait for a quorum, limit {core.options.uncommitted_bytes_max}")
        if log.commit - log.applied > core.options.apply_backlog_max:
            return Refused(
                f"{log.commit - log.applied} entries wait to be applied, limit {core.options.apply_backlog_max}"
            )
        if not payloads:
            return Refused("nothing proposed")
        first, term, kind = log.last_index + 1, core.term, EntryKind.DATA
        self.append([Entry(index, term, kind, data) for index, data in enumerate(payloads, first)])
        return Accepted(first, log.last_index, term)

    def append(self, entries: list[Entry]) -> None:
        self.core.log.append(entries)
        self.idle_elapsed = 0
        self.broadcast()

    # Sending

    def broadcast(self) -> None:
        for node, progress in self.core.progress.items():
            if node != self.core.node:
                self.replicate_to(node, progress)

    def replicate_to(self, node: NodeId, progress: Progress) -> None:
        while self._send_append(node, progress):
            pass

    def _send_append(self, node: NodeId, progress: Progress) -> bool:
        """Send one append, an empty one if it probes. Whether more may follow at once."""
        core, log, options = self.core, self.core.log, self.core.options
        if progress.flow is Flow.REPLICATE:
            if (
                progress.next > log.last_index
                or len(progress.inflight) >= options.inflight_appends_max
                or progress.inflight_bytes >= options.inflight_bytes_max
            ):
                return False
        elif progress.flow is Flow.SNAPSHOT or progress.probe_sent:
            return False
        first = progress.next
        prev_term = log.term(first - 1)
        if prev_term is None:
            self.send_snapshot(node)
            return False
        entries: list[Entry] = []
        size = 0
        if first <= log.last_index:
            if first < log.cache_first:
                if not progress.loading:
                    progress.loading = True
                    core.loads.append(Load(Purpose.APPEND, node, first, log.cache_first - 1, options.append_bytes_max))
                return False
            entries, size = log.slice(first, options.append_bytes_max)
        self._emit(node, progress, prev_term, entries, size)
        return progress.flow is Flow.REPLICATE and bool(entries)

    def _emit(self, node: NodeId, progress: Progress, prev_term: int, entries: list[Entry], size: int) -> None:
        core = self.core
        commit = core.log.commit
        core.messages.append(
            Append(core.node, node, core.term, core.incarnation, progress.next - 1, prev_term, commit, entries)
        )
        if entries:
            progress.commit_sent = min(commit, entries[-1].index)
        if progress.flow is Flow.REPLICATE:
            if entries:
                progress.sent(entries[-1].index, size)
        else:
            progress.probe_sent = True

    def loaded(self, load: Load, entries: list[Entry]) -> None:
        """Entries for a late follower came back from disk."""
        core = self.core
        progress = core.progress.get(load.node)
        if progress is None or not progress.loading:
            return
        progress.loading = False
        prev_term = core.log.term(progress.next - 1)
        if (
            entries[0].index != progress.next
            or core.log.term(entries[-1].index) != entries[-1].term
            or prev_term is None
            or progress.flow is Flow.SNAPSHOT
        ):
            return
        self._emit(load.node, progress, prev_term, entries, sum(map(entry_bytes, entries)))
        self.replicate_to(load.node, progress)

    def notify_commit(self) -> None:
        """Tell the commit index to followers that hold it and were not told with entries."""
        core = self.core
        commit = core.log.commit
        for node, progress in core.progress.items():
            told = min(commit, progress.match)
            if told > progress.commit_sent and node != core.node:
                progress.commit_sent = told
                core.send(Heartbeat(*core.header(node), told, self.round, True, False))

    def heartbeat(self, *, quiesce: bool = False) -> None:
        core = self.core
        self.heartbeat_elapsed = 0
        for node, progress in core.progress.items():
            if node != core.node:
                commit = min(core.log.commit, progress.match)
                progress.commit_sent = commit
                core.send(Heartbeat(*core.header(node), commit, self.round, False, quiesce))

    # Hearing

    def acknowledge(self, reply: AppendReply) -> None:
        progress = self.hear(reply.source, reply.incarnation, reply.standing)
        if progress is None:
            return
        if reply.rejected:
            self._rejected(reply, progress)
            return
        news = progress.acknowledged(reply.index)
        if progress.flow is Flow.PROBE:
            if news or reply.index >= progress.next - 1:
                progress.replicate()
        elif progress.flow is Flow.SNAPSHOT and progress.match >= self.core.log.base:
            progress.replicate()
        if progress.sound:
            self.advance_commit()
        self._progressed(reply.source, progress)

    def hear(self, node: NodeId, incarnation: int, standing: int) -> Progress | None:
        """Note a sign of life. None if it comes from a boot that does not count here."""
        core = self.core
        progress = core.progress.get(node)
        member = core.membership.by_node.get(node)
        if progress is None or member is None or incarnation < member.incarnation:
            return None
        forgetful = standing in (Standing.DIRTY, Standing.SHORT, Standing.AMNESIC)
        if incarnation != progress.incarnation or (forgetful and progress.sound):
            if forgetful:
                progress.forget(core.log.last_index + 1, incarnation)
            else:
                progress.incarnation = incarnation
                progress.probe(progress.match + 1)
            self.replicate_to(node, progress)
        progress.sound = standing == Standing.SOUND
        progress.active = True
        return progress

    def _progressed(self, node: NodeId, progress: Progress) -> None:
        """Send what the answer made room for, and finish a transfer that waited for it."""
        core = self.core
        if core.role is not Role.LEADER:
            return
        self.replicate_to(node, progress)
        if node == core.transfer_target and progress.match == core.log.last_index:
            core.send(TimeoutNow(*core.header(node)))

    def _rejected(self, reply: AppendReply, progress: Progress) -> None:
        core = self.core
        if progress.sound and reply.last_index < progress.match:
            self._accuse(reply.source, progress)
        if progress.flow is Flow.REPLICATE:
            if reply.index < progress.match:
                return
            progress.probe(progress.match + 1)
        elif progress.flow is Flow.PROBE:
            if reply.index != progress.next - 1:
                return
            at, _ = core.log.hint(min(reply.hint_index, reply.index - 1), reply.hint_term)
            lower = max(min(at + 1, reply.index), progress.match + 1)
            if lower >= progress.next:
                return  # it rejects for another reason, damage: the next heartbeat tries again
            progress.probe(lower)
        self.replicate_to(reply.source, progress)

    def _accuse(self, node: NodeId, progress: Progress) -> None:
        """The member seems to lack what it acknowledged. It looks for itself and draws the consequence."""
        core = self.core
        term = core.log.term(progress.match)
        if term is not None:
            core.send(Forgotten(*core.header(node), progress.incarnation, progress.match, term))

    def heartbeat_answered(self, reply: HeartbeatReply) -> None:
        progress = self.hear(reply.source, reply.incarnation, reply.standing)
        if progress is None:
            return
        progress.round = max(progress.round, reply.round)
        progress.probe_sent = False
        if progress.sound and reply.last_index < progress.match:
            self._accuse(reply.source, progress)
        if progress.match < self.core.log.last_index:
            if progress.flow is Flow.REPLICATE:
                # Rejected if anything sent before was lost on the way, whatever the window says.
                prev_term = self.core.log.term(progress.next - 1)
                if prev_term is None:
                    self.send_snapshot(reply.source)
                else:
                    self._emit(reply.source, progress, prev_term, [], 0)
            else:
                self._send_append(reply.source, progress)
        if progress.sound:
            self.advance_commit()

    # Committing

    def own_disk(self) -> None:
        """More of our own log is durable."""
        own = self.core.progress.get(self.core.node)
        if own is not None:
            own.match = self.core.log.stable
            self.advance_commit()

    def advance_commit(self) -> None:
        """Commit what a majority of sound voters holds, if it ends in this term (paper 5.4.2)."""
        core = self.core
        progress = core.progress
        matches = [
            member.match if (member := progress.get(voter)) is not None and member.sound else 0
            for voter in core.membership.voters
        ]
        index = committed_index(matches)
        if index > core.log.commit and core.log.term(index) == core.term:
            core.log.commit = index
            self.on_commit()

    def has_quorum(self) -> bool:
        """Whether a majority of the voters has answered since the last check, in whatever standing."""
        core = self.core
        active = sum(1 for voter in core.membership.voters if voter in core.progress and core.progress[voter].active)
        return active >= majority(len(core.membership.voters))

    # Time

    def tick(self) -> None:
        core, options = self.core, self.core.options
        self.heartbeat_elapsed += 1
        self.quorum_elapsed += 1
        if core.transfer_target:
            self.transfer_elapsed += 1
            if self.transfer_elapsed >= options.election_ticks:
                core.transfer_target = 0
        if self.quorum_elapsed >= options.election_ticks:
            self.quorum_elapsed = 0
            if not self.has_quorum():
                core.move(Cause.QUORUM_LOST)
                return
            for node, progress in core.progress.items():
                progress.active = node == core.node
                progress.loading = False
        if self._is_overrun():
            self.hand_over()
            return
        if self._falls_asleep():
            self.heartbeat(quiesce=True)
            core.quiescent = True
        elif self.heartbeat_elapsed >= options.heartbeat_ticks:
            self.heartbeat()

    def _is_overrun(self) -> bool:
        """Rule 6: what waits for our own disk or state machine has not moved for too long."""
        core, log = self.core, self.core.log
        marks = (core.persisted_number, log.applied)
        disk = core.persisted_number < core.persist_number and marks[0] == self.overrun_marks[0]
        machine = log.applied < min(log.commit, log.stable) and marks[1] == self.overrun_marks[1]
        self.overrun_elapsed = self.overrun_elapsed + 1 if disk or machine else 0
        self.overrun_marks = marks
        return self.overrun_elapsed >= core.options.overrun_ticks

    def hand_over(self) -> None:
        """Give up leading; the best follower, if there is one, is told to campaign at once."""
        core = self.core
        best: tuple[int, NodeId] | None = None
        for voter in core.membership.voters:
            progress = core.progress.get(voter)
            if voter != core.node and progress is not None and progress.sound and progress.active:
                best = max(best or (-1, 0), (progress.match, voter))
        if best is not None:
            core.send(TimeoutNow(*core.header(best[1])))
        core.move(Cause.OVERRUN)

    def _falls_asleep(self) -> bool:
        core, log = self.core, self.core.log
        if not core.options.quiesce_ticks:
            return False
        agreed = (
            log.applied == log.commit == log.last_index
            and not core.transfer_target
            and core.persisted_number == core.persist_number
            and all(progress.match == log.last_index and progress.sound for progress in core.progress.values())
        )
        self.idle_elapsed = self.idle_elapsed + 1 if agreed else 0
        return self.idle_elapsed >= core.options.quiesce_ticks

    def transfer(self, target: NodeId) -> Refused | None:
        """Hand leadership to `target`, once it has the whole log (thesis 3.10)."""
        core = self.core
        if core.role is not Role.LEADER:
            return Refused("not the leader", core.leader)
        progress = core.progress.get(target)
        if target == core.node or progress is None or not core.membership.is_voter(target) or not progress.sound:
            return Refused(f"node {target} cannot lead now")
        core.transfer_target = target
        self.transfer_elapsed = 0
        self._progressed(target, progress)
        return None
