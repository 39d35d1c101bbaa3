"""Losing servers and coming back, in virtual time."""

from __future__ import annotations

import itertools

import pytest
import trio
from tests.unit.client.stage import Stage, play, wait_until

from tnats.client import (
    AuthorizationFailed,
    Closed,
    Connected,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    Disconnected,
    LameDuck,
    PendingBufferFull,
    Reconnected,
    ReconnectFailed,
    ServersDiscovered,
    Status,
    TimedOut,
    connect,
)
from tnats.client.events import ErrorReported
from tnats.errors import FeatureMissing
from tnats.runtime.sim.rules import resets, splits


def kinds(stage: Stage) -> list[type]:
    """The types of the events so far."""
    return [type(event) for event in stage.events]


def test_reconnect_renews_subscriptions() -> None:
    """After a reset every live subscription receives again, those that ended do not come back."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            kept = client.subscribe("kept", queue="q")
            gone = client.subscribe("gone")
            await client.flush()
            gone.unsubscribe()
            stage.server.drop_clients()
            await wait_until(stage, lambda: client.statistics.reconnect_count)
            await client.flush()
            peer = stage.server.peers[0]
            assert list(peer.subscriptions.values()) == [(b"kept", b"q")]
            peer.deliver("kept", b"x")
            assert (await kept.next_message(1)).data == b"x"
            assert kinds(stage) == [Connected, Disconnected, Reconnected]
        assert kinds(stage)[3:] == [Closed]

    play(scene)


def test_message_limit_survives_a_reconnect() -> None:
    """A subscription for three messages that had one receives two more, and the new server is told two."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a", max_messages=3)
            await client.flush()
            stage.server.peers[0].deliver("a", b"1")
            await client.flush()
            stage.server.drop_clients()
            await wait_until(stage, lambda: client.statistics.reconnect_count)
            await client.flush()
            peer = stage.server.peers[0]
            assert b"UNSUB 1 2" in peer.lines
            for data in (b"2", b"3", b"4"):
                peer.deliver("a", data)
            assert [message.data async for message in subscription] == [b"1", b"2", b"3"]

    play(scene)


def test_published_while_disconnected_arrives_after_the_subscriptions() -> None:
    """What is published and subscribed during an outage reaches the next connection: SUB first, then the messages."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            stage.stop("one")
            await wait_until(stage, lambda: client.status is Status.RECONNECTING)
            subscription = client.subscribe("a")
            for number in range(3):
                await client.publish("a", b"%d" % number)
            await stage.sleep(5)
            stage.start("one")
            assert [(await subscription.next_message(30)).data for _ in range(3)] == [b"0", b"1", b"2"]
            assert client.status is Status.CONNECTED

    play(scene)


def test_flush_does_not_vouch_for_a_broken_connection() -> None:
    """A flush under way when the connection breaks raises ConnectionLost: the messages may be lost."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            stage.server.answers_pings = False
            await client.publish("a")
            async with trio.open_nursery() as nursery:

                async def flush() -> None:
                    with pytest.raises(ConnectionLost, match="is unknown"):
                        await client.flush()

                nursery.start_soon(flush)
                await stage.sleep(1)
                stage.server.drop_clients()

    play(scene)


