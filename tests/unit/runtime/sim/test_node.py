"""Lives and deaths of simulated nodes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio

from tnats.errors import NodeKilled
from tnats.runtime.api import ConnectionBroken, NetworkError, Runtime
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.runtime.sim.process import BugFound
from tnats.runtime.sim.world import Settings, World, run_world

SECOND_NS = 1_000_000_000
CALM = Settings(buggify=False)


async def idle(runtime: Runtime) -> None:
    """A process that does nothing."""
    await trio.sleep_forever()


def test_kill_freezes_before_it_cancels() -> None:
    """A killed node's `finally` blocks run into NodeKilled at every facet: nothing of it touches the world again."""
    refused: list[str] = []

    async def node_main(runtime: Runtime) -> None:
        listener = await runtime.network.listen("0.0.0.0", 4222)
        rng_free = runtime.chance
        try:
            await trio.sleep_forever()
        finally:
            calls = {
                "mono": runtime.clock.mono_ns,
                "wall": runtime.clock.wall_ns,
                "entropy": lambda: rng_free.entropy(1),
                "rng": lambda: rng_free.rng("x"),
                "poller": runtime.network.poller,
                "close": listener.close,
                "accept": listener.accept,
                "log": lambda: runtime.process.open_log("stderr"),
                "boot": runtime.process.boot_id,
            }
            for name, call in calls.items():
                try:
                    call()
                except NodeKilled:
                    refused.append(name)
            with trio.CancelScope(shield=True):
                for awaited in (
                    lambda: runtime.clock.sleep_ns(1),
                    lambda: runtime.network.listen("0.0.0.0", 1),
                    lambda: runtime.network.connect("n1", 1, timeout_ns=1),
                    lambda: runtime.disk.mkdir("/x"),
                    lambda: runtime.processor.offload(lambda: None),
                ):
                    with pytest.raises(NodeKilled):
                        await awaited()
                    refused.append("awaited")

    async def main(world: World) -> None:
        node = world.node("n1")
        node.start(node_main)
        await world.sleep_ns(SECOND_NS)
        node.kill()
        assert not node.running
        await node.wait_ended()

    run_world(1, main, CALM).unwrap()
    assert len(refused) == 14


def test_shielded_sleepers_do_not_outlive_their_node() -> None:
    """A task that shields itself wakes into NodeKilled: it cannot go on as if its node lived."""
    went_on: list[str] = []

    async def node_main(runtime: Runtime) -> None:
        with trio.CancelScope(shield=True):
            await runtime.clock.sleep_ns(5 * SECOND_NS)
            went_on.append("too far")

    async def main(world: World) -> None:
        node = world.node("n1")
        node.start(node_main)
        await world.sleep_ns(SECOND_NS)
        node.kill()
        await node.wait_ended()
        assert world.now_ns() >= 5 * SECOND_NS

    run_world(1, main, CALM).unwrap()
    assert went_on == []


def test_disk_outlives_the_incarnation() -> None:
    """After a kill the next incarnation finds what was written; its random streams are new."""
    draws: list[bytes] = []

    async def node_main(runtime: Runtime) -> None:
        draws.append(runtime.chance.entropy(8))
        if len(draws) == 1:
            file = await runtime.disk.open("/kept", create=True)
            file.pwrite([b"written"], 0)
            await trio.sleep_forever()
        else:
            assert await runtime.disk.read_file("/kept", bytes_max=100) == b"written"

    async def main(world: World) -> None:
        node = world.node("n1")
        node.start(node_main)
        await world.sleep_ns(SECOND_NS)
        node.kill()
        node.start()
        await node.wait_ended()

    run_world(1, main, CALM).unwrap()
    assert len(set(draws)) == 2


def test_power_loss_changes_the_boot() -> None:
    """A kill keeps boot id and monotonic clock; power loss gives a new boot, a new origin, and lost unsynced data."""
    seen: list[tuple[str, int, bool]] = []

    async def node_main(runtime: Runtime) -> None:
        present = [entry.name for entry in await runtime.disk.list("/")]
        seen.append((runtime.process.boot_id(), runtime.clock.mono_ns(), "kept" in present))
        file = await runtime.disk.open("/kept", create=True)
        file.pwrite([b"written"], 0)
        await trio.sleep_forever()

    async def main(world: World) -> None:
        node = world.node("n1")
        node.start(node_main)
        await world.sleep_ns(SECOND_NS)
        node.kill()
        node.start()
        await world.sleep_ns(SECOND_NS)
        node.power_loss(CrashPolicy.STRICT)
        await world.sleep_ns(SECOND_NS)
        node.start()
        await world.sleep_ns(SECOND_NS)

    run_world(1, main, CALM).unwrap()
    (boot, mono, kept), (boot2, mono2, kept2), (boot3, mono3, kept3) = seen
    assert (kept, kept2, kept3) == (False, True, False)
    assert boot == boot2 != boot3
    assert abs(mono2 - mono - SECOND_NS) < 10_000_000
    assert not SECOND_NS <= mono3 - mono2 < 3 * SECOND_NS


