"""Publish and subscribe through a whole broker, in virtual time."""

from __future__ import annotations

from tests.unit.broker.stage import Stage, play


def test_a_message_reaches_every_subscription() -> None:
    """Two subscriptions of one client and one of another get one copy each, with subject, sid, reply and size."""

    async def scene(stage: Stage) -> None:
        one, two = await stage.connect(), await stage.connect()
        assert await one.ask(b"SUB foo.* 1\r\nSUB foo.bar 2\r\n") == b""
        assert await two.ask(b"SUB > abc\r\n") == b""
        got = await one.ask(b"PUB foo.bar re.ply 5\r\nhello\r\n")
        assert got == b"MSG foo.bar 1 re.ply 5\r\nhello\r\nMSG foo.bar 2 re.ply 5\r\nhello\r\n"
        assert await two.read() == b"MSG foo.bar abc re.ply 5\r\nhello\r\n"

    play(scene)
