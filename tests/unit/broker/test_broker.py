"""The broker as a whole: figures, closed connections, reload, lame duck, shutdown, fairness."""

from __future__ import annotations

import gc
import itertools
import re

import pytest
import trio
from tests.unit.broker.stage import Stage, broker_options, play

from tnats.auth.permissions import Permissions, SubjectPermission
from tnats.auth.users import Authenticator, Credentials, User
from tnats.broker.connection import Connection
from tnats.broker.hot.inbound import Inbound
from tnats.broker.hot.outbound import Outbound
from tnats.broker.snapshot import ConnectionSnapshot, sublist_snapshot
from tnats.errors import TnatsError
from tnats.limits import KIB, SECOND_NS
from tnats.runtime.sim.clock import WALL_START_NS


def _connections(stage: Stage) -> dict[int, ConnectionSnapshot]:
    return {cid: stage.broker.connection_snapshot(cid) for cid in stage.broker.connections}


def test_figures_of_a_connection() -> None:
    """Counters, subscriptions and what CONNECT said are told as they are."""

    async def scene(stage: Stage) -> None:
        first = await stage.connect(b'{"verbose":false,"name":"n","lang":"l","version":"v","headers":true}')
        second = await stage.connect()
        await first.ask(b"SUB foo 1\r\nSUB foo q 2\r\nUNSUB 2 10\r\n")
        await second.ask(b"PUB foo 3\r\nabc\r\nHPUB foo 12 14\r\nNATS/1.0\r\n\r\nxy\r\nPUB none 1\r\n1\r\n")
        one, two = _connections(stage)[1], _connections(stage)[2]
        assert (one.out_msgs, one.out_bytes, one.in_msgs, one.in_bytes) == (4, 34, 0, 0)
        assert (two.out_msgs, two.out_bytes, two.in_msgs, two.in_bytes) == (0, 0, 3, 18)
        assert (one.name, one.lang, one.version, one.account, one.kind, one.type) == (
            "n",
            "l",
            "v",
            "$G",
            "Client",
            "nats",
        )
        assert one.subscriptions == 2
        assert [(sub.subject, sub.queue, sub.sid, sub.msgs, sub.max) for sub in one.subscriptions_list] == [
            ("foo", "", "1", 2, 0),
            ("foo", "q", "2", 2, 10),
        ]
        assert one.pending_bytes == 0
        assert WALL_START_NS < one.start_ns < one.last_activity_ns < WALL_START_NS + SECOND_NS
        assert one.uptime_ns > one.idle_ns > 0
        total = stage.broker.snapshot()
        assert (total.connections, total.total_connections, total.subscriptions) == (2, 2, 2)
        assert (total.traffic.in_msgs, total.traffic.out_msgs) == (3, 4)

    play(scene)


def test_closed_connections_are_remembered() -> None:
    """The newest `max_closed_connections` are kept with reason, figures and subscriptions; totals keep counting."""

    async def scene(stage: Stage) -> None:
        for number in range(5):
            client = await stage.connect()
            await client.ask(b"SUB s%d 1\r\nPUB s%d 1\r\nx\r\n" % (number, number))
            if number == 4:
                await client.ask(b"WHAT\r\n")
            client.conn.close(reset=number == 3)
            await stage.sleep(0.1)
        closed = list(stage.broker.closed)
        assert [one.cid for one in closed] == [3, 4, 5]
        assert [one.reason for one in closed] == ["Client Closed", "Read Error", "Protocol Violation"]
        assert [sub.subject for sub in closed[0].subscriptions_list] == ["s2"]
        assert closed[0].stop_ns - closed[0].start_ns == closed[0].uptime_ns
        assert stage.broker.closed.total == 5
        total = stage.broker.snapshot()
        assert (total.connections, total.total_connections, total.subscriptions) == (0, 5, 0)
        assert (total.traffic.in_msgs, total.traffic.out_msgs) == (5, 5)

    play(scene, max_closed_connections=3)


def test_closed_connections_need_no_collector() -> None:
    """Everything of a connection is freed when it ends, by reference counting alone (the collector is off here)."""

    async def scene(stage: Stage) -> None:
        for number in range(10):
            client = await stage.connect()
            await client.ask(b"SUB a.%d 1\r\nSUB a.> 2\r\nPUB a.%d 1\r\nx\r\nPUB b 1\r\nx\r\n" % (number, number))
            if number % 2:
                await client.ask(b"WHAT\r\n")
            client.conn.close(reset=number % 3 == 0)
        await stage.connect()
        await stage.sleep(1)
        assert not gc.isenabled()
        kinds = (Connection, Inbound, Outbound)
        left = [type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds)]
        assert sorted(left) == ["Connection", "Inbound", "Outbound"]

    play(scene)


