"""Becoming leader: pre-vote, vote, census, lease (paper 5.2, 5.4.1; thesis 3.10, 4.2.3, 9.6).

Rules beyond the paper

1. A pre-vote asks first, so that a node without a chance does not disturb with its term.
2. Who has heard from a leader within the shortest election timeout answers nobody (lease), except on transfer.
3. Only a voter of its own latest configuration votes, or one that the candidate's newer configuration names.
4. Only a SOUND replica gives a vote. The others answer with their standing. Such an answer is no vote, but when
   *all* voters have answered yes, nothing fresher has survived anywhere (a census), and the candidate may lead,
   provided that fewer than a quorum of them lost durable entries or their vote: of every committed entry at least
   one holder has then been asked. A census is how a group comes back after all its replicas lost power at once.
5. Votes of an incarnation that the configuration does not admit, or that a later boot superseded, do not count.
"""

from __future__ import annotations

from collections.abc import Callable

from tnats.raft.core import Core
from tnats.raft.effects import Census
from tnats.raft.messages import NodeId, Standing, VoteReply, VoteRequest
from tnats.raft.quorum import majority
from tnats.raft.roles import Cause, Role


class Election:
    """Owns the votes of the current campaign."""

    def __init__(self, core: Core, on_won: Callable[[], None]) -> None:
        self.core = core
        self.on_won = on_won
        self.votes: dict[NodeId, VoteReply] = {}

    def tick(self) -> None:
        core = self.core
        core.election_elapsed += 1
        if core.election_elapsed >= core.election_timeout:
            core.election_elapsed = 0
            if self.may_campaign():
                self.pre_campaign()

    def may_campaign(self) -> bool:
        """A candidate must be a voter that can read all of its log; lost suffixes are for the census to judge."""
        core = self.core
        return (
            core.membership.is_voter(core.node)
            and core.standing in (Standing.SOUND, Standing.DIRTY, Standing.SHORT)
            and not core.log.faulty
        )

    def pre_campaign(self) -> None:
        self.core.move(Cause.TIMEOUT)
        self.votes = {}
        self._ask(self.core.term + 1, pre=True, transfer=False)
        self._tally()

    def campaign(self, cause: Cause, *, transfer: bool = False) -> None:
        core = self.core
        core.move(cause)
        core.set_term(core.term + 1, core.node)
        self.votes = {}
        self._ask(core.term, pre=False, transfer=transfer)
        if core.role is Role.CANDIDATE:
            # Its own vote counts when it is durable: the reply to itself waits like any other.
            core.send_durable(VoteReply(core.node, core.node, core.term, core.incarnation, False, True, core.standing))

    def _ask(self, term: int, *, pre: bool, transfer: bool) -> None:
        core = self.core
        membership = core.membership
        send = core.send if pre else core.send_durable
        for voter in membership.voters:
            if voter != core.node:
                send(
                    VoteRequest(
                        core.node,
                        voter,
                        term,
                        core.incarnation,
                        pre,
                        transfer,
                        core.log.last_index,
                        core.log.last_term,
                        membership.index,
                        membership.admits(voter),
                    )
                )
        if pre:
            self.votes[core.node] = VoteReply(core.node, core.node, term, core.incarnation, True, True, core.standing)

    # Being asked

    def has_lease(self) -> bool:
        """Whether a leader was heard so recently that no election can be needed."""
        core = self.core
        return core.leader != 0 and core.election_elapsed < core.options.election_ticks

    def answer(self, request: VoteRequest) -> None:
        """Answer a request of our term (a pre-vote: of any term above, or ours)."""
        core = self.core
        if request.pre:
            free = request.term > core.term
        else:
            free = core.vote == request.source or (core.vote == 0 and core.leader == 0)
        granted = free and self.may_vote(request) and core.log.is_fresh(request.last_index, request.last_term)
        if granted and not request.pre:
            core.set_vote(request.source)
            core.election_elapsed = 0
        term = request.term if granted else core.term
        standing = Standing.SOUND if self.is_admitted(request) else core.standing
        reply = VoteReply(core.node, request.source, term, core.incarnation, request.pre, granted, standing)
        if granted and not request.pre:
            core.send_durable(reply)
        else:
            core.send(reply)

    def may_vote(self, request: VoteRequest) -> bool:
        """Rule 3. A FAILED replica cannot make its vote durable."""
        core = self.core
        if core.standing is Standing.FAILED:
            return False
        if core.membership.is_voter(core.node):
            return True
        return request.membership_index > core.membership.index and request.admits >= 0

    def is_admitted(self, request: VoteRequest) -> bool:
        """Whether the candidate's newer configuration admits this incarnation again, so that its vote is one."""
        core = self.core
        return (
            core.memory is Standing.AMNESIC
            and request.membership_index > core.membership.index
            and 0 < core.since <= request.admits
        )

    # Hearing answers

    def hear(self, reply: VoteReply) -> None:
        core = self.core
        wanted = Role.PRE_CANDIDATE if reply.pre else Role.CANDIDATE
        if core.role is not wanted:
            return
        if reply.granted and reply.term != core.term + (1 if reply.pre else 0):
            return
        self.votes[reply.source] = reply
        self._tally()

    def _tally(self) -> None:
        core = self.core
        voters = core.membership.voters
        quorum = majority(len(voters))
        replies = [reply for voter in voters if (reply := self.votes.get(voter)) and self._counts(reply)]
        yes = [reply for reply in replies if reply.granted]
        sound = sum(1 for reply in yes if reply.standing == Standing.SOUND)
        census = False
        if sound < quorum and len(yes) == len(voters):
            lost = sum(1 for reply in yes if reply.standing in (Standing.SHORT, Standing.AMNESIC))
            census = lost < quorum
            if census:
                core.report_resumed()
            else:
                core.report_halt(0, 0, f"{lost} of {len(voters)} voters lost durable entries or their vote")
        if sound >= quorum or census:
            if core.role is Role.PRE_CANDIDATE:
                self.campaign(Cause.PRE_VOTE_WON)
            else:
                self._win(yes if census else None)
        elif len(replies) - len(yes) >= quorum:
            core.move(Cause.LOST)

    def _counts(self, reply: VoteReply) -> bool:
        """Rule 5."""
        core = self.core
        if reply.source == core.node:
            return True
        return reply.incarnation == core.seen.get(reply.source) and reply.incarnation >= core.membership.admits(
            reply.source
        )

    def _win(self, census: list[VoteReply] | None) -> None:
        core = self.core
        core.move(Cause.VOTE_WON, core.node)
        if census is not None:
            unsound = tuple(reply.source for reply in census if reply.standing != Standing.SOUND)
            core.census = {reply.source: reply.incarnation for reply in census}
            core.events.append(Census(core.term, core.log.last_index, unsound))
        if core.memory:
            core.remember()
        self.on_won()
