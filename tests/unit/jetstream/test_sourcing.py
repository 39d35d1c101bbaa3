"""Mirrors and sources on the whole server, in simulation."""

from __future__ import annotations

import base64
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import trio
from tests.unit.jetstream.service_world import Stage, call, open_client, play, publish

from tnats.client import Client, ClientError, Subscription
from tnats.jetstream.stream import remote_sourcing
from tnats.limits import SECOND_NS
from tnats.notation import format_time
from tnats.runtime.sim.disk_faults import Delay, DiskFault, Fail


async def make(client: Client, name: str, **config: object) -> Any:
    answer = await call(client, f"STREAM.CREATE.{name}", {"name": name, **config})
    assert "error" not in answer, answer
    return answer["config"]


async def held(client: Client, name: str) -> list[tuple[int, str, str]]:
    """(sequence, subject, payload) of what a stream holds."""
    info: Any = await call(client, f"STREAM.INFO.{name}")
    found = []
    for seq in range(info["state"]["first_seq"], info["state"]["last_seq"] + 1):
        message: Any = (await call(client, f"STREAM.MSG.GET.{name}", {"seq": seq})).get("message")
        if message is not None:
            found.append((seq, message["subject"], base64.b64decode(message.get("data", "")).decode()))
    return found


async def put(client: Client, subject: str, payload: str, msg_id: str = "") -> Any:
    headers = {"Nats-Msg-Id": msg_id} if msg_id else None
    return orjson.loads((await client.request(subject, payload.encode(), headers=headers)).data)


def test_a_mirror_of_a_stream_with_a_gap_at_its_head() -> None:
    """A mirror keeps the sequences of its origin: 11 messages, the first 90, the last 100; gaps inside stay gaps."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O")
            for number in range(1, 101):
                await publish(client, "O", b"%d" % number)
            await call(client, "STREAM.PURGE.O", {"seq": 90})
            await call(client, "STREAM.MSG.DELETE.O", {"seq": 95})
            await make(client, "M", mirror={"name": "O"})
            await stage.sleep(3)
            origin, mirror = [(await call(client, f"STREAM.INFO.{name}"))["state"] for name in "OM"]
            assert mirror == {**origin, "consumer_count": 0}
            assert (mirror["messages"], mirror["first_seq"], mirror["last_seq"]) == (10, 90, 100)
            assert await held(client, "M") == await held(client, "O")
            for seq in range(96, 101):  # a gap at the end, which later messages show
                await call(client, "STREAM.MSG.DELETE.O", {"seq": seq})
            await publish(client, "O", b"101")
            await stage.sleep(3)
            assert (await held(client, "M"))[-1] == (101, "O", "101")

    play(1, scene).unwrap()


def test_a_copy_is_whole_when_the_disk_was_full() -> None:
    """Whatever of a run of messages found no room, a mirror and a source have all of them in the end, in order."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            faults = stage.machine.drive.faults
            for size in (100, 3000, 50_000):
                await make(client, "M", mirror={"name": "O"})
                await make(client, "S", sources=[{"name": "O"}])
                await make(client, "O", subjects=["o.*"])
                for number in range(60):
                    await publish(client, f"o.{number % 3}", b"%d" % number + bytes(size * (number % 5)))
                faults.append(DiskFault(("write", "resize", "create"), Fail(errno.ENOSPC), chance=0.5))
                await stage.sleep(5)
                faults.clear()
                await stage.sleep(8)
                wanted = await held(client, "O")
                assert len(wanted) == 60
                assert await held(client, "M") == wanted
                assert [one[1:] for one in await held(client, "S")] == [one[1:] for one in wanted]
                for name in "OMS":
                    await call(client, f"STREAM.DELETE.{name}")

    play(1, scene).unwrap()


