"""The whole server in simulation: what falls due while nothing else happens, while it is down, and after restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import trio
from tests.unit.jetstream.service_world import Stage, call, open_client, play

from tnats.client import Client
from tnats.limits import REPUBLISHINGS_MAX

SECOND = 1_000_000_000


async def say(client: Client, subject: str, payload: bytes = b"", headers: Mapping[str, str] | None = None) -> Any:
    """Publish; the answer, None for an empty one."""
    answer = await client.request(subject, payload, headers=headers, timeout_s=5)
    return orjson.loads(answer.data) if answer.data else None


async def state(client: Client, name: str) -> tuple[int, int, int]:
    found: Any = (await call(client, f"STREAM.INFO.{name}"))["state"]
    return found["messages"], found["first_seq"], found["last_seq"]


def piece(batch_id: str, number: int, commit: str = "") -> dict[str, str]:
    headers = {"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(number)}
    return headers | ({"Nats-Batch-Commit": commit} if commit else {})


def test_an_idle_batch_is_given_up() -> None:
    """Ten seconds after its last message, though nothing else is published: an advisory says so, its room is free."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_atomic": True})
            advisories = client.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S")
            for number in range(50):
                assert await say(client, "s", b"", piece(f"b{number}", 1)) is None
            assert (await say(client, "s", b"", piece("more", 1)))["error"]["err_code"] == 10210
            await stage.sleep(9)
            assert await say(client, "s", b"", piece("b0", 2)) is None
            told = [orjson.loads((await advisories.next_message(timeout_s=3)).data) for _ in range(49)]
            assert {(one["batch"], one["reason"]) for one in told} == {
                (f"b{number}", "timeout") for number in range(1, 50)
            }
            assert (await say(client, "s", b"", piece("b1", 2, "1")))["error"]["err_code"] == 10176
            assert await say(client, "s", b"", piece("more", 1)) is None
            assert (await say(client, "s", b"", piece("b0", 3, "1")))["count"] == 3
            assert await state(client, "S") == (3, 1, 3)

    play(1, scene).unwrap()


def test_messages_that_ended_while_the_server_was_down() -> None:
    """They go when it is back, TTL and age alike, with a marker where one is due; they do not come back later."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await call(client, "STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"], "allow_msg_ttl": True})
            await call(client, "STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"], "max_age": 2 * SECOND})
            marked = {"subjects": ["m.>"], "subject_delete_marker_ttl": 60 * SECOND, "max_msgs_per_subject": 1}
            await call(client, "STREAM.CREATE.M", {"name": "M", **marked})
            for number in range(10):
                await say(client, f"t.{number}", b"", {"Nats-TTL": "2s"})
                await say(client, f"a.{number}")
            await say(client, "m.x", b"", {"Nats-TTL": "2s"})
            stage.machine.kill()
            await stage.machine.wait_ended()
            await stage.sleep(3)
            for _ in range(2):
                stage.machine.start()
                await stage.sleep(2)
                assert await state(client, "T") == await state(client, "A") == (0, 11, 10)
                assert await state(client, "M") == (1, 2, 2)
                stage.machine.kill()
                await stage.machine.wait_ended()
            stage.machine.start()
            await stage.sleep(1)
            assert (await say(client, "t.x"))["seq"] == 11

    play(2, scene).unwrap()


def test_schedules_go_on_after_a_restart() -> None:
    """What should have fired while the server was down fires once when it is back; repeats go on, cancelled do not."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True})
            for name, pattern in (("once", "@every 1h"), ("every", "@every 2s"), ("cancelled", "@every 2s")):
                headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"s.out.{name}"}
                await say(client, f"s.{name}", b"x", headers)
            await say(client, "s.c", b"", {"Nats-Scheduler": "s.cancelled", "Nats-Schedule-Next": "purge"})

            async def fired(name: str) -> int:
                answer: Any = await call(client, "STREAM.INFO.S", {"subjects_filter": f"s.out.{name}"})
                return int(answer["state"].get("subjects", {}).get(f"s.out.{name}", 0))

            await stage.sleep(5)
            before = await fired("every")
            assert before == 2
            stage.machine.kill()
            await stage.machine.wait_ended()
            await stage.sleep(60)
            stage.machine.start()
            await stage.sleep(1.5)
            assert await fired("every") == before + 1
            await stage.sleep(10)
            assert await fired("every") == before + 6
            assert (await fired("cancelled"), await fired("once")) == (0, 0)

    play(3, scene).unwrap()


