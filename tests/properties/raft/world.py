"""A few replicas of the machine, a network and disks in one process: the smallest host that can be broken.

`World` carries out what the machines ask for, in any order it is told to, and shows every step to the checkers. It
takes no decision of its own: schedules, matrices and golden files decide.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import attrs
from tests.properties.raft.checkers import Checkers
from tests.properties.raft.disk import Disk, digest_of

from tnats.raft.effects import (
    Applied,
    Compact,
    Faulty,
    Input,
    Load,
    Loaded,
    Persist,
    Persisted,
    Propose,
    Ready,
    Receive,
    SnapshotPart,
    SnapshotRead,
    SnapshotStored,
    SnapshotTaken,
    SnapshotWrite,
    StandingChanged,
    StorageFailed,
    Tick,
)
from tnats.raft.machine import Machine
from tnats.raft.membership import EMPTY, Member, Membership
from tnats.raft.messages import Entry, Message, Standing
from tnats.raft.options import Options
from tnats.raft.recovery import Restored, founding, recover
from tnats.raft.roles import Role

GROUP = b"G"
SMALL = Options(
    election_ticks=4,
    heartbeat_ticks=1,
    relearn_ticks=2,
    overrun_ticks=40,
    quiesce_ticks=0,
    append_bytes_max=160,
    inflight_appends_max=3,
    apply_bytes_max=400,
    cache_bytes_max=600,
    snapshot_chunk_bytes=16,
)
"""Everything tiny, so that every limit is met within a few steps."""


def encode_state(state: int) -> bytes:
    """A snapshot's bytes: five words whose exclusive-or is the state, so that every one of them matters."""
    words = [hash((state, k)) for k in range(4)]
    words.append(state ^ words[0] ^ words[1] ^ words[2] ^ words[3])
    return b"".join(word.to_bytes(8, "little", signed=True) for word in words)


def decode_state(data: bytes) -> int:
    state = 0
    for at in range(0, len(data), 8):
        state ^= int.from_bytes(data[at : at + 8], "little", signed=True)
    return state


@attrs.define
class Host:
    """What one node keeps beside its machine. `state`: the digest of everything applied."""

    node: int
    disk: Disk
    machine: Machine | None = None
    applied: int = 0
    state: int = 0
    to_apply: deque[Entry] = attrs.Factory(deque)
    unsynced: deque[Persist] = attrs.Factory(deque)
    completions: deque[Input] = attrs.Factory(deque)
    arriving: bytearray = attrs.Factory(bytearray)
    dirty: bool = False
    boots: int = 0
    ready_log: list[Ready] = attrs.Factory(list)


def apply_to(state: int, entry: Entry) -> int:
    """The state machine: a digest of all that was applied, in order."""
    return hash((state, entry.index, entry.term, entry.kind, entry.data))


