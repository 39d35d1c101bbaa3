"""Publishing and receiving."""

from __future__ import annotations

import pytest
import trio
from tests.unit.client.stage import Published, Stage, play

from tnats.client import (
    BadSubject,
    ClientError,
    Connected,
    ConnectionClosed,
    Disconnected,
    PayloadTooLarge,
    PermissionsViolation,
    SlowConsumer,
    Status,
    SubscriptionClosed,
    TimedOut,
    connect,
)
from tnats.client.events import ErrorReported
from tnats.wire.headers import HeaderError


def test_published_messages_arrive_as_they_were_sent() -> None:
    """Subject, reply, headers and payload reach the server byte for byte, in order, small and large mixed."""

    async def scene(stage: Stage) -> None:
        stage.server.info.max_payload = 1 << 20
        big = bytes(range(256)) * 256
        async with stage.connect() as client:
            await client.publish("one", b"1")
            await client.publish("two.b", big, reply="back")
            client.publish_nowait("three", b"3", headers={"A": "x", "B": ["y", "z"]})
            await client.flush()
            assert client.statistics.messages_out == 3
            assert client.statistics.bytes_out == 1 + len(big) + len(b"NATS/1.0\r\nA: x\r\nB: y\r\nB: z\r\n\r\n") + 1
        assert stage.server.published == [
            Published(b"one", b"", b"", b"1"),
            Published(b"two.b", b"back", b"", big),
            Published(b"three", b"", b"NATS/1.0\r\nA: x\r\nB: y\r\nB: z\r\n\r\n", b"3"),
        ]

    play(scene)


def test_closing_the_block_delivers_what_was_published() -> None:
    """Leaving the block without a flush loses nothing while the server is there."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            for number in range(500):
                await client.publish("n", b"%d" % number)
        assert [message.payload for message in stage.server.published] == [b"%d" % number for number in range(500)]

    play(scene)


def test_log_in_tells_who_we_are() -> None:
    """CONNECT carries name, credentials and what the client can do; credentials of the URL go before the options."""

    async def scene(stage: Stage) -> None:
        async with stage.connect(name="me", user="u", password="p", echo=False):
            said = stage.server.peers[0].connect
            assert (said.name, said.user, said.password, said.auth_token) == ("me", "u", "p", "")
            assert (said.echo, said.verbose, said.pedantic) == (False, False, False)
            assert (said.headers, said.no_responders, said.protocol) == (True, True, 1)
        async with stage.connect("token@one", user="u"):
            said = stage.server.peers[-1].connect
            assert (said.user, said.auth_token) == ("", "token")

    play(scene)


def test_subscription_receives_what_matches() -> None:
    """Messages come in order with their headers; after unsubscribing the server is told and iteration ends."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a.*", queue="q")
            await client.flush()
            peer = stage.server.peers[0]
            assert list(peer.subscriptions.values()) == [(b"a.*", b"q")]
            peer.deliver("a.1", b"x", "reply.here")
            peer.deliver("b.1", b"not for us")
            peer.deliver("a.2", b"", headers=b"NATS/1.0 404 No Messages\r\nK: v\r\nK: w\r\n\r\n")
            first = await subscription.next_message(1)
            second = await subscription.next_message(1)
            assert (first.subject, first.reply, first.data, first.headers) == ("a.1", "reply.here", b"x", None)
            assert (second.status, second.description, second.headers) == (404, "No Messages", {"K": ["v", "w"]})
            subscription.unsubscribe()
            with pytest.raises(SubscriptionClosed):
                await subscription.next_message(1)
            assert [message async for message in subscription] == []
            await client.flush()
            assert peer.subscriptions == {}

    play(scene)


def test_next_message_waits_exactly_its_time_limit() -> None:
    """Nothing comes: TimedOut after the given virtual time, and the subscription goes on."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a")
            start_s = stage.now_s
            with pytest.raises(TimedOut, match="no message within 3 s"):
                await subscription.next_message(3)
            assert stage.now_s - start_s == pytest.approx(3)
            stage.server.peers[0].deliver("a", b"late")
            assert (await subscription.next_message(1)).data == b"late"

    play(scene)


def test_max_messages_ends_the_subscription_on_both_sides() -> None:
    """The server is told the number, the client counts too: no message beyond it, and nothing left behind."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a", max_messages=3)
            await client.flush()
            peer = stage.server.peers[0]
            assert b"UNSUB 1 3" in peer.lines
            for number in range(5):
                peer.deliver("a", b"%d" % number)
            assert [message.data async for message in subscription] == [b"0", b"1", b"2"]
            assert subscription.ended
            assert peer.subscriptions == {}

    play(scene)


