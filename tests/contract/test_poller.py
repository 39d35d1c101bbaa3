"""What `tnats.runtime.api.Poller` promises, held against the real and the simulated one."""

from __future__ import annotations

import pytest
import trio
from tests.contract.stage import SECOND_NS, Stage, read_exactly
from trio.testing import assert_checkpoints

from tnats.runtime.api import Conn, ConnectionBroken, Listener, Poller


async def quiet(stage: Stage, poller: Poller) -> bool:
    """Whether `poller` has nothing to report, also after everything under way has arrived."""
    with stage.client.clock.deadline(stage.client.clock.mono_ns() + 30_000_000) as scope:
        await poller.wait()
    return scope.cancelled_caught


def test_readiness_is_level_triggered(stage: Stage) -> None:
    """A connection is reported at every wait until all of its bytes are read, and then not at all."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        poller = stage.client.network.poller()
        poller.add(client)
        assert poller.ready_nowait() == []
        server.write([b"abc"])
        received = b""
        buffer = bytearray(1)
        while len(received) < 3:
            assert await poller.wait() == [client]
            assert poller.ready_nowait() == [client]
            assert client.read_into(buffer) == 1
            received += buffer
        assert received == b"abc"
        assert await quiet(stage, poller)

    stage.run(scene)


def test_what_waited_before_add_is_reported(stage: Stage) -> None:
    """Bytes and connections that arrived before `add` count as well."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        client, server = await stage.pair(listener)
        server.write([b"abc"])
        await stage.client.network.connect(stage.server_host, listener.address[1], timeout_ns=30 * SECOND_NS)
        await stage.client.clock.sleep_ns(30_000_000)
        poller = stage.client.network.poller()
        poller.add(client)
        assert await poller.wait() == [client]
        poller = stage.server.network.poller()
        poller.add(listener)
        assert await poller.wait() == [listener]

    stage.run(scene)


def test_wait_is_always_a_checkpoint(stage: Stage) -> None:
    """`wait` lets others run and can be cancelled even when something is ready; `ready_nowait` does neither."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        server.write([b"abc"])
        poller = stage.client.network.poller()
        poller.add(client)
        await poller.wait()
        with assert_checkpoints():
            await poller.wait()
        with trio.CancelScope() as scope:
            scope.cancel()
            assert poller.ready_nowait() == [client]
            await poller.wait()
        assert scope.cancelled_caught

    stage.run(scene)


def test_cancelled_wait_can_be_repeated(stage: Stage) -> None:
    """After a cancelled `wait` the poller goes on to work."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        poller = stage.client.network.poller()
        poller.add(client)
        assert await quiet(stage, poller)
        server.write([b"abc"])
        assert await poller.wait() == [client]

    stage.run(scene)


def test_pause_and_resume(stage: Stage) -> None:
    """A paused connection is not reported, not even at its end; resumed, what waits is reported at the next wait."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        poller = stage.client.network.poller()
        poller.add(client)
        poller.pause(client)
        poller.pause(client)
        server.write([b"abc"])
        server.close(reset=False)
        assert await quiet(stage, poller)
        poller.resume(client)
        poller.resume(client)
        assert await poller.wait() == [client]
        assert await read_bytes(client, poller) == b"abc"

    stage.run(scene)


def test_paused_connection_is_silent_when_reset(stage: Stage) -> None:
    """Even a reset is reported only after `resume`."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        poller = stage.client.network.poller()
        poller.add(client)
        poller.pause(client)
        server.close(reset=True)
        assert await quiet(stage, poller)
        poller.resume(client)
        assert await poller.wait() == [client]
        with pytest.raises(ConnectionBroken):
            client.read_into(bytearray(10))

    stage.run(scene)


