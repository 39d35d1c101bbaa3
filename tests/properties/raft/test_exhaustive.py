"""Every order of events of small configurations: three replicas, two campaigns, at most one crash, few messages.

Unlike the schedules this leaves nothing to chance: each state is expanded by every event that may come next, shortest
histories first, and the checkers look at every transition. A message that is never delivered is a lost one, so loss
needs no event. Campaigns skip the pre-vote, which only makes them rarer. TNATS_RAFT_STATES bounds how many states are
visited (default 500); a space that is smaller is visited whole.
"""

from __future__ import annotations

import os
import pickle
import random
from collections import deque
from collections.abc import Iterator

import attrs
import pytest
from tests.properties.raft.world import World

from tnats.raft.messages import Message
from tnats.raft.options import Options
from tnats.raft.roles import Cause, Role

STATES_MAX = int(os.environ.get("TNATS_RAFT_STATES", "500"))
NEVER = Options(election_ticks=1_000_000, heartbeat_ticks=999_999, quiesce_ticks=0)

Step = tuple[str, int]


class Count(random.Random):
    """Stands in for a generator where only difference matters: counts up, and is small to copy."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def __reduce__(self) -> tuple[type[Count], tuple[int]]:
        return Count, (self.value,)

    def getrandbits(self, k: int, /) -> int:
        self.value += 1
        return self.value % (1 << k)

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return 0


def key_of(world: World, budget: tuple[int, ...]) -> bytes:
    """What tells two states apart. Incarnations are random and only compared, so their rank is enough."""
    parts: list[object] = [budget]
    for host in world.hosts.values():
        machine = host.machine
        assert machine is not None
        core, log = machine.core, machine.log
        parts.append(
            (
                core.term,
                core.vote,
                core.role,
                core.leader,
                core.verified,
                tuple(log.terms),
                log.commit,
                log.stable,
                len(host.unsynced),
                host.boots,
                tuple((n, p.match, p.next, p.flow, p.probe_sent) for n, p in core.progress.items()),
                tuple(sorted(machine.election.votes)),
                tuple(bare(message) for _, held in core.held for message in held),
            )
        )
    parts.append(sorted(bare(message) for message in world.network))
    return repr(parts).encode()


def bare(message: Message) -> str:
    return repr(attrs.evolve(message, incarnation=0))


def settle(world: World) -> None:
    """Reads, writes of snapshots and applying are not what is explored: they happen at once."""
    for node in world.up():
        while world.hosts[node].completions:
            world.complete(node)
        world.apply(node, 100)


def steps_of(world: World, budget: tuple[int, ...], explicit_sync: bool) -> Iterator[Step]:
    campaigns, proposals, crashes = budget
    seen: set[str] = set()
    for at, message in enumerate(world.network):
        text = repr(message)
        if text not in seen:
            seen.add(text)
            yield "deliver", at
    for node in world.up():
        machine = world.machine(node)
        if explicit_sync and world.hosts[node].unsynced:
            yield "sync", node
        if campaigns and node != 3 and machine.role is Role.FOLLOWER and machine.election.may_campaign():
            yield "campaign", node
        if proposals and machine.role is Role.LEADER:
            yield "propose", node
        if crashes:
            yield "crash", node


def take(world: World, step: Step, budget: tuple[int, ...], explicit_sync: bool) -> tuple[int, ...]:
    campaigns, proposals, crashes = budget
    name, which = step
    match name:
        case "deliver":
            world.deliver(world.network.pop(which))
        case "sync":
            world.sync(which)
        case "campaign":
            campaigns -= 1
            machine = world.machine(which)
            machine.election.campaign(Cause.TOLD)
            ready = machine._ready()
            world.checkers.stepped(world.hosts[which], ready, ready)  # type: ignore[arg-type]
            world.carry_out(world.hosts[which], ready)
        case "propose":
            proposals -= 1
            world.propose(which, b"p")
        case _:
            crashes -= 1
            world.stop(which, "lost")
            world.start(which)
            world.machine(which).core.rng = Count(which)
    settle(world)
    if not explicit_sync:
        while any(world.hosts[node].unsynced for node in world.up()):
            for node in world.up():
                world.sync(node)
            settle(world)
    return campaigns, proposals, crashes


def explore(budget: tuple[int, int, int], *, explicit_sync: bool, states_max: int) -> tuple[int, bool, int]:
    """States visited, whether that were all of them, and in how many of them somebody leads."""
    world = World(Count(), options=NEVER)
    for node, host in world.hosts.items():
        world.machine(node).core.rng = Count(node)
        assert host.machine is not None
    world.drain()
    queue: deque[tuple[bytes, tuple[int, ...]]] = deque([(pickle.dumps(world), budget)])
    visited = {key_of(world, budget)}
    leading = 0
    while queue:
        if len(visited) >= states_max:
            return len(visited), False, leading
        image, left = queue.popleft()
        for step in steps_of(pickle.loads(image), left, explicit_sync):
            after: World = pickle.loads(image)
            rest = take(after, step, left, explicit_sync)
            key = key_of(after, rest)
            if key not in visited:
                visited.add(key)
                leading += bool(after.leaders())
                queue.append((pickle.dumps(after), rest))
    return len(visited), True, leading


def test_two_campaigns_in_every_order() -> None:
    """Two candidates, every order of all their messages, every disk at once: no state breaks a rule."""
    visited, complete, leading = explore((2, 0, 0), explicit_sync=False, states_max=STATES_MAX)
    assert visited > 100
    assert leading
    assert complete or visited >= STATES_MAX


def test_one_campaign_and_a_crash_with_slow_disks() -> None:
    """One candidate, syncs at any time, one replica crashes at any time and loses what was not synced."""
    visited, complete, leading = explore((1, 0, 1), explicit_sync=True, states_max=STATES_MAX)
    assert visited > 100
    assert leading
    assert complete or visited >= STATES_MAX


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("budget", [(2, 0, 1), (2, 1, 0), (1, 1, 1)])
def test_two_campaigns_a_proposal_or_a_crash(budget: tuple[int, int, int]) -> None:
    """The larger spaces, with every disk at once, to the bound of TNATS_RAFT_STATES times 200."""
    visited, _, leading = explore(budget, explicit_sync=False, states_max=200 * STATES_MAX)
    assert visited > 1_000
    assert leading
