"""The commands of the golden files for one consensus group, and how their traces are printed."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
from tests.golden.datadriven import Case
from tests.properties.raft.disk import Disk
from tests.properties.raft.world import GROUP, SMALL, Host, World

from tnats.errors import InvariantBroken
from tnats.raft import messages as m
from tnats.raft.effects import (
    Accepted,
    Campaign,
    Census,
    Event,
    Halted,
    Input,
    PeerLost,
    ProposeChange,
    Read,
    Ready,
    Repaired,
    Resumed,
    RoleChanged,
    StandingChanged,
    TransferLeader,
)
from tnats.raft.membership import Change, ChangeKind, Membership
from tnats.raft.messages import Holding, Message, SnapshotMeta, Standing
from tnats.raft.roles import Role


def span(entries: list[m.Entry]) -> str:
    """Entries as index/term, runs of one term shortened."""
    runs: list[list[m.Entry]] = []
    for entry in entries:
        if runs and runs[-1][-1].term == entry.term and runs[-1][-1].index == entry.index - 1:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return " ".join(
        f"{run[0].index}/{run[0].term}" if len(run) == 1 else f"{run[0].index}-{run[-1].index}/{run[0].term}"
        for run in runs
    )


def boot(incarnation: int) -> str:
    """An incarnation without its random part."""
    return f"boot {incarnation >> 16}" if incarnation else "founder"


def members(membership: Membership) -> str:
    parts = []
    for member in membership.members:
        kind = "" if member.voter else " learner"
        admitted = f" from {boot(member.incarnation)}" if member.incarnation else ""
        returning = " returning" if member.returning else ""
        parts.append(f"{member.node}{kind}{admitted}{returning}")
    return ", ".join(parts) or "unknown"


def value(name: str, given: object) -> str:
    if isinstance(given, SnapshotMeta):
        return f"{given.index}/{given.term}"
    if isinstance(given, Membership):
        return f"({members(given)})"
    if name == "standing":
        return Standing(given).name  # type: ignore[arg-type]
    if name == "holding":
        return Holding(given).name  # type: ignore[arg-type]
    if name in ("admits", "since", "nonce", "seen"):
        return "none" if given == -1 else boot(given)  # type: ignore[arg-type]
    if name == "entries":
        return f"[{span(given)}]"  # type: ignore[arg-type]
    if name == "data":
        return f"{len(given)} bytes"  # type: ignore[arg-type]
    return str(given)


def line_of(message: Message) -> str:
    fields = []
    for field in attrs.fields(type(message))[4:]:
        given = getattr(message, field.name)
        if isinstance(given, bool):
            if given:
                fields.append(field.name)
        else:
            fields.append(f"{field.name}={value(field.name, given)}")
    return (
        f"{message.source}->{message.target} {type(message).__name__} term={message.term} {' '.join(fields)}".rstrip()
    )


def event_line(event: Event) -> str:
    match event:
        case RoleChanged(role, term, leader, cause):
            return f"{Role(role).name} in term {term}, leader {leader}: {cause}"
        case StandingChanged(standing, reason):
            return f"{standing.name}: {reason}"
        case Halted(first, last, reason):
            return f"HALTED {first}-{last}: {reason}"
        case Resumed():
            return "resumed"
        case Census(term, last_index, unsound):
            return f"census in term {term}: log ends at {last_index}, not sound were {list(unsound)}"
        case Repaired(first, last):
            return f"repaired {first}-{last}"


class Traced(World):
    """A world that writes down what every step led to."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.trace: list[str] = []
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.trace.clear()

    def feed(self, node: int, event: Input) -> Ready:
        at = len(self.network)
        try:
            ready = super().feed(node, event)
        except InvariantBroken as broken:
            self.trace.append(f"{node} STOPS: {broken}")
            self.hosts[node].machine = None
            return Ready()
        self.note(node, ready)
        self.trace += [f"  {line_of(message)}" for message in self.network[at:]]
        return ready

    def note(self, node: int, ready: Ready) -> None:
        self.trace += [f"{node} {event_line(event)}" for event in ready.events]
        persist = ready.persist
        if persist is not None:
            parts = []
            if persist.hard is not None:
                standing = f" {persist.hard.standing.name}" if persist.hard.standing else ""
                parts.append(f"term {persist.hard.term} vote {persist.hard.vote}{standing}")
            if persist.snapshot is not None:
                parts.append(f"snapshot {persist.snapshot.index}{', discard log' if persist.discard_log else ''}")
            if persist.entries:
                parts.append(f"entries {span(persist.entries)}")
            parts += [f"repairs {span(rewrite.entries)}" for rewrite in persist.repairs]
            if persist.membership is not None:
                parts.append(f"members {members(persist.membership)}")
            self.trace.append(f"{node} persists {'; '.join(parts)}")
        if ready.committed:
            self.trace.append(f"{node} applies {span(list(ready.committed))}")
        for read in ready.reads:
            self.trace.append(f"{node} read {read.context}: {f'at {read.index}' if read.ok else 'refused'}")
        for proposal in ready.proposals:
            if isinstance(proposal, Accepted):
                self.trace.append(f"{node} accepted {proposal.first}-{proposal.last} in term {proposal.term}")
            else:
                self.trace.append(f"{node} refused: {proposal.reason}; ask {proposal.leader}")