def test_batches_take_what_is_pending() -> None:
    """`next_batch` gives everything pending up to its bound, in order, and an empty list at the end."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a", max_messages=10)
            await client.flush()
            for number in range(10):
                stage.server.peers[0].deliver("a", b"%d" % number)
            await client.flush()
            assert subscription.pending_bytes == 10
            assert [message.data for message in await subscription.next_batch(4)] == [b"0", b"1", b"2", b"3"]
            assert len(await subscription.next_batch()) == 6
            assert subscription.pending_bytes == 0
            assert await subscription.next_batch() == []

    play(scene)


@pytest.mark.parametrize(("count_max", "bytes_max"), [(3, 1000), (1000, 6)])
def test_slow_consumer_drops_the_newest_and_says_so_once(count_max: int, bytes_max: int) -> None:
    """A full queue keeps the oldest messages, counts what it drops, reports one event per episode, and recovers."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a", pending_count_max=count_max, pending_bytes_max=bytes_max)
            other = client.subscribe("a")
            await client.flush()
            for number in range(8):
                stage.server.peers[0].deliver("a", b"m%d" % number)
            await client.flush()
            assert subscription.dropped_count == 5
            assert other.pending_count == 8, "other subscriptions are not touched"
            assert [event for event in stage.events if isinstance(event, SlowConsumer)] == [SlowConsumer("a", 3, 6)]
            assert [message.data for message in await subscription.next_batch()] == [b"m0", b"m1", b"m2"]
            stage.server.peers[0].deliver("a", b"again")
            assert (await subscription.next_message(1)).data == b"again"
            assert len([event for event in stage.events if isinstance(event, SlowConsumer)]) == 1

    play(scene)


def test_oversized_message_is_taken_by_an_empty_queue() -> None:
    """A message larger than the byte bound does not make its subscription deaf."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a", pending_bytes_max=4)
            await client.flush()
            stage.server.peers[0].deliver("a", b"larger than four")
            assert (await subscription.next_message(1)).data == b"larger than four"

    play(scene)


def test_payload_limit_counts_headers_and_sends_nothing() -> None:
    """Exactly `max_payload` passes, one more is refused here; a lower limit in a later INFO is obeyed."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            await client.publish("a", bytes(1024))
            with pytest.raises(PayloadTooLarge, match=r"1025 bytes .* max_payload is 1024"):
                await client.publish("a", bytes(1025))
            block = len(b"NATS/1.0\r\nK: v\r\n\r\n")
            with pytest.raises(PayloadTooLarge):
                client.publish_nowait("a", bytes(1025 - block), headers={"K": "v"})
            await client.publish("a", bytes(1024 - block), headers={"K": "v"})
            stage.server.info.max_payload = 10
            stage.server.send_info()
            await client.flush()
            with pytest.raises(PayloadTooLarge):
                await client.publish("a", bytes(11))
            assert len(stage.server.published) == 2

    play(scene)


@pytest.mark.parametrize("subject", ["", ".", "a..b", "a.", ".a", "a b", "a\r\nPUB b", "a\tb", "a.>.b"])
def test_bad_subjects_never_reach_the_wire(subject: str) -> None:
    """What would break or silently miss on the wire is refused by every call, and the connection stays usable."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            with pytest.raises(BadSubject):
                await client.publish(subject)
            with pytest.raises(BadSubject):
                client.subscribe(subject)
            with pytest.raises(BadSubject):
                await client.request(subject)
            if subject:
                with pytest.raises(BadSubject):
                    await client.publish("fine", reply=subject)
            with pytest.raises(BadSubject):
                client.subscribe("fine", queue="two words")
            await client.publish("fine")
            await client.flush()
            assert [message.subject for message in stage.server.published] == [b"fine"]

    play(scene)


def test_bad_headers_are_refused() -> None:
    """A header that would break the block raises and sends nothing."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            for headers in ({"a b": "x"}, {"a": "x\r\ny"}, {"": "x"}):
                with pytest.raises(HeaderError):
                    await client.publish("a", headers=headers)
            await client.flush()
            assert stage.server.published == []

    play(scene)


