"""What can be wrong with the network between two hosts, as an ordered chain of rules.

A rule says for which directions it holds and how it changes a direction's condition; later rules see what earlier
ones left. Rules are put in force by `Fabric.apply`, which returns a guard: leave its `with` block, or call `heal`,
and the rule is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import TracebackType
from typing import TYPE_CHECKING

from tnats.records import define, frozen

if TYPE_CHECKING:
    from tnats.runtime.sim.fabric import Fabric

MICROSECOND_NS = 1_000


@define
class Condition:
    """How one direction between two hosts behaves. The defaults are a sound local network."""

    delay_min_ns: int = 50 * MICROSECOND_NS
    delay_max_ns: int = 500 * MICROSECOND_NS
    slow_chance: float = 0.001
    """How often a segment takes `slow_factor` times as long (a switch's full queue, a busy neighbour)."""
    slow_factor: int = 50
    bytes_per_second: int = 1_000_000_000
    split_chance: float = 0.05
    """How often a segment is cut at a drawn place."""
    reset_chance: float = 0.0
    """How often a segment is cut short and followed by a reset."""
    blackhole: bool = False
    """Nothing arrives; senders retransmit."""
    hold: bool = False
    """Everything waits until the rule goes."""
    reject: bool = False
    """A firewall answers with resets: connections end, new ones are refused."""
    swallow: bool = False
    """New connections seem to come about, but the other side never learns of them."""


def loopback() -> Condition:
    """The condition inside one host, which no rule changes."""
    return Condition(delay_min_ns=5 * MICROSECOND_NS, delay_max_ns=50 * MICROSECOND_NS, slow_chance=0.0)


@frozen
class Rule:
    """`change` is made to the condition of every direction (source, target, service port) for which `holds`.

    The service port is the port that was listened on, for both directions of a connection.
    """

    name: str
    holds: Callable[[str, str, int], bool]
    change: Callable[[Condition], None]


class RuleGuard:
    """A rule in force. Heals at the end of a `with` block."""

    def __init__(self, fabric: Fabric, rule: Rule) -> None:
        self.rule = rule
        self._fabric = fabric

    def heal(self) -> None:
        """Take the rule out of force. Idempotent."""
        self._fabric.withdraw(self)

    def __enter__(self) -> RuleGuard:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.heal()


# ------------------------------------------------------------------ which directions


def between(
    one: Collection[str], other: Collection[str], *, one_way: bool = False, ports: Collection[int] = ()
) -> Callable[[str, str, int], bool]:
    """From hosts `one` to hosts `other`, and back unless `one_way`; only for service `ports` where given."""
    sources, targets, only = frozenset(one), frozenset(other), frozenset(ports)

    def holds(source: str, target: str, port: int) -> bool:
        if only and port not in only:
            return False
        if source in sources and target in targets:
            return True
        return not one_way and source in targets and target in sources

    return holds


# ------------------------------------------------------------------ what is wrong


def partition(one: Collection[str], other: Collection[str], *, ports: Collection[int] = ()) -> Rule:
    """Nothing passes between `one` and `other`; both sides retransmit and may go on after it heals."""
    return Rule("partition", between(one, other, ports=ports), lambda condition: assign(condition, blackhole=True))


def deafen(one: Collection[str], other: Collection[str], *, ports: Collection[int] = ()) -> Rule:
    """What `one` sends never reaches `other`, while the way back works."""
    holds = between(one, other, one_way=True, ports=ports)
    return Rule("deafen", holds, lambda condition: assign(condition, blackhole=True))


def reject(one: Collection[str], other: Collection[str], *, ports: Collection[int] = ()) -> Rule:
    """Resets and refusals between `one` and `other`: the fast kind of partition."""
    return Rule("reject", between(one, other, ports=ports), lambda condition: assign(condition, reject=True))


def clog(one: Collection[str], other: Collection[str], *, ports: Collection[int] = ()) -> Rule:
    """All traffic between `one` and `other` is held, and released in order when it heals."""
    return Rule("clog", between(one, other, ports=ports), lambda condition: assign(condition, hold=True))


def swallow(one: Collection[str], other: Collection[str], *, ports: Collection[int] = ()) -> Rule:
    """New connections from `one` are accepted by nobody: they open, and then nothing."""
    holds = between(one, other, one_way=True, ports=ports)
    return Rule("swallow", holds, lambda condition: assign(condition, swallow=True))


def delay(one: Collection[str], other: Collection[str], *, added_ns: int, jitter_ns: int = 0) -> Rule:
    """Everything between `one` and `other` takes `added_ns` to `added_ns + jitter_ns` longer."""

    def change(condition: Condition) -> None:
        condition.delay_min_ns += added_ns
        condition.delay_max_ns += added_ns + jitter_ns

    return Rule("delay", between(one, other), change)


def slow(one: Collection[str], other: Collection[str], *, bytes_per_second: int) -> Rule:
    """Each connection between `one` and `other` carries at most `bytes_per_second` in each direction."""
    return Rule("slow", between(one, other), lambda condition: assign(condition, bytes_per_second=bytes_per_second))


def resets(one: Collection[str], other: Collection[str], *, chance: float) -> Rule:
    """Each segment between `one` and `other` is, with `chance`, cut short and followed by a reset."""
    return Rule("resets", between(one, other), lambda condition: assign(condition, reset_chance=chance))


def splits(one: Collection[str], other: Collection[str], *, chance: float) -> Rule:
    """Each segment between `one` and `other` is cut at a drawn place with `chance`, again and again."""
    return Rule("splits", between(one, other), lambda condition: assign(condition, split_chance=chance))


def assign(condition: Condition, **values: object) -> None:
    """Set attributes of `condition`."""
    for name, value in values.items():
        setattr(condition, name, value)