def test_interest_lasts_while_the_disk_is_full() -> None:
    """An interest stream whose only reader cannot store at the moment keeps what is published for it."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o"], retention="interest", storage="memory")
            await make(client, "S", sources=[{"name": "O"}])
            await stage.sleep(3)
            await publish(client, "o", b"0")
            await stage.sleep(1)
            faults = stage.machine.drive.faults
            faults.append(DiskFault(("write", "resize", "create"), Fail(errno.ENOSPC)))
            for number in range(1, 21):
                await publish(client, "o", b"%d" % number)
                await stage.sleep(0.4)
            faults.clear()
            await stage.sleep(10)
            assert [payload for _, _, payload in await held(client, "S")] == [str(number) for number in range(21)]
            assert await held(client, "O") == []

    play(1, scene).unwrap()


def test_interest_ends_with_the_stream() -> None:
    """What an interest stream kept for a reader alone goes when that is deleted."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            for storage in ("file", "memory"):
                await make(client, "O", subjects=["o"], retention="interest", storage=storage)
                await make(client, "S", sources=[{"name": "O"}], discard="new", max_msgs=2, storage=storage)
                await stage.sleep(3)
                for number in range(6):
                    await publish(client, "o", b"%d" % number)
                await stage.sleep(1)
                assert [payload for _, _, payload in await held(client, "O")] == [*"2345"]
                await call(client, "STREAM.DELETE.S")
                await stage.sleep(1)
                assert await held(client, "O") == []
                await call(client, "STREAM.DELETE.O")

    play(1, scene).unwrap()


def test_names_with_percent_signs() -> None:
    """They mean nothing: what is sourced under a filter with them says where it comes from, and comes once."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O%d", subjects=["o.>"])
            await make(client, "S", sources=[{"name": "O%d", "filter_subject": "o.%s.*"}])
            for number in range(3):
                await publish(client, "o.%s.%b", b"%d" % number)
                await publish(client, "o.other.%b", b"%d" % number)
            await stage.sleep(3)
            assert await held(client, "S") == [(seq + 1, "o.%s.%b", str(seq)) for seq in range(3)]
            answer: Any = await call(client, "STREAM.MSG.GET.S", {"seq": 3})
            place = base64.b64decode(answer["message"]["hdrs"]).split(b"Nats-Stream-Source: ")[1]
            assert place.startswith(b"O%d 5 o.%s.* > o.%s.%b ")
            await stage.restart()
            await stage.sleep(3)
            assert len(await held(client, "S")) == 3

    play(1, scene).unwrap()


def test_interest_goes_on_while_sources_change() -> None:
    """An interest stream has its reader before, during and after an update of that one's sources; when it is among them
    no more, what was kept for it goes.
    """

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o"], retention="interest", storage="memory")
            await make(client, "P", subjects=["p"])
            config = {"name": "T", "storage": "memory", "max_msgs": 1, "discard": "new"}
            await make(client, **config, sources=[{"name": "O"}])
            assert stage.node.jetstream is not None
            streams = stage.node.jetstream.accounts["$G"].streams
            streams["T"].intakes.follow(streams["T"])
            assert not streams["O"].interest.drops(b"o")
            await put(client, "o", "taken")
            await put(client, "o", "kept for want of room")
            await stage.sleep(1)
            assert [text for _, _, text in await held(client, "T")] == ["taken"]
            assert [text for _, _, text in await held(client, "O")] == ["kept for want of room"]
            await call(client, "STREAM.UPDATE.T", {**config, "sources": [{"name": "P"}]})
            await stage.sleep(1)
            assert await held(client, "O") == []

    play(1, scene).unwrap()


@pytest.mark.parametrize("how", ["purge", "workqueue", "interest"])
def test_what_was_taken_once_does_not_come_again(how: str) -> None:
    """A source knows where it left off although nothing of it is stored any more, also after a restart."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o.*"])
            for number in range(10):
                await publish(client, f"o.{number % 2}", b"%d" % number)
            source = [
                {"name": "O", "opt_start_time": "2020-01-01T00:00:00Z", "filter_subject": "o.0"},
                {"name": "O", "subject_transforms": [{"src": "o.1", "dest": "p.1"}]},
            ]
            retention = how if how != "purge" else "limits"
            await make(client, "T", sources=source, retention=retention)
            await stage.sleep(3)
            info: Any = await call(client, "STREAM.INFO.T")
            assert info["state"]["last_seq"] == 10
            if how == "purge":
                await call(client, "STREAM.PURGE.T")
            elif how == "workqueue":
                consumer = {"durable_name": "C", "ack_policy": "explicit"}
                await call(client, "CONSUMER.DURABLE.CREATE.T.C", {"stream_name": "T", "config": consumer})
                async with client.subscribe(client.new_inbox()) as inbox:
                    await client.publish("$JS.API.CONSUMER.MSG.NEXT.T.C", b"10", reply=inbox.subject)
                    for _ in range(10):
                        await client.request((await anext(inbox)).reply, b"+ACK")
            assert await held(client, "T") == []
            await stage.restart()
            await stage.sleep(5)
            assert await held(client, "T") == []
            await publish(client, "o.0", b"new")
            await publish(client, "o.1", b"new")
            await stage.sleep(3)
            info = await call(client, "STREAM.INFO.T")
            assert info["state"]["last_seq"] == 12
            assert [one["lag"] for one in info["sources"]] == [0, 0]

    play(1, scene).unwrap()


