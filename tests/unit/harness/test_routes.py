"""The network between the servers of a real cluster, in a simulated world: what passes, when, and what does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from tnats.harness.real.routes import Link, Routes, open_routes
from tnats.runtime.api import Conn, ConnectionBroken, Runtime
from tnats.runtime.sim.world import Settings, World, run_world

SECOND_NS = 1_000_000_000
PORTS = {"n1": 5001, "n2": 5002, "n3": 5003}
Scene = Callable[[Runtime, Routes, Conn, list[Conn]], Awaitable[None]]
"""(runtime, routes, n1's end of a route to n2, n2's ends in the order of their arrival)"""


def read(conn: Conn) -> bytes:
    """What has arrived; empty also at the end."""
    buffer = bytearray(1 << 20)
    count = conn.read_into(buffer)
    return bytes(buffer[:count]) if count else b""


def play(scene: Scene, seeds: int = 1) -> None:
    """Run `scene` on one machine, where n2 listens, and n1 has a route to it; as often, each time in another order."""

    async def main(runtime: Runtime) -> None:
        ends: list[Conn] = []

        async def serve() -> None:
            listener = await runtime.network.listen("127.0.0.1", PORTS["n2"])
            poller = runtime.network.poller()
            poller.add(listener)
            while True:
                await poller.wait()
                while (conn := listener.accept()) is not None:
                    ends.append(conn)

        async with trio.open_nursery() as nursery, open_routes(runtime, runtime.chance.rng("routes"), PORTS) as routes:
            nursery.start_soon(serve)
            await runtime.clock.sleep_ns(SECOND_NS)
            conn = await runtime.network.connect("127.0.0.1", routes.ports("n1")["n2"], timeout_ns=SECOND_NS)
            await runtime.clock.sleep_ns(SECOND_NS)
            await scene(runtime, routes, conn, ends)
            nursery.cancel_scope.cancel()

    async def world_main(world: World) -> None:
        node = world.node("machine")
        node.start(main)
        await node.wait_ended()

    for seed in range(1, seeds + 1):
        run_world(seed, world_main, Settings(buggify=False)).unwrap()


def test_every_pair_has_an_address_of_its_own() -> None:
    """So that a connection's ends are known by where it arrives."""

    async def scene(runtime: Runtime, routes: Routes, near: Conn, ends: list[Conn]) -> None:
        assert [sorted(routes.ports(name)) for name in PORTS] == [["n2", "n3"], ["n1", "n3"], ["n1", "n2"]]
        assert len({port for name in PORTS for port in routes.ports(name).values()}) == 6

    play(scene)


def test_a_cut_holds_one_direction_and_loses_nothing() -> None:
    """The other direction goes on; what was held arrives in order when the last of two cuts has ended."""

    async def scene(runtime: Runtime, routes: Routes, near: Conn, ends: list[Conn]) -> None:
        (far,) = ends
        link = routes.links["n1", "n2"]
        link.cut()
        link.cut()
        for number in range(5):
            near.write([b"%d " % number])
            far.write([b"back"])
            await runtime.clock.sleep_ns(SECOND_NS)
        link.mend()
        await runtime.clock.sleep_ns(SECOND_NS)
        assert (read(far), read(near)) == (b"", b"back" * 5)
        link.mend()
        await runtime.clock.sleep_ns(SECOND_NS)
        assert read(far) == b"0 1 2 3 4 "

    play(scene)


def test_new_connections_hear_nothing_during_a_cut() -> None:
    """They are accepted, as a host behind a black hole seems to wait, and go on once it is over."""

    async def scene(runtime: Runtime, routes: Routes, near: Conn, ends: list[Conn]) -> None:
        routes.links["n2", "n1"].cut()
        later = await runtime.network.connect("127.0.0.1", routes.ports("n1")["n2"], timeout_ns=SECOND_NS)
        later.write([b"hello"])
        await runtime.clock.sleep_ns(30 * SECOND_NS)
        assert len(ends) == 1
        routes.heal()
        await runtime.clock.sleep_ns(SECOND_NS)
        assert read(ends[1]) == b"hello"

    play(scene)


