"""JetStream as the official Python client has it, unmodified, against `tnats serve`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from nats.js import JetStreamContext
from nats.js.api import RePublish, StreamSource
from nats.js.errors import BucketNotFoundError, KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError
from tests.conformance.test_nats_py import connect, run
from tests.live.server_process import PATIENCE_S, ServerProcess, serve

Scene = Callable[[JetStreamContext], Awaitable[None]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of this module."""
    folder: Path = tmp_path_factory.mktemp("server")
    with serve(folder, "jetstream { store_dir: store }") as running:
        yield running


def play(server: ServerProcess, scene: Scene) -> None:
    async def main() -> None:
        client = await connect(server.url)
        try:
            await scene(client.jetstream(timeout=PATIENCE_S))
        finally:
            await client.close()

    run(main)


def test_publish_and_duplicates(server: ServerProcess) -> None:
    """Acks number the messages; an id within the window is stored once."""

    async def scene(js: JetStreamContext) -> None:
        await js.add_stream(name="PUB", subjects=["pub.>"])
        assert [(await js.publish(f"pub.{number}", b"x")).seq for number in range(5)] == [1, 2, 3, 4, 5]
        first = await js.publish("pub.d", b"x", headers={"Nats-Msg-Id": "one"})
        second = await js.publish("pub.d", b"x", headers={"Nats-Msg-Id": "one"})
        assert (first.seq, first.duplicate, second.seq, second.duplicate) == (6, None, 6, True)
        assert (await js.stream_info("PUB")).state.messages == 6
        assert (await js.get_msg("PUB", 3)).subject == "pub.2"

    play(server, scene)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_pull_and_acknowledge(server: ServerProcess, storage: str) -> None:
    """What was acknowledged does not come again; what was given back does, counted."""

    async def scene(js: JetStreamContext) -> None:
        name = f"PULL{storage}"
        await js.add_stream(name=name, subjects=[f"{name}.>"], storage=storage)
        for number in range(10):
            await js.publish(f"{name}.a", b"%d" % number)
        subscription = await js.pull_subscribe(f"{name}.>", durable="D")
        for message in await subscription.fetch(6, timeout=PATIENCE_S):
            await message.ack_sync(timeout=PATIENCE_S)
        (given_back,) = await subscription.fetch(1, timeout=PATIENCE_S)
        await given_back.nak()
        rest = await subscription.fetch(4, timeout=PATIENCE_S)
        assert sorted(message.data for message in rest) == [b"6", b"7", b"8", b"9"]
        assert next(message for message in rest if message.data == b"6").metadata.num_delivered == 2
        for message in rest:
            await message.ack_sync(timeout=PATIENCE_S)
        info = await js.consumer_info(name, "D")
        assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, 10)

    play(server, scene)


def test_push_and_ordered(server: ServerProcess) -> None:
    """Push consumers deliver to their subject; ordered ones deliver all in order."""

    async def scene(js: JetStreamContext) -> None:
        await js.add_stream(name="PUSH", subjects=["push.>"])
        for number in range(200):
            await js.publish("push.a", b"%d" % number)
        push = await js.subscribe("push.>", durable="P", manual_ack=True)
        for number in range(200):
            message = await push.next_msg(timeout=PATIENCE_S)
            assert message.data == b"%d" % number
            await message.ack()
        ordered = await js.subscribe("push.>", ordered_consumer=True)
        assert [(await ordered.next_msg(timeout=PATIENCE_S)).data for _ in range(200)] == [
            b"%d" % one for one in range(200)
        ]

    play(server, scene)


def test_work_queue_and_interest(server: ServerProcess) -> None:
    """A confirmed ack has removed the message from a work queue; interest keeps nothing that nobody wants."""

    async def scene(js: JetStreamContext) -> None:
        await js.add_stream(name="WORK", subjects=["work"], retention="workqueue")
        await js.add_stream(name="WISH", subjects=["wish"], retention="interest")
        for _ in range(3):
            await js.publish("work", b"")
        assert (await js.publish("wish", b"")).seq == 1
        assert (await js.stream_info("WISH")).state.messages == 0
        workers = await js.pull_subscribe("work", durable="W")
        for left, message in zip((2, 1, 0), await workers.fetch(3, timeout=PATIENCE_S), strict=True):
            await message.ack_sync(timeout=PATIENCE_S)
            assert (await js.stream_info("WORK")).state.messages == left

    play(server, scene)