def test_listener_pauses_too(stage: Stage) -> None:
    """A paused listener leaves newcomers in its backlog; resumed, they are reported."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        poller = stage.server.network.poller()
        poller.add(listener)
        poller.pause(listener)
        await stage.client.network.connect(stage.server_host, listener.address[1], timeout_ns=30 * SECOND_NS)
        assert await quiet(stage, poller)
        poller.resume(listener)
        assert await poller.wait() == [listener]
        server = listener.accept()
        assert server is not None
        stage.keep(server)

    stage.run(scene)


def test_removed_and_closed_sources_are_forgotten(stage: Stage) -> None:
    """Neither a removed nor a closed connection or listener is reported; removing again is no error."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        removed, first = await stage.pair(listener)
        closed, second = await stage.pair(listener)
        poller = stage.client.network.poller()
        for source in (removed, closed):
            poller.add(source)
        first.write([b"x"])
        second.write([b"x"])
        await stage.client.clock.sleep_ns(30_000_000)
        poller.remove(removed)
        poller.remove(removed)
        closed.close()
        poller.remove(closed)
        assert await quiet(stage, poller)
        assert await read_exactly(stage.client, removed, 1) == b"x"

    stage.run(scene)


def test_removed_source_can_be_added_elsewhere(stage: Stage) -> None:
    """A connection moves from one poller to another (a listener's task hands it to the reactor)."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        first, second = stage.client.network.poller(), stage.client.network.poller()
        first.add(client)
        first.remove(client)
        second.add(client)
        server.write([b"x"])
        assert await second.wait() == [client]
        assert first.ready_nowait() == []

    stage.run(scene)


def test_end_of_stream_and_reset_are_reported(stage: Stage) -> None:
    """The end of the stream keeps being reported; so does a reset."""

    async def scene(stage: Stage) -> None:
        for reset in (False, True):
            client, server = await stage.pair()
            poller = stage.client.network.poller()
            poller.add(client)
            server.close(reset=reset)
            for _ in range(3):
                assert await poller.wait() == [client]
                if reset:
                    with pytest.raises(ConnectionBroken):
                        client.read_into(bytearray(10))
                else:
                    assert client.read_into(bytearray(10)) == 0
            client.close()
            assert await quiet(stage, poller)

    stage.run(scene)


def test_failure_met_in_writing_is_reported(stage: Stage) -> None:
    """A connection found broken by `write` is reported as ready, so that its reader cleans it up."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        poller = stage.client.network.poller()
        poller.add(client)
        server.close(reset=True)
        await stage.client.clock.sleep_ns(30_000_000)
        with pytest.raises(ConnectionBroken):
            client.write([b"x"])
        assert await poller.wait() == [client]
        with pytest.raises(ConnectionBroken):
            client.read_into(bytearray(10))
        client.close()
        assert await quiet(stage, poller)

    stage.run(scene)


def test_broken_connection_can_be_added(stage: Stage) -> None:
    """A connection that broke before `add` is reported at once."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        server.close(reset=True)
        await stage.client.clock.sleep_ns(30_000_000)
        with pytest.raises(ConnectionBroken):
            client.write([b"x"])
        poller = stage.client.network.poller()
        poller.add(client)
        assert await poller.wait() == [client]

    stage.run(scene)


def test_everyone_gets_a_turn(stage: Stage) -> None:
    """With more ready connections than one call reports, none of them waits longer than a few calls."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        poller = stage.client.network.poller()
        clients: list[Conn] = []
        for _ in range(300):
            client, server = await stage.pair(listener)
            server.write([b"x"])
            clients.append(client)
            poller.add(client)
        await stage.client.clock.sleep_ns(100_000_000)
        seen: dict[Conn | Listener, None] = {}
        for _ in range(3):
            seen.update(dict.fromkeys(await poller.wait()))
        assert len(seen) == len(clients)
        for client in clients:
            client.close()

    stage.run(scene)


async def read_bytes(conn: Conn, poller: Poller) -> bytes:
    """Everything up to the end of the stream."""
    received = b""
    buffer = bytearray(100)
    while True:
        count = conn.read_into(buffer)
        if count == 0:
            return received
        if count is None:
            await poller.wait()
        else:
            received += buffer[:count]
