"""The network as hardware: hosts, the directions between them, and the rules that trouble them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tnats.runtime.api import NetworkError
from tnats.runtime.sim import trace as kinds
from tnats.runtime.sim.chance import stream
from tnats.runtime.sim.rules import Condition, Rule, RuleGuard, loopback
from tnats.runtime.sim.timeline import Timeline
from tnats.runtime.sim.trace import Trace

if TYPE_CHECKING:
    from tnats.runtime.sim.conn import SimConn
    from tnats.runtime.sim.listener import SimListener

EPHEMERAL_PORT_FIRST = 32768


class Host:
    """A machine on the network, with what its kernel holds. Listeners and connections belong to incarnations."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.up = True
        self.listeners: dict[int, SimListener] = {}
        self.conns: dict[SimConn, None] = {}
        self.on_write: Callable[[bytes], None] | None = None
        """Told of the bytes of every write to a connection, as they leave the process."""
        self._port_next = EPHEMERAL_PORT_FIRST

    def free_port(self) -> int:
        """A port that nobody listens on."""
        while True:
            port = self._port_next
            self._port_next = EPHEMERAL_PORT_FIRST if port == 65535 else port + 1
            if port not in self.listeners:
                return port


class Link:
    """One direction between two hosts for one service port, with the condition that the rules in force give it."""

    __slots__ = ("condition", "held", "rng", "source", "target")

    def __init__(self, source: Host, target: Host, rng: random.Random) -> None:
        self.source = source
        self.target = target
        self.rng = rng
        self.condition = Condition()
        self.held: dict[Callable[[], object], None] = {}
        """What to try again once the link no longer holds its traffic."""

    @property
    def open(self) -> bool:
        """Whether what is sent now will arrive."""
        condition = self.condition
        return not (condition.blackhole or condition.hold) and self.target.up

    def draw_delay_ns(self) -> int:
        """How long one segment is under way."""
        condition = self.condition
        draw = self.rng.random()
        delay_ns = condition.delay_min_ns + int(draw * (condition.delay_max_ns - condition.delay_min_ns))
        if draw > 1 - condition.slow_chance:
            delay_ns *= condition.slow_factor
        return delay_ns


class Fabric:
    """All hosts and links of a world."""

    def __init__(self, timeline: Timeline, trace: Trace, seed: int) -> None:
        self.timeline = timeline
        self.trace = trace
        self.base = Condition()
        """The condition of links before any rule; change it before the first connection."""
        self.conn_count = 0
        self._seed = seed
        self._hosts: dict[str, Host] = {}
        self._by_address: dict[str, Host] = {}
        self._address_count = 0
        self._links: dict[tuple[str, str, int], Link] = {}
        self._guards: list[RuleGuard] = []

    def add_host(self, name: str) -> Host:
        """A new host with the next address of 10.0.0.0/16."""
        number = len(self._hosts) + 1
        host = Host(name, f"10.0.{number // 250}.{number % 250 + 1}")
        self._hosts[name] = host
        self._by_address[host.address] = host
        return host

    def move(self, host: Host) -> str:
        """Give a host that is down another address, under its old name; returns it."""
        del self._by_address[host.address]
        self._address_count += 1
        host.address = f"10.1.{self._address_count // 250}.{self._address_count % 250 + 1}"
        self._by_address[host.address] = host
        return host.address

    def host_at(self, address: str) -> Host | None:
        """The host with this numeric address."""
        return self._by_address.get(address)

    def resolve(self, name: str, asking: Host) -> str:
        """The numeric address of a host name or numeric address, as seen by `asking`. Raises NetworkError."""
        if name in ("localhost", "127.0.0.1", "::1") or name == asking.name:
            return "127.0.0.1" if name != asking.name else asking.address
        if name in self._hosts:
            return self._hosts[name].address
        if name.replace(".", "").isdigit() and name.count(".") == 3:
            return name
        raise NetworkError(f"cannot resolve {name}: name or service not known")

    def link(self, source: Host, target: Host, port: int) -> Link:
        """The direction from `source` to `target` for service `port`."""
        key = (source.name, target.name, port)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(source, target, stream(self._seed, "net", *key))
            link.condition = self._condition_of(key)
        return link

    # rules

    def apply(self, rule: Rule) -> RuleGuard:
        """Put `rule` in force behind those already in force."""
        guard = RuleGuard(self, rule)
        self._guards.append(guard)
        self._rules_changed()
        return guard

    def withdraw(self, guard: RuleGuard) -> None:
        """Take a rule out of force; no error if it is not in force."""
        if guard in self._guards:
            self._guards.remove(guard)
            self._rules_changed()

    def heal(self) -> None:
        """Take all rules out of force."""
        self._guards.clear()
        self._rules_changed()

    def _rules_changed(self) -> None:
        self.trace.add(kinds.RULE, len(self._guards), 0)
        for key, link in self._links.items():
            link.condition = self._condition_of(key)
            if link.held and not link.condition.hold:
                held = list(link.held)
                link.held.clear()
                for retry in held:
                    retry()

    def _condition_of(self, key: tuple[str, str, int]) -> Condition:
        source, target, port = key
        if source == target:
            return loopback()
        base = self.base
        condition = Condition(
            base.delay_min_ns,
            base.delay_max_ns,
            base.slow_chance,
            base.slow_factor,
            base.bytes_per_second,
            base.split_chance,
            base.reset_chance,
        )
        for guard in self._guards:
            if guard.rule.holds(source, target, port):
                guard.rule.change(condition)
        return condition

    # single blows

    def conns_between(self, one: str, other: str) -> list[SimConn]:
        """The ends at host `one` of its connections with host `other`, oldest first."""
        return [conn for conn in self._hosts[one].conns if conn.remote_host.name == other]

    def reset_between(self, one: str, other: str) -> int:
        """Reset all connections between two hosts, both ends at once. Returns how many."""
        conns = self.conns_between(one, other)
        for conn in conns:
            conn.break_both("connection reset by peer")
        return len(conns)

    def forget_between(self, one: str, other: str) -> int:
        """Silence all present connections between two hosts for ever, as a router that lost its table does.

        New ones work. Neither end hears of it. Returns how many.
        """
        conns = self.conns_between(one, other)
        for conn in conns:
            conn.silence()
        return len(conns)
