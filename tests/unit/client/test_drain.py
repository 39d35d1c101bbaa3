"""Ending in order."""

from __future__ import annotations

import pytest
import trio
from tests.unit.client.stage import Stage, play, wait_until

from tnats.client import ConnectionClosed, ConnectionLost, Status, TimedOut


def test_subscription_drain_keeps_what_was_sent() -> None:
    """Messages on their way when the drain begins are kept; after it the server sends no more and iteration ends."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a")
            await client.flush()
            peer = stage.server.peers[0]
            for number in range(10):
                peer.deliver("a", b"%d" % number)
            await subscription.drain()
            assert peer.deliver("a", b"too late") == 0
            assert [message.data async for message in subscription] == [b"%d" % number for number in range(10)]
            await subscription.drain()

    play(scene)


def test_subscription_drain_over_a_lost_connection_is_an_error() -> None:
    """Whether all came is unknown when the connection breaks under a drain: ConnectionLost, and the end anyway."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a")
            await client.flush()
            stage.server.answers_pings = False
            async with trio.open_nursery() as nursery:

                async def drain() -> None:
                    with pytest.raises(ConnectionLost):
                        await subscription.drain()

                nursery.start_soon(drain)
                await stage.sleep(1)
                stage.server.drop_clients()
            assert subscription.ended

    play(scene)


def test_client_drain_consumes_answers_and_closes() -> None:
    """Every message sent before is handled, answers published meanwhile arrive, then the client is closed."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client, trio.open_nursery() as nursery:
            subscription = client.subscribe("a")
            await client.flush()
            peer = stage.server.peers[0]

            async def work() -> None:
                async for message in subscription:
                    await stage.sleep(0.5)
                    await message.respond(b"done")

            for number in range(4):
                peer.deliver("a", b"", f"answer.{number}")
            nursery.start_soon(work)
            nursery.start_soon(client.drain)
            await stage.sleep(0.2)
            with pytest.raises(ConnectionClosed, match="draining"):
                client.subscribe("b")
            await wait_until(stage, lambda: client.status is Status.CLOSED)
            answered = [message.subject for message in stage.server.published]
            assert answered == [b"answer.0", b"answer.1", b"answer.2", b"answer.3"]

    play(scene)


def test_client_drain_gives_up_in_time() -> None:
    """Pending messages that nobody takes end the drain with TimedOut after its limit; the client is closed."""

    async def scene(stage: Stage) -> None:
        async with stage.connect(drain_timeout_s=5) as client:
            client.subscribe("a")
            await client.flush()
            stage.server.peers[0].deliver("a")
            start_s = stage.now_s
            with pytest.raises(TimedOut, match="drain_timeout_s"):
                await client.drain()
            assert stage.now_s - start_s == pytest.approx(5)
            assert client.status is Status.CLOSED

    play(scene)