def test_the_window_of_an_aggregate_counts_for_sourced_messages() -> None:
    """Of an id that is published to two origins one message comes through; later ones of both do."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            for name in ("A", "B"):
                await make(client, name, subjects=[f"{name}.*"], duplicate_window=100_000_000)
            limits = {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 1}
            origins = [{"name": "A"}, {"name": "B"}]
            await make(client, "G", sources=origins, duplicate_window=120 * 10**9, **limits)
            await put(client, "A.1", "first", "id")
            await stage.sleep(3)
            await put(client, "B.1", "again", "id")
            await put(client, "B.2", "other")
            await put(client, "A.2", "other")
            await stage.sleep(3)
            assert sorted(await held(client, "G"))[0] == (1, "A.1", "first")
            assert {subject for _, subject, _ in await held(client, "G")} == {"A.1", "A.2", "B.2"}

    play(1, scene).unwrap()


def test_a_stream_that_discards_new_messages_waits_for_room() -> None:
    """What has no room is neither lost nor does it push others out: it comes when there is room."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O")
            await make(client, "T", sources=[{"name": "O"}], discard="new", max_msgs=3)
            for number in range(6):
                await publish(client, "O", b"%d" % number)
            await stage.sleep(3)
            assert [payload for _, _, payload in await held(client, "T")] == ["0", "1", "2"]
            info: Any = await call(client, "STREAM.INFO.T")
            assert info["sources"][0]["lag"] == 6 - 3 or info["sources"][0]["lag"] == 6
            await call(client, "STREAM.PURGE.T", {"keep": 1})
            await stage.sleep(3)
            assert [payload for _, _, payload in await held(client, "T")] == ["2", "3", "4"]

    play(1, scene).unwrap()


def test_counters_are_added_up() -> None:
    """A counter that sources counters holds the sum, says what came from where, and is right again after a message that
    it never saw; what is no counter is passed over.
    """

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:

            async def count(subject: str, increment: int) -> str:
                answer = await client.request(subject, b"", headers={"Nats-Incr": str(increment)})
                return str(orjson.loads(answer.data)["val"])

            async def total() -> tuple[str, str]:
                answer: Any = await call(client, "STREAM.MSG.GET.G", {"last_by_subj": "g.x"})
                headers = base64.b64decode(answer["message"]["hdrs"]).decode()
                sources = headers.partition("Nats-Counter-Sources: ")[2].partition("\r\n")[0]
                return orjson.loads(base64.b64decode(answer["message"]["data"]))["val"], sources

            for name in ("A", "B"):
                await make(client, name, subjects=[f"{name}.*"], allow_msg_counter=True)
            await make(client, "P", subjects=["p.*"])
            origins = [
                {"name": name, "subject_transforms": [{"src": f"{name}.*", "dest": "g.x"}]} for name in ("A", "B")
            ]
            await make(client, "G", subjects=["g.*"], allow_msg_counter=True, sources=[*origins, {"name": "P"}])
            assert [await count("A.1", 1), await count("A.1", 5), await count("A.1", -2)] == ["1", "6", "4"]
            await count("B.7", 10)
            await put(client, "p.1", "plain")
            await stage.sleep(3)
            assert await total() == ("14", '{"A":{"A.1":"4"},"B":{"B.7":"10"}}')
            assert await count("g.x", 100) == "114"
            await count("B.7", 10**20)
            await stage.sleep(3)
            assert (await total())[0] == str(124 + 10**20 - 10)
            await stage.restart()
            await count("A.1", 1)
            await stage.sleep(3)
            assert (await total())[0] == str(115 + 10**20)
            assert all(subject != "p.1" for _, subject, _ in await held(client, "G"))

    play(1, scene).unwrap()


