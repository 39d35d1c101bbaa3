"""Requests and their replies, in virtual time."""

from __future__ import annotations

import pytest
import trio
from tests.unit.client.stage import Stage, play, wait_until

from tnats import limits
from tnats.client import (
    Client,
    ClientError,
    ConnectionClosed,
    ConnectionLost,
    NoResponders,
    PermissionsViolation,
    TimedOut,
)
from tnats.client.jetstream import JetStream


async def serve(client: Client, subject: str, delay_s: float, stage: Stage, copies: int = 1) -> None:
    """Answer requests with their payload reversed, `copies` times, each after `delay_s`."""
    async for message in client.subscribe(subject):
        for _ in range(copies):
            await stage.sleep(delay_s)
            await message.respond(message.data[::-1])


def test_requests_share_one_inbox() -> None:
    """Many requests at once get each its own reply over a single subscription."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client, trio.open_nursery() as nursery:
            nursery.start_soon(serve, client, "svc", 0.01, stage)
            await client.flush()
            replies: dict[int, bytes] = {}

            async def ask(number: int) -> None:
                replies[number] = (await client.request("svc", b"%d-x" % number)).data

            async with trio.open_nursery() as askers:
                for number in range(20):
                    askers.start_soon(ask, number)
            assert replies == {number: (b"%d-x" % number)[::-1] for number in range(20)}
            patterns = [subject for subject, _ in stage.server.peers[0].subscriptions.values()]
            assert len(patterns) == 2
            assert patterns[1].startswith(b"_INBOX.")
            nursery.cancel_scope.cancel()

    play(scene)


def test_request_times_out_exactly() -> None:
    """Somebody listens but does not answer: TimedOut after the limit, and a late reply disturbs nobody."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client, trio.open_nursery() as nursery:
            nursery.start_soon(serve, client, "svc", 2.0, stage)
            await client.flush()
            start_s = stage.now_s
            with pytest.raises(TimedOut, match=r"no reply within 1\.5 s"):
                await client.request("svc", b"x", timeout_s=1.5)
            assert stage.now_s - start_s == pytest.approx(1.5)
            await stage.sleep(1)
            assert (await client.request("svc", b"ab")).data == b"ba"
            nursery.cancel_scope.cancel()

    play(scene)


def test_nobody_listens() -> None:
    """Status 503 becomes NoResponders at once, long before the time limit."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            start_s = stage.now_s
            with pytest.raises(NoResponders, match="nobody listens on 'svc'"):
                await client.request("svc", timeout_s=60)
            async with client.request_many("svc", timeout_s=60) as replies:
                with pytest.raises(NoResponders):
                    await replies.__anext__()
            assert stage.now_s - start_s < 0.1

    play(scene)


def test_own_inbox_prefix() -> None:
    """Users whose permissions name another prefix set it: every reply subject begins with it."""

    async def scene(stage: Stage) -> None:
        async with stage.connect(inbox_prefix="_MY.box") as client:
            with pytest.raises(NoResponders):
                await client.request("svc")
            assert stage.server.published[0].reply.startswith(b"_MY.box.")

    play(scene)


def test_denied_request_fails_at_once() -> None:
    """A refused publish fails the requests on its subject, a refused inbox all of them; others go on."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client, trio.open_nursery() as nursery:
            stage.server.no_responders = False

            async def refuse() -> None:
                await wait_until(stage, lambda: stage.server.published)
                stage.server.peers[0].send(b"-ERR 'Permissions Violation for Publish to \"svc\"'\r\n")

            nursery.start_soon(refuse)
            with pytest.raises(PermissionsViolation, match='Publish to "svc"'):
                await client.request("svc", timeout_s=60)

    play(scene)


def test_denied_inbox_fails_every_request() -> None:
    """When the inbox itself may not be subscribed, requests raise PermissionsViolation, then and later."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client:
            stage.server.no_responders = False

            async def refuse() -> None:
                await wait_until(stage, lambda: stage.server.peers[0].subscriptions)
                (pattern, _) = next(iter(stage.server.peers[0].subscriptions.values()))
                stage.server.peers[0].send(b"-ERR 'Permissions Violation for Subscription to \"%b\"'\r\n" % pattern)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(refuse)
                with pytest.raises(PermissionsViolation):
                    await client.request("svc", timeout_s=60)
            with pytest.raises(PermissionsViolation):
                await client.request("other", timeout_s=60)

    play(scene)


def test_waiting_request_learns_of_the_end() -> None:
    """Closing the client fails what waits with ConnectionClosed instead of leaving it to its time limit."""

    async def scene(stage: Stage) -> None:
        stage.server.no_responders = False
        async with stage.connect() as client, trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ConnectionClosed):
                    await client.request("svc", timeout_s=600)

            async def ask_many() -> None:
                with pytest.raises(ConnectionClosed):
                    async with client.request_many("svc", timeout_s=600) as replies:
                        await replies.__anext__()

            nursery.start_soon(ask)
            nursery.start_soon(ask_many)
            await stage.sleep(1)
            await client.close()
        assert stage.now_s < 2000

    play(scene)


def test_reply_over_a_new_connection() -> None:
    """A request whose connection broke still gets its reply over the next one: the inbox is renewed."""

    async def scene(stage: Stage) -> None:
        stage.server.no_responders = False
        async with stage.connect() as client, trio.open_nursery() as nursery:

            async def answer() -> None:
                await wait_until(stage, lambda: stage.server.published)
                stage.server.drop_clients()
                await wait_until(stage, lambda: client.statistics.reconnect_count)
                await client.round_trip_ns()
                stage.server.peers[0].deliver(stage.server.published[0].reply.decode(), b"after all")

            nursery.start_soon(answer)
            assert (await client.request("svc", timeout_s=30)).data == b"after all"

    play(scene)


def test_request_many_ends_at_its_count() -> None:
    """The count asked for, no waiting beyond it."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client, trio.open_nursery() as nursery:
            nursery.start_soon(serve, client, "svc", 0.1, stage, 5)
            await client.flush()
            start_s = stage.now_s
            async with client.request_many("svc", b"x", count_max=3, timeout_s=60) as replies:
                assert [message.data async for message in replies] == [b"x", b"x", b"x"]
            assert stage.now_s - start_s < 0.4
            nursery.cancel_scope.cancel()

    play(scene)


