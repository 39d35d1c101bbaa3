"""A refusal that tells of a message on its way comes when that message is there for everybody."""

from __future__ import annotations

import attrs
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


@pytest.mark.parametrize(
    ("headers", "error"),
    [({"Nats-Expected-Last-Sequence": "7"}, 10071), ({"Nats-Msg-Id": "once"}, 0)],
    ids=["refused", "stored before"],
)
def test_answers_that_wait_are_bounded(headers: dict[str, str], error: int) -> None:
    """While the disk hangs, what a client says and nobody stores counts like what is to be stored: beyond the bound it
    is told 429, and all that was taken in is answered when the disk goes on.
    """
    bound, sent = 10, 200

    async def scene(stage: Stage) -> object:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            await client.request("s", b"first", headers={"Nats-Msg-Id": "once"}, timeout_s=5)
            assert stage.node.jetstream is not None
            stream = stage.node.jetstream.accounts["$G"].streams["S"]
            stream.host.options = attrs.evolve(stream.host.options, ingest_msgs_max=bound)
            stage.machine.drive.faults.append(DiskFault(("sync",), Delay(added_ns=10 * SECOND_NS)))
            heard = client.subscribe("heard")
            client.publish_nowait("s", b"on its way", reply="heard")
            await stage.sleep(0.1)
            for _ in range(sent):
                client.publish_nowait("s", b"", reply="heard", headers=headers)
                await stage.sleep(0.01)
            at_once = [orjson.loads(one.data)["error"]["err_code"] for one in heard.take_pending()]
            stage.machine.drive.faults.clear()
            later = [orjson.loads((await heard.next_message(20)).data) for _ in range(sent + 1 - len(at_once))]
            told = [answer["error"]["err_code"] if "error" in answer else 0 for answer in later]
            return set(at_once), len(at_once), told

    # One message is on its way; the room that it leaves is for answers.
    assert play(1, scene).unwrap() == ({10167}, sent - bound + 1, [0] + [error] * (bound - 1))
