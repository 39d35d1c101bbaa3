"""Random schedules: a seed draws a world, which faults it will see and how often, and every step.

The nemesis stays within the contract: at most f replicas at a time are without their memory, and of every committed
entry one intact copy is left. Within that it may do anything at any moment. At the end everything heals, and the
group must come back, agree, and take another proposal.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
from tests.properties.raft.checkers import Violation
from tests.properties.raft.disk import POLICIES, Disk, flipped
from tests.properties.raft.world import GROUP, World

from tnats.raft.effects import ProposeChange, Read, TransferLeader
from tnats.raft.membership import Change, ChangeKind
from tnats.raft.messages import Message, Standing
from tnats.raft.roles import Role

HEAL_TICKS = 400


@attrs.define
class Swarm:
    """How often each kind of thing happens in this schedule; 0 is never."""

    deliver: float = 60.0
    deliver_batch: float = 0.0
    sync: float = 14.0
    apply: float = 10.0
    complete: float = 8.0
    tick: float = 9.0
    propose: float = 6.0
    read: float = 1.0
    drop: float = 0.0
    duplicate: float = 0.0
    crash: float = 0.0
    start: float = 1.5
    partition: float = 0.0
    heal: float = 1.0
    snapshot: float = 0.0
    transfer: float = 0.0
    change: float = 0.0
    damage: float = 0.0
    wipe: float = 0.0
    sync_fails: float = 0.0
    ordered: bool = True
    lazy: bool = False
    policies: tuple[str, ...] = POLICIES
    spoils: tuple[str, ...] = ("entries", "entries", "entries", "snapshot", "hard", "promise", "membership")


def draw_swarm(rng: random.Random) -> Swarm:
    """Each kind of fault is on with even chance, at a drawn intensity."""

    def maybe(normal: float) -> float:
        return rng.choice((0.0, normal * rng.choice((0.2, 1.0, 4.0))))

    return Swarm(
        deliver_batch=rng.choice((0.0, 0.0, 20.0)),
        tick=rng.choice((4.0, 9.0, 20.0, 40.0)),
        sync=rng.choice((4.0, 14.0, 30.0)),
        propose=rng.choice((2.0, 6.0, 12.0)),
        read=maybe(1.0),
        drop=maybe(2.0),
        duplicate=maybe(1.0),
        crash=maybe(0.6),
        partition=maybe(0.5),
        snapshot=maybe(1.0),
        transfer=maybe(0.4),
        change=maybe(0.5),
        damage=maybe(0.5),
        wipe=maybe(0.15),
        sync_fails=maybe(0.2),
        ordered=rng.random() < 0.6,
        lazy=rng.random() < 0.25,
        policies=tuple(sorted(rng.sample(POLICIES, rng.randint(1, len(POLICIES))))),
    )


class Nemesis:
    """One schedule in the making."""

    def __init__(self, world: World, swarm: Swarm, rng: random.Random) -> None:
        self.world = world
        self.swarm = swarm
        self.rng = rng
        self.without_memory: set[int] = set()
        self.serial = 0
        self.actions: dict[str, Callable[[], None]] = {
            "deliver": self.deliver,
            "deliver_batch": self.deliver_batch,
            "sync": self.sync,
            "apply": self.apply,
            "complete": self.complete,
            "tick": self.tick,
            "propose": self.propose,
            "read": self.read,
            "drop": self.drop,
            "duplicate": self.duplicate,
            "crash": self.crash,
            "start": self.start,
            "partition": self.partition,
            "heal": self.heal,
            "snapshot": self.snapshot,
            "transfer": self.transfer,
            "change": self.change,
            "damage": self.damage,
            "wipe": self.wipe,
            "sync_fails": self.sync_fails,
        }
        self.names = [name for name in self.actions if getattr(swarm, name) > 0]
        self.weights = [getattr(swarm, name) for name in self.names]

    def run(self, steps: int) -> None:
        for name in self.rng.choices(self.names, self.weights, k=steps):
            self.actions[name]()

    # Ordinary life

    def any_up(self) -> int | None:
        up = self.world.up()
        return self.rng.choice(up) if up else None

    def take_message(self) -> int | None:
        """Position of a message: any, or the oldest of its link when links keep order."""
        network = self.world.network
        if not network:
            return None
        at = self.rng.randrange(len(network))
        if self.swarm.ordered:
            link = (network[at].source, network[at].target)
            at = next(k for k, message in enumerate(network) if (message.source, message.target) == link)
        return at

    def deliver(self) -> None:
        at = self.take_message()
        if at is not None:
            self.world.deliver(self.world.network.pop(at))

    def deliver_batch(self) -> None:
        at = self.take_message()
        if at is None:
            return
        target = self.world.network[at].target
        size = self.rng.randint(1, 8)
        batch: list[Message] = []
        rest: list[Message] = []
        for message in self.world.network:
            (batch if message.target == target and len(batch) < size else rest).append(message)
        self.world.network = rest
        self.world.deliver_batch(batch)

    def drop(self) -> None:
        at = self.take_message()
        if at is not None:
            self.world.network.pop(at)

    def duplicate(self) -> None:
        at = self.take_message()
        if at is not None and len(self.world.network) < 200:
            self.world.network.append(self.world.network[at])

    def sync(self) -> None:
        node = self.any_up()
        if node is not None:
            self.world.sync(node)

    def apply(self) -> None:
        node = self.any_up()
        if node is not None:
            self.world.apply(node, self.rng.randint(1, 5))

    def complete(self) -> None:
        node = self.any_up()
        if node is not None:
            self.world.complete(node)

    def tick(self) -> None:
        node = self.any_up()
        if node is not None:
            self.world.tick(node)

    def propose(self) -> None:
        leaders = self.world.leaders()
        if leaders:
            count = self.rng.randint(1, 4)
            payloads = [b"%d" % (self.serial + k) for k in range(count)]
            self.serial += count
            self.world.propose(self.rng.choice(leaders), *payloads)

    def read(self) -> None:
        node = self.any_up()
        if node is not None:
            self.serial += 1
            self.world.feed(node, Read(self.serial))

    def snapshot(self) -> None:
        node = self.any_up()
        if node is not None:
            self.world.snapshot(node, keep=self.rng.choice((0, 3)))

    def transfer(self) -> None:
        leaders = self.world.leaders()
        if leaders:
            self.world.feed(self.rng.choice(leaders), TransferLeader(self.rng.choice(list(self.world.hosts))))

    def change(self) -> None:
        leaders = self.world.leaders()
        if not leaders or self.without_memory:
            return
        leader = self.rng.choice(leaders)
        node = self.rng.choice(list(self.world.hosts))
        kind = self.rng.choice([kind for kind in ChangeKind if kind is not ChangeKind.READMIT])
        voters = self.world.machine(leader).membership.voters
        if kind in (ChangeKind.REMOVE, ChangeKind.DEMOTE) and len(voters) <= 3 and node in voters:
            return
        self.world.feed(leader, ProposeChange(Change(kind, node)))

    # Faults

    def budget(self) -> int:
        """How many replicas may be without memory at a time: f of the smallest configuration in force anywhere."""
        sizes = [len(self.world.machine(node).membership.voters) for node in self.world.up()]
        sizes = [size for size in sizes if size]
        return (min(sizes, default=1) - 1) // 2

    def forgotten(self) -> set[int]:
        """Replicas that have lost something and do not count again yet."""
        for node in list(self.without_memory):
            machine = self.world.hosts[node].machine
            if machine is not None and machine.standing is Standing.SOUND:
                self.without_memory.discard(node)
        return self.without_memory

    def may_forget(self, node: int) -> bool:
        return len(self.forgotten() | {node}) <= self.budget()

    def crash(self) -> None:
        node = self.any_up()
        if node is None:
            return
        policy = self.rng.choice((None, *self.swarm.policies))
        if self.swarm.lazy and policy not in (None, "all"):
            if not self.may_forget(node):
                return
            self.without_memory.add(node)
        self.world.stop(node, policy)

    def start(self) -> None:
        down = [node for node, host in self.world.hosts.items() if host.machine is None]
        if down:
            self.world.start(self.rng.choice(down))

    def partition(self) -> None:
        nodes = list(self.world.hosts)
        kind = self.rng.choice(("isolate", "halves", "one way"))
        if kind == "isolate":
            self.world.isolate(self.rng.choice(nodes))
        elif kind == "halves":
            self.world.isolate(*self.rng.sample(nodes, len(nodes) // 2))
        else:
            deaf = self.rng.choice(nodes)
            self.world.cut = {(node, deaf) for node in nodes if node != deaf}

    def heal(self) -> None:
        self.world.heal()

    def sync_fails(self) -> None:
        node = self.any_up()
        if node is not None and not self.swarm.lazy and not self.world.machine(node).core.failed:
            self.world.sync_fails(node)

    def wipe(self) -> None:
        """The data directory is gone, the name stays."""
        node = self.any_up()
        if node is None or not self.may_forget(node):
            return
        self.without_memory.add(node)
        self.world.stop(node, "lost")
        self.world.hosts[node].disk = Disk(GROUP, node)
        self.world.start(node)

    def damage(self) -> None:
        """Stop a node, spoil something that has a good copy elsewhere, start it again."""
        node = self.any_up()
        if node is None:
            return
        what = self.rng.choice(self.swarm.spoils)
        disk = self.world.hosts[node].disk
        if what != "membership" and what != "entries" and not self.may_forget(node):
            return
        if what == "entries" and not self.copies_elsewhere(node):
            return
        if what == "membership" and not disk.durable.snapshots and not self.may_forget(node):
            return
        self.without_memory.add(node)
        self.world.stop(node)
        getattr(self, f"spoil_{what}")(disk)
        self.world.start(node)

    def copies_elsewhere(self, node: int) -> bool:
        """Whether every other replica is sound: then whatever this one loses is there as often as it was committed."""
        return all(
            host.machine is not None and host.machine.standing is Standing.SOUND
            for other, host in self.world.hosts.items()
            if other != node
        )

    def spoil_entries(self, disk: Disk) -> None:
        entries = disk.durable.entries
        if not entries:
            return
        rng = self.rng
        first = rng.choice(sorted(entries))
        how = rng.choice(("flip", "lose", "stale", "swap"))
        for index in range(first, first + rng.randint(1, 3)):
            data = entries.get(index)
            if data is None:
                continue
            new: bytes | None = None
            if how == "flip":
                new = flipped(data, rng)
            elif how == "stale":
                new = disk.older.get(index, data)
            elif how == "swap":
                new = entries[rng.choice(sorted(entries))]
            disk.change(lambda image, index=index, new=new: image.entries.__setitem__(index, new))  # type: ignore[misc]

    def spoil_snapshot(self, disk: Disk) -> None:
        if disk.durable.snapshots:
            index = self.rng.choice(sorted(disk.durable.snapshots))
            meta, data = disk.durable.snapshots[index]
            if data and self.rng.random() < 0.5:
                spoiled = (meta, flipped(data, self.rng))
                disk.change(lambda image: image.snapshots.__setitem__(index, spoiled))
            else:
                disk.change(lambda image: image.snapshots.pop(index, None) and None)

    def spoil_hard(self, disk: Disk) -> None:
        hard = disk.durable.hard
        if hard is None:
            return
        new = self.rng.choice((None, flipped(hard, self.rng), disk.older_hard))
        disk.change(lambda image: setattr(image, "hard", new))

    def spoil_promise(self, disk: Disk) -> None:
        slot = self.rng.randrange(2)
        disk.change(lambda image: image.promises.__setitem__(slot, None))

    def spoil_membership(self, disk: Disk) -> None:
        disk.change(lambda image: setattr(image, "membership", None))


def finish(world: World) -> None:
    """Everything heals: the group must come back and agree."""
    world.heal()
    for node, host in world.hosts.items():
        if host.machine is not None and host.machine.standing is Standing.FAILED:
            world.stop(node)
        if host.machine is None:
            world.start(node)
    if not world.run(HEAL_TICKS, world.converged):
        raise Violation("C20", f"the group does not come back: {describe(world)}")
    before = world.checkers.committed_max

    def serves() -> bool:
        if world.converged() and world.checkers.committed_max == before:
            world.propose(world.leader(), b"after all")
            world.drain()
        return world.converged() and world.checkers.committed_max > before

    if not world.run(HEAL_TICKS, serves):
        raise Violation("C20", f"the group takes no proposal: {describe(world)}")


def describe(world: World) -> str:
    parts = []
    for node, host in world.hosts.items():
        machine = host.machine
        if machine is None:
            parts.append(f"{node} down")
            continue
        log = machine.log
        parts.append(
            f"{node} {Role(machine.role).name} {machine.standing.name} term {machine.term} last {log.last_index} "
            f"commit {log.commit} applied {log.applied} faulty {log.faulty} halt {machine.core.halt} "
            f"members {machine.membership.members}"
        )
    return "; ".join(parts)


def run_schedule(
    seed: int,
    world_class: type[World] = World,
    *,
    steps: int = 800,
    swarm: Swarm | None = None,
    nodes: int = 0,
    heal: bool = True,
) -> World:
    """One schedule. Raises Violation, or InvariantBroken from inside a machine."""
    rng = random.Random(seed)
    swarm = swarm or draw_swarm(rng)
    count = nodes or rng.choice((3, 3, 3, 5))
    spare = (count + 1,) if swarm.change else ()
    world = world_class(rng, tuple(range(1, count + 1)), spare=spare, lazy=swarm.lazy)
    nemesis = Nemesis(world, swarm, rng)
    nemesis.run(steps)
    if heal:
        finish(world)
    return world
