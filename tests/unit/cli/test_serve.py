"""`tnats serve` apart from the server itself."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator

import pytest
import trio

from tnats.cli.serve import ALLOCATIONS_PER_COLLECTION, FIRST_COLLECTION_NS, collect_garbage
from tnats.runtime.api import Runtime
from tnats.runtime.sim.world import World, run_world


@pytest.fixture
def collector() -> Iterator[None]:
    """The garbage collector, put back afterwards."""
    threshold, is_enabled = gc.get_threshold(), gc.isenabled()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)
    (gc.enable if is_enabled else gc.disable)()


@pytest.mark.usefixtures("collector")
def test_garbage_is_collected_again_once_the_server_has_started() -> None:
    """Off until it is ready and a moment longer; then what the start has made is set apart, and collection is on."""

    seen: list[bool] = []

    async def serve(runtime: Runtime) -> None:
        gc.disable()
        ready = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect_garbage, runtime.clock, ready)
            await runtime.clock.sleep_ns(2 * FIRST_COLLECTION_NS)
            seen.append(gc.isenabled())
            ready.set()
            await runtime.clock.sleep_ns(FIRST_COLLECTION_NS // 2)
            seen.append(gc.isenabled())
        seen.append(gc.isenabled() and gc.get_freeze_count() > 0)
        seen.append(gc.get_threshold()[0] == ALLOCATIONS_PER_COLLECTION)

    async def main(world: World) -> None:
        node = world.node("server")
        node.start(serve)
        await node.wait_ended()

    run_world(1, main).unwrap()
    assert seen == [False, False, True, True]


class Cycle:
    """Holds itself, as parts of a server that know each other do."""

    count = 0

    def __init__(self) -> None:
        self.me = self
        Cycle.count += 1

    def __del__(self) -> None:
        Cycle.count -= 1


@pytest.mark.usefixtures("collector")
def test_what_has_grown_old_before_it_was_removed_is_collected_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lives long enough to be set among the old ones does not pile up for hours once it is gone."""
    monkeypatch.setattr("tnats.cli.serve.ALLOCATIONS_PER_COLLECTION", 200)

    async def main(world: World) -> None:
        node = world.node("server")
        node.start(serve)
        await node.wait_ended()

    async def serve(runtime: Runtime) -> None:
        ready = trio.Event()
        ready.set()
        await collect_garbage(runtime.clock, ready)

    run_world(1, main).unwrap()
    gc.collect()
    gc.freeze()
    gc.collect()  # from now on nothing is old: a server's process has not the objects of a whole run of tests
    gc.enable()
    living: deque[Cycle] = deque()
    most = 0
    for _ in range(100_000):
        living.append(Cycle())
        if len(living) > 5_000:
            living.popleft()
        most = max(most, Cycle.count)
    assert most < 10 * 5_000
