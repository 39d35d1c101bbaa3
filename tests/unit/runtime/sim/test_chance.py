"""Seeded randomness, buggification and the trace."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tnats.errors import ensure
from tnats.runtime.api import Runtime
from tnats.runtime.sim.buggify import Buggify
from tnats.runtime.sim.chance import stream
from tnats.runtime.sim.timeline import Timeline
from tnats.runtime.sim.trace import NOTE, PORTION, Trace
from tnats.runtime.sim.world import Settings, World, run_world


def test_streams_are_the_same_in_every_process() -> None:
    """A stream follows from seed and names alone, whatever the hash seed of the process."""
    code = "from tnats.runtime.sim.chance import stream; print(stream(5, 'a', 1).getrandbits(64))"
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        )
        assert int(done.stdout) == stream(5, "a", 1).getrandbits(64)


def test_a_draw_in_one_stream_does_not_shift_another() -> None:
    """What one label draws does not depend on how much other labels drew, nor on which were asked for."""

    async def main(world: World, extra: bool) -> list[int]:
        draws: list[int] = []

        async def node_main(runtime: Runtime) -> None:
            if extra:
                runtime.chance.rng("other").random()
                runtime.chance.entropy(5)
            draws.append(runtime.chance.rng("mine").getrandbits(64))

        node = world.node("n1")
        node.start(node_main)
        await node.wait_ended()
        return draws

    results = [run_world(7, lambda world, extra=extra: main(world, extra)).unwrap() for extra in (False, True)]  # type: ignore[misc]
    assert results[0] == results[1]


def test_buggify_sites_are_on_for_a_quarter_of_the_seeds() -> None:
    """A site is on in about 25 % of runs, for the whole run; which, does not depend on other sites."""
    on = [seed for seed in range(400) if any(Buggify(seed, enabled=True)("site") for _ in range(1))]
    chances = []
    for seed in range(400):
        buggify = Buggify(seed, enabled=True)
        buggify("other")
        buggify("site")
        chances.append(buggify.sites()["site"])
        assert Buggify(seed, enabled=True)("never met") in (True, False)
    assert 60 < sum(chance > 0 for chance in chances) < 140
    assert all(chances[seed] > 0 for seed in on)


def test_buggify_fires_by_its_chance_and_can_be_stopped() -> None:
    """An active site fires about as often as its chance says; disabled, nothing fires."""
    seed = next(seed for seed in range(100) if active(seed) == 0.5)
    buggify = Buggify(seed, enabled=True)
    assert 400 < sum(buggify("site") for _ in range(1000)) < 600
    buggify.enabled = False
    assert not any(buggify("site") for _ in range(1000))


def active(seed: int) -> float:
    buggify = Buggify(seed, enabled=True)
    buggify("site")
    return buggify.sites()["site"]


def test_nodes_see_the_buggify_of_their_world() -> None:
    """`runtime.buggify` is the world's; `heal` ends it."""

    async def main(world: World) -> list[int]:
        counts: list[int] = []

        async def node_main(runtime: Runtime) -> None:
            counts.append(sum(runtime.buggify(f"site {number}") for number in range(1000)))
            world.heal()
            counts.append(sum(runtime.buggify(f"site {number}") for number in range(1000)))

        node = world.node("n1")
        node.start(node_main)
        await node.wait_ended()
        return counts

    with_faults, healed = run_world(1, main).unwrap()
    assert with_faults > 10
    assert healed == 0
    assert run_world(1, main, Settings(buggify=False)).unwrap() == [0, 0]


@pytest.mark.parametrize("count", [1, PORTION, 3 * PORTION + 5])
def test_the_hash_covers_every_event(count: int) -> None:
    """Traces differ if any single event differs, wherever it lies in the portions that are hashed together."""

    def digest(changed: int | None) -> str:
        trace = Trace(Timeline())
        for index in range(count):
            trace.add(NOTE, index, 1 if index == changed else 0)
        return trace.hexdigest()

    assert digest(None) == digest(None)
    for changed in (0, count // 2, count - 1):
        assert digest(changed) != digest(None)


def test_time_and_content_are_traced() -> None:
    """The same calls at another time, or with another payload, give another hash."""

    def run(payload: bytes, pause_ns: int) -> str:
        async def main(world: World) -> None:
            async def server(runtime: Runtime) -> None:
                listener = await runtime.network.listen("0.0.0.0", 1)
                poller = runtime.network.poller()
                poller.add(listener)
                await poller.wait()
                listener.accept()

            async def client(runtime: Runtime) -> None:
                conn = await runtime.network.connect("server", 1, timeout_ns=1_000_000_000)
                await runtime.clock.sleep_ns(pause_ns)
                ensure(conn.write([payload]) == 1, "one byte fits")

            world.node("server").start(server)
            await world.sleep_ns(1)
            node = world.node("client")
            node.start(client)
            await node.wait_ended()

        outcome = run_world(1, main)
        outcome.unwrap()
        return outcome.trace_hash

    assert run(b"a", 5) == run(b"a", 5)
    assert len({run(b"a", 5), run(b"b", 5), run(b"a", 6)}) == 3
