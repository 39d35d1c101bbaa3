"""PING, staleness, round-trip times and the time allowed for login, in virtual time."""

from __future__ import annotations

import pytest
from tests.unit.broker.stage import Stage, play

from tnats.auth.users import Credentials
from tnats.limits import SECOND_NS


def test_first_ping_comes_early_and_is_spread() -> None:
    """The first PING comes after 2 s and at most a fifth more, although the interval is two minutes."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await stage.sleep(1.8)
        assert client.take() == b""
        await stage.sleep(0.7)
        assert client.take() == b""  # the round-trip time is known from CONNECT, and the client was heard lately
        await stage.sleep(125)
        assert client.take() == b"PING\r\n"

    play(scene)


def test_a_client_without_connect_is_pinged_to_learn_the_round_trip_time() -> None:
    """No CONNECT, no round-trip time: the first PING is sent, and PONG gives the time."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect(None)
        await client.ask(b"SUB foo 1\r\n")
        await stage.sleep(2.4)
        assert client.take() == b"PING\r\n"
        assert next(stage.broker.connection_snapshots()).rtt_ns == 0
        await client.ask(b"PONG\r\n")
        assert 0 < next(stage.broker.connection_snapshots()).rtt_ns < SECOND_NS

    play(scene)


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
        assert good.take() == b""
        assert [one.reason for one in stage.broker.closed] == ["Authentication Timeout"]

    play(scene, credentials=Credentials(username="u", password="p"))


def test_heap_of_deadlines_stays_small() -> None:
    """Connections that come and go leave no deadlines behind for long."""

    async def scene(stage: Stage) -> None:
        for _ in range(50):
            client = await stage.connect()
            client.conn.close()
        await stage.sleep(3)
        assert stage.broker.keepalive.watched_count == 0

    play(scene, ping_interval_ns=2 * SECOND_NS)