def test_flush_during_an_outage_waits_for_the_next_connection() -> None:
    """Called while disconnected, flush returns once the next server has everything."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            stage.stop("one")
            await wait_until(stage, lambda: client.status is Status.RECONNECTING)
            await client.publish("a", b"kept")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: client.flush(timeout_s=60))
                await stage.sleep(2)
                stage.start("one")
            assert [message.payload for message in stage.server.published] == [b"kept"]

    play(scene)


def test_waits_between_rounds_grow_and_stay_within_bounds() -> None:
    """Waits begin small, double, never exceed the maximum, and are shortened by up to a half."""

    async def scene(stage: Stage) -> None:
        attempts: list[float] = []

        def note(event: object) -> None:
            if isinstance(event, ReconnectFailed):
                attempts.append(stage.now_s)

        async with connect("nats://one", runtime=stage.runtime, on_event=note, reconnect_attempts_max=None):
            stage.stop("one")
            await stage.sleep(30)
            waits = [later - before for before, later in itertools.pairwise(attempts)]
            assert all(wait < 2.2 for wait in waits)
            for index, wait in enumerate(waits[:5]):
                assert 0.025 * 2 ** (index + 1) <= wait < 0.05 * 2 ** (index + 1) + 0.02
            assert all(wait >= 1.0 for wait in waits[7:])
            assert len({round(wait, 6) for wait in waits[7:]}) > 5, "the waits are spread at random"

    play(scene)


def test_gives_up_after_the_attempts_allowed() -> None:
    """The last server that fails so many times in a row ends the client: waiting calls and iterations learn why."""

    async def scene(stage: Stage) -> None:
        async with stage.connect(reconnect_attempts_max=3) as client:
            subscription = client.subscribe("a")
            stage.stop("one")
            with pytest.raises(ConnectFailed, match="no server is left"):
                await subscription.next_message()
            assert client.status is Status.CLOSED
            assert kinds(stage).count(ReconnectFailed) == 3
            assert isinstance(stage.events[-1], Closed)
            assert isinstance(stage.events[-1].error, ConnectFailed)
            with pytest.raises(ConnectionClosed, match="no server is left"):
                await client.publish("a")

    play(scene)


def test_reconnect_can_be_switched_off() -> None:
    """With no attempts allowed the first loss is the end."""

    async def scene(stage: Stage) -> None:
        async with stage.connect(reconnect_attempts_max=0) as client:
            stage.server.drop_clients()
            await wait_until(stage, lambda: client.status is Status.CLOSED)
            assert kinds(stage) == [Connected, Disconnected, Closed]

    play(scene)


def test_another_server_takes_over() -> None:
    """With two servers given, the loss of one moves the client to the other within a second."""

    async def scene(stage: Stage) -> None:
        async with stage.connect("one", "two", shuffle_servers=False) as client:
            assert client.server_info.server_id == "one"
            stage.stop("one")
            await wait_until(stage, lambda: client.statistics.reconnect_count, within_s=1)
            assert client.server_info.server_id == "two"
            assert client.servers == ["nats://two:4222", "nats://one:4222"]

    play(scene, "one", "two")


def test_discovered_server_takes_over() -> None:
    """A cluster member named only in INFO is used, with the same credentials, when the first one is gone."""

    async def scene(stage: Stage) -> None:
        stage.servers["one"].info.connect_urls = ["one:4222", "two:4222"]
        async with stage.connect("u:p@one") as client:
            assert stage.events == [Connected("nats://one:4222"), ServersDiscovered(("nats://two:4222",))]
            stage.stop("one")
            await wait_until(stage, lambda: client.statistics.reconnect_count)
            said = stage.servers["two"].peers[0].connect
            assert (said.user, said.password) == ("u", "p")

    play(scene, "one", "two")


def test_members_that_left_are_forgotten() -> None:
    """A later INFO without a discovered server removes it; nonsense among the URLs is ignored."""

    async def scene(stage: Stage) -> None:
        server = stage.server
        server.info.connect_urls = ["one:4222", "two:4222", "http://x:y:z", ""]
        async with stage.connect() as client:
            assert sorted(client.servers) == ["nats://one:4222", "nats://two:4222"]
            server.info.connect_urls = ["one:4222", "three:4222"]
            server.send_info()
            await client.flush()
            assert sorted(client.servers) == ["nats://one:4222", "nats://three:4222"]
        async with stage.connect(discover_servers=False) as client:
            assert client.servers == ["nats://one:4222"]

    play(scene)


def test_lame_duck_is_announced_once_and_tried_last() -> None:
    """An INFO with `ldm` is one event, however often it comes, and the server is the last choice for the next round."""

    async def scene(stage: Stage) -> None:
        async with stage.connect("one", "two", "three", shuffle_servers=False) as client:
            stage.servers["one"].info.ldm = True
            stage.servers["one"].send_info()
            stage.servers["one"].send_info()
            await client.flush()
            assert stage.events == [Connected("nats://one:4222"), LameDuck("nats://one:4222")]
            stage.servers["one"].info.ldm = False
            stage.servers["one"].drop_clients()
            await wait_until(stage, lambda: client.statistics.reconnect_count)
            assert client.server_info.server_id == "two"

    play(scene, "one", "two", "three")


def test_refused_credentials_are_not_tried_for_ever() -> None:
    """On the way back a server that refuses the log-in twice in a row is given up, long before its attempts are."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            stage.server.refusal = b"Authorization Violation"
            before = stage.server.accept_count
            stage.server.drop_clients()
            await wait_until(stage, lambda: client.status is Status.CLOSED)
            assert stage.server.accept_count - before == 2
            assert isinstance(stage.events[-1], Closed)
            assert isinstance(stage.events[-1].error, AuthorizationFailed)

    play(scene)


def test_first_connection_fails_with_every_reason() -> None:
    """Each server is tried once; the error names all of them with their reasons."""

    async def scene(stage: Stage) -> None:
        stage.stop("one")
        stage.servers["two"].refusal = b"Authorization Violation"
        with pytest.raises(ConnectFailed) as caught:
            async with stage.connect("one", "two"):
                raise AssertionError("connected")
        text = str(caught.value)
        assert "one:4222" in text
        assert "refused" in text
        assert "nats://two:4222: Authorization Violation" in text

    play(scene, "one", "two")


