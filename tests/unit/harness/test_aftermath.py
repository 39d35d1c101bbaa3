"""Waiting for the service of real clusters, in virtual time: who counts as serving, and what is said of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tnats.client import ClientError, TimedOut
from tnats.client.jetstream import StreamNotFound
from tnats.harness.checkers.evidence import Evidence
from tnats.harness.contract import Observed
from tnats.harness.history import History
from tnats.harness.real.aftermath import LIVE_S, Aftermath
from tnats.harness.real.cluster import Cluster, Node
from tnats.harness.workloads.jetstream import LOG_CONFIG
from tnats.runtime.api import Runtime
from tnats.runtime.sim.world import Settings, World, run_world

SECOND_NS = 1_000_000_000


def waited(
    count: int, faults: dict[str, ClientError | str], monkeypatch: pytest.MonkeyPatch, heals_after_s: float = 1e9
) -> tuple[bool, Observed, float]:
    """Whether there was service, what was observed, and how long that took. `faults`: by node what a question to it
    raises, for so long; a text is why it did not start.
    """
    found: list[tuple[bool, Observed, float]] = []

    async def main(runtime: Runtime) -> None:
        nodes = {}
        for name in [f"n{number}" for number in range(1, count + 1)]:
            fault = faults.get(name)
            server: Any = SimpleNamespace(name=name, is_running=not isinstance(fault, str))
            store: Any = None
            nodes[name] = Node(server, store, start_failure=fault if isinstance(fault, str) else "")
        routes: Any = None if count == 1 else object()
        cluster = Cluster(nodes, routes, ())
        observed = Observed()
        nobody: Any = None
        start_ns = runtime.clock.mono_ns()

        async def info(self: Aftermath, node: Node) -> None:
            fault = faults.get(node.name)
            if isinstance(fault, ClientError) and runtime.clock.mono_ns() < start_ns + heals_after_s * SECOND_NS:
                raise fault

        monkeypatch.setattr(Aftermath, "_info", info)
        aftermath = Aftermath(
            runtime,
            cluster,
            nobody,
            nobody,
            Evidence(History()),
            observed,
            LOG_CONFIG,
            0,
            lambda phase, done, total: None,
        )
        is_served = await aftermath.wait_service()
        found.append((is_served, observed, (runtime.clock.mono_ns() - start_ns) / SECOND_NS))

    async def world_main(world: World) -> None:
        node = world.node("harness")
        node.start(main)
        await node.wait_ended()

    run_world(1, world_main, Settings(buggify=False)).unwrap()
    return found[0]


SILENT = TimedOut("no answer")
GONE = StreamNotFound(404, 10059, "stream not found")


def test_a_majority_is_service_and_the_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that did not start is not waited for; one that does not answer has its time."""
    is_served, observed, passed_s = waited(5, {"n2": "it did not start", "n4": SILENT}, monkeypatch)
    assert is_served
    assert list(observed.not_serving) == ["n2", "n4"]
    assert observed.not_serving["n2"] == "it did not start"
    assert (observed.unavailable, observed.stream_gone) == ("", False)
    assert LIVE_S <= passed_s < LIVE_S + 1


def test_less_than_a_majority_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """However well the others answer."""
    is_served, observed, _ = waited(5, dict.fromkeys(("n1", "n2", "n3"), SILENT), monkeypatch)
    assert not is_served
    assert observed.unavailable.startswith("2 of 5 nodes serve; n1: ")


def test_all_nodes_share_one_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence everywhere is found after one, not after five; and each is asked at least once."""
    is_served, _, passed_s = waited(5, {f"n{number}": SILENT for number in range(1, 6)}, monkeypatch)
    assert not is_served
    assert passed_s < LIVE_S + 2


def test_service_that_comes_back_in_time_is_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is not found at first may only not have been recovered yet: in a cluster it has the whole time."""
    is_served, observed, _ = waited(5, {"n1": GONE, "n2": SILENT}, monkeypatch, heals_after_s=20)
    assert is_served
    assert (observed.not_serving, observed.stream_gone) == ({}, False)


@pytest.mark.parametrize(("count", "at_most_s"), [(1, 7), (5, LIVE_S + 2)])
def test_a_stream_that_nobody_knows_is_gone(count: int, at_most_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is no unavailability; a server alone needs no election, so there it shows sooner."""
    faults: dict[str, ClientError | str] = {f"n{number}": GONE for number in range(1, count + 1)}
    is_served, observed, passed_s = waited(count, faults, monkeypatch)
    assert not is_served
    assert (observed.stream_gone, observed.unavailable) == (True, "")
    assert passed_s < at_most_s
