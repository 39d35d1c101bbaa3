"""Limits of accounts, tiers, the server and batches on the whole server, in simulation."""

from __future__ import annotations

from typing import Any

import attrs
import orjson
import pytest
from tests.unit.jetstream.service_world import Stage, call, open_client, play, publish

from tnats.client import Client
from tnats.jetstream.stream.batches import BatchLimits
from tnats.jetstream.stream.quotas import AccountLimits, Quotas
from tnats.limits import STORES_MEASURED_NS
from tnats.server import jetstream as server_jetstream

ACCOUNT = "$G"


def limit(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Have the server told something else than its configuration says."""
    told = server_jetstream.jetstream_options
    monkeypatch.setattr(server_jetstream, "jetstream_options", lambda *given: attrs.evolve(told(*given), **changes))


async def code(client: Client, subject: str, body: object) -> int:
    """The error code of an answer, 0 for none."""
    answer: Any = await call(client, subject, body)
    return int(answer.get("error", {"err_code": 0})["err_code"])


async def create(client: Client, name: str, **config: object) -> int:
    return await code(client, f"STREAM.CREATE.{name}", {"name": name, **config})


def test_the_limits_of_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each limit refuses what exceeds it with its own error; INFO shows use, reservations and limits exactly."""
    limits = AccountLimits(
        max_memory=1000,
        max_storage=5000,
        max_streams=3,
        max_consumers=2,
        max_ack_pending=7,
        memory_max_stream_bytes=600,
        storage_max_stream_bytes=4000,
        max_bytes_required=True,
    )
    limit(monkeypatch, accounts={ACCOUNT: Quotas(limits)})

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            assert await create(client, "A") == 10113
            assert await create(client, "A", max_bytes=4001) == 10122
            assert await create(client, "A", max_bytes=3000) == 0
            assert await create(client, "B", max_bytes=2001) == 10047
            assert await create(client, "B", max_bytes=2000) == 0
            assert await create(client, "M", max_bytes=601, storage="memory") == 10122
            assert await create(client, "M", max_bytes=600, storage="memory") == 0
            assert await create(client, "N", max_bytes=100, storage="memory") == 10027
            assert await code(client, "STREAM.UPDATE.A", {"name": "A", "max_bytes": 3001}) == 10047
            assert await code(client, "STREAM.UPDATE.B", {"name": "B", "max_bytes": 1000}) == 0
            assert await code(client, "STREAM.UPDATE.A", {"name": "A", "max_bytes": 3001}) == 0
            for name, wanted in (("c", 0), ("d", 0), ("e", 10026)):
                config = {"name": name, "ack_policy": "explicit"}
                body = {"stream_name": "A", "config": config}
                assert await code(client, f"CONSUMER.CREATE.A.{name}", body) == wanted
            config = {"name": "c", "ack_policy": "explicit", "max_ack_pending": 8}
            assert await code(client, "CONSUMER.CREATE.A.c", {"stream_name": "A", "config": config}) == 10121
            made: Any = await call(client, "CONSUMER.INFO.A.c")
            assert made["config"]["max_ack_pending"] == 7
            await publish(client, "A", b"x" * 100)
            await publish(client, "M", b"x" * 200)
            info: Any = await call(client, "INFO")
            size: Any = (await call(client, "STREAM.INFO.A"))["state"]
            del info["api"]
            assert info == {
                "type": "io.nats.jetstream.api.v1.account_info_response",
                "memory": info["memory"],
                "storage": size["bytes"],
                "reserved_memory": 600,
                "reserved_storage": 4001,
                "streams": 3,
                "consumers": 2,
                "limits": attrs.asdict(limits),
            }
            assert 200 < info["memory"] < 300

    play(1, scene).unwrap()


def test_an_account_that_has_used_up_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishes are refused with 10002 until there is room again; streams of the other storage take them."""
    limit(monkeypatch, accounts={ACCOUNT: Quotas(AccountLimits(max_storage=1000))})

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            assert await create(client, "A") == 0
            assert await create(client, "M", storage="memory") == 0
            for _ in range(10):
                await publish(client, "A", b"x" * 100)
            await stage.sleep(STORES_MEASURED_NS / 10**9 + 0.1)
            refused = await publish(client, "A", b"x")
            assert refused is not None
            assert refused["error"] == {
                "code": 400,
                "err_code": 10002,
                "description": "resource limits exceeded for account",
            }
            assert "error" not in (await publish(client, "M", b"x") or {})
            await call(client, "STREAM.PURGE.A", {"keep": 1})
            await stage.sleep(STORES_MEASURED_NS / 10**9 + 0.1)
            assert "error" not in (await publish(client, "A", b"x") or {"error": 1})

    play(1, scene).unwrap()


def test_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams count in the tier of their replicas; without such a tier there are none; INFO shows each tier."""
    tier = AccountLimits(max_storage=2000, max_streams=2, max_consumers=1)
    limit(monkeypatch, accounts={ACCOUNT: Quotas(tiers={"R1": tier, "R3": AccountLimits(max_storage=9)})})

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            assert await create(client, "A", max_bytes=2000) == 0
            assert await create(client, "B", max_bytes=1) == 10047
            assert await create(client, "B") == 0
            assert await create(client, "C") == 10027
            body = {"stream_name": "A", "config": {"name": "c"}}
            assert await code(client, "CONSUMER.CREATE.A.c", body) == 0
            assert await code(client, "CONSUMER.CREATE.B.d", {"stream_name": "B", "config": {"name": "d"}}) == 10026
            info: Any = await call(client, "INFO")
            assert (info["streams"], info["consumers"], info["reserved_storage"]) == (2, 1, 2000)
            assert info["limits"]["max_storage"] == 0
            assert sorted(info["tiers"]) == ["R1", "R3"]
            first = info["tiers"]["R1"]
            assert (first["streams"], first["reserved_storage"], first["limits"]["max_storage"]) == (2, 2000, 2000)
            assert info["tiers"]["R3"]["streams"] == 0

    play(1, scene).unwrap()


def test_no_tier_for_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """An account whose tiers have no place for a stream refuses it by name."""
    limit(monkeypatch, accounts={ACCOUNT: Quotas(tiers={"R3": AccountLimits()})})

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            assert await create(client, "A") == 10120

    play(1, scene).unwrap()


def test_the_bounds_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reservations of all streams together fit into the server's bounds, and what exceeds them is refused."""
    limit(monkeypatch, max_memory=1000, max_file=3000)

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            assert await create(client, "A", max_bytes=2000) == 0
            assert await create(client, "B", max_bytes=1001) == 10047
            assert await create(client, "M", max_bytes=1001, storage="memory") == 10028
            assert await code(client, "STREAM.UPDATE.A", {"name": "A", "max_bytes": 3001}) == 10047
            assert await create(client, "N", storage="memory") == 0
            for _ in range(10):
                await publish(client, "N", b"x" * 100)
            await stage.sleep(STORES_MEASURED_NS / 10**9 + 0.1)
            refused: Any = await publish(client, "N", b"x")
            assert refused["error"]["err_code"] == 10023

    play(1, scene).unwrap()


def test_the_bound_on_files_comes_from_the_disk() -> None:
    """Without a configured one it is three quarters of what is free and what is used already, after restarts too."""

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            assert await create(client, "A") == 0
            for _ in range(20):
                await publish(client, "A", b"x" * 10_000)
            jetstream = stage.node.jetstream
            assert jetstream is not None
            first = jetstream.options.max_file
            assert first > 0
            assert await create(client, "B", max_bytes=first + 1) == 10047
            await stage.restart()
            jetstream = stage.node.jetstream
            assert jetstream is not None
            assert abs(jetstream.options.max_file - first) < first // 10

    play(1, scene).unwrap()


def test_configured_limits_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Size, number and patience of batches are the server's; a batch that was refused takes up no place."""
    limit(monkeypatch, batch_limits=BatchLimits(2, 3, 2, 3, 5, 10**9))

    async def scene(stage: Stage) -> None:
        async with open_client(stage) as client:
            assert await create(client, "A", allow_atomic=True) == 0

            async def add(batch: str, number: int) -> int:
                headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
                answer = (await client.request("A", b"x", headers=headers)).data
                return int(orjson.loads(answer)["error"]["err_code"]) if answer else 0

            assert [await add("a", number) for number in range(1, 7)] == [0, 0, 0, 0, 0, 10199]
            assert [await add(batch, 1) for batch in "bcd"] == [0, 0, 10210]
            await stage.sleep(2)
            assert await add("b", 2) == 10176
            assert await add("e", 1) == 0

    play(1, scene).unwrap()