class Stage:
    """One golden file's world."""

    def __init__(self) -> None:
        self.world = Traced(random.Random(1))
        self.image: dict[int, Disk] = {}
        self.commands: dict[str, Callable[[Case], str | None]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }

    def handle(self, case: Case) -> str:
        self.world.trace = []
        printed = self.commands[case.command](case)
        lines = self.world.trace if not case.flag("quiet") else []
        return "\n".join([*lines, *([printed] if printed else [])])

    def node(self, case: Case) -> int:
        return int(case.words[0])

    def do_new(self, case: Case) -> str:
        nodes = tuple(range(1, case.number("nodes", 3) + 1))
        spare = tuple(int(node) for node in case.keys.get("spare", []))
        changes = {
            name: case.number(name, 0)
            for name in ("quiesce_ticks", "overrun_ticks", "uncommitted_bytes_max", "append_bytes_max")
            if name in case.keys
        }
        options = attrs.evolve(SMALL, **changes)
        self.world = Traced(random.Random(1), nodes, spare=spare, options=options, lazy=case.flag("lazy"))
        self.world.drain()
        self.world.trace = []
        return f"{len(nodes)} voters"

    def do_elect(self, case: Case) -> None:
        self.world.elect(self.node(case))

    def do_expire(self, case: Case) -> None:
        """Nobody has heard from a leader lately: the lease is over everywhere."""
        for node in self.world.up():
            self.world.machine(node).core.election_elapsed = self.world.options.election_ticks

    def do_campaign(self, case: Case) -> None:
        self.world.feed(self.node(case), Campaign())

    def do_propose(self, case: Case) -> None:
        payloads = [word.encode() for word in case.words[1:] if word != "quiet"]
        self.world.propose(self.node(case), *payloads * case.number("times", 1))

    def do_settle(self, case: Case) -> None:
        self.world.drain()

    def matching(self, case: Case) -> list[Message]:
        """Messages on their way that go from, to, and are of the kind given."""
        return [
            message
            for message in self.world.network
            if case.number("source", message.source) == message.source
            and case.number("target", message.target) == message.target
            and case.key("kind", type(message).__name__) == type(message).__name__
        ][: case.number("count", 1_000_000)]

    def do_deliver(self, case: Case) -> None:
        for message in self.matching(case):
            self.world.network.remove(message)
            if case.flag("twice"):
                self.world.deliver(message)
            self.world.deliver(message)

    def do_drop(self, case: Case) -> str:
        dropped = self.matching(case)
        for message in dropped:
            self.world.network.remove(message)
        return f"{len(dropped)} dropped"

    def do_sync(self, case: Case) -> None:
        self.world.sync(self.node(case))

    def do_apply(self, case: Case) -> None:
        self.world.apply(self.node(case), 1_000)

    def do_tick(self, case: Case) -> None:
        for _ in range(case.number("times", 1)):
            self.world.tick(self.node(case))

    def do_run(self, case: Case) -> None:
        self.world.run(case.number("ticks", 1))

    def do_kill(self, case: Case) -> None:
        self.world.stop(self.node(case))

    def do_crash(self, case: Case) -> None:
        self.world.stop(self.node(case), case.key("policy", "lost"))

    def do_start(self, case: Case) -> None:
        self.world.start(self.node(case))

    def do_isolate(self, case: Case) -> None:
        self.world.isolate(*[int(word) for word in case.words])

    def do_cut(self, case: Case) -> None:
        source, target = (int(word) for word in case.words)
        self.world.cut.add((source, target))

    def do_heal(self, case: Case) -> None:
        self.world.heal()

    def do_lose(self, case: Case) -> None:
        self.damage(case, lambda data: None)

    def do_flip(self, case: Case) -> None:
        self.damage(case, lambda data: data[:-1] + bytes([data[-1] ^ 1]))

    def damage(self, case: Case, how: Callable[[bytes], bytes | None]) -> None:
        disk = self.world.hosts[self.node(case)].disk
        for thing in case.words[1:]:
            for image in (disk.durable, disk.cached):
                if thing.isdigit():
                    data = image.entries[int(thing)]
                    image.entries[int(thing)] = how(data) if data is not None else None
                elif thing == "snapshots":
                    image.snapshots.clear()
                elif thing in ("hard", "membership"):
                    setattr(image, thing, how(getattr(image, thing)))

    def do_wipe(self, case: Case) -> None:
        self.world.stop(self.node(case), "lost")
        self.world.hosts[self.node(case)].disk = Disk(GROUP, self.node(case))

    def do_image(self, case: Case) -> None:
        host = self.world.hosts[self.node(case)]
        self.image[host.node] = Disk(GROUP, host.node, host.disk.durable.copy(), host.disk.durable.copy())

    def do_rollback(self, case: Case) -> None:
        node = self.node(case)
        self.world.stop(node)
        self.world.hosts[node].disk = self.image[node]
        checkers = self.world.checkers
        checkers.acted_term[node] = 0
        checkers.votes = {key: vote for key, vote in checkers.votes.items() if key[0] != node}

    def do_snapshot(self, case: Case) -> str:
        took = self.world.snapshot(self.node(case), keep=case.number("keep", 0))
        return "taken" if took else "nothing to take"

    def do_read(self, case: Case) -> None:
        self.world.feed(self.node(case), Read(int(case.words[1])))

    def do_transfer(self, case: Case) -> None:
        self.world.feed(self.node(case), TransferLeader(case.number("to", 0)))

    def do_change(self, case: Case) -> None:
        self.world.feed(self.node(case), ProposeChange(Change(ChangeKind(case.words[1]), int(case.words[2]))))

    def do_fail(self, case: Case) -> None:
        self.world.sync_fails(self.node(case))

    def do_lost(self, case: Case) -> None:
        self.world.feed(self.node(case), PeerLost(int(case.words[1])))

    def do_status(self, case: Case) -> str:
        return "\n".join(self.status(host) for host in self.world.hosts.values())

    def status(self, host: Host) -> str:
        machine = host.machine
        if machine is None:
            return f"{host.node} down"
        log = machine.log
        faulty = f" faulty {[(fault.first, fault.last) for fault in log.faulty]}" if log.faulty else ""
        asleep = " asleep" if machine.quiescent else ""
        halt = f" halted {machine.core.halt.first}-{machine.core.halt.last}" if machine.core.halt is not None else ""
        return (
            f"{host.node} {machine.role.name} {machine.standing.name} term {machine.term} leader {machine.leader} "
            f"log {log.base}-{log.last_index}/{log.last_term} commit {log.commit} applied {log.applied}"
            f"{faulty}{asleep}{halt}"
        )

    def do_logs(self, case: Case) -> str:
        lines = []
        for host in self.world.hosts.values():
            machine = host.machine
            if machine is not None:
                lines.append(f"{host.node} terms {machine.log.terms[1:]} members {members(machine.membership)}")
        return "\n".join(lines)
