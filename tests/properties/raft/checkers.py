"""What must hold of one group after every step of every schedule (C21 to C28), seen from outside the machines.

The log is known to the checkers by its history: every entry that any machine asked to persist has an identity
(index, term) and a hash over itself and all before it. Two machines that disagree about an identity are found at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.raft import codec
from tnats.raft.effects import Input, Read, ReadReady, Ready, RoleChanged, StandingChanged
from tnats.raft.membership import Membership
from tnats.raft.messages import Append, AppendReply, Entry, EntryKind, Message, Standing, VoteReply, VoteRequest
from tnats.raft.quorum import majority
from tnats.raft.recovery import Restored
from tnats.raft.roles import Role

if TYPE_CHECKING:
    from tests.properties.raft.world import Host, World


class Violation(AssertionError):
    """A rule was broken. `rule` is the checker's name."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Checkers:
    def __init__(self, world: World) -> None:
        self.world = world
        self.hash_of: dict[tuple[int, int], int] = {(0, 0): 0}
        self.prev_term_of: dict[tuple[int, int], int] = {}
        self.committed: dict[int, tuple[int, int]] = {0: (0, 0)}  # index -> (term, hash)
        self.committed_in: dict[int, int] = {}  # index -> term of the leader that committed it
        self.committed_max = 0
        self.leader_of: dict[int, int] = {}
        self.votes: dict[tuple[int, int, int], int] = {}  # (node, epoch of its memory, term) -> candidate
        self.epochs: dict[int, int] = {}
        self.acted_term: dict[int, int] = {}
        self.commit_of: dict[int, int] = {}
        self.handed_out: dict[int, int] = {}
        self.durable: dict[int, set[tuple[int, int]]] = {}
        self.acknowledged: dict[int, int] = {}  # highest index each node ever acknowledged as sound
        self.states: dict[int, int] = {0: 0}
        self.reads: dict[tuple[int, int], int] = {}
        self.forgetful: dict[int, bool] = {}
        self.seen_elections = 0
        self.loss_allowed = False  # a census after the loss of a quorum: what it lost is no violation any more

    # Life of a node

    def started(self, host: Host, restored: Restored) -> None:
        machine = host.machine
        assert machine is not None
        node = host.node
        if machine.core.memory is Standing.AMNESIC:
            self.epochs[node] = self.epochs.get(node, 0) + 1
            self.acted_term[node] = 0
        elif machine.term < self.acted_term.get(node, 0):
            raise Violation("C21", f"node {node} acted in term {self.acted_term[node]}, restarts in {machine.term}")
        vote = self.votes.get((node, self.epochs.get(node, 0), machine.term), restored.hard.vote)
        if vote != restored.hard.vote:
            raise Violation("C21", f"node {node} voted for {vote} in {machine.term}, remembers {restored.hard.vote}")
        if self.states.get(restored.snapshot.index, host.state) != host.state:
            raise Violation("C27", f"node {node} starts from a snapshot at {restored.snapshot.index} that is not one")
        self.commit_of[node] = machine.log.commit
        self.handed_out[node] = machine.log.applying
        self.forgetful[node] = machine.core.memory is not Standing.SOUND

    def stopped(self, host: Host) -> None:
        self.reads = {key: value for key, value in self.reads.items() if key[0] != host.node}

    # Every step

    def stepped(self, host: Host, event: Input, ready: Ready) -> None:
        machine = host.machine
        assert machine is not None
        if isinstance(event, Read):
            self.reads[host.node, event.context] = self.committed_max
        if ready.persist is not None and ready.persist.entries:
            self._appended(host, ready.persist.entries, ready.persist.prev_term)
        if ready.persist is not None and ready.persist.snapshot is not None:
            self.handed_out[host.node] = max(self.handed_out[host.node], ready.persist.snapshot.index)
        if ready.persist is not None:
            for rewrite in ready.persist.repairs:
                self._repaired(host, rewrite.entries)
        for noted in ready.events:
            if isinstance(noted, RoleChanged) and noted.role is Role.LEADER:
                self._elected(host, noted.term)
            elif isinstance(noted, StandingChanged):
                self._standing_changed(host, noted.standing)
        self._check_commit(host)
        for entry in ready.committed:
            self._handed_out(host, entry)
        for message in ready.messages:
            if is_act(message):
                self.acted_term[host.node] = max(self.acted_term.get(host.node, 0), message.term)
            if isinstance(message, VoteReply):
                self._voted(host, message)
            elif isinstance(message, AppendReply) and not message.rejected and message.standing == Standing.SOUND:
                self.acknowledged[host.node] = max(self.acknowledged.get(host.node, 0), message.index)
        for read in ready.reads:
            self._read(host, read)
        if machine.term < self.acted_term.get(host.node, 0):
            raise Violation("C21", f"node {host.node} acted in term {self.acted_term[host.node]}, is in {machine.term}")
        if machine.log.base > machine.log.snapshot.index:
            raise Violation("C27", f"log of node {host.node} begins after its snapshot")
        if machine.role is Role.LEADER and machine.standing is not Standing.SOUND:
            raise Violation("C28", f"node {host.node} leads while {machine.standing.name}")

    def _hash(self, entry: Entry, prev_term: int) -> int:
        before = self.hash_of.get((entry.index - 1, prev_term))
        if before is None:
            raise Violation("C22", f"entry {entry.index} follows ({entry.index - 1}, {prev_term}), which nobody wrote")
        return hash((before, entry.index, entry.term, entry.kind, entry.data))

    def _appended(self, host: Host, entries: list[Entry], prev_term: int) -> None:
        for entry in entries:
            key = (entry.index, entry.term)
            known = self.hash_of.get(key)
            if prev_term == 0 and entry.index > 1 and known is not None:
                prev_term = self.prev_term_of[key]  # a neighbour hidden by damage
            value = self._hash(entry, prev_term)
            if known is None:
                self.hash_of[key] = value
                self.prev_term_of[key] = prev_term
            elif known != value:
                raise Violation("C22", f"node {host.node} has another entry {key} than was written before")
            if entry.kind == EntryKind.CONFIG:
                self._configured(host, codec.decode_membership(entry.data, entry.index))
            prev_term = entry.term

    def _repaired(self, host: Host, entries: list[Entry]) -> None:
        for entry in entries:
            key = (entry.index, entry.term)
            if key not in self.hash_of or self._hash(entry, self.prev_term_of[key]) != self.hash_of[key]:
                raise Violation("C22", f"node {host.node} repaired {key} with what nobody wrote")

    # C21, C23, C28: elections

    def _elected(self, host: Host, term: int) -> None:
        node = host.node
        machine = self.world.machine(node)
        self.seen_elections += 1
        if self.leader_of.setdefault(term, node) != node:
            raise Violation("C21", f"nodes {self.leader_of[term]} and {node} both lead term {term}")
        log = machine.log
        if self.loss_allowed:
            return
        # Votes may be late: a leader of an earlier term than the commit's knows nothing and commits nothing.
        for index in range(self.committed_max, log.base, -1):
            if self.committed_in.get(index, 0) >= term:
                continue
            if index > log.last_index:
                raise Violation("C23", f"leader {node} of term {term} ends at {log.last_index}, committed is {index}")
            if log.term(index) != self.committed[index][0]:
                raise Violation("C23", f"leader {node} of term {term} has another entry {index} than was committed")

    def _voted(self, host: Host, reply: VoteReply) -> None:
        if reply.pre or not reply.granted:
            return
        machine = self.world.machine(host.node)
        key = (host.node, self.epochs.get(host.node, 0), reply.term)
        if self.votes.setdefault(key, reply.target) != reply.target:
            raise Violation("C21", f"node {host.node} votes for {self.votes[key]} and {reply.target} in {reply.term}")
        if reply.standing == Standing.SOUND:
            candidate = self.world.hosts[reply.target].machine
            if candidate is not None and candidate.term == reply.term and candidate.role is Role.CANDIDATE:
                voters = candidate.membership.voters
                if host.node not in voters and host.node not in machine.membership.voters:
                    raise Violation("C26", f"node {host.node} votes though it is no voter for anybody")
            if self.forgetful.get(host.node) and not candidate_admits(candidate, machine.core.since, host.node):
                raise Violation("C28", f"node {host.node} votes before it has learned again")

    def _standing_changed(self, host: Host, standing: Standing) -> None:
        node = host.node
        if standing is Standing.AMNESIC:
            self.epochs[node] = self.epochs.get(node, 0) + 1
            self.acted_term[node] = 0
            self.forgetful[node] = True
        elif standing is Standing.SHORT:
            self.forgetful[node] = True
        elif standing is Standing.SOUND:
            if self.forgetful.get(node) and not self.loss_allowed:
                self._relearned(host)
            self.forgetful[node] = False
            log = self.world.machine(node).log
            held = ((index, log.term(index)) for index in range(log.base + 1, log.stable + 1))
            self.durable.setdefault(node, set()).update((index, term) for index, term in held if term is not None)

    def _relearned(self, host: Host) -> None:
        """What this node ever acknowledged and what is committed must be in its log again, unless it became a new
        member: then its old acknowledgements count no more."""
        machine = self.world.machine(host.node)
        if machine.membership.admits(host.node) > 0:
            return
        log = machine.log
        for index in range(log.base + 1, min(self.acknowledged.get(host.node, 0), self.committed_max) + 1):
            if log.term(index) != self.committed[index][0]:
                raise Violation("C28", f"node {host.node} counts again without entry {index}, which it acknowledged")

    # C24, C25, C29: committing and applying

    def _check_commit(self, host: Host) -> None:
        machine = self.world.machine(host.node)
        log = machine.log
        before = self.commit_of[host.node]
        if log.commit < before:
            raise Violation("C25", f"commit of node {host.node} goes from {before} back to {log.commit}")
        if log.commit == before:
            return
        for index in range(max(before, log.base) + 1, log.commit + 1):
            term = log.term(index)
            if term is None:
                continue
            identity = (term, self.hash_of[index, term])
            if index not in self.committed:
                self._newly_committed(host, index, identity)
            elif self.committed[index] != identity:
                raise Violation("C25", f"entry {index}: {self.committed[index][0]} was committed, now term {term}")
        self.commit_of[host.node] = log.commit

    def _newly_committed(self, host: Host, index: int, identity: tuple[int, int]) -> None:
        machine = self.world.machine(host.node)
        log = machine.log
        if machine.role is Role.LEADER:
            if log.term(log.commit) != machine.term:
                raise Violation("C25", f"leader {host.node} commits {log.commit} of an older term by counting")
            voters = machine.core.memberships.current.voters
            key = (log.commit, machine.term)
            holders = [node for node in voters if key in self.durable.get(node, ())]
            if len(holders) < majority(len(voters)) and not self.world.lazy:
                raise Violation("C29", f"entry {log.commit} is committed, but durable only on {holders}")
        self.committed[index] = identity
        self.committed_in[index] = machine.term
        self.committed_max = max(self.committed_max, index)

    def _handed_out(self, host: Host, entry: Entry) -> None:
        node = host.node
        log = self.world.machine(node).log
        if entry.index != self.handed_out[node] + 1:
            raise Violation("C24", f"node {node} applies {entry.index} after {self.handed_out[node]}")
        self.handed_out[node] = entry.index
        if entry.index > log.commit or self.committed.get(entry.index, (0, 0))[0] != entry.term:
            raise Violation("C24", f"node {node} applies ({entry.index}, {entry.term}), which is not committed")
        if hash_changed(self, entry):
            raise Violation("C24", f"node {node} applies other bytes at {entry.index} than were committed")

    def synced(self, host: Host) -> None:
        """The disk has synced: which identities are durable now."""
        machine = self.world.machine(host.node)
        durable = self.durable.setdefault(host.node, set())
        if self.forgetful.get(host.node):
            return
        stored = host.disk.durable.entries
        log = machine.log
        for index in range(max(log.commit, log.base), log.last_index + 1):
            term = log.term(index)
            if term is not None and index in stored:
                durable.add((index, term))

    # C26: configurations

    def _configured(self, host: Host, membership: Membership) -> None:
        machine = self.world.machine(host.node)
        chain = [m for m in machine.core.memberships.chain if m.index < membership.index]
        if not chain or not chain[-1].members:
            return
        before, after = set(chain[-1].voters), set(membership.voters)
        if len(before ^ after) > 1:
            raise Violation("C26", f"configuration {membership.index} changes voters {before} to {after}")
        if machine.role is Role.LEADER and machine.term == machine.log.term(membership.index):
            if chain[-1].index > machine.log.commit:
                raise Violation("C26", f"two configurations are not committed: {chain[-1].index}, {membership.index}")

    # C27: snapshots

    def snapshot_taken(self, host: Host, index: int, state: int) -> None:
        if self.states.setdefault(index, state) != state:
            raise Violation("C27", f"snapshot of node {host.node} at {index} differs from the other ones")

    # C7: reads

    def _read(self, host: Host, read: ReadReady) -> None:
        asked = self.reads.pop((host.node, read.context), None)
        if read.ok and asked is not None and read.index < asked and not self.loss_allowed:
            raise Violation("C7", f"read at node {host.node} sees {read.index}, but {asked} was committed when asked")
        if read.ok and host.applied < read.index:
            raise Violation("C7", f"read at node {host.node} for {read.index} is answered at {host.applied}")


def is_act(message: Message) -> bool:
    """Whether a message commits its sender to its term: it campaigns, leads, votes or acknowledges."""
    if isinstance(message, VoteRequest):
        return not message.pre
    if isinstance(message, VoteReply):
        return message.granted and not message.pre
    return isinstance(message, Append) or (isinstance(message, AppendReply) and not message.rejected)


def candidate_admits(candidate: object, since: int, node: int) -> bool:
    """Whether the candidate's configuration admits the incarnation that forgot."""
    membership = getattr(candidate, "membership", None)
    return candidate is None or (isinstance(membership, Membership) and 0 < since <= membership.admits(node))


def hash_changed(checkers: Checkers, entry: Entry) -> bool:
    key = (entry.index, entry.term)
    return key not in checkers.hash_of or checkers._hash(entry, checkers.prev_term_of[key]) != checkers.hash_of[key]
