"""What the rules do to simulated connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tnats.runtime.api import Conn, ConnectionBroken, NetworkError, Runtime
from tnats.runtime.sim import rules
from tnats.runtime.sim.conn import SEND_BUFFER_BYTES, WINDOW_BYTES
from tnats.runtime.sim.world import Settings, World, run_world

SECOND_NS = 1_000_000_000
CALM = Settings(buggify=False, time_max_ns=40_000 * SECOND_NS)
Scene = Callable[[World, Runtime, Conn, Conn], Awaitable[None]]
"""(world, runtime of node a, a's end, b's end of one connection from a to b)"""


def play(scene: Scene, seed: int = 1) -> int:
    """Run `scene` between two nodes a and b; returns the virtual time at its end."""

    async def main(world: World) -> None:
        ends: list[Conn] = []

        async def serve(runtime: Runtime) -> None:
            listener = await runtime.network.listen("0.0.0.0", 4222)
            poller = runtime.network.poller()
            poller.add(listener)
            while True:
                await poller.wait()
                while (conn := listener.accept()) is not None:
                    ends.append(conn)

        async def play_it(runtime: Runtime) -> None:
            conn = await runtime.network.connect("b", 4222, timeout_ns=SECOND_NS)
            await world.sleep_ns(SECOND_NS)
            await scene(world, runtime, conn, ends[0])

        world.node("b").start(serve)
        await world.sleep_ns(SECOND_NS)
        a = world.node("a")
        a.start(play_it)
        await a.wait_ended()

    outcome = run_world(seed, main, CALM)
    outcome.unwrap()
    return outcome.time_ns


def read(conn: Conn) -> bytes:
    """What has arrived."""
    buffer = bytearray(1 << 20)
    count = conn.read_into(buffer)
    return bytes(buffer[:count]) if count else b""


def test_partition_delays_but_loses_nothing() -> None:
    """Nothing passes during a partition; after it heals, both directions go on in order without a loss."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        with world.fabric.apply(rules.partition(["a"], ["b"])):
            for number in range(10):
                a.write([b"a%d " % number])
                b.write([b"b%d " % number])
                await world.sleep_ns(SECOND_NS)
            assert read(a) == read(b) == b""
        await world.sleep_ns(20 * SECOND_NS)
        assert read(b) == b"".join(b"a%d " % number for number in range(10))
        assert read(a) == b"".join(b"b%d " % number for number in range(10))

    play(scene)


