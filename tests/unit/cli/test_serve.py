"""`tnats serve` apart from the server itself."""

from __future__ import annotations

import gc
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