def test_auto_unsubscribe_leaves_no_count_behind() -> None:
    """After the last permitted delivery the subscription is gone from every count."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        before = sublist_snapshot([stage.broker.account()]).num_subscriptions
        await client.ask(b"SUB t.sub 1\r\nUNSUB 1 1\r\nPUB t.sub 1\r\nx\r\n")
        assert sublist_snapshot([stage.broker.account()]).num_subscriptions == before == 0
        assert _connections(stage)[1].subscriptions == 0

    play(scene)


def _users(*deny: str, password: str = "p") -> Credentials:
    subscribe = SubjectPermission(deny=deny)
    user = User("u", password, permissions=Permissions(subscribe=subscribe))
    return Credentials(users=(user, User("w", "p")))


def test_reload_of_permissions_and_passwords() -> None:
    """Subscriptions no longer allowed go with an -ERR that names the sid; a wrong password now closes."""

    async def scene(stage: Stage) -> None:
        one = await stage.connect(b'{"verbose":false,"user":"u","pass":"p"}')
        two = await stage.connect(b'{"verbose":false,"user":"w","pass":"p"}')
        await one.ask(b"SUB foo 1\r\nSUB bar q 2\r\nSUB > 3\r\n")
        stage.broker.reload(stage.options, Authenticator(_users("foo", "bar", "baz")))
        assert await one.read() == (
            b'-ERR \'Permissions Violation for Subscription to "foo" (sid "1")\'\r\n'
            b'-ERR \'Permissions Violation for Subscription to "bar" using queue "q" (sid "2")\'\r\n'
        )
        await two.ask(b"PUB foo 1\r\n1\r\nPUB baz 1\r\n2\r\nPUB yes 1\r\n3\r\n")
        assert await one.read() == b"MSG yes 3 1\r\n3\r\n"
        stage.broker.reload(stage.options, Authenticator(_users(password="changed")))
        assert await one.read() == b"-ERR 'Authorization Violation'\r\n"
        assert one.closed
        assert not two.closed

    play(scene, credentials=_users())


def test_reload_to_required_login() -> None:
    """Clients that said nothing, or nothing of themselves, are sent away when login becomes required."""

    async def scene(stage: Stage) -> None:
        silent, anonymous = await stage.connect(None), await stage.connect()
        known = await stage.connect(b'{"verbose":false,"user":"w","pass":"p"}')
        await silent.ask(b"PING\r\n")
        stage.broker.reload(stage.options, Authenticator(_users()))
        assert await silent.read() == await anonymous.read() == b"-ERR 'Authorization Violation'\r\n"
        assert silent.closed
        assert anonymous.closed
        assert await known.ask(b"PING\r\n") == b"PONG\r\n"

    play(scene)


def test_reload_of_limits() -> None:
    """max_payload is told to clients of protocol 1 and holds at once; too many connections lose the newest."""

    async def scene(stage: Stage) -> None:
        one = await stage.connect(b'{"verbose":false,"protocol":1}')
        await one.ask(b"PING\r\nSUB foo 1\r\nPUB foo 90\r\n" + b"x" * 90 + b"\r\n")
        two = await stage.connect()
        stage.broker.reload(broker_options(max_payload=50, max_connections=1), stage.gatekeeper)
        assert b'"max_payload":50' in await one.read()
        assert await two.read() == b"-ERR 'maximum connections exceeded'\r\n"
        assert two.closed
        assert await one.ask(b"PUB foo 90\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"

    play(scene)


def test_reload_to_no_connections() -> None:
    """`max_connections` 0 closes everybody and refuses newcomers; more lets them in again."""

    async def scene(stage: Stage) -> None:
        one = await stage.connect()
        stage.broker.reload(broker_options(max_connections=0), stage.gatekeeper)
        assert await one.read() == b"-ERR 'maximum connections exceeded'\r\n"
        two = await stage.connect(None)
        assert (await two.read()).endswith(b"-ERR 'maximum connections exceeded'\r\n")
        assert one.closed
        assert two.closed
        stage.broker.reload(broker_options(max_connections=1), stage.gatekeeper)
        assert await (await stage.connect()).ask(b"PING\r\n") == b"PONG\r\n"

    play(scene)


def test_the_log_names_the_user_and_what_was_denied() -> None:
    """An operator can tell from one line who may not do what, and why somebody was not let in."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect(b'{"verbose":false,"user":"u","pass":"p"}')
        await client.ask(b"SUB foo 1\r\nPUB bar 0\r\n\r\n")
        for connect in (b'{"verbose":false,"user":"v"}', b'{"verbose":false,"auth_token":"t"}'):
            await stage.connect(connect)
        errors = [re.sub(r"^.* (?=cid:)", "", line) for line in stage.log.lines if "iolation" in line or "auth" in line]
        assert errors == [
            "cid:1 - \"$G/user:u\" - Subscription Violation - subject 'foo'",
            "cid:1 - \"$G/user:u\" - Publish Violation - subject 'bar'",
            "cid:2 - authentication error: user 'v' not known",
            "cid:3 - authentication error: no user was named",
        ]

    denied = SubjectPermission(deny=("foo", "bar"))
    user = User("u", "p", permissions=Permissions(publish=denied, subscribe=denied))
    play(scene, credentials=Credentials(users=(user,)))