def test_request_many_ends_when_replies_stall() -> None:
    """The stall time runs from each reply, and not before the first one."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client, trio.open_nursery() as nursery:
            nursery.start_soon(serve, client, "svc", 1.0, stage, 3)
            await client.flush()
            start_s = stage.now_s
            async with client.request_many("svc", b"x", stall_s=1.5, timeout_s=60) as replies:
                assert len([message async for message in replies]) == 3
            assert stage.now_s - start_s == pytest.approx(4.5, abs=0.05)
            start_s = stage.now_s
            async with client.request_many("svc", b"x", stall_s=0.5, timeout_s=60) as replies:
                assert len([message async for message in replies]) == 1
            assert stage.now_s - start_s == pytest.approx(1.5, abs=0.05)
            nursery.cancel_scope.cancel()

    play(scene)


def test_request_many_ends_at_its_deadline() -> None:
    """The deadline is for all replies together; what came by then is kept."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client, trio.open_nursery() as nursery:
            nursery.start_soon(serve, client, "svc", 1.0, stage, 100)
            await client.flush()
            start_s = stage.now_s
            async with client.request_many("svc", b"x", timeout_s=3.5) as replies:
                assert len([message async for message in replies]) == 3
            assert stage.now_s - start_s == pytest.approx(3.5)
            nursery.cancel_scope.cancel()

    play(scene)


def test_request_many_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies beyond the bound that nobody takes are dropped, newest first, and counted."""
    monkeypatch.setattr(limits, "CLIENT_REPLIES_PENDING_MAX", 3)

    async def scene(stage: Stage) -> None:
        async with stage.connect() as client, trio.open_nursery() as nursery:
            nursery.start_soon(serve, client, "svc", 0.0, stage, 5)
            await client.flush()
            async with client.request_many("svc", b"x", timeout_s=5) as replies:
                await stage.sleep(1)
                assert len([message async for message in replies]) == 3
                assert replies.dropped_count == 2
            nursery.cancel_scope.cancel()

    play(scene)


def test_an_answer_vouches_for_what_was_published_before() -> None:
    """After a reply, a lost connection leaves nothing in doubt that was sent up to its request; what came later is."""

    async def scene(stage: Stage) -> None:
        async with stage.connect() as service, stage.connect() as client, trio.open_nursery() as nursery:
            nursery.start_soon(serve, service, "svc", 0.01, stage)
            await service.flush()
            await client.publish("log", b"1")
            await client.request("svc", b"x")
            stage.server.drop_clients()
            await wait_until(stage, lambda: client.statistics.reconnect_count == 1)
            assert client.statistics.messages_unconfirmed == 0
            await client.flush()
            stage.server.reads = False
            await client.publish("log", b"2")
            await stage.sleep(0.1)
            stage.server.drop_clients()
            stage.server.reads = True
            await wait_until(stage, lambda: client.statistics.reconnect_count == 2)
            with pytest.raises(ConnectionLost):
                await client.flush()
            nursery.cancel_scope.cancel()

    play(scene)


@pytest.mark.parametrize("way", ["denied", "closed"])
def test_all_pending_acknowledgements_fail_together(way: str) -> None:
    """When the server denies their subject, or the client ends, each of several publishes on their way raises why, and
    nothing else breaks.
    """

    async def scene(stage: Stage) -> None:
        wanted: type[ClientError] = PermissionsViolation if way == "denied" else ConnectionClosed
        async with stage.connect() as client:
            client.subscribe("s")  # there is somebody, who does not answer
            publisher = JetStream(client).publisher()
            pending = [await publisher.publish("s", b"%d" % number) for number in range(5)]
            await client.flush()
            if way == "denied":
                stage.server.peers[0].send(b"-ERR 'Permissions Violation for Publish to \"s\"'\r\n")
                await client.flush()
            else:
                await client.close()
            for each in pending:
                with pytest.raises(wanted):
                    await each.wait()

    play(scene)