def test_denied_subscription_raises_where_it_is_iterated() -> None:
    """The server's refusal ends exactly that subscription with PermissionsViolation, and is an event too."""

    async def scene(stage: Stage) -> None:
        stage.server.denied.add(b"secret")
        async with stage.connect() as client:
            denied, allowed = client.subscribe("secret"), client.subscribe("open")
            with pytest.raises(PermissionsViolation, match="Subscription to"):
                await denied.next_message()
            stage.server.peers[0].deliver("open", b"x")
            assert (await allowed.next_message(1)).data == b"x"
            assert [type(event) for event in stage.events].count(ErrorReported) == 1

    play(scene)


def test_respond_needs_a_reply_subject() -> None:
    """Answering a message that asks for nothing is an error that names it."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a")
            await client.flush()
            stage.server.peers[0].deliver("a", b"x")
            with pytest.raises(ClientError, match="expects no answer"):
                await (await subscription.next_message(1)).respond(b"y")

    play(scene)


def test_everything_is_refused_after_the_end() -> None:
    """A closed client refuses each call with ConnectionClosed; pending messages can still be taken."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a")
            await client.flush()
            stage.server.peers[0].deliver("a", b"pending")
            await client.flush()
        assert client.status is Status.CLOSED
        assert [message.data async for message in subscription] == [b"pending"]
        with pytest.raises(ConnectionClosed):
            await client.publish("a")
        with pytest.raises(ConnectionClosed):
            client.publish_nowait("a")
        with pytest.raises(ConnectionClosed):
            client.subscribe("a")
        with pytest.raises(ConnectionClosed):
            await client.request("a")
        with pytest.raises(ConnectionClosed):
            await client.flush()
        with pytest.raises(ConnectionClosed):
            await client.drain()
        await client.close()

    play(scene)


def test_an_exception_of_the_block_comes_out_as_it_is() -> None:
    """No exception group around what the block raised, and the connection is closed."""

    async def scene(stage: Stage) -> None:
        with pytest.raises(KeyError, match="mine"):
            async with stage.connect():
                raise KeyError("mine")
        await stage.sleep(1)
        assert stage.server.peers == []

    play(scene)


def test_an_exception_of_the_callback_ends_the_client() -> None:
    """What `on_event` raises comes out of `connect`, later on in a group; no connection is left behind."""

    async def scene(stage: Stage) -> None:
        def fail(event: object) -> None:
            if type(event) is kind:
                raise KeyError("mine")

        kind: type = Connected
        with pytest.raises(KeyError, match="mine"):
            async with connect("one", runtime=stage.runtime, on_event=fail):
                raise AssertionError("connected")
        kind = Disconnected
        with pytest.RaisesGroup(KeyError):
            async with connect("one", runtime=stage.runtime, on_event=fail):
                stage.server.drop_clients()
                await stage.sleep(10)
                raise AssertionError("not cancelled")
        await stage.sleep(1)
        assert stage.server.peers == []

    play(scene)


def test_tasks_share_a_subscription() -> None:
    """Each message goes to one of the tasks that iterate, and a cancelled one takes nothing along."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            subscription = client.subscribe("a")
            await client.flush()
            taken: list[bytes] = []

            async def take() -> None:
                async for message in subscription:
                    taken.append(message.data)
                    await stage.sleep(0.01)

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(take)
                for number in range(50):
                    with stage.runtime.clock.deadline(stage.runtime.clock.mono_ns() + 1_000_000):
                        taken.append((await subscription.next_message()).data)
                    stage.server.peers[0].deliver("a", b"%d" % number)
                await client.round_trip_ns()
                await subscription.drain()
            assert sorted(taken, key=int) == [b"%d" % number for number in range(50)]

    play(scene)


def test_negative_limit_is_refused() -> None:
    """A subscription for minus one messages is an error that says so."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            with pytest.raises(ClientError, match="max_messages is -1"):
                client.subscribe("a", max_messages=-1)

    play(scene)