def test_a_mirror_answers_for_its_origin() -> None:
    """Direct gets of a stream go on when it is gone and a mirror is left, but not once the mirror is a stream of its
    own; a stream that is there answers itself.
    """

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:

            async def ask() -> str:
                try:
                    answer = await client.request("$JS.API.DIRECT.GET.O.o.1", b"")
                except ClientError:
                    return ""
                return (answer.headers or {}).get("Nats-Stream", [""])[0]

            await make(client, "O", subjects=["o.*"], allow_direct=True)
            await publish(client, "o.1", b"x")
            assert (await make(client, "M", mirror={"name": "O"}))["mirror_direct"] is True
            await stage.sleep(3)
            assert await ask() == "O"
            await call(client, "STREAM.DELETE.O")
            assert await ask() == "M"
            promoted = await call(client, "STREAM.UPDATE.M", {"name": "M", "subjects": ["m.*"]})
            assert "error" not in promoted
            assert await ask() == ""

    play(1, scene).unwrap()


def test_a_mirror_becomes_a_stream_of_its_own() -> None:
    """Without its mirror it takes publishes behind the sequences it has, knows ids, and follows its origin no more."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o.*"])
            await put(client, "o.1", "one", "id")
            await make(client, "M", mirror={"name": "O"})
            await stage.sleep(3)
            assert "error" not in await call(
                client, "STREAM.UPDATE.M", {"name": "M", "subjects": ["m.*"], "duplicate_window": 10**9 * 60}
            )
            assert await put(client, "m.1", "two") == {"stream": "M", "seq": 2}
            await put(client, "o.1", "not any more")
            await stage.sleep(3)
            await stage.restart()
            await stage.sleep(3)
            assert await held(client, "M") == [(1, "o.1", "one"), (2, "m.1", "two")]
            info: Any = await call(client, "STREAM.INFO.M")
            assert "mirror" not in info

    play(1, scene).unwrap()


@asynccontextmanager
async def another_way(client: Client) -> AsyncIterator[Callable[[bool], None]]:
    """The API under the prefix `X.API`, as an import would give it; what is yielded cuts the way and mends it."""
    is_open = [True]

    async def forward(requests: Subscription) -> None:
        async for request in requests:
            if is_open[0]:
                await client.publish(f"$JS.API.{request.subject[6:]}", request.data, reply=request.reply)

    async with client.subscribe("X.API.>") as requests, trio.open_nursery() as nursery:
        nursery.start_soon(forward, requests)
        yield lambda opens: is_open.__setitem__(0, opens)
        nursery.cancel_scope.cancel()


def test_an_origin_that_is_reached_by_its_api() -> None:
    """A mirror and a source of another account or domain take all there is, follow, and say what is in their way."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client, another_way(client):
            await make(client, "O", subjects=["o.*"])
            for number in range(10):
                await publish(client, f"o.{number % 2}", b"%d" % number)
            await call(client, "STREAM.MSG.DELETE.O", {"seq": 4})
            way = {"api": "X.API", "deliver": "from.there"}
            await make(client, "M", mirror={"name": "O", "external": way})
            filtered = {"name": "O", "external": {"api": "X.API"}, "filter_subject": "o.1", "opt_start_seq": 3}
            await make(client, "S", sources=[filtered, {"name": "O"}])
            await make(client, "F", sources=[{"name": "NONE", "external": way}])
            await stage.sleep(4)
            await publish(client, "o.1", b"later")
            await stage.sleep(1)
            assert await held(client, "M") == await held(client, "O")
            took = await held(client, "S")
            assert [payload for _, _, payload in took if payload == "later"] == ["later"] * 2
            assert sorted(payload for _, _, payload in took) == sorted(
                [*"01245678", "9", "later", "5", "7", "9", "later"]
            )
            info: Any = await call(client, "STREAM.INFO.M")
            assert (info["mirror"]["lag"], info["mirror"]["external"]) == (0, way)
            info = await call(client, "STREAM.INFO.F")
            assert info["sources"][0]["error"]["err_code"] == 10059

    play(1, scene).unwrap()


