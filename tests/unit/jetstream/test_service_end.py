"""The whole server in simulation: those who wait at a stream or a consumer when it ends all hear of it, and what was
acknowledged does not end with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import orjson
import pytest
import trio
from tests.unit.jetstream.backups import archived, compressed, restore
from tests.unit.jetstream.service_world import Stage, call, play

from tnats.client import Client, ClientError, Message, Subscription, connect
from tnats.jetstream import service
from tnats.jetstream.stream import backlog
from tnats.limits import SECOND_NS
from tnats.runtime.sim.disk_faults import Delay, DiskFault
from tnats.storage.store import StoreOptions
from tnats.storage.stream_log import StreamLogOptions

COUNT = 400
SLOW_FILES = [DiskFault((kind,), Delay(added_ns=SECOND_NS // 3), glob="*.seg.tmp") for kind in ("create", "rename")]
"""A disk that makes new segment files slowly: what is published waits in line."""
SLOW_READS = [DiskFault(("read",), Delay(added_ns=SECOND_NS), glob="*.seg")]


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = StreamLogOptions(segment_bytes=10 * 1024)
    monkeypatch.setattr(service, "StoreOptions", partial(StoreOptions, streams=streams))
    monkeypatch.setattr(backlog, "STREAM_GATHERED_BYTES", 1000)
    monkeypatch.setattr(backlog, "STREAM_UNWRITTEN_BYTES_MAX", 8000)


def attended(scene: Callable[[Stage, Client], Awaitable[None]]) -> Callable[[], None]:
    """A test that plays a scene with one client."""

    def test() -> None:
        async def whole(stage: Stage) -> None:
            async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
                await scene(stage, client)

        play(1, whole).unwrap()

    test.__name__, test.__doc__ = scene.__name__, scene.__doc__
    return test


async def line_up(stage: Stage, client: Client, **config: object) -> Subscription:
    """Publish more than the disk can take: most of it waits in line. Where the answers come."""
    await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], **config})
    stage.machine.drive.faults += SLOW_FILES
    heard = client.subscribe("heard")
    for number in range(COUNT):
        client.publish_nowait("s", bytes(200), reply="heard")
        if number % 20 == 19:
            await stage.sleep(0.01)
    return heard


async def answers_of(heard: Subscription) -> tuple[list[Message], list[Message]]:
    """All answers, divided: acknowledgements, which come first and in order, and what else there is."""
    answers = [await heard.next_message(5) for _ in range(COUNT)]
    bodies = [orjson.loads(one.data) if one.data else {"error": one.status} for one in answers]
    count = sum("error" not in body for body in bodies)
    assert bodies[:count] == [{"stream": "S", "seq": seq + 1} for seq in range(count)]
    assert 0 < count < COUNT
    return answers[:count], answers[count:]


async def delete(client: Client, subject: str) -> None:
    """Delete a stream or a consumer, however long that takes."""
    answer = orjson.loads((await client.request(f"$JS.API.{subject}", timeout_s=60)).data)
    assert answer["success"]


async def start_anew(stage: Stage) -> None:
    """An orderly end and a start: what was stored is to be had from the disk alone, which reads slowly from now on."""
    await is_over(stage)
    stage.machine.start()
    await stage.sleep(1)
    stage.machine.drive.cold = 1
    stage.machine.drive.faults += SLOW_READS


async def is_over(stage: Stage) -> None:
    """Have the server end in good order, and return when it has."""
    stage.node.shut_down()
    await stage.machine.wait_ended()


# ------------------------------------------------------------------ publishers in line


@attended
async def test_publishers_in_line_when_the_stream_is_deleted(stage: Stage, client: Client) -> None:
    """Each is answered: what was stored with its sequence, the rest as any publisher to no stream. Nothing of them is
    in a stream of that name which is made then.
    """
    heard = await line_up(stage, client)
    await delete(client, "STREAM.DELETE.S")
    _, refused = await answers_of(heard)
    assert {one.status for one in refused} == {503}
    await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    answer = await client.request("s", b"", timeout_s=10)
    assert orjson.loads(answer.data) == {"stream": "S", "seq": 1}


@attended
async def test_publishers_in_line_when_the_server_ends(stage: Stage, client: Client) -> None:
    """Each is answered before the connection ends; what was acknowledged is there after the start, and nothing else."""
    heard = await line_up(stage, client)
    await is_over(stage)
    acked, refused = await answers_of(heard)
    assert {one.status for one in refused} == {503}
    stage.machine.drive.faults.clear()
    stage.machine.start()
    state: Any = (await call(client, "STREAM.INFO.S"))["state"]
    assert state["messages"] == len(acked)


@attended
async def test_publishers_in_line_when_the_stream_is_sealed(stage: Stage, client: Client) -> None:
    """What was before the update in the log is acknowledged, the rest is refused for it."""
    heard = await line_up(stage, client)
    await call(client, "STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "sealed": True})
    _, refused = await answers_of(heard)
    assert {orjson.loads(one.data)["error"]["err_code"] for one in refused} == {10109}


@attended
async def test_publishers_in_line_when_the_stream_is_bounded(stage: Stage, client: Client) -> None:
    """A bound that comes while they wait counts for them."""
    heard = await line_up(stage, client, discard="new")
    bounds = {"discard": "new", "max_bytes": 20_000}
    await call(client, "STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], **bounds})
    acked, refused = await answers_of(heard)
    assert {orjson.loads(one.data)["error"]["err_code"] for one in refused} == {10077}
    state: Any = (await call(client, "STREAM.INFO.S"))["state"]
    assert state["messages"] == len(acked)
    assert state["bytes"] <= 20_000


@attended
async def test_publishers_in_line_when_answers_are_switched_off(stage: Stage, client: Client) -> None:
    """They hear nothing further, and all of them are stored."""
    await line_up(stage, client)
    await call(client, "STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "no_ack": True})
    await stage.sleep(60)
    state: Any = (await call(client, "STREAM.INFO.S"))["state"]
    assert state["messages"] == COUNT


@attended
async def test_increments_in_line_when_the_counter_is_deleted(stage: Stage, client: Client) -> None:
    """Who waits for a total to be read is answered too."""
    await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_msg_counter": True})
    for number in range(200):  # so many that the first is to be had from the disk alone
        await client.request(f"s.{number}", headers={"Nats-Incr": "1"}, timeout_s=10)
    await start_anew(stage)
    heard = client.subscribe("heard")
    for _ in range(3):
        client.publish_nowait("s.0", reply="heard", headers={"Nats-Incr": "1"})
        await stage.sleep(0.01)
    await delete(client, "STREAM.DELETE.S")
    assert [(await heard.next_message(5)).status for _ in range(3)] == [503] * 3
    await stage.sleep(5)


# ------------------------------------------------------------------ requests at consumers


async def wait_at_consumer(stage: Stage, client: Client) -> Subscription:
    """Pull from a consumer: one request waits for a message to be read, one has nothing to come. Where they hear."""
    await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    for _ in range(100):
        await client.request("s", bytes(200), timeout_s=10)
    await start_anew(stage)
    config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 1}
    await call(client, "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    heard = client.subscribe("heard.*")
    for number in range(2):
        client.publish_nowait("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1", reply=f"heard.{number}")
    await stage.sleep(0.1)
    return heard


async def statuses(heard: Subscription) -> dict[str, tuple[int, str]]:
    messages = [await heard.next_message(5) for _ in range(2)]
    return {message.subject: (message.status, message.description) for message in messages}


@pytest.mark.parametrize("call_name", ["CONSUMER.DELETE.S.c", "STREAM.DELETE.S"])
def test_requests_when_the_consumer_is_deleted(call_name: str) -> None:
    """Both are told: the one whose message was being read, and the one that waits. No message comes behind that."""

    async def scene(stage: Stage, client: Client) -> None:
        heard = await wait_at_consumer(stage, client)
        await delete(client, call_name)
        assert await statuses(heard) == {f"heard.{number}": (409, "Consumer Deleted") for number in range(2)}
        with pytest.raises(ClientError):
            await heard.next_message(5)

    attended(scene)()


@attended
async def test_requests_when_the_server_ends(stage: Stage, client: Client) -> None:
    """They are told before the connection ends."""
    heard = await wait_at_consumer(stage, client)
    await is_over(stage)
    assert await statuses(heard) == {f"heard.{number}": (409, "Server Shutdown") for number in range(2)}


@attended
async def test_acknowledgements_when_the_server_ends(stage: Stage, client: Client) -> None:
    """Those that nobody has confirmed are kept too, if the end is an orderly one."""
    await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    await client.request("s", b"", timeout_s=10)
    config = {"durable_name": "c", "ack_policy": "explicit"}
    await call(client, "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    heard = client.subscribe("heard")
    await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1", reply="heard")
    await client.publish((await heard.next_message(5)).reply, b"+ACK")
    await client.flush()
    await is_over(stage)
    stage.machine.start()
    info: Any = await call(client, "CONSUMER.INFO.S.c")
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (1, 0)


# ------------------------------------------------------------------ backups and copies


@pytest.mark.parametrize("ends_by", ["delete", "shutdown"])
def test_a_backup_that_is_cut_short(ends_by: str) -> None:
    """It does not end as one that is whole, whether its stream goes or its server."""

    async def scene(stage: Stage, client: Client) -> None:
        await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        for number in range(300):
            await client.request("s", bytes([number % 251] * 97 + [number % 7]) * 30, timeout_s=10)
        await start_anew(stage)
        heard = client.subscribe("heard")
        await call(client, "STREAM.SNAPSHOT.S", {"deliver_subject": "heard", "chunk_size": 1024})
        await stage.sleep(0.5)
        if ends_by == "delete":
            await delete(client, "STREAM.DELETE.S")
        else:
            await is_over(stage)
        while (message := await heard.next_message(10)).data:
            pass
        assert message.status == 500

    attended(scene)()


@attended
async def test_publishers_to_a_stream_that_is_being_restored(stage: Stage, client: Client) -> None:
    """The stream is not there before it is whole: nobody answers, and what they sent is not in it."""
    config = {"name": "S", "subjects": ["s"]}
    data = compressed(archived((1, b"s"), (2, b"s")))
    answers: list[Any] = []

    async def publish_meanwhile() -> None:
        while True:
            heard = client.subscribe(client.new_inbox())
            client.publish_nowait("s", b"new", reply=heard.subject)
            answers.append((await heard.next_message(5)).status)
            await stage.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish_meanwhile)
        await stage.sleep(0.1)
        restored = await restore(client, config, data, chunk_size=3)
        nursery.cancel_scope.cancel()
    assert restored is not None
    assert restored["state"]["messages"] == 2
    assert set(answers) == {503}


@attended
async def test_a_source_whose_origin_is_made_anew(stage: Stage, client: Client) -> None:
    """It does not go on waiting for the one that is gone."""
    await call(client, "STREAM.CREATE.O", {"name": "O", "subjects": ["o"]})
    await call(client, "STREAM.CREATE.S", {"name": "S", "sources": [{"name": "O"}]})
    await client.request("o", b"1", timeout_s=10)
    await stage.sleep(1)
    await call(client, "STREAM.DELETE.O")
    await call(client, "STREAM.CREATE.O", {"name": "O", "subjects": ["o"], "first_seq": 10})
    await client.request("o", b"2", timeout_s=10)
    await stage.sleep(5)
    state: Any = (await call(client, "STREAM.INFO.S"))["state"]
    assert state["messages"] == 2
