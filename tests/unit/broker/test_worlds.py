"""The broker in worlds of many seeds: odd schedules, odd bounds, bytes cut anywhere on their way."""

from __future__ import annotations

import pytest
import trio
from tests.unit.broker.stage import RawClient, Stage, play

from tnats.runtime.sim.rules import splits
from tnats.wire.client import Message, ServerParser

PUBLISHERS = 3
MESSAGES = 150
SIZES = (0, 3, 60, 1000, 4100, 33_000)


@pytest.mark.parametrize("seed", range(12))
def test_every_subscriber_hears_every_publisher_in_order(seed: int) -> None:
    """Three publishers at once, subscribers that come and go beside them: no message is lost, doubled or overtaken."""

    async def publish(stage: Stage, name: int) -> None:
        client = await stage.connect()
        rng = stage.world.rng(f"publisher {name}")
        for number in range(MESSAGES):
            payload = (b"%d %d " % (name, number)).ljust(rng.choice(SIZES), b"x")
            await client.send(b"PUB n.%d %d\r\n%b\r\n" % (name, len(payload), payload))
            if rng.random() < 0.2:
                await stage.sleep(rng.random() / 100)

    async def subscribe(client: RawClient, heard: list[tuple[int, int]]) -> None:
        parser = ServerParser()
        while len(heard) < PUBLISHERS * MESSAGES:
            operations = parser.feed(await client.read())
            assert not parser.fault
            for one in operations:
                assert isinstance(one, Message)
                name, number, *_ = one.payload.split(b" ")
                assert one.subject == b"n." + name
                heard.append((int(name), int(number)))

    async def come_and_go(stage: Stage) -> None:
        for number in range(10):
            client = await stage.connect()
            await client.ask(b"SUB n.%d 1\r\nSUB n.* 2\r\nSUB n.> q 3\r\nUNSUB 2\r\n" % (number % PUBLISHERS))
            client.conn.close(reset=number % 2 == 0)

    async def scene(stage: Stage) -> None:
        stage.world.fabric.apply(splits(["server"], ["clients"], chance=0.3))
        heard: list[list[tuple[int, int]]] = [[], [], []]
        async with trio.open_nursery() as nursery:
            for pattern, into in zip((b"n.>", b"n.*", b">"), heard, strict=True):
                client = await stage.connect()
                await client.ask(b"SUB %b 1\r\n" % pattern)
                nursery.start_soon(subscribe, client, into)
            nursery.start_soon(come_and_go, stage)
            for name in range(PUBLISHERS):
                nursery.start_soon(publish, stage, name)
        for into in heard:
            for name in range(PUBLISHERS):
                assert [number for who, number in into if who == name] == list(range(MESSAGES))

    play(scene, seed=seed, buggify=True)
