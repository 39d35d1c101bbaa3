"""The official Python client, unmodified, against `tnats serve`."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import nats
import nats.micro
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.request import Request
from tests.live.server_process import PATIENCE_S, ServerProcess, serve

connect = partial(nats.connect, connect_timeout=PATIENCE_S)
"""A machine that stands still for seconds is no reason to give up."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of this module."""
    with serve(tmp_path_factory.mktemp("server"), "max_payload: 100000") as running:
        yield running


def run(scene: Callable[..., Awaitable[None]], *arguments: object) -> None:
    """Run the coroutine function `scene` to its end."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scene(*arguments)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the client leaves transports for the collector
        asyncio.run(main())
        gc.collect()


class Tally:
    """Things that happened, and waiting for a number of them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._changed = asyncio.Event()

    def add(self, what: object) -> None:
        self.seen.append(str(what))
        self._changed.set()

    async def wait_for(self, count: int) -> None:
        """Until `count` things have happened."""
        while len(self.seen) < count:
            await self._changed.wait()
            self._changed.clear()


def test_publish_and_subscribe(server: ServerProcess) -> None:
    """Wildcards, payloads of every size up to the limit, and order."""

    async def scene() -> None:
        client = await connect(server.url)
        subscription = await client.subscribe("numbers.*.>")
        for size in (0, 1, 1000, 99_999, 100_000):
            await client.publish(f"numbers.a.{size}", b"x" * size)
        for size in (0, 1, 1000, 99_999, 100_000):
            message = await subscription.next_msg(PATIENCE_S)
            assert (message.subject, len(message.data)) == (f"numbers.a.{size}", size)
        for number in range(2000):
            await client.publish("numbers.b.c", b"%d" % number)
        assert [int((await subscription.next_msg(PATIENCE_S)).data) for _ in range(2000)] == list(range(2000))
        with pytest.raises(nats.errors.MaxPayloadError):
            await client.publish("numbers.a.b", b"x" * 100_001)
        await client.close()

    run(scene)


def test_queue_groups(server: ServerProcess) -> None:
    """Each message reaches one member of each group and every plain subscriber; no member is left out."""

    async def scene() -> None:
        clients = [await connect(server.url) for _ in range(4)]
        tally = Tally()

        async def join(index: int, queue: str) -> None:
            async def callback(message: Msg) -> None:
                tally.add(f"{queue}{index}")

            await clients[index].subscribe("work", queue=queue, cb=callback)

        for index, queue in ((0, "a"), (1, "a"), (2, "a"), (0, "b"), (0, "")):
            await join(index, queue)
        for client in clients:
            await client.flush()
        for _ in range(600):
            await clients[3].publish("work", b"")
        await tally.wait_for(1800)
        counts = Counter(tally.seen)
        assert (counts["b0"], counts["0"]) == (600, 600)
        assert counts["a0"] + counts["a1"] + counts["a2"] == 600
        assert min(counts["a0"], counts["a1"], counts["a2"]) > 100
        for client in clients:
            await client.close()

    run(scene)


def test_requests(server: ServerProcess) -> None:
    """Replies find their way, many at once; where nobody listens the requester is told so at once."""

    async def scene() -> None:
        service, client = await connect(server.url), await connect(server.url)

        async def answer(message: Msg) -> None:
            await message.respond(message.data[::-1])

        await service.subscribe("reverse", cb=answer)
        await service.flush()
        asked = [b"%04d" % number for number in range(200)]
        replies = await asyncio.gather(*(client.request("reverse", data, timeout=PATIENCE_S) for data in asked))
        assert [reply.data for reply in replies] == [data[::-1] for data in asked]
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("nobody", b"", timeout=PATIENCE_S)
        old = await client.request("reverse", b"ab", timeout=PATIENCE_S, old_style=True)
        assert old.data == b"ba"
        await service.close()
        await client.close()

    run(scene)


def test_headers(server: ServerProcess) -> None:
    """They arrive as they were sent, with and without a payload and through a request."""

    async def scene() -> None:
        client = await connect(server.url)
        subscription = await client.subscribe("h")
        sent = {"Nats-Msg-Id": "7", "X-Empty": "", "x-lower": "a: b"}
        await client.publish("h", b"body", headers=sent)
        await client.publish("h", b"", headers={"only": "headers"})
        message = await subscription.next_msg(PATIENCE_S)
        assert (message.data, message.headers) == (b"body", sent)
        message = await subscription.next_msg(PATIENCE_S)
        assert (message.data, message.headers) == (b"", {"only": "headers"})
        await client.close()

    run(scene)


