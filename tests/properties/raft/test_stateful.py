"""The same host under Hypothesis: rules instead of a drawn schedule, and failures shrunk to a few steps."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.properties.raft.disk import POLICIES
from tests.properties.raft.schedules import finish
from tests.properties.raft.world import World

from tnats.raft.effects import ProposeChange, Read, TransferLeader
from tnats.raft.membership import Change, ChangeKind
from tnats.raft.messages import Standing

NODES = st.sampled_from((1, 2, 3))


class Group(RuleBasedStateMachine):
    """Three voters and a spare. Every rule is one event; what must hold is checked inside the world."""

    @initialize(seed=st.integers(0, 2**16))
    def found(self, seed: int) -> None:
        self.world = World(random.Random(seed), (1, 2, 3), spare=(4,))
        self.serial = 0

    def alive(self, node: int) -> bool:
        return self.world.hosts[node].machine is not None

    @rule(pick=st.integers(0, 50), times=st.integers(1, 6))
    def deliver(self, pick: int, times: int) -> None:
        for _ in range(times):
            if self.world.network:
                self.world.deliver(self.world.network.pop(pick % len(self.world.network)))

    @rule(pick=st.integers(0, 50))
    def lose(self, pick: int) -> None:
        if self.world.network:
            self.world.network.pop(pick % len(self.world.network))

    @rule(node=NODES, times=st.integers(1, 9))
    def tick(self, node: int, times: int) -> None:
        for _ in range(times):
            if self.alive(node):
                self.world.tick(node)

    @rule(node=NODES)
    def sync(self, node: int) -> None:
        if self.alive(node):
            self.world.sync(node)

    @rule(node=NODES)
    def apply(self, node: int) -> None:
        if self.alive(node):
            self.world.complete(node)
            self.world.apply(node, 3)

    @rule(node=NODES, count=st.integers(1, 5))
    def propose(self, node: int, count: int) -> None:
        if self.alive(node):
            self.serial += 1
            self.world.propose(node, *[b"%d.%d" % (self.serial, k) for k in range(count)])

    @rule(node=NODES)
    def read(self, node: int) -> None:
        if self.alive(node):
            self.serial += 1
            self.world.feed(node, Read(self.serial))

    @rule(node=NODES, chosen=NODES)
    def transfer(self, node: int, chosen: int) -> None:
        if self.alive(node):
            self.world.feed(node, TransferLeader(chosen))

    @rule(node=NODES, kind=st.sampled_from((ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE, ChangeKind.DEMOTE)))
    def change(self, node: int, kind: ChangeKind) -> None:
        if self.alive(node):
            self.world.feed(node, ProposeChange(Change(kind, 4)))

    @rule(node=NODES)
    def snapshot(self, node: int) -> None:
        if self.alive(node):
            self.world.snapshot(node)

    @rule(node=NODES, policy=st.sampled_from((None, *POLICIES)))
    def crash(self, node: int, policy: str | None) -> None:
        if self.alive(node):
            self.world.stop(node, policy)

    @precondition(lambda self: len(self.world.up()) < 4)
    @rule(node=NODES)
    def start(self, node: int) -> None:
        if not self.alive(node):
            self.world.start(node)

    @rule(node=NODES)
    def isolate(self, node: int) -> None:
        self.world.isolate(node)

    @rule()
    def heal(self) -> None:
        self.world.heal()

    @rule()
    def run(self) -> None:
        self.world.run(6)

    @invariant()
    def everybody_is_sound(self) -> None:
        """Power loss with synced promises loses no memory: nobody may believe it did."""
        if hasattr(self, "world"):
            assert all(self.world.machine(node).standing is Standing.SOUND for node in self.world.up())

    def teardown(self) -> None:
        if hasattr(self, "world"):
            finish(self.world)


Group.TestCase.settings = settings(
    max_examples=40, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGroup = Group.TestCase