def test_limits_age_and_purge(server: ServerProcess) -> None:
    """The oldest go first, by count and by age; a purge takes a subject alone."""

    async def scene(js: JetStreamContext) -> None:
        await js.add_stream(name="LIM", subjects=["lim.>"], max_msgs=5)
        for number in range(9):
            await js.publish(f"lim.{number % 2}", b"")
        assert (await js.stream_info("LIM")).state.first_seq == 5
        await js.purge_stream("LIM", subject="lim.0")
        assert (await js.stream_info("LIM")).state.messages == 2
        await js.add_stream(name="AGE", subjects=["age"], max_age=1)
        await js.publish("age", b"")
        while (await js.stream_info("AGE")).state.messages:
            pass
        await js.delete_stream("LIM")
        with pytest.raises(NotFoundError):
            await js.stream_info("LIM")

    play(server, scene)


def test_key_value(server: ServerProcess) -> None:
    """Buckets: values, history, compare and set, deletion, watching."""

    async def scene(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket="KV", history=5)
        assert (await bucket.put("a", b"1"), await bucket.put("a", b"2"), await bucket.create("b", b"x")) == (1, 2, 3)
        entry = await bucket.get("a")
        assert (entry.value, entry.revision) == (b"2", 2)
        assert [one.value for one in await bucket.history("a")] == [b"1", b"2"]
        with pytest.raises(KeyWrongLastSequenceError):
            await bucket.update("a", b"3", last=1)
        assert await bucket.update("a", b"3", last=2) == 4
        await bucket.delete("a")
        with pytest.raises(KeyNotFoundError):
            await bucket.get("a")
        assert await bucket.keys() == ["b"]
        watcher = await bucket.watch("b")
        assert (await watcher.updates(timeout=PATIENCE_S)).value == b"x"
        await js.delete_key_value("KV")
        with pytest.raises(BucketNotFoundError):
            await js.key_value("KV")

    play(server, scene)


def test_object_store(server: ServerProcess) -> None:
    """An object of several chunks comes back whole."""

    async def scene(js: JetStreamContext) -> None:
        store = await js.create_object_store(bucket="OBJ")
        content = bytes(range(256)) * 2000
        await store.put("file", content)
        found = await store.get("file")
        assert found.data == content
        await store.delete("file")

    play(server, scene)


def test_mirrors_and_sources(server: ServerProcess) -> None:
    """A mirror has its origin's sequences, gaps included; a source says where its messages come from."""

    async def scene(js: JetStreamContext) -> None:
        await js.add_stream(name="ORIGIN", subjects=["origin.>"])
        for number in range(4):
            await js.publish(f"origin.{number}", b"%d" % number, headers={"Own": "kept"})
        await js.delete_msg("ORIGIN", 2)
        await js.add_stream(name="MIRROR", mirror=StreamSource(name="ORIGIN"))
        taken = StreamSource(name="ORIGIN", filter_subject="origin.3")
        await js.add_stream(name="SOURCED", subjects=["sourced"], sources=[taken])
        assert (await js.publish("origin.3", b"later")).seq == 5
        await reaches(js, "MIRROR", 5)
        await reaches(js, "SOURCED", 2)
        assert [(await js.get_msg("MIRROR", seq)).data for seq in (1, 3, 4, 5)] == [b"0", b"2", b"3", b"later"]
        with pytest.raises(NotFoundError):
            await js.get_msg("MIRROR", 2)
        first = await js.get_msg("SOURCED", 1)
        assert first.headers is not None
        assert first.headers["Own"] == "kept"
        *where, identity = first.headers["Nats-Stream-Source"].split()
        assert where == ["ORIGIN", "4", "origin.3", ">", "origin.3"]
        assert len(identity) == 8  # of the stream itself, as one made anew under its name has another
        info = await js.stream_info("MIRROR")
        assert info.mirror is not None
        assert (info.mirror.name, info.mirror.lag) == ("ORIGIN", 0)

    play(server, scene)


def test_republish(server: ServerProcess) -> None:
    """What is stored is published again, with where it stands in headers."""

    async def scene(js: JetStreamContext) -> None:
        heard = await js._nc.subscribe("again.>")
        republish = RePublish(src="said.>", dest="again.>")
        await js.add_stream(name="SAID", subjects=["said.>"], republish=republish)
        await js.publish("said.a", b"1")
        await js.publish("said.a", b"2")
        messages = [await heard.next_msg(timeout=PATIENCE_S) for _ in range(2)]
        assert [(message.subject, message.data) for message in messages] == [("again.a", b"1"), ("again.a", b"2")]
        headers = messages[1].headers
        assert headers is not None
        wanted = {"Nats-Stream": "SAID", "Nats-Subject": "said.a", "Nats-Sequence": "2", "Nats-Last-Sequence": "1"}
        assert {key: headers[key] for key in wanted} == wanted

    play(server, scene)


async def reaches(js: JetStreamContext, stream: str, last_seq: int) -> None:
    """Wait until a stream has come so far."""
    while (await js.stream_info(stream)).state.last_seq < last_seq:
        pass
