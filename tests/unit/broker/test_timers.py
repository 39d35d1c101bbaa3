"""PING, staleness, round-trip times and the time allowed for login, in virtual time."""

from __future__ import annotations

import pytest
from tests.unit.broker.stage import Stage, play

from tnats.auth.users import Credentials
from tnats.limits import SECOND_NS


def test_first_ping_comes_early_and_is_spread() -> None:
    """The first PING comes 2 s after CONNECT and at most a fifth later, although the interval is two minutes."""

    async def scene(stage: Stage) -> None:
        moments = []
        for _ in range(20):
            client = await stage.connect()
            begin = stage.runtime.clock.mono_ns()
            while not client.take():
                await stage.sleep(0.01)
            moments.append((stage.runtime.clock.mono_ns() - begin) / SECOND_NS)
        assert min(moments) > 1.9
        assert max(moments) < 2.45
        assert max(moments) - min(moments) > 0.1

    play(scene)


def test_first_ping_measures_whatever_the_traffic() -> None:
    """A busy client is pinged once, to learn the round-trip time, and then no more."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        estimate_ns = next(stage.broker.connection_snapshots()).rtt_ns
        assert 0 < estimate_ns < SECOND_NS
        count = 0
        for _ in range(60):
            await stage.sleep(0.5)
            if await client.ask(b"PUB foo 1\r\nx\r\n"):
                count += 1
                await client.send(b"PONG\r\n")
        assert count == 1
        assert stage.broker.connections[1].rtt_measured_ns > 0

    play(scene, ping_interval_ns=10 * SECOND_NS)


def test_a_client_without_connect_is_pinged_at_the_interval() -> None:
    """No CONNECT, no early PING; the one at the interval gives the round-trip time."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect(None)
        await client.ask(b"SUB foo 1\r\n")
        await stage.sleep(2.8)
        assert client.take() == b""
        await stage.sleep(0.4)
        assert client.take() == b"PING\r\n"
        assert next(stage.broker.connection_snapshots()).rtt_ns == 0
        await client.ask(b"PONG\r\n")
        assert 0 < next(stage.broker.connection_snapshots()).rtt_ns < SECOND_NS

    play(scene, ping_interval_ns=3 * SECOND_NS)


@pytest.mark.parametrize("ping_max", [1, 2, 3])
def test_silence_makes_stale(ping_max: int) -> None:
    """After `ping_max` unanswered PINGs comes -ERR 'Stale Connection' instead of one more, and the close."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await stage.sleep(12 * (ping_max + 3))
        assert client.take() == b"PING\r\n" * ping_max + b"-ERR 'Stale Connection'\r\n"
        assert client.closed
        assert [one.reason for one in stage.broker.closed] == ["Stale Connection"]
        assert stage.broker.snapshot().stale_connections == 1

    play(scene, ping_interval_ns=10 * SECOND_NS, ping_max=ping_max)


def test_any_pong_forgives_all_pings() -> None:
    """One PONG resets the count of outstanding PINGs."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        for _ in range(6):
            await stage.sleep(21)
            await client.send(b"PONG\r\n")
        assert not client.closed
        assert b"-ERR" not in client.take()

    play(scene, ping_interval_ns=10 * SECOND_NS)


def test_traffic_saves_pings() -> None:
    """A client that says something within the interval is not pinged."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await stage.sleep(3)
        assert await client.ask(b"PONG\r\n") == b"PING\r\n"
        for _ in range(20):
            await stage.sleep(4)
            await client.send(b"PUB foo 1\r\nx\r\n")
        assert client.take() == b""

    play(scene, ping_interval_ns=10 * SECOND_NS)


def test_login_must_come_in_time() -> None:
    """Without CONNECT in time the client is told and closed; with it, the timer is gone."""

    async def scene(stage: Stage) -> None:
        late, good = await stage.connect(None), await stage.connect(None)
        await good.ask(b'CONNECT {"user":"u","pass":"p","verbose":false}\r\n')
        await stage.sleep(1.5)
        assert b"-ERR" not in late.take()
        await stage.sleep(0.5)
        assert late.take() == b"-ERR 'Authentication Timeout'\r\n"
        assert late.closed
        await stage.sleep(5)
        assert good.take() == b"PING\r\n"
        assert not good.closed
        assert [one.reason for one in stage.broker.closed] == ["Authentication Timeout"]

    play(scene, credentials=Credentials(username="u", password="p"))


def test_heap_of_deadlines_stays_small() -> None:
    """Connections that come and go leave no deadlines behind for long."""

    async def scene(stage: Stage) -> None:
        for _ in range(50):
            client = await stage.connect()
            client.conn.close()
        await stage.sleep(3)
        assert len(stage.broker.keepalive._timers._moments._heap) == 0

    play(scene, ping_interval_ns=2 * SECOND_NS)
