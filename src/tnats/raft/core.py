"""The state that every part of a machine shares, and the few primitives that change it.

Ownership: `Core` owns term, vote, role, leader, standing and the outgoing effects; the log owns its marks; the parts
(`election`, `replication`, `reads`, `snapshots`, `repair`) own what only they need. Nothing here decides: it records
decisions so that they cannot be recorded wrongly (a vote and its persistence, an answer and what it waits for).
"""

from __future__ import annotations

import random
from collections import deque

from tnats.errors import ensure
from tnats.raft import codec
from tnats.raft.effects import (
    Event,
    Halted,
    HardState,
    Load,
    Persist,
    ReadReady,
    Ready,
    Resumed,
    Rewrite,
    RoleChanged,
    SnapshotRead,
    SnapshotWrite,
    StandingChanged,
)
from tnats.raft.identity import following, supersedes
from tnats.raft.log import FaultyRange, Log
from tnats.raft.membership import Membership, MembershipLog
from tnats.raft.messages import AppendReply, Entry, EntryKind, Message, NodeId, SnapshotMeta, Standing
from tnats.raft.options import Options
from tnats.raft.progress import Progress
from tnats.raft.roles import STANDING_CAUSES, Cause, Role, next_role


class Core:
    """One replica of one group. Made by `tnats.raft.machine.Machine`, from what recovery restored."""

    def __init__(
        self,
        node: NodeId,
        options: Options,
        rng: random.Random,
        *,
        hard: HardState,
        log: Log,
        memberships: MembershipLog,
        memory: Standing,
    ) -> None:
        self.node = node
        self.options = options
        self.rng = rng
        self.log = log
        self.memberships = memberships

        self.hard_version = hard.version
        self.term = hard.term
        self.vote = hard.vote
        self.incarnation = following(hard.incarnation, rng)
        self.seen: dict[NodeId, int] = dict(hard.seen)
        self.memory = memory  # what was forgotten: SOUND, DIRTY, SHORT or AMNESIC
        self.since = hard.since
        if memory is Standing.AMNESIC:
            if hard.standing is not Standing.AMNESIC:
                self.since = self.incarnation
            elif memberships.current.counts_again(node, self.since):
                self.memory = memory = Standing.SOUND  # admitted before the stop, and only that was not noted yet
                self.since = 0
        self.failed = False
        self.standing = memory if memory else (Standing.FAULTY if log.faulty else Standing.SOUND)

        self.role = Role.FOLLOWER
        self.leader: NodeId = 0
        self.progress: dict[NodeId, Progress] = {}  # as leader: every member, this node included
        self.census: dict[NodeId, int] = {}  # as leader by census: whose answers made it so, and their incarnations
        self.transfer_target: NodeId = 0
        self.quiescent = False
        self.halt: Halted | None = None
        self.verified = 0  # as follower: how far the log is known to match the leader of this term

        self.election_elapsed = 0
        self.election_timeout = 0
        self.reset_election_timer()

        # Effects gathered since the last Ready
        self.messages: list[Message] = []
        self.durable_messages: list[Message] = []
        self.held: deque[tuple[int, list[Message]]] = deque()
        self.hard_changed = True  # the new incarnation must be durable before it speaks
        # The second copy is made anew at each start, whatever became of the first.
        self.membership_changed = bool(memberships.current.members)
        self.installed: tuple[SnapshotMeta, bool] | None = None
        self.repairs: list[Rewrite] = []
        self.persist_number = 0
        self.persisted_number = 0
        self.silent_until = 1  # number of the persist that makes our incarnation durable: before it, not a word
        self.persisting: deque[tuple[int, int, int]] = deque()  # (number, last index, its term)
        self.events: list[Event] = []
        self.loads: list[Load] = []
        self.snapshot_reads: list[SnapshotRead] = []
        self.snapshot_writes: list[SnapshotWrite] = []
        self.reads: list[ReadReady] = []

    # Questions

    @property
    def membership(self) -> Membership:
        return self.memberships.chain[-1]

    def peers(self) -> list[NodeId]:
        """The other members; of a replica that knows of none, whoever has spoken to it."""
        members = [member.node for member in self.membership.members if member.node != self.node]
        return members or list(self.seen)

    def header(self, target: NodeId) -> tuple[NodeId, NodeId, int, int]:
        return self.node, target, self.term, self.incarnation

    def change_pending(self) -> bool:
        """Whether the configuration in force is not committed yet."""
        return self.membership.index > self.log.commit

    # Messages

    def send(self, message: Message) -> None:
        """Send with the next Ready, whatever is durable."""
        self.messages.append(message)

    def send_durable(self, message: Message) -> None:
        """Send when everything this step asked to persist, and all before it, is durable."""
        self.durable_messages.append(message)

    def persisted(self, number: int) -> bool:
        """Release what waited for `number`. Whether the stable part of the log grew."""
        ensure(number <= self.persist_number, "persisted a number that was never handed out")
        self.persisted_number = max(self.persisted_number, number)
        while self.held and self.held[0][0] <= number:
            self.messages += self.held.popleft()[1]
        grew = False
        while self.persisting and self.persisting[0][0] <= number:
            _, index, term = self.persisting.popleft()
            grew = self.log.persisted(index, term) or grew
        return grew

    def retract_acks(self, index: int) -> None:
        """Drop acknowledgements that wait for entries from `index` on: these are gone."""
        self.durable_messages = [m for m in self.durable_messages if not _acknowledges(m, index)]
        self.held = deque((n, [m for m in held if not _acknowledges(m, index)]) for n, held in self.held)

    # Term, vote, role

    def set_term(self, term: int, vote: NodeId = 0) -> None:
        ensure(term >= self.term, f"term {self.term} cannot go back to {term}")
        if term > self.term:
            self.verified = 0
        self.term = term
        self.vote = vote
        self.hard_changed = True

    def set_vote(self, node: NodeId) -> None:
        ensure(self.vote in (0, node), f"node {self.node} voted for {self.vote} in term {self.term} already")
        self.vote = node
        self.hard_changed = True

    def reset_election_timer(self) -> None:
        ticks = self.options.election_ticks
        self.election_elapsed = 0
        self.election_timeout = ticks + self.rng.randrange(ticks)

    def move(self, cause: Cause, leader: NodeId = 0) -> None:
        """Change the role as the table says, and follow `leader` (0: nobody yet)."""
        role = next_role(self.role, cause)
        changed = role is not self.role or leader != self.leader
        self.role = role
        self.leader = leader
        self.progress = {}
        self.census = {}
        self.transfer_target = 0
        self.quiescent = False
        self.reset_election_timer()
        if changed:
            self.events.append(RoleChanged(role, self.term, leader, cause))

    def follow(self, term: int, leader: NodeId, cause: Cause) -> None:
        """Become or stay a follower in `term`."""
        if term > self.term:
            self.set_term(term)
        self.move(cause, leader)

    # Standing

    def refresh_standing(self, reason: str = "") -> None:
        """Derive the standing from what is forgotten, faulty or failed. A leader that is not sound steps down."""
        if self.failed:
            standing = Standing.FAILED
        elif self.memory:
            standing = self.memory
        else:
            standing = Standing.FAULTY if self.log.faulty else Standing.SOUND
        if standing is self.standing:
            return
        cause = STANDING_CAUSES.get((self.standing, standing))
        ensure(cause is not None, f"standing cannot go from {self.standing.name} to {standing.name}")
        self.standing = standing
        self.events.append(StandingChanged(standing, reason or cause or ""))
        if standing:
            self.retract_acks(0)
            if self.role is not Role.FOLLOWER:
                self.move(Cause.UNSOUND)

    def remember(self) -> None:
        """Nothing is forgotten any more: the replica counts again."""
        self.memory = Standing.SOUND
        self.since = 0
        self.hard_changed = True
        self.refresh_standing()

    def become_amnesic(self, seen: int) -> None:
        """Peers know that this replica forgot what it promised: it goes on as a new incarnation, without a voice."""
        known = seen if supersedes(seen, self.incarnation) else self.incarnation
        self.incarnation = following(known, self.rng)
        self.memory = Standing.AMNESIC
        self.since = self.incarnation
        self.hard_changed = True
        self.durable_messages.clear()
        self.held.clear()
        self.silent_until = self.persist_number + 1
        self.refresh_standing()

    def fill(self, fault: FaultyRange, entries: list[Entry]) -> None:
        """Entries at the head of a faulty range were found again, and with them the configurations that they hold."""
        self.repairs.append(Rewrite(self.log.term(fault.first - 1) or 0, entries))
        self.log.fill(fault, entries)
        for entry in entries:
            if entry.kind == EntryKind.CONFIG:
                self.adopt_membership(codec.decode_membership(entry.data, entry.index))

    def report_halt(self, first: int, last: int, reason: str) -> None:
        """The group cannot go on until an operator, or a replica that still has what is missing, comes."""
        halt = Halted(first, last, reason)
        if halt != self.halt:
            self.halt = halt
            self.events.append(halt)

    def report_resumed(self) -> None:
        if self.halt is not None:
            self.halt = None
            self.events.append(Resumed())

    # Membership

    def adopt_membership(self, membership: Membership) -> None:
        """A configuration was appended, or found again where damage hid it: the latest one is in force."""
        self.memberships.append(membership)
        self.membership_now()

    def membership_now(self) -> None:
        """The configuration in force changed. If it admits this incarnation again, what was forgotten is void."""
        self.membership_changed = True
        if self.memory is Standing.AMNESIC and self.membership.counts_again(self.node, self.since):
            self.remember()

    def truncate(self, index: int) -> None:
        """Drop the log from `index` on, and every configuration in it."""
        self.retract_acks(index)
        self.log.truncate(index)
        self.repairs = [rewrite for rewrite in self.repairs if rewrite.entries[-1].index < index]
        if self.memberships.truncate(index):
            self.membership_now()
        self.refresh_standing()

    # Handing over

    def hard_state(self) -> HardState:
        return HardState(
            self.hard_version,
            self.term,
            self.vote,
            min(self.log.commit, self.log.stable),
            self.incarnation,
            self.memory,
            self.since,
            tuple(sorted(self.seen.items())),
        )

    def take(self) -> Ready:
        """Gather the effects since the last call. `committed` and `proposals` are the machine's to add."""
        ready = Ready()
        ready.persist = self._take_persist()
        if self.persisted_number < self.silent_until and self.messages:
            self.durable_messages = [*self.messages, *self.durable_messages]
            self.messages = []
        if self.durable_messages:
            if self.persisted_number < self.persist_number:
                self.held.append((self.persist_number, self.durable_messages))
            else:
                self.messages += self.durable_messages
            self.durable_messages = []
        if self.messages:
            ready.messages, self.messages = self.messages, []
        if self.events:
            ready.events, self.events = self.events, []
        if self.loads:
            ready.loads, self.loads = self.loads, []
        if self.snapshot_reads:
            ready.snapshot_reads, self.snapshot_reads = self.snapshot_reads, []
        if self.snapshot_writes:
            ready.snapshot_writes, self.snapshot_writes = self.snapshot_writes, []
        if self.reads:
            ready.reads, self.reads = self.reads, []
        return ready

    def _take_persist(self) -> Persist | None:
        log = self.log
        entries = log.take_unstable()
        if not (entries or self.hard_changed or self.membership_changed or self.installed or self.repairs):
            return None
        self.persist_number += 1
        persist = Persist(self.persist_number)
        if self.installed:
            persist.snapshot, persist.discard_log = self.installed
            self.installed = None
        if entries:
            persist.prev_term = log.term(entries[0].index - 1) or 0
            persist.entries = entries
            last = entries[-1]
            self.persisting.append((self.persist_number, last.index, last.term))
        if self.repairs:
            persist.repairs, self.repairs = self.repairs, []
        if self.membership_changed:
            persist.membership = self.membership
            self.membership_changed = False
        if self.hard_changed:
            self.hard_version += 1
            persist.hard = self.hard_state()
            self.hard_changed = False
        return persist


def _acknowledges(message: Message, index: int) -> bool:
    return isinstance(message, AppendReply) and not message.rejected and message.index >= index
