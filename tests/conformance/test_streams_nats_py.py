"""What the official Python client, unmodified, publishes to streams of `tnats serve`, and reads from them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.errors import APIError
from tests.conformance.test_jetstream_nats_py import play
from tests.live.server_process import PATIENCE_S, ServerProcess, serve


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of this module."""
    with serve(tmp_path_factory.mktemp("server"), "jetstream { store_dir: store }") as running:
        yield running


async def refused(js: JetStreamContext, subject: str, headers: dict[str, Any], **more: Any) -> int:
    """The code with which a publish is refused."""
    with pytest.raises(APIError) as caught:
        await js.publish(subject, b"", headers=headers, **more)
    assert caught.value.err_code is not None
    return caught.value.err_code


async def last_of(js: JetStreamContext, stream: str, subject: str) -> Any:
    """The last message on a subject, once there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await js.get_msg(stream, subject=subject, direct=True)
            except nats.js.errors.NotFoundError:
                await asyncio.sleep(0.05)


def test_expectations(server: ServerProcess) -> None:
    """Optimistic concurrency: what is not as expected is refused."""

    async def scene(js: JetStreamContext) -> None:
        await js.add_stream(name="EXPECT", subjects=["expect.>"], allow_rollup_hdrs=True)
        first = await js.publish("expect.a", b"1", headers={"Nats-Expected-Last-Subject-Sequence": "0"})
        assert await refused(js, "expect.a", {"Nats-Expected-Last-Subject-Sequence": "0"}) == 10071
        assert await refused(js, "expect.a", {"Nats-Expected-Last-Sequence": "9"}) == 10071
        assert await refused(js, "expect.a", {"Nats-Expected-Last-Msg-Id": "x"}) == 10070
        assert await refused(js, "expect.a", {"Nats-Expected-Stream": "OTHER"}) == 10060
        await js.publish("expect.a", b"2", headers={"Nats-Expected-Last-Subject-Sequence": str(first.seq)})
        await js.publish("expect.a", b"3", headers={"Nats-Rollup": "sub"})
        assert (await js.stream_info("EXPECT")).state.messages == 1

    play(server, scene)


def test_ends_and_markers(server: ServerProcess) -> None:
    """A message with a TTL goes by itself and leaves a delete marker."""

    async def scene(js: JetStreamContext) -> None:
        await js.add_stream(
            name="TTL", subjects=["ttl.>"], max_msgs_per_subject=1, subject_delete_marker_ttl=60, allow_direct=True
        )
        await js.publish("ttl.a", b"soon gone", msg_ttl=1)
        async with asyncio.timeout(PATIENCE_S):
            while "Nats-Marker-Reason" not in ((await last_of(js, "TTL", "ttl.a")).headers or {}):
                pass
        with pytest.raises(APIError):
            await js.publish("ttl.a", b"", headers={"Nats-TTL": "soon"})

    play(server, scene)


def test_counters_and_schedules(server: ServerProcess) -> None:
    """Totals add up; a schedule publishes."""

    async def scene(js: JetStreamContext) -> None:
        await js.add_stream(name="HITS", subjects=["hits.>"], allow_msg_counter=True, allow_direct=True)
        for increment in ("40", "2", "-21"):
            await js.publish("hits.a", b"", headers={"Nats-Incr": increment})
        assert (await last_of(js, "HITS", "hits.a")).data == b'{"val":"21"}'
        assert await refused(js, "hits.a", {}) == 10169
        await js.add_stream(name="CLOCK", subjects=["clock.>"], allow_msg_schedules=True, allow_direct=True)
        schedule = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "clock.out"}
        await js.publish("clock.s", b"tick", headers=schedule)
        assert (await last_of(js, "CLOCK", "clock.out")).data == b"tick"

    play(server, scene)


def test_batches(server: ServerProcess) -> None:
    """All messages of an atomic batch are stored by its commit."""

    async def scene(js: JetStreamContext) -> None:
        await js.add_stream(name="BATCH", subjects=["batch"], allow_atomic=True, allow_direct=True)
        client = js._nc
        for number in (1, 2):
            headers = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(number)}
            assert (await client.request("batch", b"%d" % number, headers=headers, timeout=PATIENCE_S)).data == b""
        assert (await js.stream_info("BATCH")).state.messages == 0
        commit = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "3", "Nats-Batch-Commit": "1"}
        ack = await js.publish("batch", b"3", headers=commit)
        assert (ack.seq, (await js.stream_info("BATCH")).state.messages) == (3, 3)

    play(server, scene)


def test_administration(server: ServerProcess) -> None:
    """Listing, finding, purging a part, deleting a message, changing a configuration."""

    async def scene(js: JetStreamContext) -> None:
        for name in ("ONE", "TWO"):
            await js.add_stream(name=name, subjects=[f"{name.lower()}.>"])
        for number in range(10):
            await js.publish(f"one.{number % 2}", b"%d" % number)
        names = {info.config.name for info in await js.streams_info()}
        assert {"ONE", "TWO"} <= names
        assert await js.find_stream_name_by_subject("two.x") == "TWO"
        found = await js.stream_info("ONE", subjects_filter=">")
        assert found.state.subjects == {"one.0": 5, "one.1": 5}
        await js.purge_stream("ONE", subject="one.0", keep=2)
        await js.purge_stream("ONE", seq=8)
        await js.delete_msg("ONE", 8)
        assert (await js.get_msg("ONE", 8, subject="one.0", next=True)).seq == 9
        changed = (await js.stream_info("ONE")).config.evolve(max_msgs=1, description="small")
        assert (await js.update_stream(changed)).state.messages == 1
        assert (await js.account_info()).streams >= 2

    play(server, scene)