def test_schedules_of_one_moment_fire_once_each() -> None:
    """However many are due at once, and however long it takes to read and store what they fire."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True})
            for number in range(40):
                pattern = ("@at 2000-01-01T00:00:00Z", "@every 2s")[number % 2]
                headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"s.out.{number}"}
                await say(client, f"s.{number}", b"x" * 100, headers)
            await stage.sleep(2.7)
            found: Any = await call(client, "STREAM.INFO.S", {"subjects_filter": "s.out.>"})
            assert found["state"]["subjects"] == {f"s.out.{number}": 1 for number in range(40)}

    for seed in range(3):
        play(seed, scene).unwrap()


def test_an_open_batch_does_not_outlive_its_server() -> None:
    """After a restart nothing of an uncommitted batch is stored, and its commit is told that it is incomplete; a
    committed one is there as a whole."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            config = {"name": "S", "subjects": ["s"], "allow_atomic": True, "allow_batched": True}
            await call(client, "STREAM.CREATE.S", config)
            for number in range(1, 6):
                await say(client, "s", b"kept", piece("whole", number, "1" if number == 5 else ""))
                await say(client, "s", b"lost", piece("open", number))
            await stage.restart()
            answer = await say(client, "s", b"lost", piece("open", 6, "1"))
            assert answer["error"]["err_code"] == 10176
            assert await state(client, "S") == (5, 1, 5)
            message: Any = await call(client, "STREAM.MSG.GET.S", {"seq": 5})
            assert message["message"]["data"] == "a2VwdA=="

    play(4, scene).unwrap()


def test_memory_streams_begin_anew() -> None:
    """After a restart a memory stream is there, empty, and counts from its first sequence; its consumers are gone."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            config = {"name": "M", "subjects": ["m"], "storage": "memory", "first_seq": 100}
            await call(client, "STREAM.CREATE.M", config)
            consumer = {"stream_name": "M", "config": {"durable_name": "C", "ack_policy": "explicit"}}
            await call(client, "CONSUMER.DURABLE.CREATE.M.C", consumer)
            assert [(await say(client, "m"))["seq"] for _ in range(3)] == [100, 101, 102]
            await stage.restart()
            assert await state(client, "M") == (0, 100, 99)
            assert (await call(client, "CONSUMER.NAMES.M"))["total"] == 0
            assert (await say(client, "m"))["seq"] == 100

    play(5, scene).unwrap()


def test_numbers_go_on_after_everything_is_gone() -> None:
    """A work queue that was emptied, a stream that was purged, a first sequence that was never used: a restart keeps
    where they stood, also twice in a row, and ids of the duplicate window with it."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await call(client, "STREAM.CREATE.W", {"name": "W", "subjects": ["w"], "retention": "workqueue"})
            await call(client, "STREAM.CREATE.P", {"name": "P", "subjects": ["p"]})
            await call(client, "STREAM.CREATE.F", {"name": "F", "subjects": ["f"], "first_seq": 10_000})
            await call(client, "STREAM.CREATE.E", {"name": "E", "subjects": ["e"]})
            consumer = {"stream_name": "W", "config": {"durable_name": "C", "ack_policy": "explicit"}}
            await call(client, "CONSUMER.DURABLE.CREATE.W.C", consumer)
            deliveries = client.subscribe("deliveries")
            for number in range(50):
                await say(client, "w", b"", {"Nats-Msg-Id": str(number)})
                await say(client, "p")
                await client.publish("$JS.API.CONSUMER.MSG.NEXT.W.C", b"", reply="deliveries")
                pulled = await deliveries.next_message(timeout_s=5)
                await client.request(pulled.reply, b"+ACK", timeout_s=5)
            await call(client, "STREAM.PURGE.P")
            await call(client, "STREAM.PURGE.E")
            for _ in range(2):
                await stage.restart()
                assert await state(client, "W") == await state(client, "P") == (0, 51, 50)
                assert await state(client, "F") == (0, 10_000, 9_999)
                assert await state(client, "E") == (0, 1, 0)
            assert (await say(client, "w", b"", {"Nats-Msg-Id": "49"}))["duplicate"]
            assert [(await say(client, subject))["seq"] for subject in "wpfe"] == [51, 51, 10_000, 1]

    play(6, scene).unwrap()


