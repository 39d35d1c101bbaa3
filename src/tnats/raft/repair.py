"""Getting back entries that were damaged on disk, from whoever still has them (protocol-aware recovery, FAST '18).

A faulty range keeps its place in the log and its identity, the (index, term) of its last entry. By log matching
(paper 5.3) a peer whose log has that entry has the very same entries before it, so any peer can repair any other, with
or without a leader: followers repair leaders-to-be, leaders repair followers, and replicas damaged in disjoint places
repair each other before they elect anyone.

1. The asker sends each peer the range; a peer answers what it has, cannot read, does not have, has only as a snapshot
   (which it then sends), or knows to be different.
2. Faulty is not absent: an entry that some replica cannot read may have been committed with it.
3. If the leader of the asker's term has something different at the identity, or nothing, the range was never
   committed in that form: it goes, and the replica has lost a durable suffix (SHORT) until it has caught up with that
   leader.
4. If every voter has answered and none has a readable copy, the group halts and names the range. Absence on a
   quorum would prove that nothing was committed there; then the leader these elect overwrites it by rule 3.
"""

from __future__ import annotations

from tnats.raft.core import Core
from tnats.raft.effects import Load, Purpose, Repaired
from tnats.raft.messages import Entry, Holding, NodeId, RepairReply, RepairRequest, Standing
from tnats.raft.quorum import majority
from tnats.raft.roles import Role
from tnats.raft.snapshots import Snapshots


class Repair:
    """Owns the answers to the current question."""

    def __init__(self, core: Core, snapshots: Snapshots) -> None:
        self.core = core
        self.snapshots = snapshots
        self.elapsed = 0
        self.question: tuple[int, int, int] | None = None
        self.answers: dict[NodeId, int] = {}
        self.requests: dict[NodeId, RepairRequest] = {}  # being answered: entries are read from disk

    # Asking

    def tick(self) -> None:
        if not self.core.log.faulty:
            return
        self.elapsed += 1
        if self.elapsed >= self.core.options.relearn_ticks:
            self.ask()

    def ask(self) -> None:
        """Ask all peers about the first faulty range."""
        core, log = self.core, self.core.log
        self.elapsed = 0
        if log.faulty and log.faulty[0].first <= log.snapshot.index:
            log.release(min(log.faulty[0].last, log.snapshot.index))
            core.refresh_standing()
        if not log.faulty:
            return
        fault = log.faulty[0]
        question = (fault.first, fault.last, fault.last_term)
        if question != self.question:
            self.question = question
            self.answers = {}
        for node in core.peers():
            core.send(RepairRequest(*core.header(node), *question))
        self._judge()

    def answered(self, reply: RepairReply) -> None:
        core, log = self.core, self.core.log
        if not log.faulty:
            return
        fault = log.faulty[0]
        if (reply.first, reply.last, reply.last_term) != (fault.first, fault.last, fault.last_term):
            return
        self.question = (fault.first, fault.last, fault.last_term)
        self.answers[reply.source] = reply.holding
        if reply.holding in (Holding.CONFLICT, Holding.ABSENT):
            if reply.leads and reply.term == core.term and reply.source == core.leader:
                self._give_up(fault.first)
                return
        log.commit = max(log.commit, min(reply.commit, fault.last))
        if reply.holding == Holding.HAVE and reply.entries:
            entries = reply.entries[: fault.last - fault.first + 1]
            last = entries[-1].index
            core.fill(fault, entries)
            core.events.append(Repaired(entries[0].index, last))
            self.question = None
            self.answers = {}
            core.report_resumed()
            core.refresh_standing()
            self.ask()
        elif reply.holding == Holding.COMPACTED:
            core.report_resumed()
        self._judge()

    def _give_up(self, first: int) -> None:
        """Rule 3."""
        core = self.core
        if first <= core.log.commit:
            return
        core.memory = max(core.memory, Standing.SHORT)
        core.hard_changed = True
        core.truncate(first)
        core.report_resumed()

    def _judge(self) -> None:
        """Rule 4."""
        core = self.core
        if self.question is None:
            return
        voters = core.membership.voters
        others = [voter for voter in voters if voter != core.node]
        holdings = [self.answers[voter] for voter in others if voter in self.answers]
        if len(holdings) < len(others):
            return
        if any(holding in (Holding.HAVE, Holding.COMPACTED) for holding in holdings):
            return
        absent = sum(1 for holding in holdings if holding in (Holding.ABSENT, Holding.CONFLICT))
        if absent < majority(len(voters)):
            core.report_halt(self.question[0], self.question[1], "no replica can read these entries")

    # Being asked

    def asked(self, request: RepairRequest) -> None:
        """Answer from the cache, from disk, or with the snapshot that covers it."""
        core, log = self.core, self.core.log
        first, last = request.first, request.last
        term = log.term(last)
        if term is not None and term != request.last_term:
            self._reply(request, Holding.CONFLICT)
            return
        if last > log.last_index:
            self._reply(request, Holding.ABSENT)
            return
        if first <= log.base:
            self._reply(request, Holding.COMPACTED if last <= log.base or term is not None else Holding.FAULTY)
            self.snapshots.send(request.source)
            return
        readable = log.readable_to(first)
        if readable < first or term is None:
            self._reply(request, Holding.FAULTY)
            return
        readable = min(readable, last)
        if first >= log.cache_first:
            self._reply(request, Holding.HAVE, log.slice_to(first, readable, core.options.append_bytes_max))
            return
        self.requests[request.source] = request
        core.loads.append(
            Load(
                Purpose.REPAIR,
                request.source,
                first,
                min(readable, log.cache_first - 1),
                core.options.append_bytes_max,
            )
        )

    def loaded(self, load: Load, entries: list[Entry]) -> None:
        log = self.core.log
        request = self.requests.pop(load.node, None)
        if request is None or request.first != load.first:
            return
        if log.term(request.last) == request.last_term and log.term(entries[-1].index) == entries[-1].term:
            self._reply(request, Holding.HAVE, entries)

    def _reply(self, request: RepairRequest, holding: Holding, entries: list[Entry] | None = None) -> None:
        core = self.core
        core.send(
            RepairReply(
                *core.header(request.source),
                request.first,
                request.last,
                request.last_term,
                holding,
                core.log.commit if core.log.term(request.last) == request.last_term else 0,
                core.role is Role.LEADER,
                entries or [],
            )
        )
