"""Direct gets on the whole server, in simulation, on a disk that is slow to answer: how many wait is bounded."""

from __future__ import annotations

import orjson
import pytest
from tests.unit.jetstream.service_world import Stage, call, play, publish

from tnats.client import connect
from tnats.jetstream.api import direct
from tnats.limits import SECOND_NS
from tnats.runtime.sim.disk_faults import Delay, DiskFault


@pytest.mark.parametrize("body", [{"seq": 1}, {"seq": 1, "batch": 1}], ids=["one message", "a batch"])
def test_too_many_that_wait_are_told_so(monkeypatch: pytest.MonkeyPatch, body: object) -> None:
    """Beyond the bound a request is answered 429 at once; the others get their message, and so does who asks later."""
    bound, sent = 5, 12
    monkeypatch.setattr(direct, "DIRECT_GETS_MAX", bound)

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_direct": True})
            await publish(client, "s", b"found")
            assert stage.node.jetstream is not None
            await stage.node.jetstream.accounts["$G"].streams["S"].checkpoint()
            stage.machine.drive.cold = 1.0
            stage.machine.drive.faults.append(DiskFault(("read",), Delay(added_ns=5 * SECOND_NS)))
            heard = client.subscribe("heard")
            for _ in range(sent):
                client.publish_nowait("$JS.API.DIRECT.GET.S", orjson.dumps(body), reply="heard")
            await stage.sleep(1)
            assert [one.status for one in heard.take_pending()] == [429] * (sent - bound)
            await stage.sleep(30)
            answers = heard.take_pending()
            assert [one.data for one in answers if one.status != 204] == [b"found"] * bound
            again = await client.request("$JS.API.DIRECT.GET.S", orjson.dumps(body), timeout_s=20)
            assert again.data == b"found"

    play(1, scene).unwrap()
