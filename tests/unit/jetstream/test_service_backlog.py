"""The whole server in simulation, on a disk that makes new segment files slowly or not at all.

What is stored and not in a file yet stays within its bound, and nothing is lost or forgotten for it.
"""

from __future__ import annotations

import base64
import errno
from functools import partial
from itertools import pairwise

import orjson
import pytest
from tests.unit.jetstream.service_world import Stage, call, play, publish

from tnats.client import Client, connect
from tnats.jetstream import service
from tnats.jetstream.stream import backlog
from tnats.limits import SECOND_NS, SPARSE_WARNING_NS
from tnats.runtime.sim.disk_faults import Delay, DiskFault, Fail
from tnats.storage.store import StoreOptions
from tnats.storage.stream_log import StreamLogOptions

UNWRITTEN_BYTES_MAX = 8000
BATCH = 20
PAYLOAD_SIZE = 200
BATCH_BYTES = BATCH * (PAYLOAD_SIZE + 60)
SEGMENTS = "*.seg.tmp"
"""Under this name they are made."""


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = StreamLogOptions(segment_bytes=10 * 1024)
    monkeypatch.setattr(service, "StoreOptions", partial(StoreOptions, streams=streams))
    monkeypatch.setattr(backlog, "STREAM_GATHERED_BYTES", 1000)
    monkeypatch.setattr(backlog, "STREAM_UNWRITTEN_BYTES_MAX", UNWRITTEN_BYTES_MAX)


def payload(number: int) -> bytes:
    return b"%d " % number + bytes(PAYLOAD_SIZE - 8)


def unwritten_bytes(stage: Stage) -> int:
    assert stage.node.jetstream is not None
    return stage.node.jetstream.accounts["$G"].streams["S"].store.log.unwritten_bytes


async def assert_stored(client: Client, acked: dict[int, int]) -> None:
    """`acked`: the number of each message by its sequence."""
    for seq, number in acked.items():
        message = (await call(client, "STREAM.MSG.GET.S", {"seq": seq}))["message"]
        assert isinstance(message, dict)
        assert base64.b64decode(message["data"]) == payload(number)


@pytest.mark.parametrize("config", [{}, {"allow_direct": True, "max_msgs": 50}, {"compression": "s2"}])
def test_publishers_wait_for_a_slow_disk(config: dict[str, object]) -> None:
    """Everything is acknowledged in the order of publishing, none of it refused, however slow the disk; meanwhile no
    more than the bound, and what one read brings, stands in memory only.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], **config})
            slow = DiskFault(("create",), Delay(added_ns=SECOND_NS), glob=SEGMENTS)
            slow_name = DiskFault(("rename",), Delay(added_ns=SECOND_NS), glob=SEGMENTS)
            stage.machine.drive.faults += [slow, slow_name]
            heard = client.subscribe("heard")
            count = most = 0
            while count < 40 * BATCH:
                for _ in range(BATCH):
                    client.publish_nowait("s", payload(count), reply="heard")
                    count += 1
                await stage.sleep(0.01)
                most = max(most, unwritten_bytes(stage))
            assert UNWRITTEN_BYTES_MAX < most <= UNWRITTEN_BYTES_MAX + BATCH_BYTES
            acks = [orjson.loads((await heard.next_message(60)).data) for _ in range(count)]
            assert acks == [{"stream": "S", "seq": number + 1} for number in range(count)]
            stage.machine.drive.faults.clear()
            first = count - 49
            await assert_stored(client, {seq: seq - 1 for seq in range(first, count + 1)})
            await stage.restart()
            await assert_stored(client, {seq: seq - 1 for seq in range(first, count + 1)})

    play(1, scene).unwrap()


def test_publishers_are_refused_while_no_segment_can_be_made() -> None:
    """The journal has room, the streams' files have none: up to the bound messages are taken in, then refused as for
    want of resources; once there is room the stream takes messages again by itself, and all that was acknowledged is
    there.
    """

    async def scene(stage: Stage) -> None:
        acked = {}
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            stage.machine.drive.faults.append(DiskFault(("create",), Fail(errno.ENOSPC), glob=SEGMENTS))
            refused = 0
            for number in range(150):
                answer = await publish(client, "s", payload(number))
                assert answer is not None
                assert unwritten_bytes(stage) <= UNWRITTEN_BYTES_MAX + BATCH_BYTES // BATCH
                if "error" in answer:
                    refused += 1
                    error = answer["error"]
                    assert isinstance(error, dict)
                    assert error["err_code"] == 10047
                    await stage.sleep(0.1)
                else:
                    seq = answer["seq"]
                    assert isinstance(seq, int)
                    acked[seq] = number
            assert refused > 100
            told = [time_ns for time_ns, line in stage.machine.log_lines if "refuses publishes until" in line]
            assert told
            assert all(later - earlier >= SPARSE_WARNING_NS for earlier, later in pairwise(told))
            assert len(acked) > 20
            assert list(acked) == list(range(1, len(acked) + 1))
            await assert_stored(client, acked)
            stage.machine.drive.faults.clear()
            answer = {"error": {}}
            attempts = 0
            while "error" in answer:
                await stage.sleep(0.5)
                attempts += 1
                assert attempts < 10
                answer = await publish(client, "s", payload(150)) or answer
            assert answer["seq"] == len(acked) + 1
            acked[len(acked) + 1] = 150
            assert unwritten_bytes(stage) <= UNWRITTEN_BYTES_MAX
            assert stage.node.jetstream is not None
            assert stage.node.jetstream.health() == []
            await assert_stored(client, acked)
            await stage.restart()
            await assert_stored(client, acked)

    play(1, scene).unwrap()


def test_a_stream_whose_file_fails_says_so_once() -> None:
    """A segment that cannot be made, for no want of space, stops the stream: publishers hear it, the health check
    has it, and the log in one line.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            stage.machine.drive.faults.append(DiskFault(("create",), Fail(errno.EIO), glob=SEGMENTS))
            answers = [await publish(client, "s", payload(number)) for number in range(60)]
            assert "error" in (answers[-1] or {})
            assert stage.node.jetstream is not None
            assert stage.node.jetstream.health()
            told = [line for _, line in stage.machine.log_lines if "takes no more writes" in line]
            assert len(told) == 1, told

    play(1, scene).unwrap()


def test_a_mirror_waits_for_a_slow_disk() -> None:
    """What is stored of another stream keeps to the bound as what is published does, and all of it comes."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.O", {"name": "O", "subjects": ["s"], "storage": "memory"})
            for number in range(300):
                await publish(client, "s", payload(number))
            stage.machine.drive.faults.append(DiskFault(("create",), Delay(added_ns=SECOND_NS), glob=SEGMENTS))
            await call(client, "STREAM.CREATE.S", {"name": "S", "mirror": {"name": "O"}})
            for _ in range(60):
                await stage.sleep(1)
                state = (await call(client, "STREAM.INFO.S"))["state"]
                assert isinstance(state, dict)
                if state["messages"] == 300:
                    break
            await assert_stored(client, {seq: seq - 1 for seq in range(1, 301)})

    play(1, scene).unwrap()
