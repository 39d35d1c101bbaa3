"""Clients that do not read: bounds, stalls, and the end of slow consumers, in virtual time."""

from __future__ import annotations

import pytest
import trio
from tests.unit.broker.stage import Stage, play

from tnats.auth.permissions import Permissions, ResponsePermission, SubjectPermission
from tnats.auth.users import Credentials, User
from tnats.limits import KIB, MIB, SECOND_NS
from tnats.runtime.api import ConnectionBroken


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
        (line,) = [one for one in stage.log.lines if "Slow Consumer Detected" in one]
        assert f"MaxPending of {MIB} Exceeded" in line
        assert len(stage.broker.account().sublist) == 0

    play(scene, max_pending=MIB, max_payload=64 * KIB)


def test_a_client_cut_off_is_let_go_of_at_once() -> None:
    """Its connection does not stay until the write deadline, to be found too slow by that as well."""

    async def scene(stage: Stage) -> None:
        slow, fast = await stage.connect(), await stage.connect()
        await slow.ask(b"SUB foo 1\r\n")
        conn = stage.broker.connections[1].conn
        while not len(stage.broker.closed):
            await fast.send(_publish(8 * KIB, 16))
            await stage.sleep(0.05)
        with pytest.raises(ConnectionBroken):
            conn.write([b"PING\r\n"])
        await stage.sleep(30)
        assert stage.broker.snapshot().slow_consumers == 1
        assert len([one for one in stage.log.lines if "Slow Consumer Detected" in one]) == 1

    play(scene, max_pending=MIB, max_payload=64 * KIB, write_deadline_ns=20 * SECOND_NS)


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
        (line,) = [one for one in stage.log.lines if "Slow Consumer Detected" in one]
        assert "WriteDeadline of 2s exceeded" in line

    play(scene, write_deadline_ns=2 * SECOND_NS)


def test_a_total_write_deadline_ends_slow_readers_too() -> None:
    """With `write_timeout: close` a client that takes bytes, but not all within the deadline, is cut off."""

    async def scene(stage: Stage) -> None:
        slow, fast = await stage.connect(), await stage.connect()
        await slow.ask(b"SUB foo 1\r\n")
        await fast.send(_publish(8 * KIB, 1500))
        for _ in range(50):
            await stage.sleep(0.2)
            slow.conn.read_into(bytearray(64 * KIB))
        assert [(one.cid, one.reason) for one in stage.broker.closed] == [(1, "Slow Consumer (Write Deadline)")]

    play(scene, write_deadline_ns=2 * SECOND_NS, write_deadline_is_total=True)


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


def test_a_requester_that_its_own_messages_cut_off() -> None:
    """A client that is its own slow consumer is closed by its own request, in the middle of it; nobody else notices."""

    async def scene(stage: Stage) -> None:
        other = await stage.connect()
        greedy = await stage.connect(b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}')
        await greedy.ask(b"SUB foo 1\r\n")
        waiting = b""
        while not stage.broker.closed:
            waiting += _request(KIB) * 128
            waiting = waiting[greedy.conn.write([waiting]) :]
            await stage.sleep(0.05)
        assert [one.reason for one in stage.broker.closed] == ["Slow Consumer (Pending Bytes)"]
        assert await other.ask(b"PING\r\n") == b"PONG\r\n"

    play(scene, max_pending=64 * KIB, max_payload=8 * KIB, write_deadline_ns=100 * SECOND_NS)


def test_what_was_published_before_a_fault_in_one_read_is_counted() -> None:
    """The messages of the read that ends a connection stand in its record and in the server's counters."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await client.ask(b"PUB a 3\r\none\r\nPUB a 3\r\ntwo\r\nBOGUS\r\n")
        assert client.closed
        assert any("cid:1 - Client parser ERROR" in line for line in stage.log.lines)
        (record,) = stage.broker.closed
        assert (record.in_msgs, record.in_bytes) == (2, 6)
        traffic = stage.broker.snapshot().traffic
        assert (traffic.in_msgs, traffic.in_bytes) == (2, 6)

    play(scene)


def test_a_responder_that_breaks_off_costs_the_requester_nothing() -> None:
    """A connection found broken while a request is put into it is closed; the requester's stays open."""

    async def scene(stage: Stage) -> None:
        responder, requester = await stage.connect(RESPONDER), await stage.connect(REQUESTER)
        await responder.ask(b"SUB foo 1\r\n")
        responder.conn.close(reset=True)
        assert await requester.ask(_request(200 * KIB) * 3 + b"PING\r\n") == b"PONG\r\n"

    async def broken_in_the_pass(stage: Stage) -> None:
        responder, requester = await stage.connect(RESPONDER), await stage.connect(REQUESTER)
        await responder.ask(b"SUB foo 1\r\n")
        connection = stage.broker.connections[1]

        def write(buffers: object) -> int:
            raise ConnectionBroken("the peer has gone")

        connection.outbound.write = write
        assert await requester.ask(_request(200 * KIB) + b"PING\r\n") == b"PONG\r\n"
        assert [one.reason for one in stage.broker.closed] == ["Write Error"]

    responses = Permissions(publish=SubjectPermission(allow=()), responses=ResponsePermission())
    users = (User("responder", "p", permissions=responses), User("requester", "p"))
    for one in (scene, broken_in_the_pass):
        play(one, credentials=Credentials(users=users))


def _request(size: int) -> bytes:
    return b"PUB foo reply %d\r\n" % size + b"x" * size + b"\r\n"


RESPONDER = b'{"verbose":false,"pedantic":false,"user":"responder","pass":"p"}'
REQUESTER = b'{"verbose":false,"pedantic":false,"user":"requester","pass":"p"}'
