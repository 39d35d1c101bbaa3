"""A refusal that tells of a message on its way comes when that message is there for everybody."""

from __future__ import annotations

import orjson
import pytest
import trio
from tests.unit.jetstream.service_world import Stage, call, play

from tnats.client import connect
from tnats.limits import SECOND_NS
from tnats.runtime.sim.disk_faults import Delay, DiskFault

ROUNDS = 30


@pytest.mark.parametrize("seed", range(4))
def test_whoever_is_refused_finds_what_was_before(seed: int) -> None:
    """Writers that expect the same revision: one succeeds, and the others find its message as soon as they hear so."""

    async def scene(stage: Stage) -> object:
        refusals = 0
        stale: list[tuple[int, int]] = []
        url = "nats://server"
        async with connect(url, runtime=stage.runtime) as maker:
            await call(maker, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "allow_direct": True})

        stage.machine.drive.faults.append(DiskFault(("sync",), Delay(added_ns=SECOND_NS // 50)))

        async def write(worker: int) -> None:
            nonlocal refusals
            rng = stage.world.rng(f"writer {worker}")
            async with connect(url, runtime=stage.runtime) as client:
                revision = 0
                for _ in range(ROUNDS):
                    await stage.world.sleep_ns(rng.randrange(SECOND_NS // 200))
                    headers = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
                    answer = orjson.loads((await client.request("s.a", b"x", headers=headers, timeout_s=5)).data)
                    if "error" not in answer:
                        revision = answer["seq"]
                        continue
                    refusals += 1
                    told = int(answer["error"]["description"].rpartition(" ")[2])
                    found = await client.request("$JS.API.DIRECT.GET.S.s.a", b"", timeout_s=5)
                    assert found.headers is not None
                    revision = int(found.headers["Nats-Sequence"][0])
                    if revision < told:
                        stale.append((told, revision))

        async with trio.open_nursery() as nursery:
            for worker in range(3):
                nursery.start_soon(write, worker)
        return refusals > ROUNDS // 2, stale

    assert play(seed, scene).unwrap() == (True, [])
