"""What clients can make the server hold, and how long they can make others wait, is bounded."""

from __future__ import annotations

import pytest
from tests.unit.broker.stage import RawClient, Stage, play

from tnats.broker.closed import ClosedRing
from tnats.limits import (
    BODY_AHEAD,
    CLOSED_SUBSCRIPTIONS_MAX,
    DELIVERIES_PER_FEED_MAX,
    KIB,
    MIB,
    OWN_BODY_BYTES,
    PLAN_CELL_BYTES_MAX,
    READ_BYTES,
    SECOND_NS,
    SLOW_WORK,
    STAGE_BYTES,
    SUBJECT_BYTES_CACHED_MAX,
    UNSUBSCRIBES_PER_STEP_MAX,
)
from tnats.wire.errors import ClosedReason


class Record:
    """A closed connection with so many subscriptions."""

    def __init__(self, count: int) -> None:
        self.subscriptions_list = (None,) * count


def test_the_ring_of_closed_connections_is_bounded_by_both_its_counts() -> None:
    """The newest are kept: as many as it has room for, and whose subscriptions it has room for."""
    ring: ClosedRing[Record] = ClosedRing(3)
    records = [Record(1) for _ in range(5)]
    for record in records:
        ring.add(record)
    assert list(ring) == records[2:]
    large = Record(CLOSED_SUBSCRIPTIONS_MAX - 1)
    ring.add(large)
    assert list(ring) == [records[4], large]
    ring.add(Record(CLOSED_SUBSCRIPTIONS_MAX))
    assert [len(record.subscriptions_list) for record in ring] == [CLOSED_SUBSCRIPTIONS_MAX]
    assert ring.total == 7


