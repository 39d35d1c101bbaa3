"""The whole server on its store, in simulation, with segments of a few messages: what compaction, packing, encryption,
missing files and disks that refuse make of streams and consumers.
"""

from __future__ import annotations

import base64
import errno
import random
from functools import partial
from itertools import repeat

import orjson
import pytest
from tests.unit.jetstream.service_world import STORE, Stage, call, play, publish

from tnats.client import Client, connect
from tnats.jetstream import service
from tnats.limits import LEASE_SEQUENCES_MIN
from tnats.runtime.sim.disk_faults import DiskFault, Fail
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.storage.segment import DATA_START
from tnats.storage.store import StoreOptions
from tnats.storage.stream_log import StreamLogOptions

STREAM = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
FORMS = pytest.mark.parametrize(("compression", "key"), [("none", ""), ("s2", ""), ("none", "a key"), ("s2", "a key")])


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = StreamLogOptions(segment_bytes=24 * 1024)
    monkeypatch.setattr(service, "StoreOptions", partial(StoreOptions, streams=streams))
    monkeypatch.setattr(service, "JOURNAL_PART_BYTES", 64 * 1024)


async def content(client: Client, first: int, last: int) -> dict[int, bytes]:
    """What is served of these sequences."""
    found = {}
    for seq in range(first, last + 1):
        answer = await call(client, "STREAM.MSG.GET.S", {"seq": seq})
        if "message" in answer:
            message = answer["message"]
            assert isinstance(message, dict)
            found[seq] = base64.b64decode(message.get("data", ""))
    return found


async def state(client: Client) -> dict[str, int]:
    found = (await call(client, "STREAM.INFO.S"))["state"]
    assert isinstance(found, dict)
    return found


def health(stage: Stage) -> list[str]:
    assert stage.node.jetstream is not None
    return stage.node.jetstream.health()


async def checkpoint(stage: Stage) -> None:
    """Everything goes to the segments; what is sparse is compacted, and what is sealed packed."""
    assert stage.node.jetstream is not None
    await stage.node.jetstream.accounts["$G"].streams["S"].checkpoint(anyway=True)
    await stage.node.jetstream.store.shorten()


def segments(stage: Stage) -> list[str]:
    """Those with records in them."""
    image = stage.machine.drive.image
    return [path for path in image.walk(STORE) if path.endswith(".seg") and image.size(image.file(path)) > DATA_START]


@FORMS
def test_what_compaction_leaves_is_what_was_there(compression: str, key: str) -> None:
    """Most messages deleted, the first half purged, the rest compacted, packed, encrypted: byte for byte the same after
    restarts and a loss of power; and the sizes that are reported do not depend on how it is stored.
    """

    async def scene(stage: Stage) -> None:
        rng = random.Random(1)
        kept = {}
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", STREAM | {"compression": compression})
            for seq in range(1, 51):
                kept[seq] = rng.randbytes(3000) + b"repeated " * 300
                assert await publish(client, "s.a", kept[seq]) == {"stream": "S", "seq": seq}
            await checkpoint(stage)
            full = await state(client)
            for seq in rng.sample(sorted(kept), 35):
                del kept[seq]
                await call(client, "STREAM.MSG.DELETE.S", {"seq": seq})
            await call(client, "STREAM.PURGE.S", {"seq": 25})
            kept = {seq: payload for seq, payload in kept.items() if seq >= 25}
            for _ in range(2):
                await checkpoint(stage)
                now = await state(client)
                assert now["messages"] == len(kept)
                assert now["bytes"] * 50 == full["bytes"] * len(kept)
                assert await content(client, 1, 50) == kept
                await stage.restart()
                assert await content(client, 1, 50) == kept
                stage.machine.power_loss(CrashPolicy.STRICT)
                await stage.machine.wait_ended()
                stage.machine.start()
                await stage.sleep(1)
            assert await content(client, 1, 50) == kept
            assert health(stage) == []
            if key:
                image = stage.machine.drive.image
                assert not [path for path in image.walk(STORE) if b"repeated" in image.content(path)]

    play(1, scene, keys=repeat((key, ""))).unwrap()


