"""A scenario that follows a plan: a safety phase under faults, then a liveness phase in which everything must work.

Theory of operation
-------------------
* `draw(seed)` decides everything: sizes, faults, operations. `Drill(plan)` runs a plan, whoever made it.
* Safety phase: actors perform their operations, the nemesis carries out the faults, for the plan's `duration_ms`.
  Nothing needs to work here, but nothing wrong may happen.
* Then faults end, dead nodes start, and within `LIVE_NS` everything must work again: `prove`.
* `judge` looks at what was recorded and yields violations; the first one is the verdict.

A subclass names its kinds of faults, its probes (what must be met at least once in `probes_within` seeds), and fills
in `draw`, `setup`, `act`, `prove` and `judge`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, ClassVar, get_args

from tnats.harness.faults import Fault
from tnats.harness.history import History
from tnats.harness.scenario import Scenario, Violation
from tnats.harness.sim.ledger import CLASSES, Ledger
from tnats.harness.sim.nemesis import Nemesis
from tnats.harness.sim.plan import Plan
from tnats.harness.sim.recording import Recording
from tnats.harness.sim.stage import Stage
from tnats.limits import MILLISECOND_NS, SECOND_NS
from tnats.runtime.sim.chance import stream
from tnats.runtime.sim.node import Node
from tnats.runtime.sim.scheduler import Policy
from tnats.runtime.sim.world import Settings, World

LIVE_NS = 30 * SECOND_NS
"""Within this virtual time after the faults everything must work again: dead connections are found out by pings
within three seconds, and the way back waits at most two."""

TIME_MAX_NS = 600 * SECOND_NS
COLD = (0, 0, 20, 100)
"""How many of a hundred reads find nothing in the page cache, in different seeds."""


def settings_of(plan: Plan) -> Settings:
    """How the world of a plan is run: `policy` of the schedule, `buggify` (1 or 0). Raises FaultError."""
    policy: Any = plan.choice("policy", get_args(Policy), "random")
    return Settings(
        policy=policy,
        buggify=bool(plan.parameters.get("buggify", 1)),
        time_max_ns=TIME_MAX_NS,
    )


class Drill(Scenario):
    """See the module."""

    kinds: ClassVar[tuple[str, ...]] = ()
    probes: ClassVar[tuple[str, ...]] = ()
    probes_within: ClassVar[int] = 200
    calm: ClassVar[dict[str, int | str]] = {"policy": "fifo", "buggify": 0, "cold": 0}
    """What shrinking tries to set parameters to."""

    def __init__(self, plan: Plan | None = None) -> None:
        self._plan = plan
        self.recording: Recording
        self.stage: Stage
        self.ledger: Ledger
        self.nemesis: Nemesis

    @property
    def plan(self) -> Plan:
        assert self._plan is not None
        return self._plan

    @property
    def history(self) -> History | None:
        """What clients saw, in the form that Jepsen's tools read; None where a drill keeps none."""
        return None

    @classmethod
    def name(cls) -> str:
        """The scenario's name: that of its file."""
        return cls.__module__.rpartition(".")[2]

    @classmethod
    def draw(cls, seed: int) -> Plan:
        """The plan of a seed."""
        return Plan(cls.name(), seed, {"duration_ms": 0}, (), ())

    @classmethod
    def rng(cls, seed: int) -> random.Random:
        """What `draw` draws from."""
        return stream(seed, "plan", cls.name())

    # ------------------------------------------------------------------ phases

    async def setup(self, world: World) -> None:
        if self._plan is None:
            self._plan = self.draw(world.seed)
        self.recording = Recording(world.now_ns)
        self.stage = Stage(world, self.recording)
        self.ledger = Ledger(self.plan.choice("budget", CLASSES, "B1"))
        self.nemesis = Nemesis(self.stage, self.plan.faults, self.ledger, self.struck)
        await self.prepare(world)

    async def faults(self, world: World) -> None:
        await self.nemesis.run()

    async def workload(self, world: World) -> None:
        self.recording.note("", "phase", "safety phase")
        await self.act(world)

    async def settle(self, world: World) -> None:
        self.nemesis.end()
        self.recording.note("", "phase", "everything is healed")
        for node in self.lasting(world):
            self.stage.start(node)
        with world.deadline(LIVE_NS) as patience:
            await self.prove(world)
        if patience.cancelled_caught:
            self.recording.close()
            raise Violation(
                f"{LIVE_NS // SECOND_NS} s after everything was healed: {self.unproved()}", rule="LIVE bound"
            )
        self.recording.note("", "phase", "everything works")
        self.recording.close()

    def check(self, world: World) -> None:
        for violation in self.judge(world):
            raise violation

    # ------------------------------------------------------------------ what a subclass fills in

    async def prepare(self, world: World) -> None:
        """Make and start the nodes."""

    def struck(self, fault: Fault) -> None:
        """A fault is carried out."""

    def lasting(self, world: World) -> list[Node]:
        """The nodes that are started again when everything is healed."""
        return list(world.nodes.values())

    async def act(self, world: World) -> None:
        """The safety phase."""
        await world.sleep_ns(self.plan.number("duration_ms") * MILLISECOND_NS)

    async def prove(self, world: World) -> None:
        """The liveness phase: return once everything works."""

    def unproved(self) -> str:
        """What does not work yet, for people."""
        return "the system does not answer"

    def judge(self, world: World) -> Iterator[Violation]:
        """What went wrong, worst first."""
        yield from ()
