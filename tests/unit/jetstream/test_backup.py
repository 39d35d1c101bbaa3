"""Backup and restore on the whole server, in simulation: everything comes back, or nothing does."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
import trio
from tests.unit.jetstream.backups import archived, compressed, fetch, restore, tarred
from tests.unit.jetstream.service_world import STORE, Stage, call, open_client, play, publish

from tnats.client import Client, connect
from tnats.jetstream.backup import archive, receiving, s2
from tnats.jetstream.backup.receiving import Unpacker
from tnats.limits import BACKUPS_MAX, SECOND_NS
from tnats.runtime.sim.disk_faults import Delay, DiskFault, Fail
from tnats.runtime.sim.disk_image import CrashPolicy

ADVISORIES = "$JS.EVENT.ADVISORY.>"


async def fill(client: Client, name: str, **config: object) -> None:
    """A stream with ten messages, a few of them gone, and two consumers in the middle of things."""
    await call(client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"], **config})
    for number in range(10):
        block = {"Nats-Msg-Id": f"m{number}", "A": "ü"}
        await client.request(f"{name}.{number % 3}", b"%d" % number * 50, headers=block)
    await call(client, f"STREAM.MSG.DELETE.{name}", {"seq": 5})
    await call(client, f"STREAM.PURGE.{name}", {"seq": 3})
    consumer = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 10**12}
    await call(client, f"CONSUMER.DURABLE.CREATE.{name}.C", {"stream_name": name, "config": consumer})
    held = consumer | {"durable_name": "H", "metadata": {"tnats.max_ack_pending_per_subject": "1"}}
    await call(client, f"CONSUMER.DURABLE.CREATE.{name}.H", {"stream_name": name, "config": held})
    for durable in ("C", "H"):
        async with client.subscribe(client.new_inbox()) as inbox:
            await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.{durable}", b"3", reply=inbox.subject)
            messages = [await anext(inbox) for _ in range(3)]
            await client.request(messages[1].reply, b"+ACK")


async def look(client: Client, name: str) -> dict[str, Any]:
    """All that can be asked about a stream, without names and times of its making."""
    info = await call(client, f"STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})
    state: Any = info["state"]
    messages = [
        (await call(client, f"STREAM.MSG.GET.{name}", {"seq": seq})).get("message")
        for seq in range(1, state["last_seq"] + 2)
    ]
    found = {"state": state, "messages": messages}
    for consumer in ("C", "H"):
        told: Any = await call(client, f"CONSUMER.INFO.{name}.{consumer}")
        if "error" not in told:
            for place in ("delivered", "ack_floor"):
                told[place].pop("last_active", None)
            found[consumer] = {key: told[key] for key in told if key not in ("created", "ts", "stream_name", "cluster")}
    return found


async def streams(client: Client) -> Any:
    return (await call(client, "STREAM.NAMES"))["streams"] or []


def left(stage: Stage) -> list[str]:
    """Directories of streams on the server's disk."""
    return [name for name, _, _ in stage.machine.drive.image.entries(f"{STORE}/tnats/streams")]


@pytest.mark.parametrize(("storage", "restarts"), [("file", False), ("file", True), ("memory", False)])
def test_what_was_backed_up_comes_back(storage: str, restarts: bool) -> None:
    """Messages with their sequences, times and headers, what was removed, and consumers with what they were sent and
    hold back are as before, also after a restart; the stream goes on behind its last sequence and knows its ids.
    """

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await fill(client, "S", storage=storage)
            before = await look(client, "S")
            answer, data, status = await fetch(client, "S")
            assert answer["state"].items() <= before["state"].items()
            assert status == 204
            await call(client, "STREAM.DELETE.S")
            told = await restore(client, answer["config"], data, chunk_size=100)
            assert told is not None
            assert told["type"] == "io.nats.jetstream.api.v1.stream_create_response"
            assert "error" not in told
            assert await look(client, "S") == before
            if restarts:
                await stage.restart()
                assert await look(client, "S") == before
            repeated = await client.request("S.9", b"", headers={"Nats-Msg-Id": "m9"})
            assert b'"duplicate": true' in repeated.data or b'"duplicate":true' in repeated.data
            assert await publish(client, "S.9", b"") == {"stream": "S", "seq": 11}

    play(1, scene).unwrap()