def test_a_delay_keeps_the_order() -> None:
    """Each chunk takes the delay and at most the jitter more."""

    async def scene(runtime: Runtime, routes: Routes, near: Conn, ends: list[Conn]) -> None:
        routes.links["n1", "n2"].slow_down(delay_ns=SECOND_NS, jitter_ns=SECOND_NS)
        for number in range(10):
            near.write([b"%d" % number])
            await runtime.clock.sleep_ns(SECOND_NS // 20)
        assert read(ends[0]) == b""
        await runtime.clock.sleep_ns(2 * SECOND_NS)
        assert read(ends[0]) == b"0123456789"

    play(scene)


def test_a_rate_bounds_what_arrives() -> None:
    """A megabyte at 64 KiB a second is not there after five seconds, and is after twenty."""

    async def scene(runtime: Runtime, routes: Routes, near: Conn, ends: list[Conn]) -> None:
        routes.links["n1", "n2"].slow_down(rate_bytes=64 * 1024)
        left = memoryview(bytes(1 << 20))
        arrived = 0
        for tick in range(200):
            left = left[near.write([left]) if left else 0 :]
            await runtime.clock.sleep_ns(SECOND_NS // 10)
            arrived += len(read(ends[0]))
            assert arrived <= (tick + 1) * 64 * 1024 // 10 + 2 * 64 * 1024
        assert arrived == 1 << 20

    play(scene)


def test_an_end_is_passed_on_after_what_came_before_it() -> None:
    """The other side reads everything, then the end."""

    async def scene(runtime: Runtime, routes: Routes, near: Conn, ends: list[Conn]) -> None:
        near.write([b"last words"])
        near.close()
        await runtime.clock.sleep_ns(SECOND_NS)
        assert read(ends[0]) == b"last words"
        assert ends[0].read_into(bytearray(1)) == 0

    play(scene)


def test_a_reset_during_a_cut_ends_one_connection_alone() -> None:
    """Whoever writes finds it when the cut ends, at the moment when whoever reads has more; the next one is carried."""

    async def scene(runtime: Runtime, routes: Routes, near: Conn, ends: list[Conn]) -> None:
        link = routes.links["n1", "n2"]
        link.slow_down(delay_ns=SECOND_NS)
        near.write([b"on its way"])
        await runtime.clock.sleep_ns(SECOND_NS // 2)
        link.cut()
        routes.links["n2", "n1"].cut()
        ends[0].close(reset=True)
        near.write([b"not read yet"])
        await runtime.clock.sleep_ns(5 * SECOND_NS)
        link.mend()
        await runtime.clock.sleep_ns(5 * SECOND_NS)
        routes.heal()
        later = await runtime.network.connect("127.0.0.1", routes.ports("n1")["n2"], timeout_ns=SECOND_NS)
        later.write([b"hello"])
        await runtime.clock.sleep_ns(SECOND_NS)
        assert read(ends[1]) == b"hello"

    play(scene, seeds=10)


def test_nobody_there_is_a_reset() -> None:
    """As for a port that nobody listens on; the proxy goes on."""

    async def scene(runtime: Runtime, routes: Routes, near: Conn, ends: list[Conn]) -> None:
        lonely = await runtime.network.connect("127.0.0.1", routes.ports("n1")["n3"], timeout_ns=SECOND_NS)
        await runtime.clock.sleep_ns(SECOND_NS)
        with pytest.raises(ConnectionBroken):
            lonely.read_into(bytearray(1))
        near.write([b"still here"])
        await runtime.clock.sleep_ns(SECOND_NS)
        assert read(ends[0]) == b"still here"

    play(scene)


def test_healing_undoes_everything() -> None:
    """Cuts, delays and rates."""
    link = Link()
    link.cut()
    link.cut()
    link.slow_down(delay_ns=1, jitter_ns=2, rate_bytes=3)
    link.heal()
    assert (link.is_open, link.delay_ns, link.jitter_ns, link.rate_bytes) == (True, 0, 0, 0)
