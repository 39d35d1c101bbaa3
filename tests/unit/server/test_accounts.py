"""Accounts of the configuration: subject spaces and JetStream of their own, changed by reload and across restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from tests.unit.server.stage import Stage, play

from tnats.client import Client, NoResponders, connect

SERVER = 'port: 4222\njetstream { store_dir: "/data", domain: "d" }\n'
USERS = {name: f"users [ {{user: {name.lower()}, password: {name.lower()}}} ]" for name in "ABC"}
A = f"A {{ jetstream: enabled, {USERS['A']} }}"
B = f"B {{ jetstream: enabled, {USERS['B']} }}"
A_AND_B = f"{SERVER}accounts {{ {A}, {B} }}\n"
A_ALONE = f"{SERVER}accounts {{ {A}, B {{ {USERS['B']} }} }}\n"


@asynccontextmanager
async def client_of(stage: Stage, account: str) -> AsyncIterator[Client]:
    """A client that has logged in as the account's user."""
    user = account.lower()
    async with connect("nats://server", user=user, password=user, runtime=stage.runtime) as client:
        yield client


async def call(client: Client, subject: str, body: object = None) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{subject}", orjson.dumps(body) if body else b"")
    found: dict[str, Any] = orjson.loads(answer.data)
    return found


async def create(client: Client, name: str, **config: object) -> int:
    """Create a stream on the subject of its name; the error code, 0 for none."""
    answer = await call(client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [name.lower()], **config})
    return int(answer.get("error", {"err_code": 0})["err_code"])


async def messages(client: Client, stream: str) -> list[str]:
    """What a stream holds; one that is not there: its error."""
    info = await call(client, f"STREAM.INFO.{stream}")
    if "error" in info:
        return [info["error"]["description"]]
    found = [
        await call(client, f"STREAM.MSG.GET.{stream}", {"seq": seq}) for seq in range(1, info["state"]["last_seq"] + 1)
    ]
    return [one["message"]["data"] for one in found]


async def restart(stage: Stage, config: str) -> None:
    """Stop the server in good order and start it with another configuration."""
    stage.write_config(config)
    stage.machine.signal("TERM")
    await stage.machine.wait_ended()
    stage.machine.start()
    await stage.sleep(1)


