"""How each kind of fault is carried out in a simulated world.

A kind is a generator function of a stage and a fault: what it does before its first `yield` is the blow, each `yield`
gives the nanoseconds until it goes on, and its end is the end of the fault. It is closed early when the safety phase
ends, so what must be undone stands in `with` or `finally`. A fault that finds nothing to strike yields nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Mapping
from typing import Any

from tnats.harness.faults import Fault
from tnats.harness.sim.stage import Stage
from tnats.limits import MILLISECOND_NS, SECOND_NS
from tnats.runtime.sim import disk_faults, rules
from tnats.runtime.sim.disk_faults import CHANGING, Delay, DiskFault, Effect, Fail, Misdirect, SyncFault
from tnats.runtime.sim.disk_faults import Kind as CallKind
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.runtime.sim.node import Node
from tnats.runtime.sim.rules import Rule

Act = Generator[int, None, None]
SimKind = Callable[[Stage, Fault], Act]

SHORT_NS = SECOND_NS // 2
FULL_QUEUE_NS = 400_000_000
"""How long a queue of a line that is full may take."""
DOUBLES_MAX = 1000
"""So many numbers behind a file's own are tried for a copy of it."""
OTHER_PLACE = 512
"""How far off a misdirected write lands in its file."""


def lasting(fault: Fault) -> int:
    """How long a fault goes on that does not say so."""
    return fault.number("for_ns", SECOND_NS)


# ------------------------------------------------------------------ network


def by_rule(make: Callable[[Stage, Fault], Rule]) -> SimKind:
    """A network rule for the time of the fault."""

    def act(stage: Stage, fault: Fault) -> Act:
        with stage.world.fabric.apply(make(stage, fault)):
            yield lasting(fault)

    return act


def deaf(stage: Stage, fault: Fault) -> Rule:
    targets, others = stage.targets(fault), stage.others(fault)
    is_in = fault.choice("way", ("in", "out"), "in") == "in"
    return rules.deafen(others, targets) if is_in else rules.deafen(targets, others)


def drop_connections(stage: Stage, fault: Fault) -> Act:
    for name in stage.targets(fault):
        for conn in list(stage.world.nodes[name].host.conns):
            conn.hang_up()
    yield 0


