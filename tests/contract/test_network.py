"""What `tnats.runtime.api.Network`, `Listener` and `Conn` promise, held against the real and the simulated ones."""

from __future__ import annotations

import random

import pytest
import trio
from tests.contract.stage import SECOND_NS, Stage, accepted, read_exactly, write_all

from tnats.runtime.api import Conn, ConnectionBroken, NetworkError, OutOfDescriptors, Poller

RANDOM_BYTES = random.Random(1).randbytes(1_000_000)


def test_bytes_arrive_in_order(stage: Stage) -> None:
    """A megabyte written with waits for room is read as it was, in both directions at once."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        other_way = RANDOM_BYTES[::-1]
        received: dict[str, bytes] = {}

        async def receive(name: str) -> None:
            conn, runtime = (server, stage.server) if name == "server" else (client, stage.client)
            received[name] = await read_exactly(runtime, conn, len(RANDOM_BYTES))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_all, client, RANDOM_BYTES)
            nursery.start_soon(write_all, server, other_way)
            nursery.start_soon(receive, "server")
            nursery.start_soon(receive, "client")
        assert received == {"server": RANDOM_BYTES, "client": other_way}

    stage.run(scene)


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_many_buffers_are_taken_in_order(stage: Stage, size: int) -> None:
    """`write` takes any number of buffers of any kind, small or large, and counts the bytes it took from the front."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        pieces = [RANDOM_BYTES[at : at + size] for at in range(0, min(3000 * size, 200_000), size)]
        kinds = [bytes, bytearray, memoryview]
        buffers = [kinds[index % 3](piece) for index, piece in enumerate(pieces)]
        taken = client.write(buffers)
        total = b"".join(pieces)
        assert 0 < taken <= len(total)
        assert await read_exactly(stage.server, server, taken) == total[:taken]

    stage.run(scene)


def test_accepted_bytes_need_no_keeping(stage: Stage) -> None:
    """What `write` has taken is sent as it was, though the caller's buffer changes right after."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        buffer = bytearray(b"before")
        assert client.write([buffer]) == 6
        buffer[:] = b"after!"
        assert await read_exactly(stage.server, server, 6) == b"before"

    stage.run(scene)


def test_reading_nothing_is_none_and_the_end_is_zero(stage: Stage) -> None:
    """An empty connection reads None; after the peer's close all its bytes come first, then 0 for ever."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        assert client.read_into(bytearray(10)) is None
        assert server.write([b"last words"]) == 10
        server.close()
        assert await read_exactly(stage.client, client, 100) == b"last words"
        assert client.read_into(bytearray(10)) == 0
        assert client.read_into(bytearray(10)) == 0

    stage.run(scene)


def test_small_buffer_reads_a_part(stage: Stage) -> None:
    """`read_into` fills at most the buffer and leaves the rest for the next call."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        server.write([b"0123456789"])
        assert await read_exactly(stage.client, client, 3) == b"012"
        assert await read_exactly(stage.client, client, 7) == b"3456789"

    stage.run(scene)


def test_back_pressure(stage: Stage) -> None:
    """A peer that does not read makes `write` return 0 at last; when it reads, `wait_writable` returns."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        written = 0
        full_in_a_row = 0
        while full_in_a_row < 20:
            count = client.write([RANDOM_BYTES[:65536]])
            written += count
            full_in_a_row = full_in_a_row + 1 if count == 0 else 0
            await stage.client.clock.sleep_ns(1_000_000)
        assert written < 64 * 1024 * 1024
        room = trio.Event()

        async def wait_for_room() -> None:
            await client.wait_writable()
            assert client.write([b"x"]) == 1
            room.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_room)
            await stage.client.clock.sleep_ns(1_000_000)
            assert not room.is_set()
            assert len(await read_exactly(stage.server, server, written)) == written
            await room.wait()
        assert await read_exactly(stage.server, server, 1) == b"x"

    stage.run(scene)


def test_orderly_close_delivers_what_was_accepted(stage: Stage) -> None:
    """Bytes taken by `write` arrive although the connection is closed at once, even over unread input."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        client.write([b"never read by the server"])
        await stage.client.clock.sleep_ns(5_000_000)
        taken = server.write([RANDOM_BYTES[:200_000]])
        server.close()
        received = await read_exactly(stage.client, client, taken)
        assert received == RANDOM_BYTES[:taken]

    stage.run(scene)


def test_reset_breaks_the_other_end(stage: Stage) -> None:
    """After `close(reset=True)` the peer's calls raise ConnectionBroken naming the address, every time."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        server.close(reset=True)
        poller = stage.client.network.poller()
        poller.add(client)
        assert await poller.wait() == [client]
        for _ in range(3):
            with pytest.raises(ConnectionBroken, match=f":{client.peer[1]}: connection reset by peer"):
                client.read_into(bytearray(10))
        with pytest.raises(ConnectionBroken):
            client.write([b"x"])
        with pytest.raises(ConnectionBroken):
            await client.wait_writable()
        client.close()

    stage.run(scene)


