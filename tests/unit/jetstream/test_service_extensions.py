"""What goes beyond NATS, by requests to a whole server: the durability promise, and order per subject."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.unit.jetstream.service_world import Stage, call, play

from tnats.client import Client, connect
from tnats.limits import SECOND_NS

KEY = "_nats.tnats.durability"


@pytest.mark.parametrize(
    ("sync_interval", "storage", "wanted"),
    [
        ((0, True), "file", "synced"),
        ((120 * SECOND_NS, False), "file", "interval 2m0s"),
        ((0, True), "memory", "memory"),
    ],
)
def test_info_says_what_an_acknowledgement_is_worth(sync_interval: tuple[int, bool], storage: str, wanted: str) -> None:
    """Among the server's own metadata, where strict clients expect it; it is never kept as if a user had set it."""

    async def scene(stage: Stage) -> object:
        async with connect("nats://server", runtime=stage.runtime) as client:
            config = {"name": "S", "subjects": ["s"], "storage": storage}
            made = await call(client, "STREAM.CREATE.S", config)
            again = await call(client, "STREAM.UPDATE.S", made["config"])
            found = await call(client, "STREAM.INFO.S")
            assert isinstance(found["config"], dict)
            assert not [key for key in found["config"]["metadata"] if not key.startswith("_nats.")]
            forged = await call(client, "STREAM.UPDATE.S", {**config, "metadata": {KEY: "forged"}})
            names = {name for one in (made, again, found, forged) for name in one}
            assert not [name for name in names if "tnats" in name]
            answers: Any = (made, again, found, forged)
            return [one["config"]["metadata"][KEY] for one in answers]

    assert play(1, scene, sync_interval).unwrap() == [wanted] * 4


async def pull(client: Client, batch: int) -> list[tuple[str, str]]:
    """(subject, reply) of messages."""
    found: list[tuple[str, str]] = []
    async with client.subscribe("inbox.pull") as inbox:
        query = orjson.dumps({"batch": batch, "no_wait": True})
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", query, reply="inbox.pull")
        while len(found) < batch:
            message = await inbox.next_message(2)
            if message.status:
                break
            found.append((message.subject, message.reply))
    return found


def test_one_message_of_each_subject_at_a_time() -> None:
    """With `tnats.max_ack_pending_per_subject` several workers keep the order of each subject, over a kill as well."""

    async def scene(stage: Stage) -> object:
        handled: list[str] = []
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "retention": "workqueue"})
            metadata = {"tnats.max_ack_pending_per_subject": "1"}
            config = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": SECOND_NS, "metadata": metadata}
            await call(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
            for number in range(30):
                await client.request(f"s.{number % 3}", b"", timeout_s=2)
            while len(handled) < 30:
                one, two = await pull(client, 10), await pull(client, 10)
                subjects = [subject for subject, _ in one + two]
                assert len(set(subjects)) == len(subjects)
                for _, reply in reversed(one + two):
                    await client.request(reply, b"+ACK", timeout_s=2)
                    handled.append(reply.split(".")[5])
                if len(handled) == 15:
                    await stage.restart()
        return [[seq for seq in handled if int(seq) % 3 == rest] for rest in range(3)]

    found = play(1, scene).unwrap()
    assert found == [[str(seq) for seq in range(1, 31) if seq % 3 == rest] for rest in range(3)]
