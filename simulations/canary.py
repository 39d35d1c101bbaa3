"""A scenario that must fail: it shows that the checkers look."""

from __future__ import annotations

from tnats.client import Message
from tnats.harness.sim.core import CoreDrill
from tnats.harness.sim.core_actor import Actor
from tnats.harness.sim.core_evidence import Interest
from tnats.harness.sim.plan import Operation


class HardOfHearing(Actor):
    """Hears every tenth message twice."""

    heard = 0

    def receive(self, interest: Interest, message: Message) -> None:
        super().receive(interest, message)
        self.heard += 1
        if self.heard % 10 == 0:
            super().receive(interest, message)


class Canary(CoreDrill):
    """Core messaging with clients that hear some messages twice."""

    must_fail = True

    def make_actor(self, name: str, operations: list[Operation], *, reconnects: bool) -> Actor:
        return HardOfHearing(self, name, operations, reconnects=reconnects)


scenario = Canary