def test_packing_makes_a_stream_smaller_on_disk_and_not_in_its_figures() -> None:
    """`compression: s2`, chosen when there are messages already, and given up again."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", STREAM)
            for number in range(600):
                body = orjson.dumps({"order": number, "customer": f"c{number % 7}", "state": "open"})
                await publish(client, "s.orders", body)
            await checkpoint(stage)
            sizes = {}
            for compression in ("none", "s2", "none"):
                answer = await call(client, "STREAM.UPDATE.S", STREAM | {"compression": compression})
                config = answer["config"]
                assert isinstance(config, dict)
                assert config["compression"] == compression
                await checkpoint(stage)
                image = stage.machine.drive.image
                sealed = segments(stage)[:-1]
                sizes[compression] = sum(image.size(image.file(path)) - 8192 for path in sealed)
                now = await state(client)
                assert (now["messages"], now["bytes"]) == (
                    600,
                    600 * (30 + 8)
                    + sum(
                        len(orjson.dumps({"order": number, "customer": f"c{number % 7}", "state": "open"}))
                        for number in range(600)
                    ),
                )
                assert len(await content(client, 1, 600)) == 600
            assert sizes["s2"] < sizes["none"] * 0.9

    play(1, scene).unwrap()


def test_packing_brings_nothing_back() -> None:
    """Compression is switched on and the stream purged while it is under way: what is purged stays away."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", STREAM)
            for _ in range(60):
                await publish(client, "s.a", b"old " * 500)
            await checkpoint(stage)
            await call(client, "STREAM.UPDATE.S", STREAM | {"compression": "s2"})
            assert stage.node.jetstream is not None
            log = stage.node.jetstream.accounts["$G"].streams["S"].store.log
            purged = await call(client, "STREAM.PURGE.S", {"keep": 3})
            assert purged["purged"] == 57
            await log.rewrite()  # type: ignore[attr-defined]
            await stage.restart()
            assert sorted(await content(client, 1, 60)) == [58, 59, 60]
            await checkpoint(stage)
            await stage.restart()
            assert sorted(await content(client, 1, 60)) == [58, 59, 60]
            assert health(stage) == []

    play(1, scene).unwrap()


def test_another_key_while_it_is_served() -> None:
    """A start with a new key and the previous one brings everything under the new one, and says so; with that alone the
    next start serves the same.
    """
    keys = iter([("one", ""), ("two", "one"), ("two", "")])

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", STREAM)
            for _ in range(60):
                await publish(client, "s.a", b"x" * 1000)
            await checkpoint(stage)
            await stage.restart()
            await stage.sleep(2)
            assert stage.node.jetstream is not None
            assert stage.node.jetstream.store.stale_paths == []
            await stage.restart()
            assert len(await content(client, 1, 60)) == 60
            assert health(stage) == []

    play(1, scene, keys=keys).unwrap()


