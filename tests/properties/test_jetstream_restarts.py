"""Kills of the server between random operations: what it tells of a stream and its consumers is the same afterwards."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import orjson
import pytest
from tests.jetstream_operations import ENDING, Call, Fetch, Operation, Operations, Publish
from tests.unit.jetstream.service_world import Stage, call, play

from tnats.client import Client, ClientError, connect

SEEDS = int(os.environ.get("TNATS_SEEDS", "8"))
POLICIES = ("all", "all", "new", "last", "by_start_sequence")
"""With `last_per_subject`, values that were replaced since the consumer's making are passed over after a start."""
VARYING = {"ts", "last_active", "num_waiting", "cluster"}
"""Members of reports that time, connections, or the start change."""


def lasting(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: lasting(value) for key, value in found.items() if key not in VARYING}
    return [lasting(one) for one in found] if isinstance(found, list) else found


class Player:
    """Carries out operations on the stream S."""

    def __init__(self, stage: Stage, client: Client, operations: Operations) -> None:
        self._stage = stage
        self._client = client
        self._operations = operations
        self._taken: dict[str, dict[int, str]] = {}
        """By consumer: reply subjects by sequence."""

    async def carry_out(self, operation: Operation) -> None:
        client = self._client
        if isinstance(operation, Call):
            if operation.call.startswith("CONSUMER.DELETE"):
                self._taken.pop(operation.call[-1], None)
            await call(client, operation.call, operation.body)
        elif isinstance(operation, Publish):
            try:
                await client.request(operation.subject, operation.data, headers=operation.headers or None, timeout_s=1)
            except ClientError:
                pass  # no stream takes the subject
        elif isinstance(operation, Fetch):
            await self._fetch(operation)
        elif seqs := sorted(self._taken.get(operation.consumer, {})):
            seq = operation.choose(seqs)
            await client.publish(self._taken[operation.consumer][seq], operation.word)
            if operation.word in ENDING:
                del self._taken[operation.consumer][seq]

    async def _fetch(self, fetch: Fetch) -> None:
        taken = self._taken.setdefault(fetch.consumer, {})
        async with self._client.subscribe("inbox") as inbox:
            request = orjson.dumps({"batch": fetch.count, "expires": 50_000_000})
            await self._client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{fetch.consumer}", request, reply="inbox")
            for _ in range(fetch.count):
                message = await inbox.next_message(timeout_s=5)
                if message.status:
                    break
                taken[int((message.reply or "").split(".")[5])] = message.reply or ""

    async def reports(self) -> list[Any]:
        """What can be asked, and lasts, when the log of the consumers has had its moment."""
        await self._client.flush()
        await self._stage.sleep(0.6)
        body = {"subjects_filter": ">", "deleted_details": True}
        found = [await call(self._client, "STREAM.INFO.S", body)]
        found += [await call(self._client, f"CONSUMER.INFO.S.{name}") for name in sorted(self._operations.consumers)]
        return [lasting(one) for one in found]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_kill_changes_nothing_that_can_be_asked(seed: int) -> None:
    """State, configurations, places of consumers and what is pending, over kills at any moment."""

    async def scene(stage: Stage) -> int:
        rng = Random(seed)
        count = 0
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            operations = Operations(rng, "S", storages=["file"], deliver_policies=POLICIES)
            player = Player(stage, client, operations)
            for number, operation in enumerate(operations.draw(40)):
                await player.carry_out(operation)
                if number % 8 == 7:
                    before = await player.reports()
                    await stage.restart()
                    assert await player.reports() == before
                    count += 1
        return count

    assert play(seed, scene).unwrap() > 2  # type: ignore[operator]
