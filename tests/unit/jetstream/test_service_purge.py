"""A purge is over for consumers too when it is answered."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.jetstream.service_world import Stage, call, play, publish

from tnats.client import Client, connect

FILTERS: dict[str, list[str]] = {"ALL": [], "ZERO": ["s.0"], "BOTH": ["s.0", "s.1"], "ONE": ["s.1"]}
"""The consumers."""


async def places(client: Client) -> list[object]:
    """Where the consumers stand."""
    found: list[object] = []
    for name in FILTERS:
        info: Any = await call(client, f"CONSUMER.INFO.S.{name}")
        delivered, floor = info["delivered"], info["ack_floor"]
        counts = [info["num_ack_pending"], info["num_pending"]]
        consumer_seqs = [delivered["consumer_seq"], floor["consumer_seq"]]
        found.append([delivered["stream_seq"], floor["stream_seq"], *counts, *consumer_seqs])
    return found


@pytest.mark.parametrize(
    ("purge", "wanted"),
    [
        (None, [[10, 10, 0, 0, 3, 3]] * 4),
        ({"seq": 9}, [[8, 8, 0, 2, 3, 3], [8, 8, 0, 1, 3, 3], [8, 8, 0, 2, 3, 3], [8, 8, 0, 1, 3, 3]]),
        ({"filter": "s.0"}, [[3, 1, 1, 4, 3, 1], [10, 10, 0, 0, 3, 3], [3, 1, 1, 4, 3, 1], [6, 0, 3, 2, 3, 0]]),
        (
            {"filter": "s.0", "keep": 1},
            [[3, 1, 1, 5, 3, 1], [8, 8, 0, 1, 3, 3], [3, 1, 1, 5, 3, 1], [6, 0, 3, 2, 3, 0]],
        ),
    ],
)
def test_consumers_stand_where_a_purge_left_them(purge: object, wanted: list[list[int]]) -> None:
    """Behind what is gone, as far as there is nothing else they want, with nothing of it awaited; and the same after a
    kill in the moment of the answer.
    """

    async def scene(stage: Stage) -> object:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
            for number in range(10):
                await publish(client, f"s.{number % 2}")
            for name, filters in FILTERS.items():
                config = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": filters}
                await call(client, f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
                async with client.subscribe("inbox") as inbox:
                    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", b"3", reply="inbox")
                    for _ in range(3):
                        await anext(inbox)
            await stage.sleep(1)
            await call(client, "STREAM.PURGE.S", purge)
            stage.machine.kill()
            await stage.machine.wait_ended()
            stage.machine.start()
            await stage.sleep(1)
            after_start = await places(client)
            await publish(client, "s.0")
            return after_start, await places(client)

    after_start, after_publish = play(1, scene).unwrap()  # type: ignore[misc]
    assert after_start == wanted
    assert [place[3] for place in after_publish] == [place[3] + 1 for place in wanted[:3]] + [wanted[3][3]]


def test_a_roll_up_moves_those_that_wait_for_it() -> None:
    """A consumer that never asked stands behind what a roll-up took from it, and others are where they were."""

    async def scene(stage: Stage) -> object:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "allow_rollup_hdrs": True})
            for number in range(10):
                await publish(client, f"s.{number % 2}")
            for name, filters in FILTERS.items():
                config = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": filters}
                await call(client, f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
            await client.request("s.0", b"", headers={"Nats-Rollup": "sub"}, timeout_s=2)
            by_subject = await places(client)
            await client.request("s.1", b"", headers={"Nats-Rollup": "all"}, timeout_s=2)
            return by_subject, await places(client)

    by_subject, by_all = play(1, scene).unwrap()  # type: ignore[misc]
    assert by_subject == [[1, 1, 0, 6, 0, 0], [10, 10, 0, 1, 0, 0], [1, 1, 0, 6, 0, 0], [0, 0, 0, 5, 0, 0]]
    assert by_all == [[11, 11, 0, 1, 0, 0], [11, 11, 0, 0, 0, 0], [11, 11, 0, 1, 0, 0], [11, 11, 0, 1, 0, 0]]
