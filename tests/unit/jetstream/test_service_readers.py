"""Consumers and direct gets of a server whose client falls behind and reads on: it gets all, and nothing is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson
import pytest
from tests.unit.jetstream.service_world import Stage, call, play, publish

from tnats.broker.readers import Readers
from tnats.client import connect
from tnats.limits import SECOND_NS

PORT = 4222
COUNT = 60
PAYLOAD = bytes(20_000)
MAX_PENDING = 200_000
ALL = list(range(1, COUNT + 1))
TARGETS = ("pull1", "pull2", "gone", "push", "direct")


class Reader:
    """A raw connection, which reads when it is told to."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._heard = b""
        self._buffer = bytearray(1 << 20)

    async def begin(self, targets: Sequence[str] = TARGETS, max_pending: int = MAX_PENDING) -> None:
        """Connect, subscribe to all targets, and be one for whom the server holds little."""
        self._conn = await self._stage.runtime.network.connect("server", PORT, timeout_ns=SECOND_NS)
        self._conn.write([b'CONNECT {"headers":true,"verbose":false}\r\n'])
        self._conn.write([b"SUB got.%b 1%d\r\n" % (name.encode(), sid) for sid, name in enumerate(targets)])
        await self._stage.sleep(0.1)
        list(self._stage.node.broker.connections.values())[-1].outbound.max_pending = max_pending

    def say(self, subject: str, reply: str, body: object) -> None:
        data = orjson.dumps(body)
        self._conn.write([b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(data), data)])

    async def read(self) -> dict[str, list[int]]:
        """Read until nothing comes: the sequences by target, in the order in which they came."""
        idle_count = 0
        while idle_count < 20:
            count = self._conn.read_into(self._buffer)
            assert count != 0, "closed by the server"
            idle_count = 0 if count else idle_count + 1
            self._heard += bytes(self._buffer[: count or 0])
            await self._stage.sleep(0.01)
        found: dict[str, list[int]] = {}
        for place, got in re.findall(rb"MSG s\.x \d+ \$JS\.ACK\.\w+\.(\w+)\.\d+\.(\d+)\.", self._heard):
            found.setdefault(place.decode(), []).append(int(got))
        found["direct"] = [int(got) for got in re.findall(rb"Nats-Sequence: (\d+)", self._heard)]
        return found


def readers_of(stage: Stage) -> Readers:
    assert stage.node.jetstream is not None
    readers: Readers = stage.node.jetstream.accounts["$G"].bus._readers  # type: ignore[attr-defined]
    return readers


def test_who_reads_late_gets_everything_and_nothing_is_kept_of_it() -> None:
    """Consumers of both kinds and a batch wait for one reader, and take turns; one that is deleted waits no more."""

    async def scene(stage: Stage) -> None:
        readers = readers_of(stage)
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.x"], "allow_direct": True})
            for _ in ALL:
                assert await publish(client, "s.x", PAYLOAD)
            reader = Reader(stage)
            await reader.begin()
            for name in TARGETS[:-1]:
                config = {"name": name, "ack_policy": "none", "inactive_threshold": 3600 * SECOND_NS}
                config |= {"deliver_subject": "got.push"} if name == "push" else {}
                await call(client, f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
                if name != "push":
                    reader.say(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", f"got.{name}", {"batch": COUNT})
            reader.say("$JS.API.DIRECT.GET.S", "got.direct", {"seq": 1, "batch": COUNT, "max_bytes": 1 << 30})
            await stage.sleep(5)
            assert len(readers._waits) == len(TARGETS)
            await call(client, "CONSUMER.DELETE.S.gone")
            assert b"got.gone" not in readers._waits
            found = await reader.read()
            got_of_gone = found.pop("gone", [])
            assert got_of_gone == ALL[: len(got_of_gone)] != ALL
            assert found == dict.fromkeys([name for name in TARGETS if name != "gone"], ALL)
            assert readers._waits == {}
            assert readers._lines == {}

    first, second = play(3, scene), play(3, scene)
    first.unwrap()
    assert first.trace_hash == second.trace_hash


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_is_read_late_goes_out_when_there_is_room(seed: int) -> None:
    """Of a run that had to be read, what others have brought into the system's cache meanwhile waits for room as well:
    many consumers of one client that does not read never have it cut off.
    """
    names = [f"C{number}" for number in range(8)]

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.x"]})
            for _ in ALL:
                assert await publish(client, "s.x", PAYLOAD)
            await stage.restart()
            stage.machine.drive.cold = 0.5
            reader = Reader(stage)
            await reader.begin(names)
            for name in names:
                config = {"name": name, "ack_policy": "none", "inactive_threshold": 3600 * SECOND_NS}
                await call(client, f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
            for name in names:
                reader.say(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", f"got.{name}", {"batch": COUNT})
            await stage.sleep(2)
            found = await reader.read()
            assert found.pop("direct") == []
            assert found == dict.fromkeys(names, ALL)

    play(seed, scene).unwrap()


@pytest.mark.parametrize("size", [MAX_PENDING * 3 // 10, MAX_PENDING * 6 // 10, MAX_PENDING])
def test_messages_of_any_size_wait_for_their_reader(size: int) -> None:
    """A message may be as large as all that may wait for a client, and larger with what goes along with it."""
    count = 6

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.x"], "allow_direct": True})
            for _ in range(count):
                assert await publish(client, "s.x", bytes(size))
            reader = Reader(stage)
            await reader.begin()
            for name in ("pull1", "pull2", "push"):
                config = {"name": name, "ack_policy": "none", "inactive_threshold": 3600 * SECOND_NS}
                config |= {"deliver_subject": "got.push"} if name == "push" else {}
                await call(client, f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
            reader.say("$JS.API.CONSUMER.MSG.NEXT.S.pull1", "got.pull1", {"batch": count})
            reader.say("$JS.API.CONSUMER.MSG.NEXT.S.pull2", "got.pull2", {"batch": count, "max_bytes": 1 << 30})
            reader.say("$JS.API.DIRECT.GET.S", "got.direct", {"seq": 1, "batch": count, "max_bytes": 1 << 30})
            await stage.sleep(5)
            found = await reader.read()
            assert found == dict.fromkeys(("pull1", "pull2", "push", "direct"), ALL[:count])

    play(3, scene).unwrap()


def test_what_goes_along_with_a_message_counts() -> None:
    """Small messages under long names: their reply subjects alone are more than may wait for a client."""
    count, stream, consumer = 1000, "S" * 250, "C" * 250

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, f"STREAM.CREATE.{stream}", {"name": stream, "subjects": ["s.x"]})
            for _ in range(count):
                assert await publish(client, "s.x", b"x")
            reader = Reader(stage)
            await reader.begin(["pull"], 20_000)
            config = {"name": consumer, "ack_policy": "none", "inactive_threshold": 3600 * SECOND_NS}
            await call(client, f"CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config})
            reader.say(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", "got.pull", {"batch": count})
            await stage.sleep(5)
            found = await reader.read()
            assert found == {consumer: list(range(1, count + 1)), "direct": []}

    play(3, scene).unwrap()