def test_refused_first_log_in_is_told_apart() -> None:
    """A single server that refuses raises AuthorizationFailed with its words."""

    async def scene(stage: Stage) -> None:
        stage.server.refusal = b"Authorization Violation"
        with pytest.raises(AuthorizationFailed, match="nats://one:4222: Authorization Violation"):
            async with stage.connect():
                raise AssertionError("connected")

    play(scene)


@pytest.mark.parametrize("silent", ["no greeting", "no pong"])
def test_a_mute_server_does_not_hold_up_connecting(silent: str) -> None:
    """A server that accepts but never greets, or never answers the first PING, fails after the connect time-out."""

    async def scene(stage: Stage) -> None:
        stage.server.greets = silent != "no greeting"
        stage.server.answers_pings = silent != "no pong"
        start_s = stage.now_s
        with pytest.raises(ConnectFailed, match="no log-in within 3 s"):
            async with stage.connect(connect_timeout_s=3):
                raise AssertionError("connected")
        assert stage.now_s - start_s == pytest.approx(3, abs=0.01)

    play(scene)


def test_tls_is_named_as_missing() -> None:
    """A server that requires TLS, and tls:// itself, give a clear error instead of a broken handshake."""

    async def scene(stage: Stage) -> None:
        stage.server.info.tls_required = True
        with pytest.raises(ConnectFailed, match="requires TLS"):
            async with stage.connect():
                raise AssertionError("connected")
        with pytest.raises(FeatureMissing, match="tls://"):
            async with stage.connect("tls://one"):
                raise AssertionError("connected")

    play(scene)


def test_silent_server_is_found_stale() -> None:
    """With two PINGs unanswered when the third is due, the connection is given up and replaced."""

    async def scene(stage: Stage) -> None:
        async with stage.connect(ping_interval_s=10) as client:
            await stage.sleep(60)
            assert client.statistics.reconnect_count == 0, "answered PINGs keep it alive"
            stage.server.answers_pings = False
            start_s = stage.now_s
            await wait_until(stage, lambda: client.status is Status.RECONNECTING)
            assert 20 <= stage.now_s - start_s <= 31
            assert isinstance(stage.events[-1], Disconnected)
            assert "2 PINGs were not answered" in stage.events[-1].reason
            stage.server.answers_pings = True
            await wait_until(stage, lambda: client.status is Status.CONNECTED)

    play(scene)


def test_many_flushes_at_once_are_no_sign_of_a_stale_connection() -> None:
    """A slow answer to many PINGs of the user's does not count against the keep-alive."""

    async def scene(stage: Stage) -> None:
        async with stage.connect(ping_interval_s=1, pings_outstanding_max=2) as client:
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(client.flush)
                await stage.sleep(0.5)
            await stage.sleep(5)
            assert client.statistics.reconnect_count == 0

    play(scene)


def test_pings_of_the_server_are_answered() -> None:
    """Every PING gets its PONG."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            stage.server.peers[0].send(b"PING\r\nPING\r\n")
            await stage.sleep(1)
            assert stage.server.peers[0].lines.count(b"PONG") == 2
            assert client.status is Status.CONNECTED

    play(scene)


def test_an_error_of_the_server_is_the_reason_of_the_loss() -> None:
    """`-ERR` followed by the end of the stream: an event each, and the reason in the server's words."""

    async def scene(stage: Stage) -> None:
        async with stage.connect(reconnect_attempts_max=0) as client:
            peer = stage.server.peers[0]
            peer.send(b"-ERR 'Stale Connection'\r\n")
            peer.conn.close()
            await wait_until(stage, lambda: client.status is Status.CLOSED)
            assert kinds(stage) == [Connected, ErrorReported, Disconnected, Closed]
            assert stage.events[2].reason == "Stale Connection"

    play(scene)


def test_a_broken_protocol_ends_the_connection() -> None:
    """Bytes that are no NATS operation: the connection is replaced, with a reason that quotes them."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            stage.server.peers[0].send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await wait_until(stage, lambda: client.statistics.reconnect_count)
            assert isinstance(stage.events[1], Disconnected)
            assert "broke the protocol" in stage.events[1].reason

    play(scene)


def test_close_during_an_outage_returns_at_once() -> None:
    """There is nobody to flush to, so closing does not wait; the end is reported once."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            stage.stop("one")
            await wait_until(stage, lambda: client.status is Status.RECONNECTING)
            await client.publish("a")
            start_s = stage.now_s
        assert stage.now_s - start_s < 0.01
        assert kinds(stage).count(Closed) == 1

    play(scene)


