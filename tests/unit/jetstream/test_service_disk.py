"""The whole server on a disk that refuses, in simulation: what it says, and that it comes back."""

from __future__ import annotations

import base64
import errno

import attrs
import pytest
from tests.unit.jetstream.service_world import STORE, Stage, call, play, publish

from tnats.client import Client, ClientError, connect
from tnats.runtime.sim.disk_faults import DiskFault, Fail, Kind, SyncFault
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.storage.errors import StoreFull


def told(stage: Stage, *parts: str) -> list[str]:
    """The lines of the server's log that have all these parts."""
    return [line for _, line in stage.machine.log_lines if all(part in line for part in parts)]


def test_a_full_disk_refuses_and_recovers() -> None:
    """While there is no space nothing is acknowledged, and the log says it once; afterwards publishes work, and every
    ack was true.
    """

    async def scene(stage: Stage) -> None:
        acked = {}
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            for number in range(30):
                if number == 10:
                    full = DiskFault(("write", "create", "resize"), Fail(errno.ENOSPC))
                    stage.machine.drive.faults.append(full)
                elif number == 20:
                    stage.machine.drive.faults.clear()
                    await stage.sleep(2)
                answer = await publish(client, "s", b"%d" % number)
                if answer is not None and "error" not in answer:
                    assert not 10 <= number < 20, answer
                    acked[number] = answer["seq"]
            assert sorted(acked) == [*range(10), *range(20, 30)]
            assert len(told(stage, "refuses publishes until there is room")) == 1
            await stage.restart()
            state = (await call(client, "STREAM.INFO.S"))["state"]
            assert isinstance(state, dict)
            assert state["messages"] >= len(acked)
            for number, seq in acked.items():
                message = (await call(client, "STREAM.MSG.GET.S", {"seq": seq}))["message"]
                assert isinstance(message, dict)
                assert message["data"] == _base64(b"%d" % number)

    play(1, scene).unwrap()


def test_a_failed_sync_freezes_the_store() -> None:
    """After a failed sync nothing is acknowledged and the health check says so; reads go on; a restart heals it."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            assert (await publish(client, "s", b"1")) == {"stream": "S", "seq": 1}
            stage.machine.drive.faults.append(DiskFault(("sync",), SyncFault("once"), times=1))
            assert await publish(client, "s", b"2") is None
            stage.machine.drive.faults.clear()
            answer = await publish(client, "s", b"3")
            assert answer is not None
            assert "takes no more writes" in str(answer["error"])
            assert stage.node.jetstream is not None
            assert any("takes no more writes" in line for line in stage.node.jetstream.health())
            assert len(told(stage, "[ERR]", "takes no more writes")) == 1
            assert "message" in await call(client, "STREAM.MSG.GET.S", {"seq": 1})
            await stage.restart()
            answer = await publish(client, "s", b"4")
            assert answer is not None
            assert "error" not in answer
            assert stage.node.jetstream is not None
            assert stage.node.jetstream.health() == []

    play(1, scene).unwrap()


def test_the_subjects_of_an_unfinished_update_belong_to_one_stream() -> None:
    """An update that only the catalogue has counts from the next start on: the subjects that it gave are the stream's
    until it is deleted, and those that it took away are free.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:

            async def is_made(name: str, subject: str) -> bool:
                return "error" not in await call(client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject]})

            async def refuse(entry: object) -> None:
                raise StoreFull("no space")

            assert await is_made("S", "old")
            assert stage.node.jetstream is not None
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(stage.node.jetstream.accounts["$G"].streams["S"], "commit", refuse)
                answer = await call(client, "STREAM.UPDATE.S", {"name": "S", "subjects": ["new"]})
            assert "no space" in str(answer["error"])
            assert not await is_made("T", "old")  # which it goes on to take in
            await stage.restart()
            assert not await is_made("T", "new")
            assert await is_made("T", "old")
            await call(client, "STREAM.DELETE.S")
            assert await is_made("U", "new")
            await call(client, "STREAM.DELETE.T")
            assert await is_made("V", "old")

    play(1, scene).unwrap()