def flood(stage: Stage, fault: Fault) -> Act:
    """The queue in front of a line that is full holds what waits for up to so long (RFC 8290 has the picture)."""
    sides = stage.targets(fault), stage.others(fault)
    with (
        stage.world.fabric.apply(rules.slow(*sides, bytes_per_second=fault.number("rate_count", 50_000))),
        stage.world.fabric.apply(rules.delay(*sides, added_ns=FULL_QUEUE_NS // 2, jitter_ns=FULL_QUEUE_NS)),
    ):
        yield lasting(fault)


def half_open(stage: Stage, fault: Fault) -> Act:
    targets, others = stage.targets(fault), stage.others(fault)
    for name in targets:
        for other in others:
            stage.world.fabric.forget_between(name, other)
    with stage.world.fabric.apply(rules.swallow(targets, others)):
        yield lasting(fault)


# ------------------------------------------------------------------ processes and clocks


def down_by(blow: Callable[[Fault, Node], object]) -> SimKind:
    """The node ends in some way and comes back after the fault's down time."""

    def act(stage: Stage, fault: Fault) -> Act:
        with stage.down(stage.nodes(fault), lambda node: blow(fault, node)):
            yield fault.number("down_ns", SHORT_NS)

    return act


def crash_loop(stage: Stage, fault: Fault) -> Act:
    nodes = stage.nodes(fault)
    for _ in range(fault.number("times_count", 3)):
        with stage.down(nodes, Node.kill):
            yield fault.number("down_ns", SHORT_NS)
        yield fault.number("up_ns", SHORT_NS)


def move(stage: Stage, fault: Fault) -> Act:
    nodes = stage.nodes(fault)
    with stage.down(nodes, Node.kill):
        for node in nodes:
            address = stage.world.fabric.move(node.host)
            stage.recording.note(node.name, "address", f"is at {address} from now on")
        yield fault.number("down_ns", SHORT_NS)


def lose_power(fault: Fault, node: Node) -> None:
    node.power_loss(policy_of(fault))


def policy_of(fault: Fault) -> CrashPolicy:
    """What a loss of power leaves. Raises FaultError."""
    return CrashPolicy(fault.choice("policy", [policy.value for policy in CrashPolicy], CrashPolicy.STRICT.value))


def pause(stage: Stage, fault: Fault) -> Act:
    with stage.paused(stage.nodes(fault)):
        yield lasting(fault)


def slow_processor(stage: Stage, fault: Fault) -> Act:
    with stage.slow(stage.nodes(fault), fault.number("step_ns", MILLISECOND_NS)):
        yield lasting(fault)


def is_back(fault: Fault) -> bool:
    """Whether a clock goes the other way. Raises FaultError."""
    return fault.choice("way", ("forth", "back"), "forth") == "back"


def distance(fault: Fault) -> int:
    by_ns = fault.number("by_ns", SECOND_NS)
    return -by_ns if is_back(fault) else by_ns


def jump(stage: Stage, fault: Fault) -> Act:
    for node in stage.nodes(fault):
        node.oscillator.jump_wall(distance(fault))
    yield 0


def drift(stage: Stage, fault: Fault) -> Act:
    ppm = fault.number("ppm_count", 100)
    nodes = stage.nodes(fault)
    for node in nodes:
        node.oscillator.drift(-ppm if is_back(fault) else ppm)
    try:
        yield lasting(fault)
    finally:
        for node in nodes:
            node.oscillator.drift(0)


def strobe(stage: Stage, fault: Fault) -> Act:
    by_ns, period_ns = fault.number("by_ns", SECOND_NS), max(MILLISECOND_NS, fault.number("period_ns", SHORT_NS))
    ahead = False
    try:
        for _ in range(max(1, lasting(fault) // period_ns)):
            ahead = not ahead
            for node in stage.nodes(fault):
                node.oscillator.jump_wall(by_ns if ahead else -by_ns)
            yield period_ns
    finally:
        for node in stage.nodes(fault):
            node.oscillator.jump_wall(-by_ns if ahead else 0)


def send(name: str) -> SimKind:
    """A signal, and nothing else."""

    def act(stage: Stage, fault: Fault) -> Act:
        for node in stage.nodes(fault):
            node.signal(name)
        yield 0

    return act


# ------------------------------------------------------------------ disk: calls that go wrong


def calls(kinds: tuple[CallKind, ...], effect: Callable[[Fault], Effect]) -> SimKind:
    """A rule on the disk for the time of the fault."""

    def act(stage: Stage, fault: Fault) -> Act:
        times = fault.number("times_count", 0) or None
        glob = stage.glob(fault)
        with stage.disk_rules(
            stage.nodes(fault), lambda: DiskFault(kinds, effect(fault), glob=glob, times=times)
        ) as made:
            yield lasting(fault)
            stage.recording.probe(f"{fault.kind} met a call", sum(rule.fired for rule in made))

    return act


def sync_effect(fault: Fault) -> Effect:
    variant: Any = fault.choice("variant", ("once", "sticky", "silent"), "sticky")
    return SyncFault(variant)


def full(stage: Stage, fault: Fault) -> Act:
    with stage.full(stage.nodes(fault), fault.number("free_count", 0)):
        yield lasting(fault)


def exhausted(kinds: tuple[CallKind, ...], code: int) -> SimKind:
    """The kernel lacks something: these disk calls fail, and no connection is accepted."""

    def act(stage: Stage, fault: Fault) -> Act:
        nodes = stage.nodes(fault)
        with (
            stage.not_accepting(nodes, os.strerror(code).lower()),
            stage.disk_rules(nodes, lambda: DiskFault(kinds, Fail(code))),
        ):
            yield lasting(fault)

    return act


# ------------------------------------------------------------------ disk: damage at rest


def damaged(damage: Callable[[Stage, Fault, Node, str], object]) -> SimKind:
    """The process is killed, one drawn file is damaged, the process starts again."""

    def act(stage: Stage, fault: Fault) -> Act:
        nodes = [node for node in stage.nodes(fault) if stage.files(node, fault)]
        if nodes:
            with stage.down(nodes, Node.kill):
                for node in nodes:
                    path = node.drive.rng.choice(stage.files(node, fault))
                    damage(stage, fault, node, path)
                    stage.recording.note(node.name, "damage", f"{fault.kind} of {path}")
                yield fault.number("down_ns", SHORT_NS)

    return act


def flip(stage: Stage, fault: Fault, node: Node, path: str) -> None:
    disk_faults.damage_bits(node.drive.image, path, fault.number("bits_count", 2), node.drive.rng)


def swap(stage: Stage, fault: Fault, node: Node, path: str) -> None:
    folder = path.rpartition("/")[0]
    same = [other for other in stage.files(node, fault) if other != path and other.startswith(f"{folder}/")]
    if same:
        node.drive.image.swap(path, node.drive.rng.choice(same))


def duplicate(stage: Stage, fault: Fault, node: Node, path: str) -> None:
    """What a death may leave beside a file, or the file once more under a number that nobody gave it."""
    if path.endswith(".tmp"):
        return
    folder, _, name = path.rpartition("/")
    digits, dot, extension = name.partition(".")
    copy = f"{path}.tmp"
    if fault.choice("variant", ("leftover", "double"), "leftover") == "double" and digits.isdecimal():
        numbers = range(int(digits) + 1, int(digits) + DOUBLES_MAX)
        names = (f"{folder}/{number:0{len(digits)}}{dot}{extension}" for number in numbers)
        copy = next((name for name in names if not node.drive.image.is_file(name)), copy)
    node.drive.image.duplicate(path, copy)


def stale(stage: Stage, fault: Fault) -> Act:
    saved = []
    for node in stage.nodes(fault):
        paths = stage.files(node, fault)
        if paths:
            path = node.drive.rng.choice(paths)
            saved.append((node, path, disk_faults.save_chunks(node.drive.image, path, node.drive.rng)))
    if not saved:
        return
    yield lasting(fault)
    with stage.down([node for node, _, _ in saved], Node.kill):
        for node, path, chunks in saved:
            if node.drive.image.is_file(path):
                disk_faults.restore_chunks(node.drive.image, path, chunks)
        yield fault.number("down_ns", SHORT_NS)


def roll_back(stage: Stage, fault: Fault) -> Act:
    saved = [(node, node.drive.image.clone()) for node in stage.nodes(fault)]
    yield lasting(fault)
    with stage.down([node for node, _ in saved], Node.kill):
        for node, image in saved:
            image.crash(CrashPolicy.STRICT, node.drive.rng)
            node.drive.image = image
        yield fault.number("down_ns", SHORT_NS)


def wipe(fault: Fault, node: Node) -> None:
    node.kill()
    node.drive.wipe()


# ------------------------------------------------------------------ the table


SIM_KINDS: Mapping[str, SimKind] = {
    "N_PART": by_rule(lambda stage, fault: rules.partition(stage.targets(fault), stage.others(fault))),
    "N_ASYM": by_rule(deaf),
    "N_REJECT": by_rule(lambda stage, fault: rules.reject(stage.targets(fault), stage.others(fault))),
    "N_DELAY": by_rule(
        lambda stage, fault: rules.delay(
            stage.targets(fault),
            stage.others(fault),
            added_ns=fault.number("added_ns", SECOND_NS // 10),
            jitter_ns=fault.number("jitter_ns", 0),
        )
    ),
    "N_SLOW": by_rule(
        lambda stage, fault: rules.slow(
            stage.targets(fault), stage.others(fault), bytes_per_second=fault.number("rate_count", 10_000)
        )
    ),
    "N_RESET": by_rule(
        lambda stage, fault: rules.resets(
            stage.targets(fault), stage.others(fault), chance=fault.number("permille_count", 50) / 1000
        )
    ),
    "N_DROPCONN": drop_connections,
    "N_HALFOPEN": half_open,
    "N_CLOG": by_rule(lambda stage, fault: rules.clog(stage.targets(fault), stage.others(fault))),
    "N_FLOOD": flood,
    "N_ADDR": move,
    "N_CHUNK": by_rule(
        lambda stage, fault: rules.splits(
            stage.targets(fault), stage.others(fault), chance=fault.number("permille_count", 900) / 1000
        )
    ),
    "P_KILL": down_by(lambda fault, node: node.kill()),
    "P_TERM": down_by(lambda fault, node: node.signal("TERM")),
    "P_CRASHLOOP": crash_loop,
    "P_PAUSE": pause,
    "P_SLOWCPU": slow_processor,
    "T_JUMP": jump,
    "T_DRIFT": drift,
    "T_STROBE": strobe,
    "D_POWER": down_by(lose_power),
    "D_FSYNC_EIO": calls(("sync", "sync_dir"), sync_effect),
    "D_LYING": calls(("sync", "sync_dir"), lambda fault: SyncFault("lying")),
    "D_WRITE_EIO": calls(("write",), lambda fault: Fail(errno.EIO)),
    "D_READ_EIO": calls(("read",), lambda fault: Fail(errno.EIO)),
    "D_ENOSPC": full,
    "D_EROFS": calls(CHANGING, lambda fault: Fail(errno.EROFS)),
    "D_EMFILE": exhausted(("open", "create"), errno.EMFILE),
    "P_MEM": exhausted(("open", "create", "read"), errno.ENOMEM),
    "D_EACCES": calls(("open", "create"), lambda fault: Fail(errno.EACCES)),
    "D_BITFLIP": damaged(flip),
    "D_TRUNC": damaged(
        lambda stage, fault, node, path: disk_faults.damage_tail(node.drive.image, path, node.drive.rng)
    ),
    "D_ZERO": damaged(
        lambda stage, fault, node, path: disk_faults.damage_block(node.drive.image, path, node.drive.rng)
    ),
    "D_STALE": stale,
    "D_MISDIRECT": calls(("write",), lambda fault: Misdirect(offset=OTHER_PLACE)),
    "D_SWAPFILE": damaged(swap),
    "D_DUPFILE": damaged(duplicate),
    "D_WIPE": down_by(wipe),
    "D_ROLLBACK": roll_back,
    "D_SLOW": calls(
        ("write", "read", "sync", "rename", "unlink", "resize", "list"),
        lambda fault: Delay(factor=float(fault.number("factor_count", 10))),
    ),
    "O_RELOAD": send("HUP"),
    "O_LAMEDUCK": down_by(lambda fault, node: node.signal("USR2")),
}
"""Every kind of `tnats.harness.faults.KINDS` that one server can meet."""
REAL_WORDS = frozenset(("kind", "stop"))
"""Parameters of these kinds that mean something to real servers alone."""