def test_the_log_names_size_limit_and_client_of_a_payload_too_large() -> None:
    """An operator can tell from one line who sent how much and what was allowed."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await client.ask(b"PUB x 1048577\r\n")
        found = [line for line in stage.log.lines if "maximum payload" in line]
        assert len(found) == 1
        assert all(word in found[0] for word in ("cid:1", "1048577", "1048576"))

    play(scene)


def test_reload_refuses_what_is_fixed() -> None:
    """A change that needs a restart is named, and nothing is changed."""

    async def scene(stage: Stage) -> None:
        with pytest.raises(TnatsError, match="cannot reload max_pending"):
            stage.broker.reload(broker_options(max_pending=5, max_payload=50), stage.gatekeeper)
        assert stage.broker.options.max_payload == KIB * KIB

    play(scene)


def test_lame_duck_closes_one_by_one() -> None:
    """`ldm` is told; then clients are closed spread over the given time, with reason Server Shutdown."""

    async def scene(stage: Stage) -> None:
        clients = [await stage.connect(b'{"verbose":false,"protocol":1}') for _ in range(10)]
        for client in clients:
            await client.ask(b"PING\r\n")
        stage.broker.update_info(ldm=True)
        for client in clients:
            assert b'"ldm":true' in await client.read()
        begin = stage.runtime.clock.mono_ns()
        await stage.broker.close_clients(5 * SECOND_NS)
        assert 2.4 * SECOND_NS < stage.runtime.clock.mono_ns() - begin < 5.1 * SECOND_NS
        stops = [one.stop_ns for one in stage.broker.closed]
        assert len(stops) == 10
        assert all(later - earlier > SECOND_NS / 5 for earlier, later in itertools.pairwise(stops))
        assert {one.reason for one in stage.broker.closed} == {"Server Shutdown"}

    play(scene)


def test_shutdown_closes_everybody() -> None:
    """Cancelling the broker ends every connection, what was queued still being sent."""

    async def scene(stage: Stage) -> None:
        clients = [await stage.connect() for _ in range(3)]
        await clients[0].ask(b"SUB foo 1\r\n")
        internal = stage.broker.internal_client(stage.broker.account(), "test", lambda batch: None)
        internal.publish(b"foo", b"last words")
        stage.server_scope.cancel()
        assert await clients[0].read() == b"MSG foo 1 10\r\nlast words\r\n"
        await clients[1].read(), await clients[2].read()
        assert all(client.closed for client in clients)
        assert [one.reason for one in stage.broker.closed] == ["Server Shutdown"] * 3

    play(scene)


def test_a_wide_fan_out_does_not_shut_others_out() -> None:
    """While one client floods many subscribers, another one's PING is answered between its messages."""

    async def scene(stage: Stage) -> None:
        wide, other, flood = await stage.connect(), await stage.connect(), await stage.connect()
        await wide.ask(b"".join(b"SUB foo %d\r\n" % number for number in range(2000)))
        await flood.send(b"PUB foo 1\r\nx\r\n" * 200)
        await other.send(b"PING\r\n")
        await stage.sleep(0.001)
        assert other.take() == b"PONG\r\n"
        got = 0
        while part := await wide.read():
            got += part.count(b"MSG")
        assert got == 400_000

    play(scene)


def test_a_storm_of_connections() -> None:
    """Hundreds of connections at once are all greeted and served."""

    async def scene(stage: Stage) -> None:
        async def one(number: int) -> None:
            client = await stage.connect()
            assert await client.ask(b"SUB s 1\r\nPING\r\n") == b"PONG\r\n"
            served.append(number)

        served: list[int] = []
        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(one, number)
        assert len(served) == 300

    play(scene)