def test_nothing_is_remembered_of_long_subjects() -> None:
    """Subjects longer than the bound reach their subscribers and are not kept; first tokens are cut."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        long = b"t" * PLAN_CELL_BYTES_MAX * 2 + b"." + b"x" * SUBJECT_BYTES_CACHED_MAX
        await client.ask(b"SUB *.> 1\r\n")
        message = b"PUB %b 1\r\nx\r\n" % long
        assert await client.ask(message * 4) == b"MSG %b 1 1\r\nx\r\n" % long * 4
        plans = stage.broker.account().plans
        assert len(plans) == 0
        assert stage.broker.account().plans.known.plans == {}
        answer = await client.ask(b"SUB %b 2\r\n" % long + message)
        assert answer == b"MSG %b 1 1\r\nx\r\nMSG %b 2 1\r\nx\r\n" % (long, long)
        near = long[: PLAN_CELL_BYTES_MAX + 1]  # another first token of the same cell
        short = b"PUB %b.a 0\r\n\r\n" % near
        answer = await client.ask(short * 3 + b"SUB %b.* 3\r\n" % near + short)
        assert answer == b"MSG %b.a 1 0\r\n\r\n" % near * 4 + b"MSG %b.a 3 0\r\n\r\n" % near

    play(scene)


def test_blanks_before_arguments_are_not_kept() -> None:
    """Any number of blanks between a verb and the start of its arguments leaves the line's length as the bound."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        for _ in range(3):
            await client.send(b"SUB" + b" \t" * (READ_BYTES // 4) + b"fo")
            await client.read()
            assert len(stage.broker.connections[1].inbound.tail) == len(b"SUB fo")
            assert await client.ask(b"o 1\r\nPING\r\n") == b"PONG\r\n"
        assert [one.subject for one in stage.broker.connections[1].subscriptions.values()] == [b"foo"]

    play(scene)


def test_what_waits_for_a_client_takes_little_more_memory_than_it_counts() -> None:
    """A few small messages between large ones do not hold a whole stage each."""

    async def scene(stage: Stage) -> None:
        slow, fast = await stage.connect(), await stage.connect()
        await slow.ask(b"SUB foo 1\r\n")
        small, large = _publish(2500) * 2, _publish(5000)
        for _ in range(400):
            await fast.send(small + large)
        await fast.read()
        outbound = stage.broker.connections[1].outbound
        held = 0
        for entry in outbound.queue:
            base = entry.obj if isinstance(entry, memoryview) else entry
            held += len(base)
        assert outbound.pending() > MIB
        assert held < 2 * outbound.pending() + STAGE_BYTES

    play(scene, max_pending=64 * MIB, write_deadline_ns=1000 * SECOND_NS)


def test_a_client_with_many_subscriptions_leaves_in_steps() -> None:
    """After its end nothing is delivered to it at once, its subscriptions go step by step, and none is left."""

    async def scene(stage: Stage) -> None:
        asker = await stage.connect(b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}')
        leaver = await stage.connect()
        await asker.ask(b"SUB reply 1\r\n")
        count = 3 * UNSUBSCRIBES_PER_STEP_MAX + 10
        await _say(leaver, b"".join(b"SUB many.%d %d\r\n" % (n, n) for n in range(count)))
        sublist = stage.broker.account().sublist
        assert len(sublist) == count + 1
        stage.broker.connections[2].close(ClosedReason.SERVER_SHUTDOWN)
        assert len(sublist) == count + 1 - UNSUBSCRIBES_PER_STEP_MAX
        asking = bytearray(b"PUB many.%d reply 0\r\n\r\n" % (count - 1))
        stage.broker.connections[1].inbound.feed(asking, len(asking))
        assert (await asker.read()).startswith(b"HMSG reply 1 ")
        assert len(sublist) == 1
        assert (await asker.ask(b"PUB many.%d reply 0\r\n\r\n" % (count - 1))).startswith(b"HMSG reply 1 ")

    play(scene)


def test_a_payload_is_given_room_as_it_comes() -> None:
    """A control line does not make the server hold what it announces; in whatever pieces it comes, it arrives whole."""

    async def scene(stage: Stage) -> None:
        reader, writer = await stage.connect(), await stage.connect()
        await reader.ask(b"SUB big 1\r\n")
        size = 8 * MIB
        payload = bytes(range(256)) * (size // 256)
        await _say(writer, b"PUB big %d\r\n" % size)
        inbound = stage.broker.connections[2].inbound
        assert inbound.body is not None
        assert len(inbound.body) == OWN_BODY_BYTES
        at = 0
        for count in (1, 100, OWN_BODY_BYTES, 10, 5 * OWN_BODY_BYTES, MIB, 3):
            await _say(writer, payload[at : at + count])
            at += count
            assert len(inbound.body) <= max(OWN_BODY_BYTES, BODY_AHEAD * (at + 20))
        await writer.send(payload[at:] + b"\r\nPING\r\n")
        got = b""
        while part := await reader.read():
            got += part
        assert got.removesuffix(b"PING\r\n") == b"MSG big 1 %d\r\n%b\r\n" % (size, payload)
        assert b"PONG\r\n" in await writer.read()

    play(scene, max_payload=8 * MIB, max_pending=64 * MIB)


def test_a_client_that_logs_in_anew_leaves_its_subscriptions_in_steps() -> None:
    """From the second CONNECT on nothing is delivered for what was subscribed before it, and it goes step by step."""

    async def scene(stage: Stage) -> None:
        client, other = await stage.connect(), await stage.connect()
        count = 3 * UNSUBSCRIBES_PER_STEP_MAX + 10
        await _say(client, b"".join(b"SUB many.%d %d\r\n" % (n, n) for n in range(count)))
        again = bytearray(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB many.0 0\r\n')
        stage.broker.connections[1].inbound.feed(again, len(again))
        sublist = stage.broker.account().sublist
        assert len(sublist) == count + 1 - UNSUBSCRIBES_PER_STEP_MAX
        asking = bytearray(b"PUB many.0 1\r\na\r\nPUB many.%d 1\r\nb\r\n" % (count - 1))
        stage.broker.connections[2].inbound.feed(asking, len(asking))
        assert await client.read() == b"MSG many.0 0 1\r\na\r\n"
        assert len(sublist) == 1
        assert await other.ask(b"PUB many.%d 1\r\nb\r\nPING\r\n" % (count - 1)) == b"PONG\r\n"
        assert await client.read() == b""

    play(scene)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (b'"verbose":true', b"PUB a 0\r\n\r\n"),
        (b'"pedantic":true', b"PUB a* 0\r\n\r\n"),
        (b'"headers":true,"no_responders":true', b"PUB a r 0\r\n\r\n"),
        (b'"name":"x"', b"PUB a _R_.x 0\r\n\r\n"),
        (b'"name":"x"', b"PUB $NRG.x 0\r\n\r\n"),
        (b'"name":"x"', b"UNSUB 1\r\n"),
    ],
)
def test_what_a_client_is_told_does_not_shut_others_out(options: bytes, said: bytes) -> None:
    """Operations that the client is answered, each of which takes long, are no more in a row than slow ones may be."""

    async def scene(stage: Stage) -> None:
        await stage.connect(b'{"verbose":false,"pedantic":false,%b}' % options)
        connection = stage.broker.connections[1]
        data = bytearray(said * 4000)
        connection.inbound.feed(data, len(data))
        assert connection.inbound.deferred
        handled = (len(data) - len(connection.inbound.tail)) // len(said)
        assert handled <= DELIVERIES_PER_FEED_MAX // SLOW_WORK + 1

    play(scene)


def test_deadlines_of_connections_that_are_gone_do_not_pile_up() -> None:
    """Clients that come and go leave no more deadlines than a few times those that are there."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        for _ in range(40):
            await client.ask(b'CONNECT {"verbose":false}\r\n' * 100)
        assert len(stage.broker.keepalive._timers._moments._heap) < 2 * KIB
        await stage.sleep(3)
        assert (await client.read()).endswith(b"PING\r\n") or stage.broker.connections[1].pings_outstanding == 1

    play(scene)


def _publish(size: int) -> bytes:
    return b"PUB foo %d\r\n" % size + b"x" * size + b"\r\n"


async def _say(client: RawClient, data: bytes) -> None:
    await client.send(data)
    await client.read()
