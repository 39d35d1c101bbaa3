"""Linearizable reads by read index (thesis 6.4), without clocks.

The leader notes its commit index, proves with one round of heartbeats that it still led after the question came, and
answers when that index is applied. All reads that wait share the next round. A follower asks the leader for the
index and answers from its own state once it has applied that far. Its questions are numbered, never twice the same
in one boot, so that a late answer is not taken for the answer to a later question; one that stays without an answer
for an election timeout is refused.
"""

from __future__ import annotations

from collections import deque

from tnats.raft.core import Core
from tnats.raft.effects import ReadReady, Refused
from tnats.raft.messages import NodeId, ReadIndex, ReadIndexReply, Standing
from tnats.raft.quorum import majority
from tnats.raft.replication import Replication
from tnats.raft.roles import Role
from tnats.records import define


@define
class PendingRead:
    """`node`, in its boot `incarnation`, asked `question` (the context, if that is this node itself); `round` must
    be answered by a quorum to prove `index`.
    """

    node: NodeId
    incarnation: int
    question: int
    round: int
    index: int


@define
class Asked:
    """A question to the leader on behalf of `context`."""

    context: int
    ticks: int = 0


class Reads:
    """Owns the reads that wait: for a round (leader), for the leader's answer, for the state machine."""

    def __init__(self, core: Core, replication: Replication) -> None:
        self.core = core
        self.replication = replication
        self.waiting: deque[PendingRead] = deque()
        self.asked: dict[int, Asked] = {}
        self.questions = 0
        self.proven: deque[tuple[int, int]] = deque()

    def ask(self, context: int) -> Refused | None:
        core = self.core
        if core.standing is not Standing.SOUND:
            return Refused(f"replica is {core.standing.name.lower()}", core.leader)
        if len(self.waiting) + len(self.asked) + len(self.proven) >= core.options.reads_pending_max:
            return Refused(f"{core.options.reads_pending_max} reads wait already")
        if core.role is Role.LEADER:
            return self._admit(core.node, core.incarnation, context)
        if not core.leader:
            return Refused("no leader")
        self.questions += 1
        self.asked[self.questions] = Asked(context)
        core.send(ReadIndex(*core.header(core.leader), self.questions))
        return None

    def asked_by(self, message: ReadIndex) -> None:
        """As leader, a follower's question. One that cannot be answered is left to the follower's patience."""
        if self.core.role is Role.LEADER and len(self.waiting) < self.core.options.reads_pending_max:
            self._admit(message.source, message.incarnation, message.question)

    def _admit(self, node: NodeId, incarnation: int, question: int) -> Refused | None:
        core, replication = self.core, self.replication
        if core.log.commit < replication.term_first:
            return Refused("the leader has not committed in its term yet", core.leader)
        self.waiting.append(PendingRead(node, incarnation, question, replication.round + 1, core.log.commit))
        return None

    def start_round(self) -> None:
        """At the end of a step: one round for all that came in it."""
        if self.waiting and self.waiting[-1].round > self.replication.round:
            self.replication.round += 1
            own = self.core.progress.get(self.core.node)
            if own is not None:
                own.round = self.replication.round
            self.replication.heartbeat()
            self.prove()

    def prove(self) -> None:
        """Let go what a quorum of sound voters has confirmed."""
        core = self.core
        voters = core.membership.voters
        rounds = sorted(
            member.round if (member := core.progress.get(voter)) is not None and member.sound else 0 for voter in voters
        )
        proven = rounds[len(voters) - majority(len(voters))] if voters else 0
        while self.waiting and self.waiting[0].round <= proven:
            read = self.waiting.popleft()
            if read.node == core.node:
                self.proven.append((read.question, read.index))
            else:
                core.send(ReadIndexReply(*core.header(read.node), read.incarnation, read.question, read.index))
        self.release()

    def answered(self, message: ReadIndexReply) -> None:
        if message.nonce != self.core.incarnation:
            return
        asked = self.asked.pop(message.question, None)
        if asked is not None:
            self.proven.append((asked.context, message.index))
            self.release()

    def tick(self) -> None:
        """Refuse what has waited for the leader's answer too long: the question or the answer was lost."""
        for question, asked in list(self.asked.items()):
            asked.ticks += 1
            if asked.ticks >= self.core.options.election_ticks:
                del self.asked[question]
                self._refuse(asked.context)

    def _refuse(self, context: int) -> None:
        self.core.reads.append(ReadReady(context, 0, ok=False))

    def release(self) -> None:
        """Hand out what the state machine has reached."""
        core = self.core
        for _ in range(len(self.proven)):
            context, index = self.proven.popleft()
            if index <= core.log.applied and core.standing is Standing.SOUND:
                core.reads.append(ReadReady(context, index))
            else:
                self.proven.append((context, index))

    def leadership_changed(self) -> None:
        """Whoever asked the old leader must ask again."""
        for read in self.waiting:
            if read.node == self.core.node:
                self._refuse(read.question)
        self.waiting.clear()
        for asked in self.asked.values():
            self._refuse(asked.context)
        self.asked.clear()

    def storage_failed(self) -> None:
        """Nothing is applied any more, so nobody waits any more."""
        self.leadership_changed()
        for context, _ in self.proven:
            self._refuse(context)
        self.proven.clear()
