"""The whole server under power loss, in simulation: what was confirmed is there afterwards."""

from __future__ import annotations

import base64
from functools import partial

import orjson
import pytest
import trio
from tests.unit.jetstream.service_world import Stage, call, play, publish

from tnats.client import Client, ClientError, connect
from tnats.limits import SECOND_NS
from tnats.runtime.sim.disk_faults import Delay, DiskFault
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.storage.store import StoreOptions
from tnats.storage.stream_log import StreamLogOptions

PART_BYTES = 256 * 1024
"""Journal parts are small, so that they are filled and released within a test."""
POLICIES = list(CrashPolicy)
CUTS = 3
PAUSE_NS = SECOND_NS // 50


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnats.jetstream.service.JOURNAL_PART_BYTES", PART_BYTES)


async def cut_power(stage: Stage, count: int) -> None:
    """Cut the server's power every now and then, with all kinds of disks."""
    rng = stage.world.rng("power")
    for _ in range(count):
        await stage.world.sleep_ns(rng.randrange(SECOND_NS // 10, 2 * SECOND_NS))
        stage.machine.power_loss(rng.choice(POLICIES))
        await stage.machine.wait_ended()
        await stage.sleep(0.1)
        stage.machine.start()
    await stage.sleep(2)


async def publish_until_done(stage: Stage) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Publish while power is cut; (what was acknowledged, what is there at the end) by sequence."""
    acked: dict[int, bytes] = {}
    async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
        config = {"name": "S", "subjects": ["s.*"], "duplicate_window": 120 * SECOND_NS}
        await call(client, "STREAM.CREATE.S", config)
        is_over = False

        async def publish(worker: int) -> None:
            number = 0
            while not is_over:
                number += 1
                await stage.runtime.clock.sleep_ns(PAUSE_NS)
                payload = b"%d.%d" % (worker, number)
                try:
                    answer = await client.request(f"s.{worker}", payload, timeout_s=1)
                except ClientError:
                    await stage.runtime.clock.sleep_ns(SECOND_NS // 100)
                    continue
                ack = orjson.loads(answer.data)
                if "error" not in ack:
                    assert ack["seq"] not in acked, ack
                    acked[ack["seq"]] = payload

        async with trio.open_nursery() as nursery:
            for worker in range(4):
                nursery.start_soon(publish, worker)
            await cut_power(stage, CUTS)
            is_over = True
        state = (await call(client, "STREAM.INFO.S"))["state"]
        assert isinstance(state, dict)
        found = {}
        for seq in range(1, state["last_seq"] + 1):
            answer = await call(client, "STREAM.MSG.GET.S", {"seq": seq})
            if "message" in answer:
                message = answer["message"]
                assert isinstance(message, dict)
                found[seq] = base64.b64decode(message["data"])
        return acked, found


@pytest.mark.parametrize("seed", range(4))
def test_acknowledged_publishes_survive(seed: int) -> None:
    """Every acknowledged message stands at its sequence with its content, whatever the disk kept of the rest."""
    acked, found = play(seed, publish_until_done).unwrap()  # type: ignore[misc]
    assert len(acked) > 20
    assert {seq: found.get(seq) for seq in acked} == acked
    assert len(set(found.values())) == len(found)


async def consume_until_done(stage: Stage) -> tuple[list[int], list[int]]:
    """Confirm acknowledgements while power is cut; (confirmed sequences, those delivered again afterwards)."""
    confirmed: list[int] = []
    again: list[int] = []
    async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
        await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
        for number in range(100):
            await client.request("s.a", b"%d" % number, timeout_s=5)
        consumer = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": SECOND_NS}
        await call(client, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": consumer})
        is_over = False
        delivered = client.subscribe("deliver.here")

        async def work() -> None:
            while not is_over:
                try:
                    await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1", reply="deliver.here")
                    message = await delivered.next_message(1)
                    if not message.reply:
                        continue
                    seq = int(message.reply.split(".")[5])
                    await stage.runtime.clock.sleep_ns(PAUSE_NS)
                    if seq in confirmed:
                        again.append(seq)
                    await client.request(message.reply, b"+ACK", timeout_s=1)
                except ClientError:
                    await stage.runtime.clock.sleep_ns(SECOND_NS // 100)
                    continue
                confirmed.append(seq)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await cut_power(stage, CUTS)
            is_over = True
    return confirmed, again


@pytest.mark.parametrize("seed", range(4))
def test_confirmed_acks_survive(seed: int) -> None:
    """A message whose acknowledgement was confirmed is never delivered again."""
    confirmed, again = play(seed, consume_until_done).unwrap()  # type: ignore[misc]
    assert len(confirmed) > 10
    assert again == []


@pytest.mark.parametrize(
    ("subject", "body"), [("STREAM.MSG.DELETE.S", {"seq": 2}), ("STREAM.PURGE.S", {"seq": 3})], ids=["delete", "purge"]
)
def test_a_removal_is_synced_whatever_the_sync_interval(subject: str, body: dict[str, int]) -> None:
    """What was removed with an answer stays away after a loss of power right behind it."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            for _ in range(3):
                await client.request("s", b"", timeout_s=1)
            await stage.sleep(15)
            assert (await call(client, subject, body))["success"] is True
            stage.machine.power_loss(CrashPolicy.STRICT)
            await stage.machine.wait_ended()
            stage.machine.start()
            await stage.sleep(3)
            answer = await call(client, "STREAM.MSG.GET.S", {"seq": 2})
            assert "error" in answer
            assert "message" in await call(client, "STREAM.MSG.GET.S", {"seq": 3})

    play(1, scene, sync_interval=(10 * SECOND_NS, False)).unwrap()


def test_power_loss_within_a_sync_interval_is_reported_and_no_sequence_is_used_again() -> None:
    """What was synced is there. What was not is named by health check and stream info until the next start, and its
    sequences are passed over for good.
    """

    async def publish(client: Client) -> int:
        seq = orjson.loads((await client.request("s", b"", timeout_s=1)).data)["seq"]
        assert isinstance(seq, int)
        return seq

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            assert [await publish(client) for _ in range(5)] == [1, 2, 3, 4, 5]
            await stage.sleep(15)
            assert [await publish(client) for _ in range(5)] == [6, 7, 8, 9, 10]
            stage.machine.power_loss(CrashPolicy.STRICT)
            await stage.machine.wait_ended()
            stage.machine.start()
            await stage.sleep(3)
            state = (await call(client, "STREAM.INFO.S"))["state"]
            assert isinstance(state, dict)
            assert state["messages"] == 5
            assert {6, 7, 8, 9, 10} <= set(state["lost"]["msgs"])
            assert stage.node.jetstream is not None
            (line,) = stage.node.jetstream.health()
            assert "lost" in line
            assert " 6-" in line
            first = await publish(client)
            assert first > 10
            stage.machine.power_loss(CrashPolicy.STRICT)  # at once: the first loss stays accounted for all the same
            await stage.machine.wait_ended()
            stage.machine.start()
            await stage.sleep(3)
            assert stage.node.jetstream is not None
            (line,) = stage.node.jetstream.health()
            assert f" {first + 1}-" in line  # the first one behind the lease was durable before it was acknowledged
            await call(client, "STREAM.INFO.S")  # repeated until the client is back
            second = await publish(client)
            assert second > first
            await stage.restart()
            assert stage.node.jetstream is not None
            assert stage.node.jetstream.health() == []
            await call(client, "STREAM.INFO.S")
            assert await publish(client) == second + 1

    play(1, scene, sync_interval=(10 * SECOND_NS, False)).unwrap()


async def overwrite_until_done(stage: Stage) -> tuple[dict[int, int], dict[int, int], dict[str, int]]:
    """Overwrite four keys and fill a bounded stream; (last acknowledged and found value by key, the latter's state)."""
    acked: dict[int, int] = {}
    async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
        await call(client, "STREAM.CREATE.K", {"name": "K", "subjects": ["k.*"], "max_msgs_per_subject": 1})
        await call(client, "STREAM.CREATE.L", {"name": "L", "subjects": ["l"], "max_msgs": 10})
        is_over = False

        async def write(key: int) -> None:
            number = 0
            while not is_over:
                number += 1
                await stage.runtime.clock.sleep_ns(PAUSE_NS)
                answer = await publish(client, f"k.{key}", b"%d" % number)
                if answer is not None and "error" not in answer:
                    acked[key] = number
                await publish(client, "l", b"")

        async with trio.open_nursery() as nursery:
            for key in range(4):
                nursery.start_soon(write, key)
            await cut_power(stage, CUTS)
            is_over = True
        found = {}
        for key in range(4):
            message = (await call(client, "STREAM.MSG.GET.K", {"last_by_subj": f"k.{key}"}))["message"]
            assert isinstance(message, dict)
            found[key] = int(base64.b64decode(message["data"]))
        kept = (await call(client, "STREAM.INFO.K"))["state"]
        bounded = (await call(client, "STREAM.INFO.L"))["state"]
        assert isinstance(kept, dict)
        assert isinstance(bounded, dict)
        assert kept["messages"] == 4
        return acked, found, bounded


@pytest.mark.parametrize("seed", range(3))
def test_overwritten_keys_and_limits_survive(seed: int) -> None:
    """A key has its last acknowledged value or a later one; a bounded stream has its newest messages and no more."""
    acked, found, bounded = play(seed, overwrite_until_done).unwrap()  # type: ignore[misc]
    assert all(found[key] >= number for key, number in acked.items())
    assert bounded["messages"] == 10
    assert bounded["last_seq"] - bounded["first_seq"] == 9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", [CrashPolicy.TORN, CrashPolicy.SUBSET, CrashPolicy.PREFIX])
def test_power_loss_within_a_sync_interval_takes_the_last_messages(
    policy: CrashPolicy, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has written what it liked of journal and segments: no message stands behind one that is lost, no damage
    is told, and the next start says the same.
    """
    streams = StreamLogOptions(segment_bytes=100 * 1024)
    monkeypatch.setattr("tnats.jetstream.service.StoreOptions", partial(StoreOptions, streams=streams))
    monkeypatch.setattr("tnats.jetstream.stream.backlog.STREAM_GATHERED_BYTES", 20_000)

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            for number in range(350):
                await client.request("s", bytes(500), timeout_s=1)
                if number == 50:
                    assert stage.node.jetstream is not None
                    await stage.node.jetstream.accounts["$G"].streams["S"].checkpoint()
            counts = []
            for policy_now in (policy, CrashPolicy.STRICT):
                stage.machine.power_loss(policy_now)
                await stage.machine.wait_ended()
                stage.machine.start()
                await stage.sleep(3)
                state = (await call(client, "STREAM.INFO.S"))["state"]
                assert isinstance(state, dict)
                assert stage.node.jetstream is not None
                assert "damaged" not in str(stage.node.jetstream.health())
                counts.append(state["messages"])
                assert counts[0] >= 51
                lost = state.get("lost", {"msgs": []})["msgs"]  # told until the next start
                assert bool(lost) is (policy_now is policy)
                assert all(seq > counts[0] for seq in lost)
                last = (await call(client, "STREAM.MSG.GET.S", {"last_by_subj": "s"}))["message"]
                assert isinstance(last, dict)
                assert last["seq"] == counts[0]
            assert counts[0] == counts[1]

    play(seed, scene, sync_interval=(1000 * SECOND_NS, False)).unwrap()


@pytest.mark.parametrize("after_s", [1, 2])
@pytest.mark.parametrize("policy", [CrashPolicy.LAZYFS, CrashPolicy.LENGTH, CrashPolicy.STRICT])
def test_files_go_only_when_the_note_of_their_checkpoint_is_durable(
    policy: CrashPolicy, after_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a sync interval, a purge comes while a checkpoint is under way, and power fails before the sync that makes
    both durable, or behind it: all messages are there, or none, and nothing is said to be lost that was in files.
    """
    streams = StreamLogOptions(segment_bytes=10 * 1024)
    monkeypatch.setattr("tnats.jetstream.service.StoreOptions", partial(StoreOptions, streams=streams))
    count = 200

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            for _ in range(count):
                await client.request("s", bytes(200), timeout_s=1)
            assert stage.node.jetstream is not None
            stream = stage.node.jetstream.accounts["$G"].streams["S"]
            await stream.checkpoint()
            await client.request("s", b"", timeout_s=1)
            stage.machine.drive.faults.append(DiskFault(("sync",), Delay(added_ns=SECOND_NS), glob="*.part"))
            stream.host.spawn(stream.checkpoint)
            await stage.sleep(0.5)
            client.publish_nowait("$JS.API.STREAM.PURGE.S")
            await stage.sleep(after_s)
            stage.machine.power_loss(policy)
            await stage.machine.wait_ended()
            stage.machine.drive.faults.clear()
            stage.machine.start()
            await stage.sleep(3)
            state = (await call(client, "STREAM.INFO.S"))["state"]
            assert isinstance(state, dict)
            assert state["messages"] in (0, count + 1)
            assert min(state["lost"]["msgs"]) > count + 1

    play(1, scene, sync_interval=(1000 * SECOND_NS, False)).unwrap()