def test_one_way_partition() -> None:
    """A deafened direction carries nothing while the other one works."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        with world.fabric.apply(rules.deafen(["a"], ["b"])):
            a.write([b"unheard"])
            b.write([b"heard"])
            await world.sleep_ns(SECOND_NS)
            assert (read(a), read(b)) == (b"heard", b"")
        await world.sleep_ns(SECOND_NS)
        assert read(b) == b"unheard"

    play(scene)


def test_one_way_partition_stops_the_other_way_at_its_window() -> None:
    """With acknowledgements cut off, the working direction fills one window and no more until it heals."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        received = 0
        with world.fabric.apply(rules.deafen(["a"], ["b"])):
            for _ in range(100):
                b.write([b"x" * 65536])
                await world.sleep_ns(SECOND_NS // 10)
                received += len(read(a))
            assert received == WINDOW_BYTES
        for _ in range(400):
            await world.sleep_ns(SECOND_NS // 10)
            received += len(read(a))
        assert received == WINDOW_BYTES + SEND_BUFFER_BYTES

    play(scene)


def test_rejecting_breaks_and_refuses() -> None:
    """A rejecting firewall resets what lives at its next segment, and refuses what is new at once."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        with world.fabric.apply(rules.reject(["a"], ["b"])):
            a.write([b"x"])
            for conn in (a, b):
                with pytest.raises(ConnectionBroken, match="connection reset by peer"):
                    conn.write([b"y"])
            with pytest.raises(NetworkError, match="cannot connect to b:4222: connection refused"):
                await runtime.network.connect("b", 4222, timeout_ns=SECOND_NS)
        conn = await runtime.network.connect("b", 4222, timeout_ns=SECOND_NS)
        assert conn.write([b"x"]) == 1

    play(scene)


def test_a_retry_that_is_rejected_is_heard_of_at_once() -> None:
    """A connection that breaks at a retransmission wakes who waits for it at that very moment of virtual time."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        poller = runtime.network.poller()
        poller.add(a)
        cut = world.fabric.apply(rules.partition(["a"], ["b"]))
        a.write([b"x"])
        world.fabric.apply(rules.reject(["a"], ["b"]))
        cut.heal()
        world.timeline.at(world.now_ns() + 1000 * SECOND_NS, int)
        await poller.wait()
        assert world.now_ns() < 10 * SECOND_NS
        with pytest.raises(ConnectionBroken):
            a.read_into(bytearray(1))

    play(scene)


def test_connecting_into_a_partition_times_out() -> None:
    """A connect whose SYN vanishes ends with the caller's time-out, or succeeds when it heals in time."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        guard = world.fabric.apply(rules.partition(["a"], ["b"]))
        start_ns = runtime.clock.mono_ns()
        with pytest.raises(NetworkError, match=r"cannot connect to b:4222: no answer within 2\.5 s"):
            await runtime.network.connect("b", 4222, timeout_ns=2_500_000_000)
        assert runtime.clock.mono_ns() - start_ns == 2_500_000_000
        world.timeline.at(world.now_ns() + 2 * SECOND_NS, guard.heal)
        await runtime.network.connect("b", 4222, timeout_ns=10 * SECOND_NS)

    play(scene)


def test_swallowed_connections_open_and_then_nothing() -> None:
    """A swallowed connect succeeds, takes writes, and never hears anything; the other side never sees it."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        with world.fabric.apply(rules.swallow(["a"], ["b"])):
            conn = await runtime.network.connect("b", 4222, timeout_ns=SECOND_NS)
        assert conn.write([b"hello?"]) == 6
        await world.sleep_ns(60 * SECOND_NS)
        assert conn.read_into(bytearray(10)) is None

    play(scene)


def test_clogged_traffic_is_released_in_order() -> None:
    """Held traffic arrives right after the rule goes, without waiting for a retry."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        with world.fabric.apply(rules.clog(["a"], ["b"])):
            for number in range(100):
                a.write([b"%d," % number])
            await world.sleep_ns(100 * SECOND_NS)
            assert read(b) == b""
        await world.sleep_ns(SECOND_NS // 10)
        assert read(b) == b"".join(b"%d," % number for number in range(100))

    play(scene)


def test_slow_links_take_their_time() -> None:
    """100 KiB at 10 KiB/s take ten seconds."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        with world.fabric.apply(rules.slow(["a"], ["b"], bytes_per_second=10 * 1024)):
            start_ns = world.now_ns()
            a.write([b"x" * 100 * 1024])
            received = 0
            while received < 100 * 1024:
                await world.sleep_ns(SECOND_NS // 10)
                received += len(read(b))
            assert 9 * SECOND_NS < world.now_ns() - start_ns < 11 * SECOND_NS

    play(scene)


def test_added_delay() -> None:
    """A delayed link delivers not before the added time and not much after its jitter."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        with world.fabric.apply(rules.delay(["a"], ["b"], added_ns=200_000_000, jitter_ns=50_000_000)):
            a.write([b"x"])
            await world.sleep_ns(200_000_000)
            assert read(b) == b""
            await world.sleep_ns(60_000_000)
            assert read(b) == b"x"

    play(scene)


def test_resets_cut_frames_in_the_middle() -> None:
    """With resets on, connections break after a drawn part of a segment: some prefix arrives, then the reset."""
    lengths: set[int] = set()

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        with world.fabric.apply(rules.resets(["a"], ["b"], chance=1.0)):
            a.write([bytes(range(100))])
        await world.sleep_ns(SECOND_NS)
        got = read(b)
        assert got == bytes(range(len(got)))
        assert len(got) < 100
        lengths.add(len(got))
        for conn in (a, b):
            with pytest.raises(ConnectionBroken):
                conn.read_into(bytearray(10))

    for seed in range(10):
        play(scene, seed)
    assert len(lengths) > 5


def test_forgotten_connections_are_half_open() -> None:
    """A connection that a router forgot is silent for both ends until the kernel gives up; new ones work."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        assert world.fabric.forget_between("a", "b") == 1
        a.write([b"lost"])
        await world.sleep_ns(600 * SECOND_NS)
        assert a.write([b"still thought to live"]) > 0
        assert b.read_into(bytearray(10)) is None
        conn = await runtime.network.connect("b", 4222, timeout_ns=SECOND_NS)
        assert conn.write([b"x"]) == 1
        await world.sleep_ns(600 * SECOND_NS)
        with pytest.raises(ConnectionBroken, match="timed out"):
            a.write([b"x"])

    play(scene)


def test_reset_between_hosts() -> None:
    """`reset_between` breaks every connection of two hosts at both ends."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        assert world.fabric.reset_between("a", "b") == 1
        for conn in (a, b):
            with pytest.raises(ConnectionBroken, match="reset"):
                conn.read_into(bytearray(10))

    play(scene)


def test_a_hung_up_end_is_broken_and_the_other_gets_what_was_sent() -> None:
    """The own end raises in every call and wakes who waits for room; the other end reads all bytes, then the end."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        a.write([b"before"])
        b.write([b"unread"])
        await world.sleep_ns(SECOND_NS)
        (conn,) = world.fabric.conns_between("a", "b")
        conn.hang_up()
        conn.hang_up()
        assert read(a) == b"unread"
        with pytest.raises(ConnectionBroken, match="reset by peer"):
            a.read_into(bytearray(10))
        with pytest.raises(ConnectionBroken):
            a.write([b"x"])
        await world.sleep_ns(SECOND_NS)
        assert read(b) == b"before"
        assert b.read_into(bytearray(10)) == 0

    play(scene)


def test_a_hung_up_end_wakes_its_writer() -> None:
    """A task that waits for room at the end that is hung up hears of it at once."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        while a.write([bytes(SEND_BUFFER_BYTES)]):
            await world.sleep_ns(SECOND_NS)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def wait() -> None:
                with pytest.raises(ConnectionBroken):
                    await a.wait_writable()

            await world.sleep_ns(SECOND_NS)
            (conn,) = world.fabric.conns_between("a", "b")
            conn.hang_up()

    play(scene)


def test_a_moved_host_is_found_under_its_name() -> None:
    """After a move the old address is nobody's; the name leads to the new one."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        machine = world.nodes["b"]
        old = machine.host.address
        machine.kill()
        new = world.fabric.move(machine.host)
        machine.start()
        assert new != old
        assert world.fabric.host_at(old) is None
        with pytest.raises(NetworkError):
            await runtime.network.connect(old, 4222, timeout_ns=SECOND_NS)
        conn = await runtime.network.connect("b", 4222, timeout_ns=SECOND_NS)
        assert conn.peer[0] == new

    play(scene)


def test_rules_of_one_port_leave_others_alone() -> None:
    """A rule for a service port does not touch connections to other ports."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        with world.fabric.apply(rules.partition(["a"], ["b"], ports=[6222])):
            a.write([b"x"])
            await world.sleep_ns(SECOND_NS // 10)
            assert read(b) == b"x"
        with world.fabric.apply(rules.partition(["a"], ["b"], ports=[4222])):
            a.write([b"y"])
            await world.sleep_ns(SECOND_NS // 10)
            assert read(b) == b""

    play(scene)


def test_rules_are_a_chain() -> None:
    """Several rules hold at once and go one by one; a guard healed twice does no harm to the others."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        first = world.fabric.apply(rules.partition(["a"], ["b"]))
        second = world.fabric.apply(rules.partition(["b"], ["a"]))
        first.heal()
        first.heal()
        a.write([b"x"])
        await world.sleep_ns(5 * SECOND_NS)
        assert read(b) == b""
        second.heal()
        await world.sleep_ns(10 * SECOND_NS)
        assert read(b) == b"x"

    play(scene)


def test_connections_of_one_pair_overtake_each_other() -> None:
    """Order holds inside a connection only: of two connections, sometimes the later write arrives first."""
    orders: set[str] = set()

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        later = await runtime.network.connect("b", 4222, timeout_ns=SECOND_NS)
        await world.sleep_ns(SECOND_NS)
        poller = runtime.network.poller()
        for conn in world.fabric.conns_between("b", "a"):
            poller.add(conn)
        a.write([b"1"])
        later.write([b"2"])
        orders.add(read((await poller.wait())[0]).decode())  # type: ignore[arg-type]

    for seed in range(20):
        play(scene, seed)
    assert orders == {"1", "2"}


@given(st.integers(0, 2**32), st.lists(st.binary(min_size=1, max_size=2000), max_size=30), st.floats(0, 0.9))
def test_any_cutting_keeps_the_bytes(seed: int, pieces: list[bytes], chance: float) -> None:
    """Whatever the segments, the reader gets exactly the bytes written, in order, and then the end."""

    async def scene(world: World, runtime: Runtime, a: Conn, b: Conn) -> None:
        poller = runtime.network.poller()
        with world.fabric.apply(rules.splits(["a"], ["b"], chance=chance)):
            for piece in pieces:
                b.write([piece])
            b.close()
        poller.add(a)
        received = b""
        buffer = bytearray(700)
        while True:
            count = a.read_into(buffer)
            if count == 0:
                break
            if count is None:
                await poller.wait()
            else:
                received += buffer[:count]
        assert received == b"".join(pieces)

    play(scene, seed)


def test_full_backlog_makes_callers_wait() -> None:
    """When nobody accepts, connects beyond the backlog wait for room and time out without it."""

    async def main(world: World) -> None:
        async def serve(runtime: Runtime) -> None:
            await runtime.network.listen("0.0.0.0", 4222, backlog=3)
            await trio.sleep_forever()

        async def call(runtime: Runtime) -> None:
            for _ in range(3):
                await runtime.network.connect("b", 4222, timeout_ns=SECOND_NS)
            with pytest.raises(NetworkError, match="no answer within 5 s"):
                await runtime.network.connect("b", 4222, timeout_ns=5 * SECOND_NS)

        world.node("b").start(serve)
        await world.sleep_ns(SECOND_NS)
        a = world.node("a")
        a.start(call)
        await a.wait_ended()

    run_world(1, main, CALM).unwrap()
