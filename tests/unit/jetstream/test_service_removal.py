"""A death between the consumer's log and its stream's: what was acknowledged leaves the stream all the same."""

from __future__ import annotations

import contextlib

import orjson
import pytest
from tests.unit.jetstream.service_world import Stage, call, message_count, play

from tnats.client import Client, ClientError, connect
from tnats.jetstream.stream import interest
from tnats.jetstream.stream.ports import StreamStore
from tnats.jetstream.stream.service import StreamService

COUNT = 5


async def pull(client: Client, batch: int) -> list[str]:
    """The reply subjects of messages."""
    found: list[str] = []
    async with client.subscribe("inbox.pull") as inbox:
        query = orjson.dumps({"batch": batch, "no_wait": True})
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", query, reply="inbox.pull")
        while len(found) < batch:
            message = await inbox.next_message(2)
            if message.status:
                break
            found.append(message.reply)
    return found


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_was_acknowledged_leaves_after_the_start(retention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream's own entry is missing: the consumer's log says again that it is done; others stay."""

    async def scene(stage: Stage) -> object:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "retention": retention})
            config = {"durable_name": "C", "ack_policy": "explicit"}
            await call(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
            for _ in range(COUNT):
                await client.request("s", b"", timeout_s=2)
            replies = await pull(client, COUNT)
            with monkeypatch.context() as patched:
                patched.setattr(StreamService, "done_with", lambda self, seqs, done: False)
                for reply in replies[:3]:
                    await client.request(reply, b"+ACK", timeout_s=2)
                before = await message_count(client)
                stage.machine.kill()
                await stage.machine.wait_ended()
            stage.machine.start()
            await stage.sleep(1)
            return before, await message_count(client)

    assert play(1, scene).unwrap() == (COUNT, COUNT - 3)


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_is_acknowledged_late_leaves(retention: str) -> None:
    """A message whose deliveries are used up stays until its acknowledgement, or its end, comes after all, and that is
    true when it is confirmed, also after a start. An acknowledgement of another place takes nothing away.
    """

    async def scene(stage: Stage) -> object:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "retention": retention})
            config = {"durable_name": "C", "ack_policy": "explicit", "max_deliver": 1, "ack_wait": 1_000_000_000}
            await call(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
            for _ in range(COUNT):
                await client.request("s", b"", timeout_s=2)
            replies = await pull(client, COUNT - 1)
            await stage.sleep(3)
            found = [await message_count(client)]
            for reply in (replies[0], replies[0], replies[0].replace(".1.1.1.", ".1.5.5.")):
                with contextlib.suppress(ClientError):
                    await client.request(reply, b"+ACK", timeout_s=1)
                found.append(await message_count(client))
            await stage.restart()
            for reply, word in ((replies[1], b"+ACK"), (replies[2], b"+TERM"), (replies[3], b"-NAK")):
                await client.request(reply, word, timeout_s=2)
                found.append(await message_count(client))
            return found

    assert play(1, scene).unwrap() == [5, 4, 4, 4, 3, 2, 2]


def test_what_nobody_needs_goes_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece is gone before the next one is looked for: however much goes at once, others are served in between."""

    async def scene(stage: Stage) -> list[int]:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "retention": "interest"})
            config = {"durable_name": "C", "ack_policy": "explicit"}
            await call(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
            for _ in range(COUNT):
                await client.request("s", b"", timeout_s=2)
            assert stage.node.jetstream is not None
            stream = stage.node.jetstream.accounts["$G"].streams["S"]
            left: list[int] = []
            swept = stream.interest.sweep

            def sweep(store: StreamStore, from_seq: int) -> tuple[list[int], int]:
                left.append(store.messages)
                return swept(store, from_seq)

            monkeypatch.setattr(stream.interest, "sweep", sweep)
            monkeypatch.setattr(interest, "SWEEP_MSGS", 2)
            await call(client, "CONSUMER.DELETE.S.C")
            await stage.sleep(1)
            return left

    assert play(1, scene).unwrap() == [5, 3, 1]


def test_sweeps_that_are_asked_for_at_once_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many consumers go while an interest stream is looked through, it is looked through once more, and what
    nobody needs is gone then.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "retention": "interest"})
            config = {"durable_name": "C", "ack_policy": "explicit"}
            await call(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
            for _ in range(COUNT):
                await client.request("s", b"", timeout_s=2)
            assert stage.node.jetstream is not None
            stream = stage.node.jetstream.accounts["$G"].streams["S"]
            begun: list[int] = []
            swept = stream.interest.sweep

            def sweep(store: StreamStore, from_seq: int) -> tuple[list[int], int]:
                begun.append(from_seq)
                if len(begun) == 1:
                    for _ in range(50):
                        stream.sweep()
                return swept(store, from_seq)

            monkeypatch.setattr(stream.interest, "sweep", sweep)
            await call(client, "CONSUMER.DELETE.S.C")
            await stage.sleep(1)
            assert begun == [1, 1]
            assert await message_count(client) == 0
            await call(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
            await call(client, "CONSUMER.DELETE.S.C")
            await stage.sleep(1)
            assert begun == [1, 1, 1]

    play(1, scene).unwrap()