def test_consumers_can_be_left_out_and_a_name_changed() -> None:
    """`no_consumers` leaves them out; the configuration of the request counts, not that of the backup."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await fill(client, "S")
            answer, data, _ = await fetch(client, "S", no_consumers=True)
            config = {**answer["config"], "name": "T", "subjects": ["t"], "max_msgs": 2}
            told = await restore(client, config, data)
            assert told is not None
            assert told["state"]["messages"] == 2
            assert told["state"]["consumer_count"] == 0
            assert await publish(client, "t", b"") == {"stream": "T", "seq": 11}

    play(1, scene).unwrap()


@pytest.mark.parametrize(
    "features", [{}, {"allow_msg_counter": True}, {"allow_msg_schedules": True}, {"subject_delete_marker_ttl": 10**9}]
)
def test_a_sealed_stream_comes_back_sealed(features: dict[str, Any]) -> None:
    """Whatever kind of stream it is; and what is sealed can still be described anew."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            config = {"name": "S", "subjects": ["s"], **features}
            await call(client, "STREAM.CREATE.S", config)
            await client.request("s", headers={"Nats-Incr": "7"} if "allow_msg_counter" in features else None)
            sealed: Any = await call(client, "STREAM.UPDATE.S", {**config, "sealed": True})
            before = await call(client, "STREAM.MSG.GET.S", {"seq": 1})
            answer, data, _ = await fetch(client, "S")
            await call(client, "STREAM.DELETE.S")
            told = await restore(client, answer["config"], data)
            assert told is not None
            assert "error" not in told, told
            assert told["config"] == sealed["config"]
            assert await call(client, "STREAM.MSG.GET.S", {"seq": 1}) == before
            described: Any = await call(client, "STREAM.UPDATE.S", {**answer["config"], "description": "old"})
            assert described["config"]["description"] == "old", described

    play(1, scene).unwrap()


def test_chunks_follow_confirmations() -> None:
    """No more than the window is on its way unconfirmed; without any confirmation the backup ends with 408."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S"})
            chance = stage.runtime.chance
            for _ in range(40):
                await publish(client, "S", chance.entropy(4000))
            async with client.subscribe("chunks") as chunks:
                wanted = {"deliver_subject": "chunks", "chunk_size": 10_000, "window_size": 30_000}
                await call(client, "STREAM.SNAPSHOT.S", wanted)
                sizes = [len((await anext(chunks)).data) for _ in range(3)]
                assert sizes == [10_000] * 3
                last = await anext(chunks)
                assert (last.data, last.status, last.description) == (b"", 408, "No Flow Response")

    play(1, scene).unwrap()


def test_nobody_listens() -> None:
    """A backup that nobody has subscribed to ends, and says so to those who follow."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client, client.subscribe(ADVISORIES) as advisories:
            await call(client, "STREAM.CREATE.S", {"name": "S"})
            await call(client, "STREAM.SNAPSHOT.S", {"deliver_subject": "nobody"})
            found = {}
            while "snapshot_complete" not in found:
                told = orjson.loads((await anext(advisories)).data)
                found[told["type"].rsplit(".", 1)[1]] = told
            assert found["snapshot_create"]["state"]["messages"] == 0
            assert found["snapshot_complete"]["error"] == "408 No Interest"

    play(1, scene).unwrap()