def test_close_does_not_wait_for_ever_for_a_mute_server() -> None:
    """The last flush is bounded by two seconds."""

    async def scene(stage: Stage) -> None:
        async with stage.connect():
            stage.server.answers_pings = False
            start_s = stage.now_s
        assert stage.now_s - start_s == pytest.approx(2, abs=0.01)

    play(scene)


def test_a_full_buffer_holds_publishers_back() -> None:
    """During an outage `publish` waits at the bound, `publish_nowait` raises, and both go on after the reconnect."""

    async def scene(stage: Stage) -> None:
        async with stage.connect(pending_bytes_max=2000) as client:
            stage.stop("one")
            await wait_until(stage, lambda: client.status is Status.RECONNECTING)
            sent: list[int] = []

            async def produce() -> None:
                for number in range(100):
                    await client.publish("a", b"%100d" % number)
                    sent.append(number)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                await stage.sleep(1)
                assert 10 < len(sent) < 20
                with pytest.raises(PendingBufferFull, match="pending_bytes_max is 2000"):
                    client.publish_nowait("a")
                stage.start("one")
            await client.flush()
            assert [int(message.payload) for message in stage.server.published] == list(range(100))

    play(scene)


def test_a_server_that_does_not_read_holds_publishers_back() -> None:
    """Unread bytes fill the network, then the buffer: producers stop instead of filling memory."""

    async def scene(stage: Stage) -> None:
        async with stage.connect(pending_bytes_max=100_000) as client:
            stage.server.reads = False
            sent = 0
            with stage.runtime.clock.deadline(stage.runtime.clock.mono_ns() + 20 * 10**9):
                while True:
                    await client.publish("a", bytes(1000))
                    sent += 1
            await stage.sleep(1)
            assert 100 < sent < 20_000
            with pytest.raises(PendingBufferFull):
                client.publish_nowait("a")

    play(scene)


def test_flush_tells_of_an_earlier_loss() -> None:
    """Messages on their way when a connection broke make the next flush raise, once, though a new connection stands."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            await client.publish("a")
            await client.flush()
            stage.server.reads = False
            await client.publish("b")
            await client.publish("c")
            await stage.sleep(0.1)
            stage.server.drop_clients()
            stage.server.reads = True
            await wait_until(stage, lambda: client.statistics.reconnect_count)
            assert client.statistics.messages_unconfirmed == 2
            with pytest.raises(ConnectionLost, match="2 messages were on the way"):
                await client.flush()
            await client.flush()
            stage.server.drop_clients()
            await wait_until(stage, lambda: client.statistics.reconnect_count == 2)
            await client.flush()

    play(scene)


@pytest.mark.parametrize("seed", range(20))
def test_delivery_is_at_most_once_in_order_and_flush_is_proof(seed: int) -> None:
    """Under resets and splits: nothing twice, nothing out of order, and what a flush vouched for is there."""

    async def scene(stage: Stage) -> None:
        rules = stage.world.fabric
        weather = [resets(["client"], ["one"], chance=0.02), splits(["client"], ["one"], chance=0.5)]
        vouched: set[int] = set()
        since: set[int] = set()
        async with stage.connect(reconnect_attempts_max=None, reconnect_wait_max_s=0.1) as client:
            guards = [rules.apply(rule) for rule in weather]
            for number in range(400):
                await client.publish("n", b"%d" % number)
                since.add(number)
                if number % 3 == 0:
                    await stage.sleep(0.01)
                if number % 7 == 0:
                    try:
                        await client.flush(timeout_s=5)
                    except (ConnectionLost, TimedOut):
                        pass
                    else:
                        vouched |= since
                    since.clear()
            for guard in guards:
                guard.heal()
        arrived = [int(message.payload) for message in stage.server.published]
        assert arrived == sorted(set(arrived))
        assert vouched <= set(arrived)
        assert len(vouched) > 50

    play(scene, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    """A client under resets draws all its chance and time from the seam: two runs leave identical traces."""

    async def scene(stage: Stage) -> None:
        async with stage.connect("one", "two") as client:
            subscription = client.subscribe("a.>")
            for number in range(30):
                await client.publish(f"a.{number}", b"x")
                await stage.sleep(0.05)
                if number % 10 == 5:
                    for server in stage.servers.values():
                        server.drop_clients()
            await wait_until(stage, lambda: client.status is Status.CONNECTED)
            assert subscription.received_count

    first, second = (play(scene, "one", "two", seed=seed) for _ in range(2))
    assert first.trace_hash == second.trace_hash
