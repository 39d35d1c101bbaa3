"""The client against our own server, both in one simulated world: the same lines that run live."""

from __future__ import annotations

import pytest
import trio

from tnats.client import ConnectionLost, connect
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime
from tnats.runtime.sim.world import Outcome, World, run_world
from tnats.server.compose import build
from tnats.server.config.options import Options


async def serve(runtime: Runtime) -> None:
    await build(runtime, Options()).run()


def run_scene(seed: int) -> Outcome[tuple[list[int], int]]:
    """A publisher and a subscriber, while the server's process is killed and started again twice."""

    async def main(world: World) -> tuple[list[int], int]:
        received: list[int] = []
        vouched = 0
        done = trio.Event()

        async def subscribe(runtime: Runtime) -> None:
            async with connect("nats://server", runtime=runtime, reconnect_attempts_max=None) as client:
                async for message in client.subscribe("numbers.*", queue="q"):
                    received.append(int(message.data))  # noqa: PERF401 - read while it grows

        async def publish(runtime: Runtime) -> None:
            nonlocal vouched
            async with connect("nats://server", runtime=runtime, reconnect_attempts_max=None) as client:
                for number in range(300):
                    await client.publish(f"numbers.{number % 3}", b"%d" % number)
                    try:
                        await client.flush(timeout_s=60)
                        vouched += 1
                    except ConnectionLost:
                        pass
                    await runtime.clock.sleep_ns(10_000_000)
            done.set()

        server = world.node("server")
        server.start(serve)
        await world.sleep_ns(SECOND_NS)
        world.node("subscriber").start(subscribe)
        await world.sleep_ns(SECOND_NS)
        world.node("publisher").start(publish)
        for _ in range(2):
            await world.sleep_ns(SECOND_NS)
            server.kill()
            await world.sleep_ns(SECOND_NS // 2)
            server.start()
        await done.wait()
        await world.sleep_ns(SECOND_NS)
        return received, vouched

    return run_world(seed, main)


@pytest.mark.parametrize("seed", range(3))
def test_delivery_across_restarts(seed: int) -> None:
    """At most once, in order; most arrive, for the clients come back; and the run repeats from its seed."""
    outcome = run_scene(seed)
    received, vouched = outcome.unwrap()
    assert received == sorted(set(received))
    assert vouched >= 290
    assert len(received) > 200
    assert run_scene(seed).trace_hash == outcome.trace_hash