@pytest.mark.parametrize("missing", ["one", "all"])
def test_missing_segments_are_named_and_their_sequences_not_used_again(missing: str) -> None:
    """A segment in the middle, or all of them: the gap is in stream info and health check, gets of it are errors,
    limits hold, and the next message takes the sequence after the last.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", STREAM | {"max_bytes": 120_000})
            for _ in range(100):
                await publish(client, "s.a", b"x" * 1000)
            await checkpoint(stage)
            stage.machine.signal("TERM")
            await stage.machine.wait_ended()
            paths = segments(stage)
            assert len(paths) > 4
            for path in paths if missing == "all" else paths[2:3]:
                stage.machine.drive.image.remove(path)
            stage.machine.start()
            await stage.sleep(1)
            found = await state(client)
            lost = found["lost"]["msgs"]  # type: ignore[index]
            assert found["last_seq"] == 100
            assert found["messages"] + len(lost) == 100
            assert len(lost) == 100 if missing == "all" else 5 < len(lost) < 30
            answer = await call(client, "STREAM.MSG.GET.S", {"seq": lost[0]})
            assert answer["error"]["err_code"] == 10051  # type: ignore[index]
            assert any(f"{lost[0]}-{lost[-1]} messages" in line for line in health(stage))
            assert await publish(client, "s.a", b"new") == {"stream": "S", "seq": 101}
            for _ in range(120):
                await publish(client, "s.a", b"x" * 1000)
            assert (await state(client))["bytes"] <= 120_000

    play(1, scene).unwrap()


async def consumed(stage: Stage, client: Client) -> None:
    """A consumer with 20 messages delivered, the first 10 of them acknowledged, every acknowledgement confirmed."""
    await call(client, "STREAM.CREATE.S", STREAM)
    for number in range(100):
        await publish(client, "s.a", b"%d" % number)
    config = {"durable_name": "C", "ack_policy": "explicit"}
    await call(client, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    async with client.subscribe("inbox") as subscription:
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", orjson.dumps({"batch": 20}), reply="inbox")
        count = 0
        async for message in subscription:
            count += 1
            if count <= 10:
                await client.request(message.reply or "", b"+ACK", timeout_s=2)
            if count == 20:
                break


async def consumer(client: Client) -> dict[str, object]:
    return await call(client, "CONSUMER.INFO.S.C")


def test_a_confirmed_acknowledgement_survives_a_kill_at_once() -> None:
    """Delivered 20, confirmed 10, killed in the same moment: afterwards the floor is 10 and 10 are pending."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await consumed(stage, client)
            await stage.restart()
            found = await consumer(client)
            assert found["ack_floor"]["stream_seq"] == 10  # type: ignore[index]
            assert found["num_ack_pending"] in range(11)  # type: ignore[operator]

    play(1, scene).unwrap()


@pytest.mark.parametrize("harm", ["zeros", "missing"])
def test_a_consumer_whose_state_is_damaged_is_kept_and_named(harm: str) -> None:
    """The part of the journal that has a consumer's state is zeros, or gone: the health check says what is damaged, and
    whatever is left of the consumer, no acknowledgement is made up.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await consumed(stage, client)
            stage.machine.kill()
            await stage.machine.wait_ended()
            image = stage.machine.drive.image
            (path,) = [path for path in image.walk(STORE) if path.endswith(".part")]
            if harm == "missing":
                image.remove(path)
            else:
                data = image.content(path).rstrip(b"\0")
                start = data.index(b"consumer/")
                image.overwrite(path, bytes(len(data) - start), start)
            stage.machine.start()
            await stage.sleep(1)
            assert [line for line in health(stage) if line.startswith(("damaged", "missing"))]
            answer = await consumer(client)
            if "error" not in answer:
                assert answer["ack_floor"]["stream_seq"] <= 10  # type: ignore[index]

    play(1, scene).unwrap()


def test_what_a_consumer_passes_over_is_named_once() -> None:
    """A message that rots while the server runs: consumers go on without it, stream info lists it as lost, log and
    health check name it, once however many pass it over.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", STREAM)
            for number in range(9):
                await publish(client, "s.a", b"payload %d" % number)
            await checkpoint(stage)
            await stage.restart()
            image = stage.machine.drive.image
            (path,) = segments(stage)
            image.overwrite(path, b"???", image.content(path).index(b"payload 4"))
            for name in ("C", "D"):
                config = {"durable_name": name, "ack_policy": "none"}
                await call(client, f"CONSUMER.DURABLE.CREATE.S.{name}", {"stream_name": "S", "config": config})
                async with client.subscribe(f"inbox.{name}") as subscription:
                    request = orjson.dumps({"batch": 9})
                    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", request, reply=f"inbox.{name}")
                    received = []
                    async for message in subscription:
                        received.append(message.data)
                        if len(received) == 8:
                            break
                assert received == [b"payload %d" % number for number in range(9) if number != 4]
            assert (await state(client))["lost"]["msgs"] == [5]  # type: ignore[index]
            (line,) = health(stage)
            assert "message 5" in line
            told = [text for _, text in stage.machine.log_lines if "damaged" in text and "message 5" in text]
            assert len(told) == 1

    play(1, scene).unwrap()