def test_a_way_that_breaks_now_and_then() -> None:
    """Whatever happens to the way to the origin, in the end there is everything, in order, once, restarts included."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client, another_way(client) as switch:
            await make(client, "O", subjects=["o.*"])
            way = {"api": "X.API"}
            await make(client, "M", mirror={"name": "O", "external": way})
            await make(client, "S", sources=[{"name": "O", "external": way}])
            for round_number in range(6):
                for number in range(50):
                    await publish(client, "o.1", b"%d" % (50 * round_number + number))
                if round_number == 3:
                    await stage.restart()
                switch(round_number % 2 == 0)
                assert (await call(client, "CONSUMER.NAMES.O"))["consumers"] == []
                assert stage.node.jetstream is not None
                for name in list(stage.node.jetstream.accounts["$G"].streams["O"].consumers):
                    await call(client, f"CONSUMER.DELETE.O.{name}")
                await stage.sleep(4)
            switch(True)
            await stage.sleep(10)
            wanted = [str(number) for number in range(300)]
            for name in "OMS":
                assert [payload for _, _, payload in await held(client, name)] == wanted, name

    play(1, scene).unwrap()


def test_an_origin_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an origin that sends on while nothing can be stored no more is kept than the bound, empty messages included;
    that session ends, and the next one brings what was left out.
    """
    bound, count = 4000, 500
    monkeypatch.setattr(remote_sourcing, "SOURCING_WAITING_BYTES_MAX", bound)

    async def scene(stage: Stage) -> None:
        origin = stage.node.broker.internal_client(stage.node.broker.account(), "origin", lambda batch: None)

        async def send(start_seq: int, deliver: str) -> None:
            for seq in range(start_seq, count + 1):
                reply = f"$JS.ACK.O.c.1.{seq}.{seq - start_seq + 1}.{seq}.0"
                origin.publish(deliver.encode(), b"", reply=reply.encode())
                await stage.sleep(0.001)

        async with open_client(stage) as client, client.subscribe("X.API.CONSUMER.CREATE.O") as asked:
            await make(client, "S", subjects=["s"], sources=[{"name": "O", "external": {"api": "X.API"}}])
            request = await asked.next_message()
            await request.respond(b'{"num_pending": 500}')
            await stage.sleep(0.1)
            stage.machine.drive.faults.append(DiskFault(("sync",), Delay(added_ns=2 * SECOND_NS)))
            await send(1, orjson.loads(request.data)["config"]["deliver_subject"])
            assert stage.node.jetstream is not None
            (intake,) = stage.node.jetstream.accounts["$G"].streams["S"].intakes
            assert isinstance(intake, remote_sourcing.RemoteIntake)
            assert bound / 2 < sum(sum(map(len, message)) for message in intake._waiting) < 2 * bound
            stage.machine.drive.faults.clear()
            monkeypatch.setattr(remote_sourcing, "SOURCING_WAITING_BYTES_MAX", 100 * bound)
            request = await asked.next_message()
            config = orjson.loads(request.data)["config"]
            await request.respond(b'{"num_pending": 400}')
            await stage.sleep(0.1)
            assert 1 < config["opt_start_seq"] < count
            await send(config["opt_start_seq"], config["deliver_subject"])
            await stage.sleep(1)
            info: Any = await call(client, "STREAM.INFO.S")
            assert info["state"]["messages"] == count
            assert intake.info().seq == count

    play(1, scene).unwrap()


@pytest.mark.parametrize("way", [{}, {"external": {"api": "X.API"}}])
def test_an_origin_that_was_made_anew(way: dict[str, Any]) -> None:
    """A stream of the same name that takes its place is sourced from its beginning, each message once, also when a
    restart comes between.
    """

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client, another_way(client):
            await make(client, "S", sources=[{"name": "O", **way}])
            wanted: list[str] = []
            for generation in range(3):
                await make(client, "O", subjects=["o"])
                for number in range(5 - generation):
                    await publish(client, "o", b"%d.%d" % (generation, number))
                    wanted.append(f"{generation}.{number}")
                await stage.sleep(20)
                assert [payload for _, _, payload in await held(client, "S")] == wanted
                if generation == 1:
                    await stage.restart()
                    await stage.sleep(20)
                await call(client, "STREAM.DELETE.O")
            info: Any = await call(client, "STREAM.INFO.S")
            assert (info["state"]["messages"], info["sources"][0]["seq"]) == (12, 3)

    play(1, scene).unwrap()


