"""The broker over real sockets: floods, large messages, peers that stop reading or vanish."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from tests.live.server_process import PATIENCE_S
from tests.unit.broker.stage import ListLog, broker_options

from tnats.auth.users import Authenticator, Credentials
from tnats.broker.broker import Broker
from tnats.limits import MIB, SECOND_NS
from tnats.runtime.live import live_runtime

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nPING\r\n'


@pytest.fixture(autouse=True)
def no_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server says nothing of its own between the messages, however long they take."""
    monkeypatch.setattr("tnats.broker.keepalive.FIRST_PING_NS", 3600 * SECOND_NS)


@attrs.define
class Stage:
    broker: Broker
    port: int
    streams: list[trio.SocketStream] = attrs.field(factory=list)

    async def connect(self, then: bytes = b"") -> trio.SocketStream:
        """A client whose CONNECT, and what comes `then`, has been handled."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self.streams.append(stream)
        await stream.send_all(CONNECT + then + b"PING\r\n")
        told = b""
        while told.count(b"PONG\r\n") < 2:
            told += await stream.receive_some()
        return stream


@asynccontextmanager
async def serving(**changes: object) -> AsyncIterator[Stage]:
    runtime = live_runtime()
    broker = Broker(runtime, broker_options(**changes), Authenticator(Credentials()), ListLog())
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        listener = await runtime.network.listen("127.0.0.1", 0)
        broker.open_door(listener)
        stage = Stage(broker, listener.address[1])
        try:
            with trio.fail_after(PATIENCE_S):
                yield stage
        finally:
            for stream in stage.streams:
                await trio.aclose_forcefully(stream)
            listener.close()
            nursery.cancel_scope.cancel()


async def receive_exactly(stream: trio.SocketStream, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        data = await stream.receive_some()
        assert data, "closed by the server"
        received += data
    return bytes(received)


async def test_a_flood_arrives_complete_and_in_order() -> None:
    """100,000 numbered messages to four subscribers: each gets all of them, in order."""
    numbers = b"".join(b"PUB n 6\r\n%06d\r\n" % number for number in range(100_000))
    want = b"".join(b"MSG n 1 6\r\n%06d\r\n" % number for number in range(100_000))
    async with serving() as stage:
        good: list[bool] = []

        async def subscriber(stream: trio.SocketStream) -> None:
            good.append(await receive_exactly(stream, len(want)) == want)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(subscriber, await stage.connect(b"SUB n 1\r\n"))
            publisher = await stage.connect()
            await publisher.send_all(numbers)
        assert good == [True] * 4


async def test_large_messages_wait_for_a_reader() -> None:
    """Twenty messages of 1 MiB and small ones between them, to a reader that begins late, arrive unharmed."""
    async with serving() as stage:
        reader, publisher = await stage.connect(b"SUB big 1\r\n"), await stage.connect()
        parts = [bytes([65 + number]) * (MIB if number % 2 else 10) for number in range(40)]
        await publisher.send_all(b"".join(b"PUB big %d\r\n%b\r\n" % (len(part), part) for part in parts))
        await trio.sleep(0.05)
        want = b"".join(b"MSG big 1 %d\r\n%b\r\n" % (len(part), part) for part in parts)
        assert await receive_exactly(reader, len(want)) == want


async def test_a_client_that_stops_reading_is_cut_off() -> None:
    """Beyond max_pending the slow client is closed, and the publisher is served on."""
    async with serving(max_pending=2 * MIB) as stage:
        await stage.connect(b"SUB foo 1\r\n")
        publisher = await stage.connect()
        block = b"PUB foo 65536\r\n" + b"x" * 65536 + b"\r\n"
        while not len(stage.broker.closed):
            await publisher.send_all(block * 8)
        assert [one.reason for one in stage.broker.closed] == ["Slow Consumer (Pending Bytes)"]
        await publisher.send_all(b"PING\r\n")
        assert await receive_exactly(publisher, 6) == b"PONG\r\n"


async def test_peers_that_vanish() -> None:
    """Connections reset in the middle of messages leave no trace but their records."""
    async with serving() as stage:
        for number in range(50):
            client = await stage.connect(b"SUB foo 1\r\n")
            await client.send_all(b"PUB foo 100000\r\n" + b"x" * (number * 1000))
            client.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.socket.close()
        while stage.broker.connections:  # noqa: ASYNC110 # the broker has no event for that
            await trio.sleep(0.01)  # the broker has no event for that
        assert stage.broker.closed.total == 50
        assert len(stage.broker.account().sublist) == 0


async def test_many_connections() -> None:
    """Three hundred clients each hear one publisher."""
    async with serving() as stage:
        clients = [await stage.connect(b"SUB all 1\r\n") for _ in range(300)]
        publisher = await stage.connect()
        await publisher.send_all(b"PUB all 2\r\nhi\r\n" * 10)
        want = b"MSG all 1 2\r\nhi\r\n" * 10
        for client in clients:
            assert await receive_exactly(client, len(want)) == want
