"""Clients inside the server: batches, echo, answers, and writing outside of a pass."""

from __future__ import annotations

from tests.unit.broker.stage import Stage, play

from tnats.broker.hot.message import Message
from tnats.broker.internal import InternalClient
from tnats.limits import SETTLE_ROUNDS_MAX


def test_messages_come_in_batches_in_order() -> None:
    """What one read brought is one batch: subject, reply, headers, payload, subscription and origin of each."""

    async def scene(stage: Stage) -> None:
        batches: list[list[Message]] = []
        internal = stage.broker.internal_client(stage.broker.account(), "test", batches.append)
        internal.subscribe(b"svc.>")
        client = await stage.connect()
        await client.ask(b"PUB svc.a 1\r\n1\r\nPUB svc.b re 2\r\n22\r\nHPUB svc.c re 12 13\r\nNATS/1.0\r\n\r\n3\r\n")
        assert len(batches) == 1
        seen = [(one.subject, one.reply, one.header_size, one.data) for one in batches[0]]
        assert seen == [
            (b"svc.a", b"", 0, b"1"),
            (b"svc.b", b"re", 0, b"22"),
            (b"svc.c", b"re", 12, b"NATS/1.0\r\n\r\n3"),
        ]

    play(scene)


def test_a_service_inside_answers_requests() -> None:
    """A request is answered by an internal client, with and without headers; without it, by 503."""

    async def scene(stage: Stage) -> None:
        def deliver(batch: list[Message]) -> None:
            for message in batch:
                assert internal.publish(message.reply, message.data.upper()) == 1
                assert internal.publish(message.reply, b"", headers=b"NATS/1.0 100\r\n\r\n") == 1

        internal = stage.broker.internal_client(stage.broker.account(), "upper", deliver)
        subscription = internal.subscribe(b"upper")
        client = await stage.connect(b'{"verbose":false,"headers":true,"no_responders":true}')
        got = await client.ask(b"SUB re 1\r\nPUB upper re 2\r\nhi\r\n")
        assert got == b"MSG re 1 2\r\nHI\r\nHMSG re 1 16 16\r\nNATS/1.0 100\r\n\r\n\r\n"
        internal.end_subscription(subscription)
        assert b"503" in await client.ask(b"PUB upper re 2\r\nhi\r\n")

    play(scene)


def test_publishing_outside_of_a_pass_is_written_soon() -> None:
    """What another task publishes is on its way before time passes, as one write."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await client.ask(b"SUB foo 1\r\n")
        internal = stage.broker.internal_client(stage.broker.account(), "test", lambda batch: None)
        for number in range(3):
            internal.publish(b"foo", b"%d" % number)
        assert await client.read() == b"MSG foo 1 1\r\n0\r\nMSG foo 1 1\r\n1\r\nMSG foo 1 1\r\n2\r\n"

    play(scene)


def test_echo_is_a_choice() -> None:
    """An internal client gets its own messages only if it asked for that; others get them either way."""

    async def scene(stage: Stage) -> None:
        heard: list[str] = []

        def listen(name: str, *, echo: bool) -> InternalClient:
            def deliver(batch: list[Message]) -> None:
                heard.extend(f"{name} {one.data.decode()}" for one in batch)

            internal = stage.broker.internal_client(stage.broker.account(), name, deliver, echo=echo)
            internal.subscribe(b"foo")
            return internal

        loud, quiet = listen("loud", echo=True), listen("quiet", echo=False)
        assert loud.publish(b"foo", b"1") == 2
        assert quiet.publish(b"foo", b"2") == 1
        await stage.sleep(0.1)
        assert sorted(heard) == ["loud 1", "loud 2", "quiet 1"]

    play(scene)


def test_endless_conversations_inside_do_not_stop_the_server() -> None:
    """Two internal clients that answer each other for ever leave clients served in between."""

    async def scene(stage: Stage) -> None:
        account = stage.broker.account()
        count = 0

        def ping(batch: list[Message]) -> None:
            nonlocal count
            count += len(batch)
            if count < 50 * SETTLE_ROUNDS_MAX:
                one.publish(b"pong", b"x")

        def pong(batch: list[Message]) -> None:
            two.publish(b"ping", b"x")

        one = stage.broker.internal_client(account, "ping", ping)
        two = stage.broker.internal_client(account, "pong", pong)
        one.subscribe(b"ping")
        two.subscribe(b"pong")
        client = await stage.connect()
        assert await client.ask(b"PUB ping 1\r\nx\r\nPING\r\n") == b"PONG\r\n"
        assert count == 50 * SETTLE_ROUNDS_MAX

    play(scene)
