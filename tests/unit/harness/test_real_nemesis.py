"""What the nemesis of real clusters does to whom, and in which order, on servers that only remember what was done."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tnats.harness.contract import Observed
from tnats.harness.faults import parse_fault
from tnats.harness.history import Recorder
from tnats.harness.real.cluster import Cluster, Node
from tnats.harness.real.finding_files import load_findings
from tnats.harness.real.nemesis import Nemesis
from tnats.harness.real.operator import Answer
from tnats.harness.real.processes import Health
from tnats.harness.real.routes import Routes
from tnats.runtime.api import Runtime
from tnats.runtime.sim.world import Settings, World, run_world

SECOND_NS = 1_000_000_000
DIRECTORY = Path(__file__).parents[3] / "jepsen"
NAMES = ["n1", "n2", "n3", "n4", "n5"]


class FakeServer:
    """Remembers whether it runs. Starting takes a second."""

    def __init__(self, name: str, runtime: Runtime) -> None:
        self.name = name
        self.incarnation = 0
        self.boot_count = 1
        self.is_running = True
        self.is_stopped = False
        self._runtime = runtime

    @property
    def server_name(self) -> str:
        return f"{self.name}-{self.incarnation}"

    def rename(self) -> None:
        self.incarnation += 1

    async def start(self) -> None:
        assert not self.is_running
        await self._runtime.clock.sleep_ns(SECOND_NS)
        self.is_running = True

    async def kill(self) -> None:
        with trio.CancelScope(shield=True):
            await self._runtime.clock.sleep_ns(SECOND_NS // 100)
        self.is_running = self.is_stopped = False

    def pause(self) -> None:
        self.is_stopped = True

    def resume(self) -> None:
        self.is_stopped = False

    async def health(self) -> Health:
        return Health(200, "ok")


class FakeStore:
    """Nothing in it; remembers how often it lost power."""

    def __init__(self) -> None:
        self.power_losses: list[str] = []
        self.is_empty = False

    async def power_loss(self, policy: str) -> None:
        await trio.lowlevel.checkpoint()
        self.power_losses.append(policy)

    def wipe(self) -> None:
        self.is_empty = True


class FakeOperator:
    """Removals are confirmed once `is_answered`; it remembers for whom it was asked."""

    def __init__(self) -> None:
        self.running_count = 3
        self.is_answered = True
        self.asked: list[str] = []

    async def remove(self, server_name: str) -> Answer:
        self.asked.append(server_name)
        if not self.is_answered:
            return Answer("n5 answered TimedOut")
        return Answer("n5 answered success", is_success=True, running_count=self.running_count)

    async def remove_from_stream(self, stream: str, server_name: str) -> str:
        self.asked.append(f"{server_name} from {stream}")
        return "n5 answered success"


class Stage:
    """A cluster of five, its nemesis, and what it did."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.servers = {name: FakeServer(name, runtime) for name in NAMES}
        self.disks = {name: FakeStore() for name in NAMES}
        self.routes = Routes(runtime, random.Random(1), dict.fromkeys(NAMES, 1))
        parts: dict[str, Any] = {name: (self.servers[name], self.disks[name]) for name in NAMES}
        nodes = {name: Node(server, disk) for name, (server, disk) in parts.items()}
        self.recorder = Recorder(runtime.clock.mono_ns, 1)
        self.observed = Observed()
        self.operator = FakeOperator()
        operator: Any = self.operator
        cluster = Cluster(nodes, self.routes, ("n2", "n4"))
        self.nemesis = Nemesis(runtime, self.recorder, self.observed, cluster, operator, random.Random(1), lambda: 0)

    async def run(self, faults: list[str], seconds: float) -> None:
        """Trouble them for so long, then stop in the middle of whatever is going on."""
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.nemesis.run, tuple(parse_fault(text) for text in faults))
                await self.runtime.clock.sleep_ns(int(seconds * SECOND_NS))
                scope.cancel()

    def cut(self) -> set[tuple[str, str]]:
        return {pair for pair, link in self.routes.links.items() if not link.is_open}

    def done(self, *functions: str) -> list[tuple[str, Any]]:
        events = [(event.f, event.value) for event in self.recorder.history.nemesis()]
        return [event for event in events if not functions or event[0] in functions]


