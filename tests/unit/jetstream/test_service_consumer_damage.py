"""Damage to what the journal has of a consumer: it is kept and named, and no message that it owes is passed over."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import pytest
from tests.unit.jetstream.service_world import STORE, Stage, call, play, publish

from tnats.client import Client, connect
from tnats.runtime.sim.disk_image import DiskImage
from tnats.storage import record, segment

POLICIES = {
    "all": ({"deliver_policy": "all"}, range(1, 31)),
    "new": ({"deliver_policy": "new"}, range(11, 31)),
    "last": ({"deliver_policy": "last"}, range(10, 31)),
    "last_per_subject": ({"deliver_policy": "last_per_subject", "filter_subject": "s.*"}, [9, 10, *range(11, 31)]),
    "start": ({"deliver_policy": "by_start_sequence", "opt_start_seq": 5}, range(5, 31)),
}
"""By deliver policy: configuration, and what comes of ten messages before its making and twenty behind."""


def wipe(image: DiskImage, kind: int, numbers: Container[int]) -> int:
    """Overwrite these of the records of one kind that the journal has of consumers; how many there were."""
    count = 0
    for path in [path for path in image.walk(STORE) if path.endswith(".part")]:
        data = bytearray(image.content(path))
        header = record.unpack(data, 0, 0, segment.HEADER_SEED)
        assert header is not None
        seed = segment._BODY.unpack_from(header.body)[3]
        groups: dict[int, None] = {}
        for offset, size, found_kind, _, *_ in segment.scan(data, seed, path).records:
            found = record.unpack(data, offset, 0, seed)
            assert found is not None
            if found.key.startswith(b"consumer/"):
                groups[found.group] = None
            if found_kind == kind and found.group in groups:
                if count in numbers:
                    image.overwrite(path, b"\xaa" * (size - 16), offset + 8)
                count += 1
    return count


async def take(client: Client, count: int) -> list[tuple[int, str]]:
    """Sequences and reply subjects of so many messages, or of all that come."""
    found = []
    async with client.subscribe("inbox") as inbox:
        request = b'{"batch":%d,"expires":500000000}' % count
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", request, reply="inbox")
        while len(found) < count:
            message = await inbox.next_message(timeout_s=5)
            if message.status:
                break
            found.append((int((message.reply or "").split(".")[5]), message.reply or ""))
    return found


async def used(client: Client, config: dict[str, object], acked: int) -> list[int]:
    """A consumer that was made among thirty messages and took nine of them, `acked` with confirmed acks; which."""
    await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
    for number in range(10):
        await publish(client, f"s.{number % 2}")
    made = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 5_000_000_000, **config}
    await call(client, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": made})
    for number in range(20):
        await publish(client, f"s.{number % 2}")
    taken = []
    for _ in range(3):
        some = await take(client, 3)
        for seq, reply in some:
            if len(taken) < acked:
                await client.request(reply, b"+ACK", timeout_s=2)
            taken.append(seq)
    return taken


async def restart_damaged(stage: Stage, kind: int, numbers: Container[int]) -> None:
    stage.machine.kill()
    await stage.machine.wait_ended()
    assert wipe(stage.machine.drive.image, kind, numbers) == (4 if kind == record.ENTRY else 1)
    stage.machine.start()
    await stage.sleep(1)


def told(stage: Stage) -> list[str]:
    """What the health check says of the consumer."""
    assert stage.node.jetstream is not None
    return [line for line in stage.node.jetstream.health() if line.startswith("JetStream consumer '$G > S > C'")]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_consumer_whose_place_is_lost_begins_again(policy: str) -> None:
    """Where it began when it was made, not where it would begin now; log and health check say so until the next start.

    What was the last of its subject then is passed over like after any start: a newer one comes.
    """
    config, taken = POLICIES[policy]
    wanted = [seq for seq in taken if seq > 10 or policy != "last_per_subject"]

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            assert await used(client, config, 4) == list(taken)[:9]
            await restart_damaged(stage, record.GROUP, [0])
            [line] = told(stage)
            assert "its place may be lost: it begins again at message" in line
            assert any(line in text for _, text in stage.machine.log_lines)
            assert [seq for seq, _ in await take(client, 50)] == wanted
            await stage.restart()
            assert told(stage) == []
            info: Any = await call(client, "CONSUMER.INFO.S.C")
            assert (info["num_ack_pending"], info["num_pending"]) == (len(wanted), 0)

    play(1, scene).unwrap()


@pytest.mark.parametrize("numbers", [[0], [1], [2], [3], [0, 1], [1, 2], [0, 3], range(4)])
def test_what_lost_entries_may_have_delivered_comes_again(numbers: Container[int]) -> None:
    """All that was not acknowledged comes, whichever entries are lost; log and health check say how many it may be."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            assert await used(client, {}, 4) == list(range(1, 10))
            await restart_damaged(stage, record.ENTRY, numbers)
            [line] = told(stage)
            assert "entries of its log are lost" in line
            await stage.sleep(6)
            seqs = [seq for seq, _ in await take(client, 50)]
            assert {*range(5, 31)} <= {*seqs}
            assert len(seqs) == len({*seqs})
            info: Any = await call(client, "CONSUMER.INFO.S.C")
            assert info["ack_floor"]["stream_seq"] < min(seqs)
            await stage.restart()
            again: Any = await call(client, "CONSUMER.INFO.S.C")
            assert (told(stage), again["ack_floor"]["stream_seq"]) == ([], info["ack_floor"]["stream_seq"])

    play(1, scene).unwrap()