def test_a_backup_says_what_is_lost() -> None:
    """Of a stream with a message that cannot be read any more the rest is backed up; the state names the message."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S"})
            for number in range(5):
                await publish(client, "S", b"%d-payload" % number)
            stage.machine.kill()
            await stage.machine.wait_ended()
            image = stage.machine.drive.image
            part = f"{STORE}/tnats/journal/0000000000000001.part"
            offset = image.content(part).index(b"3-payload")
            for place in range(offset, offset + 3):
                image.write(image.file(part), bytes((image.read(image.file(part), 1, place)[0] ^ 1,)), place)
            stage.machine.start()
            await stage.sleep(1)
            answer, data, status = await fetch(client, "S")
            assert [seq for seq in answer["state"]["lost"]["msgs"] if seq <= 5] == [4]
            assert status == 204
            await call(client, "STREAM.DELETE.S")
            await restore(client, answer["config"], data)
            info: Any = await call(client, "STREAM.INFO.S", {"deleted_details": True})
            assert 4 in info["state"]["deleted"]
            assert (info["state"]["messages"], info["state"]["first_seq"]) == (4, 1)

    play(1, scene).unwrap()


BROKEN = {
    "empty": b"",
    "junk": b"junk" * 100,
    "no end": compressed(archived((1, b"s"))[:-5]),
    "no state": compressed(b"NATSARC1" + archived((1, b"s"))[-20:]),
    "behind the end": compressed(archived((1, b"s")) + b"x"),
    "another archive behind it": compressed(archived((1, b"s"))) + compressed(archived((2, b"s"))),
    "not ascending": compressed(archived((2, b"s"), (1, b"s"))),
    "twice": compressed(archived((1, b"s"), (1, b"s"))),
    "beyond the state": compressed(archived((3, b"s"), last_seq=2)),
    "below the state": compressed(archived((3, b"s"), first_seq=4, last_seq=5)),
    "no literal subject": compressed(archived((1, b"s.>"))),
    "impossible sequences": compressed(archived(first_seq=7, last_seq=3)),
    "last sequence of all": compressed(archived(first_seq=1, last_seq=2**64 - 1)),
    "v1: up and out": compressed(tarred([("../../x", b"x")])),
    "v1: absolute": compressed(tarred([("/etc/x", b"x")])),
    "v1: inside a folder and out": compressed(tarred([("obs/../../../x/o.dat", b"x")])),
    "v1: link": compressed(tarred([("msgs/1.blk", b"")], **{"msgs/1.blk": b"2"})),
    "v1: hard link": compressed(tarred([("msgs/1.blk", b"")], **{"msgs/1.blk": b"1"})),
    "v1: device": compressed(tarred([("msgs/1.blk", b"")], **{"msgs/1.blk": b"3"})),
    "v1: consumer without state": compressed(tarred([("obs/C/meta.inf", b"{}")])),
    "v1: broken block": compressed(tarred([("msgs/1.blk", b"\x01" * 60)])),
    "v1: no end": compressed(tarred([("meta.inf", b"{}")])[:512]),
}


def test_a_broken_archive_leaves_nothing() -> None:
    """Whatever is wrong with an archive (paths that lead out of the store among them): the restore fails with 10062,
    there is no stream and no file of it, and the right archive can be restored afterwards.
    """

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            for what, data in BROKEN.items():
                told = await restore(client, {"name": "S", "subjects": ["s"]}, data, chunk_size=64)
                assert told is not None, what
                assert told["error"]["err_code"] == 10062, (what, told)
                assert await streams(client) == [], what
                await stage.sleep(0.1)
                assert left(stage) == [], what
                assert [name for name, _, _ in stage.machine.drive.image.entries("/")] == ["data"], what
            told = await restore(client, {"name": "S", "subjects": ["s"]}, compressed(archived((4, b"s"), first_seq=4)))
            assert told is not None
            assert told["state"]["first_seq"] == 4

    play(1, scene).unwrap()


def test_an_upload_that_stops_leaves_nothing() -> None:
    """After five seconds without a chunk the restore is given up, and its name is free again."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await fill(client, "S")
            answer, data, _ = await fetch(client, "S")
            await call(client, "STREAM.DELETE.S")
            for size in range(1, len(data), 97):
                await restore(client, answer["config"], data[:size], chunk_size=50, ends=False)
                if size % 5 == 0:
                    await stage.sleep(6)
                    assert left(stage) == []
                assert await streams(client) == []
            await stage.sleep(6)
            told = await restore(client, answer["config"], data)
            assert told is not None
            assert "error" not in told

    play(1, scene).unwrap()