def test_what_is_told_of_origins() -> None:
    """The last sequence that was taken, not the last one that was looked at; and an origin that is not there."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o.*"])
            await make(client, "S", sources=[{"name": "O", "filter_subject": "o.1"}, {"name": "N"}])
            await make(client, "M", mirror={"name": "N"})
            for subject in ("o.1", "o.1", "o.2"):
                await publish(client, subject, b"")
            await stage.sleep(3)
            infos: list[Any] = [await call(client, f"STREAM.INFO.{name}") for name in "SM"]
            first, *others = [*infos[0]["sources"], infos[1]["mirror"]]
            assert (first["seq"], first["lag"], first.get("error")) == (2, 0, None)
            assert [(one["error"]["err_code"], one["active"]) for one in others] == [(10059, -1)] * 2
            await make(client, "N", subjects=["n"])
            await publish(client, "n", b"")
            await stage.sleep(3)
            infos = [await call(client, f"STREAM.INFO.{name}") for name in "SM"]
            assert [one.get("error") for one in [*infos[0]["sources"], infos[1]["mirror"]]] == [None] * 3

    play(1, scene).unwrap()


def test_starts_filters_and_transforms_of_a_mirror() -> None:
    """A mirror begins where it is told, takes what its filters match, renames, and keeps its origin's sequences."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o.*"])
            for number in range(1, 11):
                await publish(client, f"o.{number % 2}", b"%d" % number)
                await stage.sleep(0.01)
            origin: Any = await call(client, "STREAM.MSG.GET.O", {"seq": 6})
            await make(client, "S", mirror={"name": "O", "opt_start_seq": 8})
            await make(client, "T", mirror={"name": "O", "opt_start_time": origin["message"]["time"]})
            await make(client, "F", mirror={"name": "O", "filter_subject": "o.1"})
            renamed = [{"src": "o.0", "dest": "even.0"}, {"src": "o.1", "dest": ""}]
            await make(client, "R", mirror={"name": "O", "subject_transforms": renamed})
            await stage.sleep(3)
            assert [seq for seq, _, _ in await held(client, "S")] == [8, 9, 10]
            assert [seq for seq, _, _ in await held(client, "T")] == [6, 7, 8, 9, 10]
            assert [seq for seq, _, _ in await held(client, "F")] == [1, 3, 5, 7, 9]
            assert [subject for _, subject, _ in await held(client, "R")] == ["o.1", "even.0"] * 5
            for name in "STFR":
                assert all(str(seq) == payload for seq, _, payload in await held(client, name))

    play(1, scene).unwrap()


def test_a_start_that_lies_ahead() -> None:
    """What is published until then is not copied; then everything is, each message once, after a restart as well."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o"])
            await publish(client, "o", b"old")
            start = format_time(stage.runtime.clock.wall_ns() + 20 * SECOND_NS)
            await make(client, "M", mirror={"name": "O", "opt_start_time": start})
            await make(client, "S", sources=[{"name": "O", "opt_start_time": start}])
            for payload in (b"early", b"in time", b"later"):
                await publish(client, "o", payload)
                await stage.sleep(25)
                stage.machine.kill()
                await stage.machine.wait_ended()
                stage.machine.start()
                await stage.sleep(3)
            for name in "MS":
                assert [payload for _, _, payload in await held(client, name)] == ["in time", "later"]

    play(1, scene).unwrap()


def test_the_transform_of_the_copying_stream() -> None:
    """It comes behind those of the source or mirror, for what they copy as for what is published."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o.*"])
            twice = [{"src": "o.a", "dest": "t.a"}, {"src": "o.b", "dest": ""}]
            transform = {"src": "t.>", "dest": "u.>"}
            await make(client, "M", mirror={"name": "O", "subject_transforms": twice}, subject_transform=transform)
            source = {"name": "O", "subject_transforms": twice}
            await make(client, "S", sources=[source], subject_transform=transform, subjects=["t.own"])
            for subject in ("o.a", "o.b", "o.c"):
                await publish(client, subject, b"")
            await stage.sleep(3)
            await publish(client, "t.own", b"")
            assert [subject for _, subject, _ in await held(client, "M")] == ["u.a", "o.b"]
            assert [subject for _, subject, _ in await held(client, "S")] == ["u.a", "o.b", "u.own"]
            message: Any = (await call(client, "STREAM.MSG.GET.S", {"seq": 1}))["message"]
            header = base64.b64decode(message["hdrs"]).split(b"\r\n")[1]
            assert header.rpartition(b" ")[0] == b"Nats-Stream-Source: O 1 o.a\fo.b t.a\f> o.a"

    play(1, scene).unwrap()