def play(scene: Callable[[Stage], Awaitable[None]]) -> None:
    """Run `scene` in virtual time."""

    async def main(runtime: Runtime) -> None:
        await scene(Stage(runtime))

    async def world_main(world: World) -> None:
        node = world.node("harness")
        node.start(main)
        await node.wait_ended()

    run_world(1, world_main, Settings(buggify=False)).unwrap()


@pytest.mark.parametrize("variant", ["pause-kill", "part-kill"])
def test_those_who_know_are_hidden_before_those_who_do_not_come_back(variant: str) -> None:
    """F5, as its file says it: n1 and n2 see nothing of n4 and n5 once they are heard again, and n3, which has lost its
    power, starts only then.
    """
    finding = next(finding for finding in load_findings(str(DIRECTORY)) if finding.id == "F5")
    faults = next(found.faults for found in finding.variants if found.name == variant)

    async def scene(stage: Stage) -> None:
        scale = finding.profiles["short"].time_scale
        await stage.run([str(fault.scaled(scale)) for fault in faults], 15.2)
        servers, cut = stage.servers, stage.cut()
        assert not servers["n3"].is_running
        assert stage.disks["n3"].power_losses == ["strict"]
        for knowing in ("n4", "n5"):
            for other in ("n1", "n2", "n3"):
                assert servers[knowing].is_stopped or (knowing, other) in cut
        starts = stage.done("start")
        assert starts == []

    play(scene)


@pytest.mark.parametrize("seconds", [2, 1.005])
def test_a_power_loss_follows_every_kill_that_is_one(seconds: float) -> None:
    """Also where the run ends between the two, or before the start; who lost power is noted, with when."""

    async def scene(stage: Stage) -> None:
        await stage.run(["at 1s D_POWER targets=n3 policy=torn down=5s"], seconds)
        assert stage.disks["n3"].power_losses == ["torn"]
        (loss,) = stage.observed.power_losses
        assert (loss.node, list(stage.observed.hit)) == ("n3", ["n3"])
        assert stage.servers["n3"].boot_count == 2
        await stage.nemesis.heal()
        assert stage.servers["n3"].is_running

    play(scene)


def test_healing_ends_everything_that_lasts() -> None:
    """Pauses, cuts, servers that are down, and a member that left comes back as somebody else."""

    async def scene(stage: Stage) -> None:
        await stage.run(
            [
                "at 0s P_PAUSE targets=n1 for=60s",
                "at 0s N_PART kind=isolate targets=n2",
                "at 0s P_KILL targets=n3 down=60s",
                "at 0s M_REMOVE targets=n4",
            ],
            5,
        )
        assert (stage.servers["n1"].is_stopped, stage.servers["n3"].is_running) == (True, False)
        assert stage.cut() == {pair for pair in stage.routes.links if "n2" in pair}
        assert stage.done("leave", "removed") == [("leave", "n4-0"), ("removed", ["n4-0", "n5 answered success"])]
        assert [name for name in NAMES if stage.disks[name].is_empty] == ["n4"]
        await stage.nemesis.heal()
        assert stage.cut() == set()
        assert all(server.is_running and not server.is_stopped for server in stage.servers.values())
        assert stage.servers["n4"].server_name == "n4-1"

    play(scene)


def test_who_left_is_let_be_until_it_joins() -> None:
    """No kill restarts it; under its old name it comes back only if the file says so."""

    async def scene(stage: Stage) -> None:
        faults = ["at 0s M_REMOVE targets=n4", "at 1s P_KILL targets=n4", "at 20s M_ADD targets=n4 name=old"]
        await stage.run(faults, 10)
        assert not stage.servers["n4"].is_running
        await stage.run([faults[-1].replace("20s", "1s")], 5)
        assert stage.servers["n4"].is_running
        assert stage.servers["n4"].server_name == "n4-0"

    play(scene)