def test_accounts_share_nothing() -> None:
    """Subjects, streams of the same name, their consumers and requests: what one account says never reaches another."""

    async def scene(stage: Stage) -> None:
        async with client_of(stage, "A") as a, client_of(stage, "B") as b:
            with pytest.raises(NoResponders):
                async with b.subscribe("service"):
                    await a.request("service", b"")
            assert [await create(a, "S"), await create(b, "S", storage="memory")] == [0, 0]
            await a.request("s", b"of a")
            await b.request("s", b"of b")
            await b.request("s", b"of b")
            assert [await messages(a, "S"), await messages(b, "S")] == [["b2YgYQ=="], ["b2YgYg=="] * 2]
            await call(a, "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"name": "c"}})
            assert (await call(b, "CONSUMER.NAMES.S"))["consumers"] == []
            await call(a, "STREAM.DELETE.S")
            assert [await messages(a, "S"), await messages(b, "S")] == [["stream not found"], ["b2YgYg=="] * 2]

    play(scene, A_AND_B)


def test_an_account_has_the_limits_of_its_configuration() -> None:
    """Each limit stands in the account's INFO and holds there, and nowhere else."""
    limits = "max_mem: 64MB, max_file: 32MB, max_streams: 2, max_consumers: 20, max_ack_pending: 100"
    per_stream = "max_bytes_required: true, memory_max_stream_bytes: 2048, store_max_stream_bytes: 4096"
    config = (
        f"{SERVER}accounts {{ A {{ jetstream {{ {limits}, {per_stream} }}\n {USERS['A']} }}\n"
        f"B {{ jetstream: enabled, {USERS['B']} }} }}"
    )

    async def scene(stage: Stage) -> None:
        async with client_of(stage, "A") as a, client_of(stage, "B") as b:
            assert (await call(a, "INFO"))["limits"] == {
                "max_memory": 64 << 20,
                "max_storage": 32 << 20,
                "max_streams": 2,
                "max_consumers": 20,
                "max_ack_pending": 100,
                "memory_max_stream_bytes": 2048,
                "storage_max_stream_bytes": 4096,
                "max_bytes_required": True,
            }
            assert await create(a, "S") == 10113  # max_bytes required
            assert await create(a, "S", max_bytes=4097) == 10122
            assert await create(a, "S", max_bytes=2049, storage="memory") == 10122
            assert [await create(a, name, max_bytes=4096) for name in ("S", "T", "U")] == [0, 0, 10027]
            assert set((await call(b, "INFO"))["limits"].values()) == {-1, False}
            assert [await create(b, name) for name in ("S", "T", "U")] == [0, 0, 0]

    play(scene, config)


def test_where_jetstream_is_not_enabled_every_call_says_so() -> None:
    """Accounts without `jetstream`, and the global one beside others, are told it in every answer."""

    async def scene(stage: Stage) -> None:
        async with client_of(stage, "B") as b, connect("nats://server", runtime=stage.runtime) as nobody:
            for client in (b, nobody):
                for subject in ("INFO", "STREAM.NAMES", "STREAM.CREATE.S", "STREAM.INFO.S", "CONSUMER.LIST.S"):
                    answer = await call(client, subject, {"name": "S"} if "CREATE" in subject else None)
                    assert answer["error"]["err_code"] == 10039, subject
            assert (await call(b, "INFO")).keys() == {"type", "error"}
        async with client_of(stage, "A") as a:
            assert (await call(a, "INFO"))["api"] == {"level": 5, "total": 0, "errors": 0}

    play(scene, A_ALONE + "authorization { users [ {user: g, password: g} ] }\nno_auth_user: g")


def test_streams_of_an_account_without_jetstream_are_kept_idle() -> None:
    """After a restart without `jetstream` they take in nothing, the log says so; enabled again they go on where they
    stood, by a reload or by another restart.
    """

    async def scene(stage: Stage) -> None:
        async with client_of(stage, "B") as b:
            await create(b, "S")
            await b.request("s", b"kept")
        await restart(stage, A_ALONE)
        assert any("not enabled for account 'B': its 1 streams are kept, and not served" in one for one in stage.logged)
        async with client_of(stage, "B") as b:
            with pytest.raises(NoResponders):
                await b.request("s", b"lost")
            await stage.reload(A_AND_B)
            await b.request("s", b"new")
            assert await messages(b, "S") == ["a2VwdA==", "bmV3"]
        await restart(stage, A_ALONE)
        await restart(stage, A_AND_B)
        async with client_of(stage, "B") as b:
            assert await messages(b, "S") == ["a2VwdA==", "bmV3"]

    play(scene, A_AND_B)


def test_a_reload_adds_accounts_and_changes_limits() -> None:
    """A new account is served at once, other limits hold for what is made next; who stays is not disturbed."""
    few = A.replace("jetstream: enabled", "jetstream { max_streams: 1 }")
    changed = f"{SERVER}accounts {{ {few}, {B}, C {{ jetstream: enabled, {USERS['C']} }} }}"

    async def scene(stage: Stage) -> None:
        async with client_of(stage, "A") as a:
            await create(a, "S")
            lines = await stage.reload(changed)
            assert any("Reloaded server configuration" in line for line in lines), lines
            assert await create(a, "T") == 10027  # maximum number of streams reached
            await a.request("s", b"x")
            assert len(await messages(a, "S")) == 1
            async with client_of(stage, "C") as c:
                assert await create(c, "S") == 0

    play(scene, A_AND_B)


@pytest.mark.parametrize(
    ("before", "after", "account"), [(A_AND_B, A_ALONE, "B"), (f"{SERVER}debug: true", A_AND_B, "$G")]
)
def test_a_reload_takes_jetstream_from_no_account(before: str, after: str, account: str) -> None:
    """It is refused with the account's name, and changes nothing."""

    async def scene(stage: Stage) -> None:
        options = stage.node.options
        lines = await stage.reload(after)
        assert any(f"not supported for account '{account}'" in line for line in lines), lines
        assert stage.node.options is options

    play(scene, before)