class World:
    """`lazy`: acknowledge from the page cache and sync in the background, but for term and vote."""

    machine_class: type[Machine] = Machine
    recover: Callable[..., Restored] = staticmethod(recover)

    def __init__(
        self,
        rng: random.Random,
        nodes: tuple[int, ...] = (1, 2, 3),
        *,
        spare: tuple[int, ...] = (),
        options: Options = SMALL,
        lazy: bool = False,
    ) -> None:
        self.rng = rng
        self.options = options
        self.lazy = lazy
        self.members = Membership(0, tuple(Member(node) for node in nodes))
        self.hosts = {node: Host(node, Disk(GROUP, node)) for node in (*nodes, *spare)}
        self.network: list[Message] = []
        self.cut: set[tuple[int, int]] = set()
        self.checkers = Checkers(self)
        for node in self.hosts:
            self.found(node, self.members if node in nodes else EMPTY)

    # Starting and stopping

    def found(self, node: int, members: Membership) -> None:
        """A replica that begins: with the group, or later and empty."""
        self._start(self.hosts[node], founding(members))
        host = self.hosts[node]
        if members.members:
            # the founding configuration is durable before anything happens
            meta = founding(members).snapshot
            host.disk.store_snapshot(meta, b"", 0)
        self.sync(node)

    def _start(self, host: Host, restored: Restored) -> None:
        host.boots += 1
        host.machine = self.machine_class(host.node, restored, self.options, random.Random(self.rng.getrandbits(32)))
        host.applied = restored.applied
        host.state = self.state_of_snapshot(host, restored)
        self.checkers.started(host, restored)
        self.feed(host.node, Tick())

    def state_of_snapshot(self, host: Host, restored: Restored) -> int:
        if restored.snapshot.index == 0:
            return 0
        data = host.disk.snapshot_data(restored.snapshot)
        assert data is not None, "recovery chose a snapshot that does not verify"
        return decode_state(data)

    def stop(self, node: int, policy: str | None = None) -> None:
        """Kill the process (None: the page cache survives) or cut the power with a crash policy."""
        host = self.hosts[node]
        if policy is None:
            host.disk.sync()
        elif host.disk.power_cut(policy, self.rng) and self.lazy:
            host.dirty = True
        host.machine = None
        host.to_apply.clear()
        host.unsynced.clear()
        host.completions.clear()
        host.arriving.clear()
        self.checkers.stopped(host)

    def start(self, node: int) -> None:
        host = self.hosts[node]
        assert host.machine is None
        found = host.disk.found(dirty=host.dirty)
        self._start(host, self.recover(GROUP, node, found))

    def up(self) -> list[int]:
        return [node for node, host in self.hosts.items() if host.machine is not None]

    def machine(self, node: int) -> Machine:
        machine = self.hosts[node].machine
        assert machine is not None
        return machine

    # Stepping

    def feed(self, node: int, event: Input) -> Ready:
        host = self.hosts[node]
        machine = self.machine(node)
        ready = machine.step(event)
        self.checkers.stepped(host, event, ready)
        self.carry_out(host, ready)
        return ready

    def feed_batch(self, node: int, events: list[Input]) -> None:
        """Several inputs, one Ready: one persist and one sync for all of them."""
        host = self.hosts[node]
        ready = self.machine(node).step_batch(events)
        self.checkers.stepped(host, events[-1], ready)
        self.carry_out(host, ready)

    def carry_out(self, host: Host, ready: Ready) -> None:
        machine = host.machine
        assert machine is not None
        if ready.persist is not None:
            self.persist(host, ready.persist)
        for write in ready.snapshot_writes:
            self.write_snapshot(host, write)
        for message in ready.messages:
            if message.target in self.hosts:
                self.network.append(message)
        host.to_apply.extend(ready.committed)
        for load in ready.loads:
            host.completions.append(self.load(host, load))
        for read in ready.snapshot_reads:
            host.completions.append(self.read_snapshot(host, read))
        for event in ready.events:
            if isinstance(event, StandingChanged) and event.standing is Standing.SOUND:
                host.dirty = False

    def persist(self, host: Host, persist: Persist) -> None:
        machine = self.machine(host.node)
        data = bytes(host.arriving) if persist.snapshot is not None else b""
        host.disk.persist(persist, machine.core.incarnation, data)
        if persist.snapshot is not None:
            self.install(host, persist)
        if not self.lazy:
            host.unsynced.append(persist)
            return
        # Acknowledged from the page cache and synced some time later, but for term and vote.
        if persist.hard is not None:
            self.sync(host.node)
        host.completions.append(Persisted(persist.number))

    def install(self, host: Host, persist: Persist) -> None:
        """Load a received snapshot into the state machine, unless that is ahead of it already."""
        assert persist.snapshot is not None
        if persist.snapshot.index > host.applied:
            host.state = decode_state(bytes(host.arriving))
            host.applied = persist.snapshot.index
            self.checkers.snapshot_taken(host, host.applied, host.state)
        while host.to_apply and host.to_apply[0].index <= host.applied:
            host.to_apply.popleft()

    def sync(self, node: int) -> None:
        """One fsync: everything written so far is durable, then the promise, then the completion."""
        host = self.hosts[node]
        machine = self.machine(node)
        if machine.standing is Standing.FAILED:
            host.unsynced.clear()
            return
        last = host.unsynced[-1].number if host.unsynced else 0
        host.unsynced.clear()
        host.disk.sync()
        log = machine.log
        end = log.unstable_from - 1  # everything before it was handed over for persisting
        host.disk.promise(end, log.term(end) or 0, machine.core.incarnation)
        self.checkers.synced(host)
        if last:
            self.feed(node, Persisted(last))

    def sync_fails(self, node: int) -> None:
        """The fsync returns an error, and what was written since the last one is gone: the host must say so."""
        host = self.hosts[node]
        host.disk.power_cut("lost", self.rng)
        self.feed(node, StorageFailed("fsync: input/output error"))

    def apply(self, node: int, count: int = 1) -> None:
        host = self.hosts[node]
        for _ in range(min(count, len(host.to_apply))):
            entry = host.to_apply.popleft()
            host.state = apply_to(host.state, entry)
            host.applied = entry.index
        if host.applied > self.machine(node).log.applied:
            self.feed(node, Applied(host.applied))

    def complete(self, node: int) -> None:
        """The next completion of a read or a write that the node waits for."""
        host = self.hosts[node]
        if host.completions:
            self.feed(node, host.completions.popleft())

    def load(self, host: Host, load: Load) -> Input:
        entries: list[Entry] = []
        size = 0
        for index in range(load.first, load.last + 1):
            entry = host.disk.read(index)
            if entry is None or (entries and size > load.bytes_max):
                break
            size += len(entry.data)
            entries.append(entry)
        return Loaded(load, entries) if entries else Faulty(load.first, load.first)

    def read_snapshot(self, host: Host, read: SnapshotRead) -> Input:
        data = host.disk.snapshot_data(read.meta)
        return SnapshotPart(read, data[read.offset : read.offset + read.bytes_max] if data is not None else None)

    def write_snapshot(self, host: Host, write: SnapshotWrite) -> None:
        del host.arriving[write.offset :]
        host.arriving += write.data
        if write.last:
            data = bytes(host.arriving)
            ok = len(data) == write.meta.size and digest_of(data) == write.meta.digest
            host.completions.append(SnapshotStored(write.meta, ok))

    def deliver_batch(self, messages: list[Message]) -> None:
        """Messages of one target in one step."""
        node = messages[0].target
        arriving = [Receive(message) for message in messages if not self.is_cut(message)]
        if self.hosts[node].machine is not None and arriving:
            self.feed_batch(node, list(arriving))

    # What a test may do

    def tick(self, node: int) -> None:
        self.feed(node, Tick())

    def is_cut(self, message: Message) -> bool:
        return (message.source, message.target) in self.cut

    def deliver(self, message: Message) -> None:
        """Hand over one message that was taken from the network. Links that are cut and dead nodes swallow it."""
        if self.hosts[message.target].machine is not None and not self.is_cut(message):
            self.feed(message.target, Receive(message))

    def propose(self, node: int, *payloads: bytes) -> Ready:
        return self.feed(node, Propose(list(payloads)))

    def snapshot(self, node: int, *, keep: int = 0) -> bool:
        """Take a snapshot of what is applied, verified and durable at once, and let the log before it go."""
        host, machine = self.hosts[node], self.machine(node)
        if machine.standing is Standing.FAILED:
            return False
        if host.applied != machine.log.applied or host.applied <= machine.log.snapshot.index:
            return False
        data = encode_state(host.state)
        meta = machine.snapshot_meta(host.applied, len(data), digest_of(data))
        if meta is None:
            return False
        host.disk.store_snapshot(meta, data, machine.core.incarnation)
        self.sync(node)
        self.checkers.snapshot_taken(host, meta.index, host.state)
        self.feed(node, SnapshotTaken(meta))
        index = max(meta.index - keep, 0)
        host.disk.write(("release", min(index, machine.log.stable)))
        self.feed(node, Compact(index))
        return True

    def isolate(self, *nodes: int) -> None:
        """Cut these nodes off from the others, both ways."""
        self.cut = {(a, b) for a in self.hosts for b in self.hosts if (a in nodes) != (b in nodes)}

    def heal(self) -> None:
        self.cut = set()

    def drain(self, limit: int = 20_000) -> None:
        """Carry out everything that is under way, in order, until nothing is left."""
        for _ in range(limit):
            busy = False
            for node in self.up():
                host = self.hosts[node]
                if host.completions:
                    self.complete(node)
                    busy = True
                elif host.unsynced or (self.lazy and host.disk.pending):
                    self.sync(node)
                    busy = True
                elif host.to_apply:
                    self.apply(node, 100)
                    busy = True
            if self.network:
                network, self.network = self.network, []
                for message in network:
                    self.deliver(message)
                busy = True
            if not busy:
                return
        raise AssertionError("the world never comes to rest")

    def run(self, ticks: int, until: Callable[[], bool] | None = None) -> bool:
        """Let virtual time pass, everything in order. Whether `until` came true."""
        self.drain()
        for _ in range(ticks):
            if until is not None and until():
                return True
            for node in self.up():
                self.tick(node)
                self.drain()
        return until is None or until()

    def leaders(self) -> list[int]:
        return [node for node in self.up() if self.machine(node).role is Role.LEADER]

    def leader(self) -> int:
        """The leader of the highest term."""
        return max(self.leaders(), key=lambda node: self.machine(node).term)

    def elect(self, node: int) -> None:
        """Make `node` lead, by letting it campaign in peace."""
        from tnats.raft.effects import Campaign

        for _ in range(50):
            self.drain()
            if self.machine(node).role is Role.LEADER:
                return
            for other in self.up():
                if other != node:
                    self.machine(other).core.election_elapsed = self.options.election_ticks
            self.feed(node, Campaign())
            self.drain()
        raise AssertionError(f"node {node} does not win")

    def converged(self) -> bool:
        """One leader, everybody sound, everything applied everywhere, one state."""
        up = self.up()
        if len(self.leaders()) != 1:
            return False
        leader = self.machine(self.leaders()[0])
        members = [node for node in up if node in leader.membership.by_node]
        return all(
            self.machine(node).standing is Standing.SOUND
            and self.hosts[node].applied == leader.log.last_index
            and self.hosts[node].state == self.hosts[leader.node].state
            for node in members
        )