def test_closed_connection_refuses_everything(stage: Stage) -> None:
    """After the own `close` every call raises ConnectionBroken, and closing again does nothing."""

    async def scene(stage: Stage) -> None:
        client, _ = await stage.pair()
        client.close()
        client.close()
        client.close(reset=True)
        with pytest.raises(ConnectionBroken):
            client.read_into(bytearray(10))
        with pytest.raises(ConnectionBroken):
            client.write([b"x"])
        with pytest.raises(ConnectionBroken):
            await client.wait_writable()

    stage.run(scene)


def test_close_wakes_who_waits_for_room(stage: Stage) -> None:
    """A task in `wait_writable` gets ConnectionBroken when another closes the connection."""

    async def scene(stage: Stage) -> None:
        client, _ = await stage.pair()
        while client.write([RANDOM_BYTES]):
            await stage.client.clock.sleep_ns(1_000_000)
        broken = trio.Event()

        async def wait_for_room() -> None:
            with pytest.raises(ConnectionBroken):
                await client.wait_writable()
            broken.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_room)
            await stage.client.clock.sleep_ns(1_000_000)
            client.close()
            await broken.wait()

    stage.run(scene)


def test_a_close_with_unread_bytes_wakes_who_waits_for_room(stage: Stage) -> None:
    """A task in `wait_writable` gets ConnectionBroken before long when the peer closes and has not read."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        while client.write([RANDOM_BYTES]):
            await stage.client.clock.sleep_ns(1_000_000)
        broken = trio.Event()

        async def write_for_ever() -> None:
            while True:
                await client.wait_writable()
                client.write([RANDOM_BYTES])

        async def wait_for_room() -> None:
            with pytest.raises(ConnectionBroken):
                await write_for_ever()
            broken.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_room)
            await stage.client.clock.sleep_ns(10_000_000)
            server.close()
            await broken.wait()

    stage.run(scene)


def test_a_reset_is_told_to_who_waits_for_room_though_another_met_it_first(stage: Stage) -> None:
    """Reading and waiting for room end by one reset, and both with ConnectionBroken, whichever task goes first."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        for _ in range(20):
            client, server = await stage.pair(listener)
            poller = stage.client.network.poller()
            poller.add(client)
            while client.write([RANDOM_BYTES]):
                await stage.client.clock.sleep_ns(100_000)

            async def wait_for_room(client: Conn) -> None:
                with pytest.raises(ConnectionBroken):
                    await client.wait_writable()

            async def read(client: Conn, poller: Poller) -> None:
                await poller.wait()
                with pytest.raises(ConnectionBroken):
                    client.read_into(bytearray(10))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for_room, client)
                nursery.start_soon(read, client, poller)
                await stage.client.clock.sleep_ns(1_000_000)
                server.close(reset=True)

    stage.run(scene)


def test_writing_to_a_closed_peer_breaks(stage: Stage) -> None:
    """Once the peer has closed, writes are answered with a reset and raise ConnectionBroken before long."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        server.close()

        async def write_on() -> None:
            for _ in range(1000):
                client.write([b"x" * 100])
                await stage.client.clock.sleep_ns(1_000_000)

        with pytest.raises(ConnectionBroken):
            await write_on()

    stage.run(scene)


def test_addresses_mirror_each_other(stage: Stage) -> None:
    """Each end's `peer` is the other's `local`, in numeric form, and the server's port is the listener's."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        client, server = await stage.pair(listener)
        assert client.peer == server.local
        assert client.local == server.peer
        assert client.peer[1] == listener.address[1]
        for host, _ in (client.peer, client.local):
            assert [part.isdigit() for part in host.split(".")] == [True] * 4

    stage.run(scene)


def test_listener_hands_out_connections_in_turn(stage: Stage) -> None:
    """`accept` is None when nobody waits, and gives each connection once."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        assert listener.accept() is None
        ports = []
        for _ in range(5):
            client, server = await stage.pair(listener)
            assert server.peer == client.local
            ports.append(server.peer[1])
        assert len(set(ports)) == 5
        assert listener.accept() is None

    stage.run(scene)


def test_closed_listener(stage: Stage) -> None:
    """Closing resets who waits in the backlog, refuses newcomers and frees the port; `accept` then raises."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        port = listener.address[1]
        waiting = await stage.client.network.connect(stage.server_host, port, timeout_ns=30 * SECOND_NS)
        await stage.client.clock.sleep_ns(5_000_000)
        listener.close()
        listener.close()
        poller = stage.client.network.poller()
        poller.add(waiting)
        await poller.wait()
        with pytest.raises(ConnectionBroken):
            waiting.read_into(bytearray(10))
        with pytest.raises(NetworkError, match=f"accept on .*:{port}: closed"):
            listener.accept()
        with pytest.raises(NetworkError, match=f"cannot connect to {stage.server_host}:{port}: connection refused"):
            await stage.client.network.connect(stage.server_host, port, timeout_ns=30 * SECOND_NS)
        again = await stage.server.network.listen("127.0.0.1", port)
        assert again.address == ("127.0.0.1", port)

    stage.run(scene)