@pytest.mark.parametrize("is_answered", [True, False])
def test_who_is_to_come_back_soon_does_under_its_old_name(is_answered: bool) -> None:
    """Emptied, whatever became of its removal; its stream is told first; after that it is a member as before."""

    async def scene(stage: Stage) -> None:
        stage.operator.is_answered = is_answered
        await stage.run(["at 0s M_REMOVE targets=n4 stream=s down=5s", "at 6s P_KILL targets=n4"], 10)
        assert stage.operator.asked == ["n4-0 from s", "n4-0"]
        assert [f for f, _ in stage.done("removed-from-stream", "join", "kill")] == [
            "removed-from-stream",
            "join",
            "kill",
        ]
        assert stage.disks["n4"].is_empty
        assert (stage.servers["n4"].is_running, stage.servers["n4"].server_name) == (True, "n4-0")
        await stage.nemesis.heal()
        assert len(stage.operator.asked) == 2

    play(scene)


def test_one_way_cuts_leave_the_other_way() -> None:
    """`in`: it is deaf; `out`: it is mute; and both end by themselves."""

    async def scene(stage: Stage) -> None:
        await stage.run(["at 0s N_ASYM targets=n1 way=in for=60s"], 1)
        assert stage.cut() == {(name, "n1") for name in NAMES[1:]}
        await stage.nemesis.heal()
        await stage.run(["at 0s N_ASYM targets=n1 way=out for=1s"], 0.5)
        assert stage.cut() == {("n1", name) for name in NAMES[1:]}
        await stage.nemesis.heal()
        await stage.run(["at 0s N_ASYM targets=n1 way=out for=1s"], 2)
        assert stage.cut() == set()

    play(scene)


def test_what_needs_a_network_between_them_is_missing_for_a_server_alone() -> None:
    """It is named before anything starts; kinds that nobody carries out here, and words that mean nothing, are too."""

    async def scene(stage: Stage) -> None:
        faults = tuple(parse_fault(text) for text in ("at 1s N_PART targets=n1", "at 1s P_KILL", "at 1s T_JUMP by=1s"))
        assert stage.nemesis.missing(faults) == ["at 1s T_JUMP by=1s"]
        words = ("D_BITFLIP files=block|wal stop=kill", "D_BITFLIP files=block|x", "N_PART kind=x", "D_POWER policy=x")
        words += ("D_POWER policy=torn|all",)
        assert stage.nemesis.missing(tuple(parse_fault(f"at 1s {text}") for text in words)) == [
            f"at 1s {text}" for text in words[1:]
        ]
        alone: Any = Cluster({}, None, ())
        operator: Any = FakeOperator()
        nemesis = Nemesis(stage.runtime, stage.recorder, stage.observed, alone, operator, random.Random(1), lambda: 0)
        assert nemesis.missing(faults) == ["at 1s N_PART targets=n1", "at 1s T_JUMP by=1s"]

    play(scene)


@pytest.mark.parametrize(("running_count", "found_count"), [(2, 1), (3, 0)])
def test_a_removal_that_no_majority_can_have_agreed_to_is_noted(running_count: int, found_count: int) -> None:
    """Two of five cannot decide who belongs to them."""

    async def scene(stage: Stage) -> None:
        stage.operator.running_count = running_count
        await stage.run(["at 0s M_REMOVE targets=n4"], 1)
        assert len(stage.observed.early_removals) == found_count

    play(scene)


def test_nobody_joins_before_the_removal_was_confirmed() -> None:
    """It is asked for again, so that the cluster does not count on somebody who is no more; once is enough."""

    async def scene(stage: Stage) -> None:
        stage.operator.is_answered = False
        await stage.run(["at 0s M_REMOVE targets=n4"], 1)
        stage.operator.is_answered = True
        await stage.nemesis.heal()
        assert stage.operator.asked == ["n4-0", "n4-0"]
        await stage.run(["at 0s M_REMOVE targets=n3"], 1)
        await stage.nemesis.heal()
        assert stage.operator.asked == ["n4-0", "n4-0", "n3-0"]

    play(scene)