def test_a_crash_during_a_restore_leaves_nothing() -> None:
    """A server that is killed, or loses power, in the middle of a restore starts without the stream and its files, or
    with all of it; one that has answered has it.
    """

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await fill(client, "S")
            before = await look(client, "S")
            answer, data, _ = await fetch(client, "S")
            await call(client, "STREAM.DELETE.S")
            outcomes = set()
            for step in range(0, 60, 9):
                confirmed: list[str] = []
                async with trio.open_nursery() as nursery:

                    async def upload(name: str = f"R{step}", confirmed: list[str] = confirmed) -> None:
                        config = {**answer["config"], "name": name, "subjects": [name]}
                        told = await restore(client, config, data, chunk_size=100)
                        confirmed += [name] if told is not None and "error" not in told else []

                    nursery.start_soon(upload)
                    await stage.sleep(0.0003 * step)
                    if step % 2:
                        stage.machine.power_loss(CrashPolicy.STRICT)
                    else:
                        stage.machine.kill()
                    nursery.cancel_scope.cancel()
                await stage.machine.wait_ended()
                stage.machine.start()
                await stage.sleep(1)
                there = await streams(client)
                outcomes.add((bool(confirmed), f"R{step}" in there))
                assert set(confirmed) <= set(there)
                assert len(left(stage)) == len(there)
                if f"R{step}" in there:
                    assert (await look(client, f"R{step}")) == before
            assert {(False, False), (True, True)} <= outcomes
            told = await restore(client, answer["config"], data)
            assert told is not None
            assert "error" not in told

    play(1, scene).unwrap()


def test_a_full_disk_ends_a_restore() -> None:
    """No room: the error says so, nothing is left, and with room it works."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await fill(client, "S")
            answer, data, _ = await fetch(client, "S")
            await call(client, "STREAM.DELETE.S")
            faults = stage.machine.drive.faults
            faults.append(DiskFault(("write", "create", "resize"), Fail(28)))
            told = await restore(client, answer["config"], data)
            assert told is not None
            assert told["error"]["err_code"] in (10047, 10062)
            faults.clear()
            await stage.sleep(2)
            assert await streams(client) == []
            told = await restore(client, answer["config"], data)
            assert told is not None
            assert "error" not in told, told

    play(1, scene).unwrap()


def test_what_stands_in_the_way_of_a_restore() -> None:
    """A name in use, one that differs from the subject's, subjects of another stream, no body: the documented errors,
    before anything is uploaded; a name that is taken meanwhile: at the end.
    """

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S"})

            async def refused(name: str, body: object) -> int:
                error: Any = (await call(client, f"STREAM.RESTORE.{name}", body))["error"]
                return int(error["err_code"])

            assert await refused("S", {"config": {"name": "S"}}) == 10130
            assert await refused("T", {"config": {"name": "S"}}) == 10056
            assert await refused("T", {"config": {"name": "T", "subjects": ["S"]}}) == 10065
            assert await refused("T", {"config": {"name": "T", "num_replicas": 3}}) == 10074
            assert await refused("T", {"config": {"name": "T", "other": 1}}) == 10025
            assert await refused("T", b"") == 10003
            data = compressed(archived((1, b"x")))
            body = {"config": {"name": "T"}, "state": {}}
            subject: Any = (await call(client, "STREAM.RESTORE.T", body))["deliver_subject"]
            assert (await client.request(subject, data)).data == b""
            await call(client, "STREAM.CREATE.T", {"name": "T"})
            assert b"10130" in (await client.request(subject, b"")).data
            info: Any = await call(client, "STREAM.INFO.T")
            assert info["state"]["messages"] == 0

    play(1, scene).unwrap()


def test_backups_at_once_are_bounded() -> None:
    """Beyond the bound a restore is refused by name, and there is room again when others have ended."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            answers = [
                await call(client, f"STREAM.RESTORE.S{number}", {"config": {"name": f"S{number}"}})
                for number in range(BACKUPS_MAX + 1)
            ]
            assert ["error" in answer for answer in answers] == [False] * BACKUPS_MAX + [True]
            await stage.sleep(6)
            assert "error" not in await call(client, "STREAM.RESTORE.S", {"config": {"name": "S"}})

    play(1, scene).unwrap()