def test_streams_change_while_others_write_without_a_pause() -> None:
    """While publishers keep the journal busy all the time, streams are still made, changed and deleted, and soon."""

    async def scene(stage: Stage) -> None:
        async def keep_on(client: Client) -> None:
            while True:
                await client.request("s", b"x", timeout_s=5)

        async with open_client(stage) as client, trio.open_nursery() as nursery:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "max_msgs": 10})
            for _ in range(20):
                nursery.start_soon(keep_on, client)
            await stage.sleep(0.2)
            before = (await state(client, "S"))[2]
            config = {"name": "C", "subjects": ["c"]}
            for name, body in (("CREATE", config), ("UPDATE", config | {"max_msgs": 5}), ("DELETE", None)):
                answer = await client.request(
                    f"$JS.API.STREAM.{name}.C", orjson.dumps(body) if body else b"", timeout_s=1
                )
                assert "error" not in orjson.loads(answer.data)
            assert (await state(client, "S"))[2] > before > 20
            nursery.cancel_scope.cancel()

    for sync_interval in ((0, True), (10 * SECOND, False)):
        play(7, scene, sync_interval).unwrap()


def test_republishing_in_a_circle_ends() -> None:
    """Two streams that republish into each other store a message so many times, and go on with the next one."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            for name, other in (("A", "B"), ("B", "A")):
                republish = {"src": f"{name}.>", "dest": f"{other}.>"}
                config = {"name": name, "subjects": [f"{name}.>"], "republish": republish, "storage": "memory"}
                await call(client, f"STREAM.CREATE.{name}", config)
            for number in (1, 2):
                await client.publish("A.x", b"")
                await stage.sleep(1)
                stored = (await state(client, "A"))[0] + (await state(client, "B"))[0]
                assert stored == number * (REPUBLISHINGS_MAX + 1)

    play(8, scene).unwrap()


def test_a_firing_is_stored_under_the_subject_that_the_stream_makes_of_its_target() -> None:
    """As a message that is published there."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            transform = {"src": "s.b", "dest": "s.z"}
            config = {"subjects": ["s.>"], "allow_msg_schedules": True, "subject_transform": transform}
            await call(client, "STREAM.CREATE.S", {"name": "S", **config})
            await say(client, "s.a", b"", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "s.b"})
            await stage.sleep(3.5)
            found: Any = await call(client, "STREAM.INFO.S", {"subjects_filter": ">"})
            assert found["state"]["subjects"] == {"s.a": 1, "s.z": 3}

    play(1, scene).unwrap()


def test_time_in_a_sealed_stream() -> None:
    """Its schedules do not fire; a message ends when its publisher said, and nothing takes its place."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            schedule = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "s.b"}
            kinds: list[tuple[dict[str, Any], dict[str, str], tuple[int, int, int]]] = [
                ({"allow_msg_schedules": True}, schedule, (1, 1, 1)),
                ({"subject_delete_marker_ttl": 60 * SECOND}, {"Nats-TTL": "60s"}, (0, 2, 1)),
                ({"allow_msg_ttl": True}, {"Nats-TTL": "60s"}, (0, 2, 1)),
            ]
            for features, headers, left in kinds:
                config = {"name": "S", "subjects": ["s.>"], **features}
                await call(client, "STREAM.CREATE.S", config)
                await say(client, "s.a", b"", headers)
                sealed: Any = await call(client, "STREAM.UPDATE.S", {**config, "sealed": True})
                assert sealed["config"]["sealed"], sealed
                await stage.sleep(65)
                assert await state(client, "S") == left, features
                await call(client, "STREAM.DELETE.S")

    play(1, scene).unwrap()