@pytest.mark.parametrize("fails_for_good", [True, False])
def test_an_ack_that_was_not_written_is_never_confirmed(fails_for_good: bool) -> None:
    """A second acknowledgement of a message is not confirmed because the first was heard: only what is written is.

    Where the disk was full, it is written and confirmed once there is space.
    """

    async def confirmed(client: Client, reply: str) -> bool:
        try:
            await client.request(reply, b"+ACK", timeout_s=1)
        except ClientError:
            return False
        return True

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            config = {"durable_name": "C", "ack_policy": "explicit"}
            await call(client, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
            await publish(client, "s", b"1")
            got = client.subscribe("got")
            await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1", reply="got")
            reply = (await got.next_message(1)).reply
            await stage.sleep(1)
            effect = SyncFault("once") if fails_for_good else Fail(errno.ENOSPC)
            kinds: tuple[Kind, ...] = ("sync",) if fails_for_good else ("write", "create", "resize")
            stage.machine.drive.faults.append(DiskFault(kinds, effect))
            assert not await confirmed(client, reply)
            assert not await confirmed(client, reply)
            stage.machine.drive.faults.clear()
            await stage.sleep(2)
            was_confirmed = await confirmed(client, reply)
            assert was_confirmed != fails_for_good
            stage.machine.power_loss(CrashPolicy.STRICT)
            await stage.machine.wait_ended()
            stage.machine.start()
            await stage.sleep(2)
            answer = await call(client, "CONSUMER.INFO.S.C")
            floor = answer["ack_floor"]
            assert isinstance(floor, dict)
            assert (floor["stream_seq"] == 1) == was_confirmed

    play(1, scene).unwrap()


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
@pytest.mark.parametrize("words", [b"+ACK", b"+TERM no use"])
def test_what_was_acknowledged_on_a_full_disk_leaves(retention: str, words: bytes) -> None:
    """Once there is room the messages go, and their dead letters come, though nobody acknowledges again."""

    async def scene(stage: Stage) -> object:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "retention": retention})
            await call(client, "STREAM.CREATE.D", {"name": "D", "subjects": ["dead"]})
            config = {"durable_name": "C", "ack_policy": "explicit", "metadata": {"tnats.dead_letter": "dead"}}
            await call(client, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
            for _ in range(3):
                await publish(client, "s", b"1")
            got = client.subscribe("got")
            await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"3", reply="got")
            replies = [(await got.next_message(1)).reply for _ in range(3)]
            await stage.sleep(1)
            stage.machine.drive.faults.append(DiskFault(("write", "create", "resize"), Fail(errno.ENOSPC)))
            for reply in replies:
                await client.publish(reply, words)
                await stage.sleep(0.3)
            stage.machine.drive.faults.clear()
            await stage.sleep(3)
            await publish(client, "s", b"4")
            await stage.sleep(1)
            counts = []
            for stream in ("S", "D"):
                state = (await call(client, f"STREAM.INFO.{stream}"))["state"]
                assert isinstance(state, dict)
                counts.append(state["messages"])
            return counts

    assert play(1, scene).unwrap() == [1, 3 if words.startswith(b"+TERM") else 0]


def test_a_flood_is_refused() -> None:
    """Beyond the bound on what waits to be stored publishers are told 429 at once, and nothing of it is stored."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            assert stage.node.jetstream is not None
            stream = stage.node.jetstream.accounts["$G"].streams["S"]
            stream.host.options = attrs.evolve(stream.host.options, ingest_msgs_max=10)
            heard = client.subscribe("heard")
            for number in range(200):
                client.publish_nowait("s", b"%d" % number, reply="heard")
            answers = [await heard.next_message(5) for _ in range(200)]
            refused = [one for one in answers if b"10167" in one.data]
            assert refused
            assert all(one.status == 429 for one in refused)
            state = (await call(client, "STREAM.INFO.S"))["state"]
            assert isinstance(state, dict)
            assert state["messages"] == len(answers) - len(refused)

    play(1, scene).unwrap()


def test_a_full_store_is_told() -> None:
    """At the bound on all memory streams publishers hear so; streams in files are not concerned."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.M", {"name": "M", "subjects": ["m"], "storage": "memory"})
            await call(client, "STREAM.CREATE.F", {"name": "F", "subjects": ["f"]})
            assert stage.node.jetstream is not None
            host = stage.node.jetstream.accounts["$G"].host
            host.options = attrs.evolve(host.options, max_memory=1000)
            answers = []
            for _ in range(10):
                answers.append(await publish(client, "m", bytes(200)))
                await stage.sleep(0.2)
            refused = [one for one in answers if one is not None and "error" in one]
            assert len(refused) == 5
            assert "10023" in str(refused[0]["error"])
            assert len(told(stage, "[WRN]", "memory storage", "limit is 1000")) == 1
            assert await publish(client, "f", b"") == {"stream": "F", "seq": 1}

    play(1, scene).unwrap()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_removal_that_a_start_on_a_full_disk_has_to_finish_waits_for_room() -> None:
    """The server died in the middle of a removal, and the disk has no room for a word about it: what is there is
    served, and when there is room the files of what was removed go, without another start.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            for name in ("GONE", "KEPT"):
                await call(client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
                await publish(client, name, b"1")

            async def die(_: str) -> None:
                raise StoreFull("the server dies before this")

            assert stage.node.jetstream is not None
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(stage.node.jetstream._store, "drop_group", die)
                await call(client, "STREAM.DELETE.GONE")
            stage.machine.drive.faults.append(DiskFault(("create", "resize"), Fail(errno.ENOSPC)))
            await stage.restart()
            names = (await call(client, "STREAM.NAMES"))["streams"]
            assert names == ["KEPT"]
            assert "message" in await call(client, "STREAM.MSG.GET.KEPT", {"seq": 1})
            directory = f"{STORE}/tnats/streams"
            assert len(stage.machine.drive.image.entries(directory)) == 2
            stage.machine.drive.faults.clear()
            await stage.sleep(5)
            assert len(stage.machine.drive.image.entries(directory)) == 1
            assert stage.node.jetstream is not None
            assert stage.node.jetstream.health() == []

    play(1, scene).unwrap()
