"""The whole server in simulation, on a disk that syncs slowly: what waits for the journal is bounded."""

from __future__ import annotations

import base64

import orjson
import pytest
from tests.unit.jetstream.service_world import Stage, call, play

from tnats.client import Client, connect
from tnats.limits import SECOND_NS
from tnats.runtime.sim.disk_faults import Delay, DiskFault
from tnats.storage import journal_queue

QUEUE_BYTES_MAX = 8000
STREAMS = ("A", "B", "C")
PAYLOAD_SIZE = 300


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_queue, "JOURNAL_QUEUE_BYTES_MAX", QUEUE_BYTES_MAX)
    monkeypatch.setattr(journal_queue, "JOURNAL_BATCH_BYTES_MAX", 4000)


def payload(stream: str, number: int) -> bytes:
    return f"{stream} {number} ".encode().ljust(PAYLOAD_SIZE)


async def assert_stored(client: Client, acked: dict[str, dict[int, int]]) -> None:
    """`acked`: by stream, the number of each message by its sequence."""
    for stream, numbers in acked.items():
        for seq, number in numbers.items():
            message = (await call(client, f"STREAM.MSG.GET.{stream}", {"seq": seq}))["message"]
            assert isinstance(message, dict)
            assert base64.b64decode(message["data"]) == payload(stream, number)


def test_publishers_are_told_to_wait_while_the_journal_is_busy() -> None:
    """Several streams together bring more than may wait for the journal: what is too much is refused as such, what was
    acknowledged is there under its sequence, also after a restart, and then everything is taken in again.
    """

    async def scene(stage: Stage) -> None:
        acked: dict[str, dict[int, int]] = {stream: {} for stream in STREAMS}
        refused = 0
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            for stream in STREAMS:
                await call(client, f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [stream.lower()]})
            heard = client.subscribe("heard.>")
            stage.machine.drive.faults.append(DiskFault(("sync",), Delay(added_ns=SECOND_NS // 20)))
            for number in range(100):
                for stream in STREAMS:
                    client.publish_nowait(stream.lower(), payload(stream, number), reply=f"heard.{stream}.{number}")
                await stage.sleep(0.005)
            for _ in range(100 * len(STREAMS)):
                answer = await heard.next_message(60)
                _, stream, number = answer.subject.split(".")
                told = orjson.loads(answer.data)
                if "error" in told:
                    assert told["error"]["err_code"] == 10167
                    refused += 1
                else:
                    assert told["seq"] not in acked[stream]
                    acked[stream][told["seq"]] = int(number)
            assert refused
            assert all(len(numbers) > 5 for numbers in acked.values())
            await assert_stored(client, acked)
            stage.machine.drive.faults.clear()
            await stage.restart()
            await assert_stored(client, acked)
            for stream in STREAMS:
                answered = await client.request(stream.lower(), payload(stream, 100), timeout_s=5)
                assert orjson.loads(answered.data)["seq"] == len(acked[stream]) + 1

    play(1, scene).unwrap()
