"""Dead letters of the whole server, in simulation: each termination becomes one, whatever happens in between."""

from __future__ import annotations

import orjson
import pytest
import trio
from tests.unit.jetstream.service_world import Stage, call, message_count, play

from tnats.client import Client, ClientError, Message, connect
from tnats.limits import SECOND_NS

COUNT = 40


async def make(client: Client, *, retention: str = "workqueue", max_deliver: int = -1) -> None:
    """A stream S with a consumer C whose dead letters go to `dead.s`, filled."""
    await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "retention": retention})
    config = {
        "durable_name": "C",
        "ack_policy": "explicit",
        "ack_wait": SECOND_NS,
        "max_deliver": max_deliver,
        "metadata": {"tnats.dead_letter": "dead.s"},
    }
    await call(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    for number in range(COUNT):
        await client.request("s", b"%d" % number, headers={"Nats-Msg-Id": str(number)}, timeout_s=2)


async def pull(client: Client, batch: int) -> list[Message]:
    found: list[Message] = []
    async with client.subscribe("inbox.pull") as inbox:
        query = orjson.dumps({"batch": batch, "no_wait": True})
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", query, reply="inbox.pull")
        while len(found) < batch:
            message = await inbox.next_message(2)
            if message.status:
                break
            found.append(message)
    return found


async def letters(client: Client) -> list[str]:
    """The payloads of the stream D, in order."""
    state = (await call(client, "STREAM.INFO.D"))["state"]
    assert isinstance(state, dict)
    found = []
    for seq in range(1, state["last_seq"] + 1):
        answer = await client.request("$JS.API.DIRECT.GET.D", orjson.dumps({"seq": seq}), timeout_s=2)
        found.append(answer.data.decode())
    return found


@pytest.mark.parametrize("seed", range(3))
def test_one_letter_for_each_confirmed_termination(seed: int) -> None:
    """While the server is killed again and again: what was confirmed becomes exactly one letter, and leaves the work
    queue; what was not confirmed becomes one at most.
    """

    async def scene(stage: Stage) -> object:
        confirmed: list[str] = []
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.D", {"name": "D", "subjects": ["dead.>"], "allow_direct": True})
            await make(client)

            async def terminate() -> None:
                while True:
                    try:
                        for message in await pull(client, 5):
                            await client.request(message.reply, b"+TERM", timeout_s=1)
                            confirmed.append(message.data.decode())
                    except ClientError:
                        await trio.lowlevel.checkpoint()

            rng = stage.world.rng("kills")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(terminate)
                for _ in range(4):
                    await stage.world.sleep_ns(rng.randrange(SECOND_NS // 100, SECOND_NS // 5))
                    await stage.restart()
                await stage.sleep(4)
                nursery.cancel_scope.cancel()
            return confirmed, await letters(client), await message_count(client)

    outcome = play(seed, scene)
    found_out = outcome.unwrap()
    assert isinstance(found_out, tuple)
    confirmed, found, left = found_out
    assert len(set(found)) == len(found)
    assert set(confirmed) <= set(found)
    assert (sorted(found, key=int), left) == ([str(number) for number in range(COUNT)], 0)


def test_letters_wait_for_a_stream() -> None:
    """Exhausted messages wait, and stay in the work queue, until a stream takes the subject; then they are moved."""

    async def scene(stage: Stage) -> object:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await make(client, max_deliver=1)
            assert len(await pull(client, COUNT)) == COUNT
            await stage.sleep(3)
            before = await message_count(client)
            await stage.restart()
            await call(client, "STREAM.CREATE.D", {"name": "D", "subjects": ["dead.>"], "allow_direct": True})
            await stage.sleep(40)
            answer = await client.request("$JS.API.DIRECT.GET.D", b'{"seq":1}', timeout_s=2)
            assert answer.headers is not None
            told = {key: answer.headers[f"Nats-Dead-Letter-{key}"][0] for key in ("Consumer", "Reason", "Deliveries")}
            return before, await message_count(client), len(await letters(client)), told

    outcome = play(1, scene)
    told = {"Consumer": "C", "Reason": "max deliveries", "Deliveries": "1"}
    assert outcome.unwrap() == (COUNT, 0, COUNT, told)
