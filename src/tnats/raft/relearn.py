"""Coming back after forgetting: how a replica that lost what it promised gets its voice back.

A replica that acknowledged entries or gave votes and lost them may not vote, lead, count or acknowledge: with it, a
quorum could be found that never saw a committed entry. How it comes back depends on what is lost.

1. DIRTY, SHORT (term and vote are intact): it asks the leader, names its boot, and gets the end of the leader's log.
   Once it holds the log of that leader up to there, durably and in the same term, it counts again: whatever it
   acknowledged is in that log, since its term was kept and it took no part in electing a leader meanwhile.
   The answer names the boot, so that an old message cannot name an old, too early end.
2. AMNESIC (term and vote are lost): an old vote of it may still be on its way, and it does not know for whom. The
   leader takes it out of the voters and, when it has caught up, back in, by two ordinary changes of the
   configuration, the second of which admits its present incarnation only. What older incarnations said is void.
   A learner is admitted by one change.
3. If the leader won by a census, in which this very incarnation answered, rule 1 is enough for an AMNESIC one too:
   every voter has told its term then.
4. Peers notice a rollback that the replica itself cannot see: each remembers the newest incarnation of each
   other, and a leader what was acknowledged. They tell the replica, which checks against its own log.
5. A replica whose storage refuses a write is FAILED until it restarts; nothing it failed to write was acknowledged.
   It goes on telling, since its node is alive: a group that fell asleep under its lead must wake up and elect.
"""

from __future__ import annotations

from tnats.raft.core import Core
from tnats.raft.identity import contradicts
from tnats.raft.membership import Change, ChangeKind
from tnats.raft.messages import Forgotten, NodeId, Relearn, RelearnReply, Standing
from tnats.raft.progress import Flow
from tnats.raft.quorum import majority
from tnats.raft.reconfiguration import propose_change
from tnats.raft.replication import Replication
from tnats.raft.roles import Role


class Relearning:
    """Owns the target to reach (as the one who forgot) and who waits for re-admission (as leader)."""

    def __init__(self, core: Core, replication: Replication) -> None:
        self.core = core
        self.replication = replication
        self.elapsed = 0
        self.target: tuple[int, int] | None = None  # (term of the leader, last index of its log)
        self.lost: dict[NodeId, int] = {}  # standings that others told

    # The one who forgot

    def tick(self) -> None:
        core = self.core
        if not (core.memory or core.failed):
            return
        self.elapsed += 1
        if self.elapsed >= core.options.relearn_ticks:
            self.elapsed = 0
            for node in core.peers():
                core.send(Relearn(*core.header(node), core.standing, core.since))
            if not core.failed:
                self._judge()

    def told(self, reply: RelearnReply) -> None:
        core = self.core
        if (
            core.memory
            and reply.nonce == core.incarnation
            and reply.term == core.term
            and reply.source == core.leader
            and (reply.admitted or core.memory is not Standing.AMNESIC)
        ):
            if self.target is None or self.target[0] != reply.term:
                self.target = (reply.term, reply.last_index)
            if not core.membership.members:
                core.adopt_membership(reply.membership)
            self.check()

    def check(self) -> None:
        """Whether the target is reached: held durably, readable, and known to match the leader of this term."""
        core, log = self.core, self.core.log
        if core.memory is Standing.SOUND or self.target is None or self.target[0] != core.term:
            return
        index = self.target[1]
        if core.leader and core.verified >= index and log.stable >= index and not log.faulty:
            self.target = None
            self.lost = {}
            core.remember()
            core.report_resumed()

    def accused(self, message: Forgotten) -> None:
        """Rule 4: is it true?"""
        core, log = self.core, self.core.log
        acked = (message.acked_term, message.acked_index)
        # What was acknowledged to the leader of an older term may have been overwritten since, as it should.
        forgot = core.memory is Standing.SOUND and message.term >= core.term and acked > (log.last_term, log.last_index)
        if forgot or contradicts(core.incarnation, message.seen):
            core.become_amnesic(message.seen)

    def _judge(self) -> None:
        """Name the state in which no election can succeed: a quorum has lost durable entries or votes."""
        core = self.core
        voters = core.membership.voters
        self.lost[core.node] = core.memory
        lost = [v for v in voters if self.lost.get(v, 0) in (Standing.SHORT, Standing.AMNESIC)]
        if not core.leader and len(lost) >= majority(len(voters)):
            core.report_halt(0, 0, f"{len(lost)} of {len(voters)} voters lost durable entries or their vote")

    # The leader

    def asked(self, message: Relearn) -> None:
        core = self.core
        node = message.source
        if message.standing == Standing.FAILED:
            return  # to be woken was all; it is not heard, so that a quorum with it in it is none
        self.lost[node] = message.standing
        progress = core.progress.get(node)
        if core.role is not Role.LEADER or progress is None:
            return
        self.replication.hear(node, message.incarnation, message.standing)
        admitted = message.standing != Standing.AMNESIC or core.census.get(node) == message.incarnation
        membership = core.memberships.at(core.log.commit) or core.membership
        core.send(RelearnReply(*core.header(node), message.incarnation, core.log.last_index, admitted, membership))
        if not admitted:
            self._readmit(node, message.since)
            self._judge_as_leader()

    def _readmit(self, node: NodeId, since: int) -> None:
        core = self.core
        member = core.membership.by_node.get(node)
        if member is None or member.incarnation >= since or not self._may_change():
            return
        kind = ChangeKind.DEMOTE if member.voter else ChangeKind.READMIT
        propose_change(core, self.replication, Change(kind, node, since, returning=member.voter))

    def _judge_as_leader(self) -> None:
        """Name the state in which nothing can be committed any more, not even a change: too many are amnesic."""
        core = self.core
        voters = core.membership.voters
        lost = [
            voter
            for voter in voters
            if self.lost.get(voter) == Standing.AMNESIC and voter in core.progress and not core.progress[voter].sound
        ]
        if len(voters) - len(lost) < majority(len(voters)):
            core.report_halt(0, 0, f"{len(lost)} of {len(voters)} voters lost their vote")
        else:
            core.report_resumed()

    def _may_change(self) -> bool:
        core = self.core
        return not core.change_pending() and core.log.commit >= self.replication.term_first

    def promote_returned(self) -> None:
        """Rule 2, second half: those on their way back that have caught up. Called at every tick."""
        core = self.core
        if core.role is not Role.LEADER or not self._may_change():
            return
        for member in core.membership.members:
            progress = core.progress.get(member.node)
            if (
                member.returning
                and progress is not None
                and progress.flow is not Flow.SNAPSHOT
                and progress.match >= core.membership.index
                and progress.match + core.options.inflight_appends_max >= core.log.commit
                and progress.incarnation >= member.incarnation
            ):
                change = Change(ChangeKind.PROMOTE, member.node, member.incarnation)
                propose_change(core, self.replication, change)
                return