def test_what_was_passed_over_after_a_loss_of_power_is_not_listed_as_deleted() -> None:
    """Under a sync interval a loss of power costs as many sequences as the stream's lease had left: they are a range in
    the health check, stream info lists them as lost, and no list of deleted messages grows by them.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", STREAM)
            for number in range(9):
                await publish(client, "s.a", b"%d" % number)
            await call(client, "STREAM.MSG.DELETE.S", {"seq": 3})
            await stage.sleep(70)
            stage.machine.power_loss(CrashPolicy.STRICT)
            await stage.machine.wait_ended()
            stage.machine.start()
            await stage.sleep(2)
            await state(client)  # repeated until the client is back
            answer = await publish(client, "s.a", b"new")
            assert answer is not None
            assert 10 < answer["seq"] <= 10 + LEASE_SEQUENCES_MIN  # type: ignore[operator]
            info = await call(client, "STREAM.INFO.S", {"deleted_details": True})
            found = info["state"]
            assert isinstance(found, dict)
            assert found["deleted"] == [3]
            assert 0 < len(found["lost"]["msgs"]) <= 10_000
            assert found["messages"] == 9
            (line,) = health(stage)
            assert f"lost stream/1/$G/S 10-{answer['seq'] - 1}" in line  # type: ignore[operator]

    play(1, scene, sync_interval=(60 * 1_000_000_000, False)).unwrap()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_refuses_is_told_to_publishers(code: int) -> None:
    """Full or read-only: an error that says storage, a failing health check, reads go on. With room again publishes
    work; a disk that was read-only needs a restart, which the error says.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", STREAM)
            for number in range(5):
                await publish(client, "s.a", b"%d" % number)
            stage.machine.drive.faults.append(DiskFault(("write", "create", "resize"), Fail(code)))
            await publish(client, "s.a", b"nobody knows")  # a write that fails may have written
            await stage.sleep(2)
            for _ in range(3):
                answer = await publish(client, "s.a", b"refused")
                assert answer is not None
                assert answer["error"]["err_code"] in (10047, 10077)  # type: ignore[index]
                await stage.sleep(0.7)
            assert len(await content(client, 1, 5)) == 5
            lines = health(stage)
            assert lines
            assert errno.errorcode[code] in " ".join(lines)
            stage.machine.drive.faults.clear()
            if code == errno.EROFS:
                assert "until the server is restarted" in " ".join(lines)
                await stage.restart()
            else:
                await stage.sleep(5)
            assert health(stage) == []
            answer = await publish(client, "s.a", b"stored")
            assert answer == {"stream": "S", "seq": 6}

    play(1, scene).unwrap()


@pytest.mark.parametrize("limit", [{"max_msgs": 3}, {"max_msgs_per_subject": 1}, {"max_bytes": 150}])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_what_a_limit_took_stays_away_when_it_is_lifted(limit: dict[str, int], is_checkpointed: bool) -> None:
    """A start goes by the limits that held when each message came, not by those that hold now."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {**STREAM, **limit})
            for number in range(9):
                await publish(client, f"s.{number % 2}", b"%d" % number)
            if is_checkpointed:
                await checkpoint(stage)
            await call(client, "STREAM.UPDATE.S", STREAM)
            await publish(client, "s.2", b"new")
            before = await content(client, 1, 10)
            assert 3 <= len(before) < 6
            await stage.restart()
            assert await content(client, 1, 10) == before

    play(1, scene).unwrap()
