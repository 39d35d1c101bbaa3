"""Queue groups: equal shares, no leaks."""

from __future__ import annotations

import pytest
from tests.unit.broker.stage import Stage, play

CHI_SQUARE_MAX = 27.9
"""For 9 degrees of freedom a fair choice exceeds this once in a thousand times."""


@pytest.mark.parametrize("pattern", [b"foo", b"*"])
def test_shares_are_equal(pattern: bytes) -> None:
    """Ten members get equal shares of 10,000 messages, and every message reaches exactly one."""

    async def scene(stage: Stage) -> None:
        members = [await stage.connect() for _ in range(10)]
        for member in members:
            await member.ask(b"SUB %b g 1\r\n" % pattern)
        sender = await stage.connect()
        for _ in range(10):
            await sender.ask(b"PUB foo 1\r\nx\r\n" * 1000)
        shares = [(await member.read()).count(b"MSG") for member in members]
        assert sum(shares) == 10_000
        assert sum((share - 1000) ** 2 / 1000 for share in shares) < CHI_SQUARE_MAX

    play(scene)


def test_groups_with_one_name_are_one_group() -> None:
    """Members of `g` on `foo` and on `*` share the messages; another group gets its own copy of each."""

    async def scene(stage: Stage) -> None:
        one, two, three = await stage.connect(), await stage.connect(), await stage.connect()
        await one.ask(b"SUB foo g 1\r\n")
        await two.ask(b"SUB * g 1\r\n")
        await three.ask(b"SUB foo h 1\r\nSUB foo 2\r\n")
        await three.send(b"PUB foo 1\r\nx\r\n" * 1000)
        counts = [(await client.read()).count(b"MSG") for client in (one, two, three)]
        assert counts[0] + counts[1] == 1000
        assert min(counts[:2]) > 400
        assert counts[2] == 2000

    play(scene)


def test_members_that_cannot_receive_are_passed_over() -> None:
    """A member whose permissions deny the subject, or that is used up, leaves its share to the others."""

    async def scene(stage: Stage) -> None:
        one, two = await stage.connect(), await stage.connect()
        await one.ask(b"SUB foo g 1\r\nUNSUB 1 3\r\n")
        await two.ask(b"SUB foo g 1\r\n")
        await two.send(b"PUB foo 1\r\nx\r\n" * 100)
        assert (await one.read()).count(b"MSG") == 3
        assert (await two.read()).count(b"MSG") == 97

    play(scene)


def test_leaving_a_group_leaves_nothing_behind() -> None:
    """Ten thousand times SUB and UNSUB of a queue subscription: the tables are as before."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        for _ in range(10):
            await client.ask(b"SUB foo g 1\r\nPUB foo 1\r\nx\r\nUNSUB 1\r\n" * 1000)
        account = stage.broker.account()
        assert len(account.sublist) == 0
        assert list(account.sublist) == []
        assert len(account.plans) <= 1
        assert not account.plans.find(b"foo").groups

    play(scene)