def test_paused_node_stands_still_and_catches_up() -> None:
    """A paused node takes no step, though its timers run out; the kernel still takes in what is sent to it."""
    ticks: list[int] = []

    async def ticker(runtime: Runtime) -> None:
        while True:
            await runtime.clock.sleep_ns(SECOND_NS // 10)
            ticks.append(1)

    async def main(world: World) -> None:
        node = world.node("n1")
        node.start(ticker)
        await world.sleep_ns(SECOND_NS)
        before = len(ticks)
        assert before in (9, 10)
        node.pause()
        await world.sleep_ns(10 * SECOND_NS)
        assert len(ticks) == before
        node.resume()
        await world.sleep_ns(SECOND_NS)
        assert before + 9 <= len(ticks) <= before + 12

    run_world(1, main, CALM).unwrap()


def test_stalled_node_runs_later() -> None:
    """A plain call that takes long keeps all tasks of its node, and only those, from running meanwhile."""
    ticks: dict[str, list[int]] = {"stalled": [], "other": []}

    async def main(world: World) -> None:
        def ticker(name: str) -> object:
            async def tick(runtime: Runtime) -> None:
                while True:
                    ticks[name].append(world.now_ns())
                    await runtime.clock.sleep_ns(SECOND_NS // 10)

            return tick

        stalled, other = world.node("stalled"), world.node("other")
        stalled.start(ticker("stalled"))  # type: ignore[arg-type]
        other.start(ticker("other"))  # type: ignore[arg-type]
        await world.sleep_ns(SECOND_NS + 1)
        stalled.stall(5 * SECOND_NS)
        await world.sleep_ns(10 * SECOND_NS)

    run_world(1, main, CALM).unwrap()
    gaps = [later - earlier for earlier, later in zip(ticks["stalled"], ticks["stalled"][1:], strict=False)]
    assert 5 * SECOND_NS - SECOND_NS // 10 <= max(gaps) <= 5 * SECOND_NS + SECOND_NS // 5
    assert len(ticks["other"]) == 111 or len(ticks["other"]) == 110


def test_slow_processor_makes_everything_of_the_node_take_longer() -> None:
    """With a cost for each batch of steps a node gets as much less done, until the cost is taken away."""

    async def main(world: World) -> list[int]:
        counts = []
        done = [0]

        async def worker(runtime: Runtime) -> None:
            while True:
                await runtime.clock.sleep_ns(1_000_000)
                done[0] += 1

        node = world.node("n1")
        node.start(worker)
        for step_ns in (0, 9_000_000, 0):
            node.slow_down(step_ns)
            before = done[0]
            await world.sleep_ns(SECOND_NS)
            counts.append(done[0] - before)
        return counts

    fast, slow, fast_again = run_world(1, main, CALM).unwrap()
    assert fast >= 990
    assert 95 <= slow <= 112
    assert fast_again >= 980


def test_paused_node_can_be_killed() -> None:
    """A node killed while it stands still is gone like any other."""

    async def main(world: World) -> None:
        node = world.node("n1")
        node.start(idle)
        await world.sleep_ns(SECOND_NS)
        node.pause()
        await world.sleep_ns(SECOND_NS)
        node.kill()
        await node.wait_ended()

    run_world(1, main, CALM).unwrap()


@pytest.mark.parametrize("way", ["kill", "power"])
def test_peers_hear_of_a_killed_process_but_not_of_a_power_cut(way: str) -> None:
    """A killed process's kernel ends its connections; a dead machine is silent until it is back and answers a reset."""
    heard: list[str] = []

    async def server(runtime: Runtime) -> None:
        listener = await runtime.network.listen("0.0.0.0", 1)
        poller = runtime.network.poller()
        poller.add(listener)
        while True:
            await poller.wait()
            listener.accept()

    async def client(runtime: Runtime) -> None:
        conn = await runtime.network.connect("server", 1, timeout_ns=SECOND_NS)
        poller = runtime.network.poller()
        poller.add(conn)
        start_ns = runtime.clock.mono_ns()
        with runtime.clock.deadline(start_ns + 20 * SECOND_NS):
            while True:
                with runtime.clock.deadline(runtime.clock.mono_ns() + SECOND_NS):
                    await poller.wait()
                    try:
                        heard.append("end" if conn.read_into(bytearray(10)) == 0 else "bytes")
                    except ConnectionBroken as exc:
                        heard.append(str(exc))
                    heard.append(str((runtime.clock.mono_ns() - start_ns) // SECOND_NS))
                    return
                conn.write([b"ping"])

    async def main(world: World) -> None:
        node, other = world.node("server"), world.node("client")
        node.start(server)
        await world.sleep_ns(SECOND_NS)
        other.start(client)
        await world.sleep_ns(SECOND_NS // 2)
        if way == "kill":
            node.kill()
        else:
            node.power_loss(CrashPolicy.STRICT)
        await world.sleep_ns(10 * SECOND_NS)
        node.start()
        await other.wait_ended()

    run_world(1, main, CALM).unwrap()
    if way == "kill":
        assert heard == ["end", "0"]
    else:
        assert "connection reset by peer" in heard[0]
        assert int(heard[1]) >= 10


def test_signals_and_orderly_stop() -> None:
    """`stop` sends TERM and waits; a process without a receiver dies of the signal."""

    async def polite(runtime: Runtime) -> None:
        with runtime.process.signals() as receiver:
            log = runtime.process.open_log("stderr")
            log.write(f"got {await receiver.next()}")
            await runtime.clock.sleep_ns(SECOND_NS)
            log.write("done")

    async def main(world: World) -> None:
        node = world.node("n1")
        node.start(polite)
        await world.sleep_ns(SECOND_NS)
        await node.stop()
        assert [line for _, line in node.log_lines] == ["got TERM", "done"]
        rude = world.node("n2")
        rude.start(idle)
        await world.sleep_ns(SECOND_NS)
        await rude.stop()
        assert not rude.running

    run_world(1, main, CALM).unwrap()


def test_bugs_end_the_run() -> None:
    """What a bulkhead reports with `on_bug` is not swallowed by it in simulation; nor is a node's own exception."""

    async def bulkhead(runtime: Runtime) -> None:
        try:
            await plain(runtime)
        except Exception as exc:
            try:
                runtime.process.on_bug(exc, "connection 7")
            except Exception:
                pytest.fail("no bulkhead may catch this")

    async def plain(runtime: Runtime) -> None:
        raise ValueError("a fault of ours")

    async def main(world: World) -> None:
        world.node("n1").start(bulkhead)
        await world.sleep_ns(SECOND_NS)

    async def main2(world: World) -> None:
        world.node("n1").start(plain)
        await world.sleep_ns(SECOND_NS)

    with pytest.raises(BugFound, match="n1: connection 7: ValueError: a fault of ours"):
        run_world(1, main, CALM).unwrap()
    with pytest.raises(ValueError, match="a fault of ours"):
        run_world(1, main2, CALM).unwrap()


def test_ports_are_free_after_a_death() -> None:
    """The next incarnation can listen on the port of the last; until then connections are refused."""

    async def server(runtime: Runtime) -> None:
        await runtime.network.listen("0.0.0.0", 4222)
        await trio.sleep_forever()

    async def client(runtime: Runtime) -> None:
        conn = await runtime.network.connect("server", 4222, timeout_ns=SECOND_NS)
        conn.close()

    async def refused(runtime: Runtime) -> None:
        with pytest.raises(NetworkError, match="connection refused"):
            await runtime.network.connect("server", 4222, timeout_ns=SECOND_NS)

    async def main(world: World) -> None:
        node, other = world.node("server"), world.node("client")
        for _ in range(3):
            node.start(server)
            await world.sleep_ns(SECOND_NS)
            other.start(client)
            await other.wait_ended()
            node.kill()
            other.start(refused)
            await other.wait_ended()

    run_world(1, main, CALM).unwrap()


def test_what_is_left_of_a_slow_incarnation_ends_beside_the_next() -> None:
    """Tasks of a killed process unwind though its machine is slow, and kept busy by the process that came after it."""

    async def work(runtime: Runtime) -> None:
        try:
            while True:
                await runtime.clock.sleep_ns(1_000_000)
        finally:
            with trio.CancelScope(shield=True):
                for _ in range(50):
                    await trio.lowlevel.checkpoint()

    async def main(world: World) -> None:
        node = world.node("a")
        node.start(work)
        node.slow_down(3_000_000)
        await world.sleep_ns(100_000_000)
        life = node.life
        assert life is not None
        node.kill()
        await world.sleep_ns(1_000_000)
        assert not life.ended.is_set()
        node.start()
        node.stall(SECOND_NS)
        with world.deadline(10 * SECOND_NS) as patience:
            await life.ended.wait()
        assert not patience.cancelled_caught

    run_world(1, main).unwrap()


HOPELESS = """
import trio
from tnats.runtime.sim.world import Deadlock, run_world

async def wait(runtime):
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

async def main(world):
    world.node("a").start(wait)
    await world.nodes["a"].wait_ended()

assert isinstance(run_world(1, main).error, Deadlock)
print("ended")
"""


def test_a_shielded_task_that_waits_for_ever_ends_the_run() -> None:
    """Where cancelling cannot end a world, its run ends all the same, with the deadlock as its error.

    In a process of its own, since what is left of such a world complains when it is collected.
    """
    done = subprocess.run([sys.executable, "-c", HOPELESS], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "ended\n"
