"""Clients that do not read: bounds, stalls, and the end of slow consumers, in virtual time."""

from __future__ import annotations

import trio
from tests.unit.broker.stage import Stage, play

from tnats.limits import KIB, MIB, SECOND_NS


def _publish(size: int, count: int) -> bytes:
    return (b"PUB foo %d\r\n" % size + b"x" * size + b"\r\n") * count


def test_pending_bytes_are_bounded() -> None:
    """More than max_pending waiting ends the slow client without a word; its publisher goes on."""

    async def scene(stage: Stage) -> None:
        slow, fast = await stage.connect(), await stage.connect()
        await slow.ask(b"SUB foo 1\r\n")
        for _ in range(60):
            await fast.send(_publish(8 * KIB, 16))
            await stage.sleep(0.05)
            for connection in stage.broker.connections.values():
                assert connection.outbound.pending() <= MIB
        assert [one.reason for one in stage.broker.closed] == ["Slow Consumer (Pending Bytes)"]
        assert (await fast.ask(b"PING\r\n")).endswith(b"PONG\r\n")
        assert stage.broker.snapshot().slow_consumers == 1
        assert len(stage.broker.account().sublist) == 0

    play(scene, max_pending=MIB, max_payload=64 * KIB)


def test_the_end_of_a_slow_client_costs_nobody_else_a_message() -> None:
    """The very message that ends a slow client still reaches the queue group and the others."""

    async def scene(stage: Stage) -> None:
        slow, worker, other, fast = [await stage.connect() for _ in range(4)]
        await slow.ask(b"SUB foo 1\r\n")
        await worker.ask(b"SUB foo workers 1\r\n")
        await other.ask(b"SUB foo 1\r\n")
        buffer = bytearray(MIB)
        got = {"worker": 0, "other": 0}
        for _ in range(60):
            await fast.send(_publish(8 * KIB, 16))
            await stage.sleep(0.05)
            for name, client in (("worker", worker), ("other", other)):
                while count := client.conn.read_into(buffer):
                    got[name] += buffer.count(b"MSG foo", 0, count)
                    await stage.sleep(0.001)
        assert [one.reason for one in stage.broker.closed] == ["Slow Consumer (Pending Bytes)"]
        assert got == {"worker": 960, "other": 960}

    play(scene, max_pending=MIB, max_payload=64 * KIB)


def test_write_deadline() -> None:
    """A client whose connection takes no byte for the write deadline is cut off; one that reads slowly is not."""

    async def scene(stage: Stage) -> None:
        stuck, slow, fast = await stage.connect(), await stage.connect(), await stage.connect()
        await stuck.ask(b"SUB foo 1\r\n")
        await slow.ask(b"SUB foo 1\r\n")
        await fast.send(_publish(8 * KIB, 1500))
        for _ in range(50):
            await stage.sleep(0.2)
            slow.conn.read_into(bytearray(64 * KIB))
        assert [(one.cid, one.reason) for one in stage.broker.closed] == [(1, "Slow Consumer (Write Deadline)")]

    play(scene, write_deadline_ns=2 * SECOND_NS)


def test_producers_of_slow_consumers_are_stalled() -> None:
    """A client that reads slower than another publishes loses nothing: the publisher is made to wait."""

    async def scene(stage: Stage) -> None:
        slow, fast = await stage.connect(), await stage.connect()
        await slow.ask(b"SUB foo 1\r\n")
        want = 100 * 128 * (len(b"MSG foo 1 1024\r\n\r\n") + KIB)
        got = 0

        async def read_slowly() -> None:
            nonlocal got
            while got < want:
                got += slow.conn.read_into(bytearray(32 * KIB)) or 0
                await stage.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_slowly)
            for _ in range(100):
                await fast.send(_publish(KIB, 128))
        assert not list(stage.broker.closed)
        assert stage.broker.snapshot().stalls > 10

    play(scene, max_pending=512 * KIB)


def test_no_stall_drops_instead() -> None:
    """With no_fast_producer_stall messages for a client far behind are dropped, and it stays connected."""

    async def scene(stage: Stage) -> None:
        slow, good, fast = await stage.connect(), await stage.connect(), await stage.connect()
        await slow.ask(b"SUB foo 1\r\n")
        await good.ask(b"SUB foo 1\r\n")
        got = b""
        for _ in range(100):
            await fast.send(_publish(8 * KIB, 16))
            got += await good.read()
        assert got.count(b"MSG") == 1600
        assert not list(stage.broker.closed)
        late = await slow.read()
        assert 100 < late.count(b"MSG") < 1600
        assert (await slow.ask(b"PUB foo 4\r\nlast\r\n")).endswith(b"MSG foo 1 4\r\nlast\r\n")

    play(scene, max_pending=MIB, no_fast_producer_stall=True)


def test_a_blocked_client_gets_everything_in_order() -> None:
    """Small and large messages, first blocked and then read, arrive complete and in order."""

    async def scene(stage: Stage) -> None:
        slow, fast = await stage.connect(), await stage.connect()
        await slow.ask(b"SUB foo 1\r\n")
        want = b""
        for number in range(400):
            size = (1, 30, 3000, 4096, 20_000, 100_000)[number % 6]
            payload = (b"%d," % number * size)[:size]
            await fast.send(b"PUB foo %d\r\n%b\r\n" % (size, payload))
            want += b"MSG foo 1 %d\r\n%b\r\n" % (size, payload)
        got = b""
        while len(got) < len(want):
            part = await slow.read()
            assert part
            got += part
        assert got == want

    play(scene)


def test_closing_says_the_last_words() -> None:
    """An -ERR behind much that is waiting still reaches a client that reads."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await client.ask(b"SUB foo 1\r\n")
        await client.send(_publish(8 * KIB, 400) + b"WHAT\r\n")
        told = await client.read()
        assert told.count(b"MSG") == 400
        assert told.endswith(b"-ERR 'Unknown Protocol Operation'\r\n")
        assert client.closed

    play(scene)
