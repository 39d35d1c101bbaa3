"""What is left over at rest is named: files that are nobody's, files open too often, connections of nobody, bytes."""

from __future__ import annotations

import pytest

from tnats.harness.sim import hygiene
from tnats.runtime.api import Runtime
from tnats.runtime.sim.world import World, run_world

STORE = "/data/jetstream"
PART = f"{STORE}/tnats/journal/0000000000000001.part"


@pytest.mark.parametrize(
    ("path", "times", "size", "named"),
    [
        (PART, 2, 10, ""),
        (f"{STORE}/tnats/streams/7/0000000000000001.seg", 1, 10, ""),
        (f"{STORE}/tnats/quarantine/0000000000000001.part", 0, 10, ""),
        (f"{PART}.tmp", 0, 10, ".tmp"),
        (f"{STORE}/tnats/streams/7/notes.txt", 0, 10, "notes.txt"),
        (PART, 3, 10, "open 3 times"),
        (PART, 1, hygiene.USED_BYTES_MAX + 1, "a store of this size takes less"),
    ],
)
def test_leftovers_are_named(path: str, times: int, size: int, named: str) -> None:
    """Files of the store are not, in quarantine neither; all else is."""

    async def main(world: World) -> list[str]:
        found: list[str] = []

        async def serve(runtime: Runtime) -> None:
            await runtime.disk.mkdir(path.rpartition("/")[0], parents=True)
            first = await runtime.disk.open(path, create=True)
            first.pwrite([bytes(size)], 0)
            files = [first, *[await runtime.disk.open(path) for _ in range(times - 1)]]
            if not times:
                first.close()
            found.extend(str(violation) for violation in hygiene.leftovers(world.nodes["server"], STORE))
            del files

        node = world.node("server")
        node.start(serve)
        await node.wait_ended()
        return found

    found = run_world(1, main).unwrap()
    assert bool(found) == bool(named)
    assert named in " ".join(found)