def test_unsubscribe_and_drain(server: ServerProcess) -> None:
    """A limit ends a subscription after so many messages; draining hands out what is under way and no more."""

    async def scene() -> None:
        client = await connect(server.url)
        counted = []
        three = asyncio.Event()

        async def count(message: Msg) -> None:
            counted.append(message.data)
            if len(counted) == 3:
                three.set()

        limited = await client.subscribe("limited", cb=count)
        await limited.unsubscribe(limit=3)
        for number in range(5):
            await client.publish("limited", b"%d" % number)
        await client.flush()
        await three.wait()
        await client.flush()
        assert counted == [b"0", b"1", b"2"]

        handled = []

        async def slowly(message: Msg) -> None:
            await asyncio.sleep(0)
            handled.append(message.data)

        await client.subscribe("drained", cb=slowly)
        for number in range(500):
            await client.publish("drained", b"%d" % number)
        await client.drain()
        assert len(handled) == 500
        assert client.is_closed

    run(scene)


def test_reconnect_after_a_restart(tmp_path: Path) -> None:
    """The client comes back by itself, its subscriptions with it, and hears what is published afterwards."""

    async def scene(own: ServerProcess) -> None:
        back = asyncio.Event()

        async def reconnected() -> None:
            back.set()

        async def quiet(error: Exception) -> None:
            """Refused connections are expected meanwhile."""

        client: Client = await connect(
            own.url,
            reconnected_cb=reconnected,
            error_cb=quiet,
            reconnect_time_wait=0.05,
            max_reconnect_attempts=-1,
        )
        subscription = await client.subscribe("after")
        await client.flush()
        await asyncio.to_thread(own.stop)
        await asyncio.to_thread(own.write_config, "")
        await asyncio.to_thread(own.start)
        await back.wait()
        await client.publish("after", b"back")
        assert (await subscription.next_msg(PATIENCE_S)).data == b"back"
        assert client.stats["reconnects"] == 1
        await client.close()

    with serve(tmp_path) as own:
        run(scene, own)


def test_refusals(tmp_path: Path) -> None:
    """Wrong passwords, forbidden subjects and protocol errors come as the exceptions the client has for them."""

    async def scene(own: ServerProcess) -> None:
        errors = Tally()

        async def note(error: Exception) -> None:
            errors.add(error)

        with pytest.raises(nats.errors.Error, match="Authorization Violation"):
            await connect(own.url, user="u", password="wrong", allow_reconnect=False, error_cb=note)
        client = await connect(own.url, user="u", password="p", error_cb=note)
        errors.seen.clear()
        await client.publish("forbidden", b"")
        await client.subscribe("forbidden")
        await errors.wait_for(2)
        assert errors.seen == [
            'nats: permissions violation for publish to "forbidden"',
            'nats: permissions violation for subscription to "forbidden"',
        ]
        assert client.is_connected
        await client.close()

    config = (
        "authorization { timeout: 60, users: [ {user: u, password: p, permissions: { publish: ok, subscribe: ok }} ] }"
    )
    with serve(tmp_path, config) as own:
        run(scene, own)


def test_services(server: ServerProcess) -> None:
    """A service made with the client's framework is discovered, told of and asked over ordinary subjects."""

    async def scene() -> None:
        host, client = await connect(server.url), await connect(server.url)

        async def double(request: Request) -> None:
            await request.respond(request.data * 2)

        service = await nats.micro.add_service(host, name="math", version="1.0.0")
        await service.add_endpoint(name="double", subject="math.double", handler=double)
        await host.flush()
        assert (await client.request("math.double", b"ab", timeout=PATIENCE_S)).data == b"abab"
        found = json.loads((await client.request("$SRV.PING.math", timeout=PATIENCE_S)).data)
        assert (found["name"], found["id"]) == ("math", service.id)
        figures = json.loads((await client.request(f"$SRV.STATS.math.{service.id}", timeout=PATIENCE_S)).data)
        assert figures["endpoints"][0]["num_requests"] == 1
        await service.stop()
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("math.double", b"ab", timeout=PATIENCE_S)
        await host.close()
        await client.close()

    run(scene)
