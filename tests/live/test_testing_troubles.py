"""Scripted faults and the movable clock of `tnats.testing`."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.live.patient_client import connect
from tests.live.server_process import PATIENCE_S

import tnats.client
import tnats.testing
from tnats.client import Client
from tnats.client.jetstream import JetStream
from tnats.client.object_store import ObjectMeta, StoreConfig, create_store, open_store
from tnats.testing import EmbeddedServer, NotThere, ServerFailed


async def api(client: Client, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One JetStream request."""
    data = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads((await client.request(f"$JS.API.{subject}", data, timeout_s=PATIENCE_S)).data)
    assert "error" not in answer, answer
    return answer


async def publish(client: Client, data: bytes, *, id: str = "", timeout_s: float = PATIENCE_S) -> dict[str, Any]:
    headers = {"Nats-Msg-Id": id} if id else None
    answer: dict[str, Any] = json.loads((await client.request("s", data, headers=headers, timeout_s=timeout_s)).data)
    return answer


async def make_stream(client: Client, **config: object) -> None:
    await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], **config})


async def count_messages(client: Client) -> int:
    return int((await api(client, "STREAM.INFO.S"))["state"]["messages"])


@pytest.mark.tnats_server(jetstream=True)
async def test_time_passes_at_a_word(tnats_server: EmbeddedServer) -> None:
    """Ages and duplicate windows end when the clock is moved past them, and not before."""
    async with connect(tnats_server.url) as client:
        await make_stream(client, max_age=1000 * 10**9, duplicate_window=100 * 10**9)
        await publish(client, b"", id="a")
        tnats_server.advance(50)
        assert (await publish(client, b"", id="a"))["duplicate"] is True
        tnats_server.advance(60)
        assert "duplicate" not in await publish(client, b"", id="a")
        tnats_server.advance(900)
        assert await count_messages(client) == 1
        tnats_server.advance(101)
        assert await count_messages(client) == 0
    with pytest.raises(ValueError, match="ahead"):
        tnats_server.advance(-1)


def test_a_server_that_does_not_come_to_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who moves the clock is not left to believe that what fell due was done."""

    async def work() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    with tnats.testing.serve() as server:
        server._soon(lambda: (trio.lowlevel.spawn_system_task(work), None)[1])
        with monkeypatch.context() as patch:
            patch.setattr(server, "_call", lambda action: action())  # what is short is the wait for its rest alone
            patch.setattr("tnats.limits.TESTING_WAIT_S", 0.1)
            with pytest.raises(ServerFailed, match=r"at work for 0\.1 s"):
                server.advance(1)


@pytest.mark.tnats_server(jetstream=True)
async def test_exactly_so_many_acks_are_lost(tnats_server: EmbeddedServer) -> None:
    """The next publishers hear nothing though their messages are stored, as many as were asked for, whether at once or
    one by one; the next one is answered.
    """
    async with connect(tnats_server.url) as client:
        await make_stream(client)
        for seq, counts in ((3, (2,)), (6, (1, 1))):
            for count in counts:
                tnats_server.lose_publish_acks("S", count)
            for _ in range(2):
                with pytest.raises(tnats.client.TimedOut):
                    await publish(client, b"", timeout_s=0.1)
            assert (await publish(client, b""))["seq"] == seq
        with pytest.raises(NotThere, match="no stream 'T'"):
            tnats_server.lose_publish_acks("T")


@pytest.mark.tnats_server(jetstream=True)
async def test_an_ack_wait_ends_at_a_word(tnats_server: EmbeddedServer) -> None:
    """One message is delivered again, the others are still awaited; after `max_deliver` it is not delivered again."""
    async with connect(tnats_server.url) as client:
        await make_stream(client)
        for _ in range(3):
            await publish(client, b"")
        config = {"durable_name": "C", "ack_policy": "explicit", "max_deliver": 2}
        await api(client, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
        got = client.subscribe("got")
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"10", reply="got")
        assert [(await got.next_message(PATIENCE_S)).reply.split(".")[4:6] for _ in range(3)] == [
            ["1", "1"],
            ["1", "2"],
            ["1", "3"],
        ]
        assert tnats_server.expire_acks("S", "C", 2) == 1
        assert (await got.next_message(PATIENCE_S)).reply.split(".")[4:6] == ["2", "2"]
        assert tnats_server.expire_acks("S", "C") == 3
        again = [(await got.next_message(PATIENCE_S)).reply.split(".")[4:6] for _ in range(2)]
        assert again == [["2", "1"], ["2", "3"]]
        with pytest.raises(NotThere, match="message 2 awaits no"):
            tnats_server.expire_acks("S", "C", 2)
        with pytest.raises(NotThere, match="no consumer 'D'"):
            tnats_server.expire_acks("S", "D")


@pytest.mark.tnats_server(jetstream=True)
async def test_an_object_whose_record_was_not_acknowledged_is_whole(tnats_server: EmbeddedServer) -> None:
    """The acknowledgement of an object's record is lost: the put fails, and the object can be read."""
    async with connect(tnats_server.url) as client:
        js = JetStream(client, timeout_s=PATIENCE_S)
        store = await create_store(js, StoreConfig("files"))
        hasty = await open_store(JetStream(client, timeout_s=2), "files")

        async def content() -> AsyncIterator[bytes]:
            yield b"whole"
            while (await js.stream("OBJ_files").info()).state.messages < 1:
                pass
            tnats_server.lose_publish_acks("OBJ_files")

        with pytest.raises(tnats.client.TimedOut):
            await hasty.put(ObjectMeta("a", chunk_bytes=5), content())
        assert await store.get_bytes("a") == b"whole"


@pytest.mark.parametrize("sync_interval", ["always", "1h"])
async def test_a_power_cut_takes_what_was_not_synced(sync_interval: str) -> None:
    """What was synced is there (after a kill: by the next start), what was not is gone; a kill takes nothing."""
    config = f'jetstream {{ store_dir: /data, sync_interval: "{sync_interval}" }}'
    threads = set(threading.enumerate())
    with tnats.testing.serve(config, disk="memory") as server:
        async with connect(server.url) as client:
            await make_stream(client)
            await publish(client, b"first")
        server.kill()
        assert not server.running
        server.start()
        async with connect(server.url) as client:
            assert await count_messages(client) == 1
            await publish(client, b"second")
        server.power_cut()
        server.start()
        async with connect(server.url) as client:
            assert await count_messages(client) == (2 if sync_interval == "always" else 1)
            assert (await publish(client, b"third"))["seq"] > 2
    assert set(threading.enumerate()) <= threads


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    """Files on the real disk cannot lose their power; a server that does not run has no time and no streams."""
    with tnats.testing.serve() as server:
        with pytest.raises(ServerFailed, match='disk="memory"'):
            server.power_cut()
        with pytest.raises(NotThere, match="no JetStream"):
            server.lose_publish_acks("S")
        server.stop()
        with pytest.raises(ServerFailed, match="does not run"):
            server.advance(1)
    with pytest.raises(ValueError, match="not 'tape'"), tnats.testing.serve(disk="tape"):  # type: ignore[arg-type]
        pass
    with tnats.testing.serve(disk="memory") as server, pytest.raises(ValueError, match="sideways"):
        server.power_cut("sideways")