def test_a_restored_interest_stream_keeps_what_its_consumers_need() -> None:
    """What a consumer was sent and has not acknowledged is there after the restore, and goes when it is."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "retention": "workqueue"})
            consumer = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 10**9}
            await call(client, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": consumer})
            for number in range(4):
                await publish(client, "S", b"%d" % number)
            async with client.subscribe(client.new_inbox()) as inbox:
                await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"2", reply=inbox.subject)
                await client.request((await anext(inbox)).reply, b"+ACK")
                await anext(inbox)
            answer, data, _ = await fetch(client, "S")
            await call(client, "STREAM.DELETE.S")
            told = await restore(client, answer["config"], data)
            assert told is not None
            assert (told["state"]["messages"], told["state"]["first_seq"]) == (3, 2)
            await stage.sleep(2)
            async with client.subscribe(client.new_inbox()) as inbox:
                await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"3", reply=inbox.subject)
                got = [await anext(inbox) for _ in range(3)]
            assert sorted(message.data for message in got) == [b"1", b"2", b"3"]
            for message in got:
                await client.request(message.reply, b"+ACK")
            info: Any = await call(client, "STREAM.INFO.S")
            assert info["state"]["messages"] == 0

    play(1, scene).unwrap()


def test_headers_stay_as_they_are() -> None:
    """Header blocks come back byte for byte."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await fill(client, "S")
            answer, data, _ = await fetch(client, "S")
            config = {**answer["config"], "name": "T", "subjects": ["t"]}
            await restore(client, config, data)
            for name in ("S", "T"):
                message: Any = (await call(client, f"STREAM.MSG.GET.{name}", {"seq": 4}))["message"]
                assert b"A: \xc3\xbc" in base64.b64decode(message["hdrs"])

    play(1, scene).unwrap()


@pytest.mark.parametrize("last", [10**12, 2**62])
def test_sequences_that_lie_far_apart(last: int) -> None:
    """A stream whose messages have almost all been removed is restored, and starts, as fast as any other."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            data = compressed(archived((1, b"s"), (last // 2, b"s"), last_seq=last))
            await restore(client, {"name": "S", "subjects": ["s"]}, data)
            assert await publish(client, "s", b"") == {"stream": "S", "seq": last + 1}
            await stage.restart()
            info: Any = await call(client, "STREAM.INFO.S")
            state = info["state"]
            assert (state["messages"], state["last_seq"], state["num_deleted"]) == (3, last + 1, last - 2)
            assert "lost" not in state

    play(1, scene).unwrap()


def test_names_that_would_be_paths() -> None:
    """Streams and consumers cannot have path separators in their names, so that no backup leads anywhere."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S"})
            for name in ("a/b", "a\\b", "../a"):
                token = name.replace("..", "-")
                answer: Any = await call(client, f"STREAM.CREATE.{token}", {"name": token})
                assert answer["error"]["err_code"] == 10128
                body = {"stream_name": "S", "config": {"durable_name": token}}
                answer = await call(client, f"CONSUMER.DURABLE.CREATE.S.{token}", body)
                assert answer["error"]["err_code"] == 10127

    play(1, scene).unwrap()


def test_a_tightly_packed_chunk_is_unpacked_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much a chunk becomes, no more than a block of it is in memory at a time."""
    decoded: list[int] = []
    decode = s2.decode_block

    def counted(block: bytes) -> bytes:
        decoded.append(len(block))
        return decode(block)

    monkeypatch.setattr(s2, "decode_block", counted)
    entries = archive.message(1, 1, b"s", b"", bytes(s2.BLOCK_BYTES)) * 100
    chunk = compressed(archived()[: -len(archive.end())] + entries)
    assert len(chunk) < 10 * s2.BLOCK_BYTES
    steps = Unpacker().feed(chunk)
    for number in range(1, 50):
        next(steps)
        assert len(decoded) <= number + 1


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_chunks_that_do_not_wait_end_a_restore(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends on while nothing is confirmed loses the restore at the bound on what waits, however small the chunks
    are, and is told why; the name is free afterwards.
    """
    monkeypatch.setattr(receiving, "RESTORE_WAITING_BYTES_MAX", 100_000)

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            request = {"config": {"name": "S", "subjects": ["s"]}, "state": {}}
            answer: Any = await call(client, "STREAM.RESTORE.S", request)
            heard = client.subscribe("heard")
            await client.flush()
            stage.machine.drive.faults.append(DiskFault(("sync",), Delay(added_ns=SECOND_NS)))
            await client.publish(answer["deliver_subject"], compressed(archived())[:10], reply="heard")
            for _ in range(2000):
                await client.publish(answer["deliver_subject"], bytes(size), reply="heard")
                await stage.sleep(0.0001)
            stage.machine.drive.faults.clear()
            assert (await heard.next_message(20)).data == b""  # the first chunk is confirmed
            told = orjson.loads((await heard.next_message(20)).data)
            assert told["error"]["description"] == "restore failed: chunks came faster than they were confirmed"
            assert await streams(client) == []
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            assert await streams(client) == ["S"]

    play(1, scene).unwrap()