def test_port_in_use_is_named(stage: Stage) -> None:
    """A second listener on a port fails with a line that names the address and the reason."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        port = listener.address[1]
        with pytest.raises(NetworkError, match=rf"cannot listen on 127\.0\.0\.1:{port}: address already in use"):
            await stage.server.network.listen("127.0.0.1", port)

    stage.run(scene)


def test_foreign_address_cannot_be_bound(stage: Stage) -> None:
    """Listening on an address of another machine fails with a line that says so."""

    async def scene(stage: Stage) -> None:
        with pytest.raises(NetworkError, match=r"cannot listen on 203\.0\.113\.7:0: cannot assign requested address"):
            await stage.server.network.listen("203.0.113.7", 0)

    stage.run(scene)


def test_wildcard_listener_takes_loopback(stage: Stage) -> None:
    """A listener on 0.0.0.0 keeps that name and is reached by 127.0.0.1 from its own machine."""

    async def scene(stage: Stage) -> None:
        listener = await stage.server.network.listen("0.0.0.0", 0)
        assert listener.address[0] == "0.0.0.0"
        port = listener.address[1]
        client = await stage.server.network.connect("127.0.0.1", port, timeout_ns=30 * SECOND_NS)
        server = await accepted(stage, listener)
        assert client.peer == ("127.0.0.1", port)
        assert server.peer == client.local
        assert server.peer[0] == "127.0.0.1"

    stage.run(scene)


def test_unknown_names_are_named(stage: Stage) -> None:
    """Connecting to or resolving a name that does not exist raises NetworkError with the name."""

    async def scene(stage: Stage) -> None:
        with pytest.raises(NetworkError, match=r"cannot resolve nowhere\.invalid: "):
            await stage.client.network.resolve("nowhere.invalid")
        with pytest.raises(NetworkError, match=r"cannot connect to nowhere\.invalid:4222: "):
            await stage.client.network.connect("nowhere.invalid", 4222, timeout_ns=30 * SECOND_NS)

    stage.run(scene)


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example", "a\0b"])
def test_what_cannot_be_a_name_is_one_that_is_not_there(stage: Stage, host: str) -> None:
    """An empty label, one that is too long, or a NUL raises NetworkError as every name does that leads nowhere."""

    async def scene(stage: Stage) -> None:
        network = stage.client.network
        with pytest.raises(NetworkError, match="cannot resolve "):
            await network.resolve(host)
        with pytest.raises(NetworkError, match="cannot connect to "):
            await network.connect(host, 4222, timeout_ns=30 * SECOND_NS)
        with pytest.raises(NetworkError, match="cannot listen on "):
            await network.listen(host, 0)

    stage.run(scene)


def test_names_resolve(stage: Stage) -> None:
    """localhost resolves to the loopback address, and a numeric address to itself."""

    async def scene(stage: Stage) -> None:
        assert "127.0.0.1" in await stage.client.network.resolve("localhost")
        assert await stage.client.network.resolve("127.0.0.1") == ["127.0.0.1"]

    stage.run(scene)


def test_interface_addresses_are_not_loopback(stage: Stage) -> None:
    """What a wildcard listener would advertise has no loopback address in it."""

    async def scene(stage: Stage) -> None:
        for address in stage.client.network.interface_addresses():
            assert not address.startswith("127.")
            assert address != "::1"

    stage.run(scene)


def test_out_of_descriptors_keeps_the_connection_waiting(stage: Stage) -> None:
    """`accept` without a free descriptor raises OutOfDescriptors; later the same connection is accepted."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        client = await stage.client.network.connect(stage.server_host, listener.address[1], timeout_ns=30 * SECOND_NS)
        poller = stage.server.network.poller()
        poller.add(listener)
        assert await poller.wait() == [listener]
        with stage.descriptors_exhausted(), pytest.raises(OutOfDescriptors, match="too many open files"):
            listener.accept()
        assert await poller.wait() == [listener]
        server = listener.accept()
        assert server is not None
        stage.keep(server)
        assert server.peer == client.local

    stage.run(scene)


def test_cancelled_connect_ends_at_once(stage: Stage) -> None:
    """A connect under a cancelled scope does not happen and leaves nothing to clean up."""

    async def scene(stage: Stage) -> None:
        listener = await stage.listen()
        with trio.CancelScope() as scope:
            scope.cancel()
            await stage.client.network.connect(stage.server_host, listener.address[1], timeout_ns=30 * SECOND_NS)
            pytest.fail("connect should have been cancelled")
        assert scope.cancelled_caught

    stage.run(scene)
