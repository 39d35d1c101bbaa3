"""The whole server under power loss, in simulation: what was confirmed is there afterwards."""

from __future__ import annotations

import base64
from collections.abc import Callable

import orjson
import pytest
import trio

import tnats.server.jetstream  # noqa: F401 - nothing is imported inside a simulation
from tnats.client import Client, ClientError, connect
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.runtime.sim.world import Outcome, Settings, World, run_world
from tnats.server.compose import build
from tnats.server.config.jetstream import JetStreamOptions
from tnats.server.config.options import Options

STORE = "/data/jetstream"
PART_BYTES = 256 * 1024
"""Journal parts are small, so that they are filled and released within a test."""
POLICIES = list(CrashPolicy)
CUTS = 3
PAUSE_NS = SECOND_NS // 50


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnats.jetstream.service.JOURNAL_PART_BYTES", PART_BYTES)


async def serve(runtime: Runtime) -> None:
    await build(runtime, Options(jetstream=JetStreamOptions(enabled=True, store_dir=STORE))).run()


async def call(client: Client, subject: str, body: object = None) -> dict[str, object]:
    """A JetStream request, until it is answered."""
    while True:
        try:
            answer = await client.request(f"$JS.API.{subject}", orjson.dumps(body) if body else b"", timeout_s=2)
        except ClientError:
            await trio.lowlevel.checkpoint()
        else:
            found: dict[str, object] = orjson.loads(answer.data)
            return found


class Power:
    """A server whose power is cut every now and then."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = world.node("server")
        self.rng = world.rng("power")
        self.machine.start(serve)

    async def cut(self, count: int) -> None:
        for _ in range(count):
            await self.world.sleep_ns(self.rng.randrange(SECOND_NS // 10, 2 * SECOND_NS))
            self.machine.power_loss(self.rng.choice(POLICIES))
            await self.machine.wait_ended()
            await self.world.sleep_ns(SECOND_NS // 10)
            self.machine.start()
        await self.world.sleep_ns(2 * SECOND_NS)


def run_clients(seed: int, scene: Callable[[Power, Runtime], object]) -> Outcome[object]:
    """Run `scene(power, runtime of a client machine)`."""

    async def main(world: World) -> object:
        outcome: list[object] = []
        power = Power(world)
        await world.sleep_ns(SECOND_NS)

        async def clients(runtime: Runtime) -> None:
            outcome.append(await scene(power, runtime))  # type: ignore[misc]

        machine = world.node("clients")
        machine.start(clients)
        await machine.wait_ended()
        return outcome[0]

    return run_world(seed, main, Settings(buggify=False))


async def publish_until_done(power: Power, runtime: Runtime) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Publish while power is cut; (what was acknowledged, what is there at the end) by sequence."""
    acked: dict[int, bytes] = {}
    async with connect("nats://server", runtime=runtime, reconnect_attempts_max=None) as client:
        config = {"name": "S", "subjects": ["s.*"], "duplicate_window": 120 * SECOND_NS}
        await call(client, "STREAM.CREATE.S", config)
        is_over = False

        async def publish(worker: int) -> None:
            number = 0
            while not is_over:
                number += 1
                await runtime.clock.sleep_ns(PAUSE_NS)
                payload = b"%d.%d" % (worker, number)
                try:
                    answer = await client.request(f"s.{worker}", payload, timeout_s=1)
                except ClientError:
                    await runtime.clock.sleep_ns(SECOND_NS // 100)
                    continue
                ack = orjson.loads(answer.data)
                if "error" not in ack:
                    assert ack["seq"] not in acked, ack
                    acked[ack["seq"]] = payload

        async with trio.open_nursery() as nursery:
            for worker in range(4):
                nursery.start_soon(publish, worker)
            await power.cut(CUTS)
            is_over = True
        state = (await call(client, "STREAM.INFO.S"))["state"]
        assert isinstance(state, dict)
        found = {}
        for seq in range(1, state["last_seq"] + 1):
            answer = await call(client, "STREAM.MSG.GET.S", {"seq": seq})
            if "message" in answer:
                message = answer["message"]
                assert isinstance(message, dict)
                found[seq] = base64.b64decode(message["data"])
        return acked, found


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_publishes_survive(seed: int) -> None:
    """Every acknowledged message stands at its sequence with its content, whatever the disk kept of the rest."""
    acked, found = run_clients(seed, publish_until_done).unwrap()  # type: ignore[misc]
    assert len(acked) > 20
    assert {seq: found.get(seq) for seq in acked} == acked
    assert len(set(found.values())) == len(found)


async def consume_until_done(power: Power, runtime: Runtime) -> tuple[list[int], list[int]]:
    """Confirm acknowledgements while power is cut; (confirmed sequences, those delivered again afterwards)."""
    confirmed: list[int] = []
    again: list[int] = []
    async with connect("nats://server", runtime=runtime, reconnect_attempts_max=None) as client:
        await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
        for number in range(100):
            await client.request("s.a", b"%d" % number, timeout_s=5)
        consumer = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": SECOND_NS}
        await call(client, "CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": consumer})
        is_over = False
        delivered = client.subscribe("deliver.here")

        async def work() -> None:
            while not is_over:
                try:
                    await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1", reply="deliver.here")
                    message = await delivered.next_message(1)
                    if not message.reply:
                        continue
                    seq = int(message.reply.split(".")[5])
                    await runtime.clock.sleep_ns(PAUSE_NS)
                    if seq in confirmed:
                        again.append(seq)
                    await client.request(message.reply, b"+ACK", timeout_s=1)
                except ClientError:
                    await runtime.clock.sleep_ns(SECOND_NS // 100)
                    continue
                confirmed.append(seq)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await power.cut(CUTS)
            is_over = True
    return confirmed, again


@pytest.mark.parametrize("seed", range(2))
def test_confirmed_acks_survive(seed: int) -> None:
    """A message whose acknowledgement was confirmed is never delivered again."""
    confirmed, again = run_clients(seed, consume_until_done).unwrap()  # type: ignore[misc]
    assert len(confirmed) > 10
    assert again == []