def test_copies_of_rollups() -> None:
    """A stream that allows no roll-ups keeps what its origin has rolled up, header and all, through a restart too."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o.*"], allow_rollup_hdrs=True)
            copies: dict[str, dict[str, Any]] = {"M": {"mirror": {"name": "O"}}, "S": {"sources": [{"name": "O"}]}}
            for name, origin in copies.items():
                await make(client, name, **origin)
                await make(client, f"{name}r", **origin, allow_rollup_hdrs=True)
            for number in range(3):
                await publish(client, "o.1", b"%d" % number)
            await client.request("o.1", b"3", headers={"Nats-Rollup": "sub"})
            await stage.sleep(3)
            for _ in range(2):
                for name in copies:
                    assert [payload for _, _, payload in await held(client, name)] == [*"0123"]
                    assert [payload for _, _, payload in await held(client, f"{name}r")] == ["3"]
                    message: Any = (await call(client, f"STREAM.MSG.GET.{name}", {"seq": 4}))["message"]
                    assert b"Nats-Rollup: sub" in base64.b64decode(message["hdrs"])
                await stage.restart()
                await stage.sleep(3)

    play(1, scene).unwrap()


def test_sealed_copies() -> None:
    """What a sealed stream copied stays as it is, also after a restart; its info still says what it was copied from."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o"])
            copies: dict[str, dict[str, Any]] = {"M": {"mirror": {"name": "O"}}, "S": {"sources": [{"name": "O"}]}}
            for name, config in copies.items():
                await make(client, name, **config)
            await publish(client, "o", b"1")
            await stage.sleep(2)
            for name, config in copies.items():
                answer: Any = await call(client, f"STREAM.UPDATE.{name}", {"name": name, **config, "sealed": True})
                assert answer["config"]["sealed"]
            for number in (2, 3):
                await publish(client, "o", b"%d" % number)
                await stage.sleep(2)
                assert [len(await held(client, name)) for name in "OMS"] == [number, 1, 1]
                infos: list[Any] = [await call(client, f"STREAM.INFO.{name}") for name in "MS"]
                mirror, source = infos[0]["mirror"], infos[1]["sources"][0]
                assert (mirror["name"], source["name"], source["seq"]) == ("O", "O", 1)
                if number == 2:  # it has not rested through a start yet
                    assert (mirror["lag"], source["lag"]) == (1, 1)
                    assert min(mirror["active"], source["active"]) > 0
                stage.machine.kill()
                await stage.machine.wait_ended()
                stage.machine.start()
                await stage.sleep(2)

    play(1, scene).unwrap()


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_an_origin_lets_go_of_what_was_taken(retention: str) -> None:
    """A work queue or an interest stream keeps what its only reader, a source of another stream, has not stored, and
    nothing else.
    """

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o.*"], retention=retention)
            await make(client, "T", sources=[{"name": "O"}], discard="new", max_msgs=5)
            await stage.sleep(3)
            for number in range(8):
                await publish(client, "o.1", b"%d" % number)
            await stage.sleep(3)
            assert [payload for _, _, payload in await held(client, "T")] == [*"01234"]
            assert [payload for _, _, payload in await held(client, "O")][-3:] == [*"567"]
            await call(client, "STREAM.PURGE.T")
            await stage.sleep(3)
            assert [payload for _, _, payload in await held(client, "T")] == [*"567"]
            assert await held(client, "O") == []

    play(1, scene).unwrap()


def test_a_stream_that_becomes_one_by_interest_lets_go_of_what_its_mirror_has() -> None:
    """As one does that was by interest from the start; what a consumer still wants stays."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            await make(client, "O", subjects=["o.*"])
            await make(client, "T", mirror={"name": "O"})
            consumer = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "o.wanted"}
            await call(client, "CONSUMER.DURABLE.CREATE.O.C", {"stream_name": "O", "config": consumer})
            for subject in ("o.taken", "o.wanted", "o.taken"):
                await publish(client, subject, b"x")
            await stage.sleep(3)
            await call(client, "STREAM.UPDATE.O", {"name": "O", "subjects": ["o.*"], "retention": "interest"})
            await stage.sleep(3)
            assert [seq for seq, _, _ in await held(client, "T")] == [1, 2, 3]
            assert [seq for seq, _, _ in await held(client, "O")] == [2]

    play(1, scene).unwrap()
