"""A simulated machine: hardware that lasts (disk, clocks, network card), and one incarnation after another on it."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tnats.errors import ensure
from tnats.runtime.api import Runtime
from tnats.runtime.sim import trace as kinds
from tnats.runtime.sim.chance import SimChance, stream
from tnats.runtime.sim.clock import Oscillator, SimClock
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.runtime.sim.life import Life, current_life
from tnats.runtime.sim.network import SimNetwork
from tnats.runtime.sim.process import LINES_KEPT_MAX, SimProcess
from tnats.runtime.sim.processor import SimProcessor

if TYPE_CHECKING:
    from tnats.runtime.sim.world import World

Main = Callable[[Runtime], Awaitable[object]]

START, KILL, POWER_LOSS, PAUSE, RESUME, SIGNAL = range(6)
"""What the trace says of a node."""

MONO_START_MAX_NS = 1_000_000_000_000


class Node:
    """One machine of a `World`. Made by `World.node`.

    Start it with a main function that gets the incarnation's `Runtime`; it runs until the function returns, or
    until `kill` (SIGKILL: the kernel closes the sockets, the disk keeps all that was written) or `power_loss`.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.host = world.fabric.add_host(name)
        self.rng = stream(world.seed, name, "node")
        self.drive = SimDrive(stream(world.seed, name, "disk"))
        self.drive.observer = self._observe_disk
        self.disk_observer: Callable[[str, str], None] | None = None
        """Told of every disk operation (kind, path) before it is carried out."""
        self.oscillator = Oscillator(world.timeline, mono_start_ns=self.rng.randrange(MONO_START_MAX_NS))
        self.life: Life | None = None
        self.life_count = 0
        self.boot_count = 1
        self.log_lines: deque[tuple[int, str]] = deque(maxlen=LINES_KEPT_MAX)
        self.process: SimProcess | None = None
        self.main: Main | None = None
        self.argv: Sequence[str] = ("tnats",)
        self.environment: Mapping[str, str] = {}
        self.texts: dict[str, str] = {}
        """Small text files by path, as an administrator would write them: configuration."""
        # what a nemesis may change
        self.exhausted = ""
        """What the kernel lacks to accept a connection, in its words: descriptors, memory."""
        self.memory_total_bytes = 1 << 30
        self.busy_until_ns = 0
        """Until when a stalled call (a slow disk) keeps the whole node from running."""
        self.paused = False

    def _observe_disk(self, kind: str, path: str) -> None:
        self.world.trace.add(kinds.DISK, self.life_count, zlib.crc32(f"{kind} {path}".encode()))
        if self.disk_observer is not None:
            self.disk_observer(kind, path)

    def __repr__(self) -> str:
        return f"<Node {self.name} {'up' if self.running else 'down'}>"

    @property
    def running(self) -> bool:
        """Whether an incarnation lives."""
        return self.life is not None and not self.life.dead

    @property
    def stands_still(self) -> bool:
        """Whether its tasks are kept from running."""
        return self.paused or self.world.timeline.now_ns < self.busy_until_ns

    def start(self, main: Main | None = None) -> None:
        """Begin an incarnation that runs `main`, or what ran before."""
        ensure(not self.running, f"{self.name} runs already")
        self.main = main or self.main
        ensure(self.main is not None, f"{self.name} was never given a main function")
        self.life_count += 1
        self.host.up = True
        self.life = life = Life(self, self.life_count)
        self.world.trace.add(kinds.NODE, self.life_count, START)
        self.world.nursery.start_soon(self._live, life, name=f"{self.name}/{self.life_count}")

    async def _live(self, life: Life) -> None:
        assert self.main is not None
        current_life.set(life)
        try:
            with life.scope:
                await self.main(self.runtime_of(life))
        except BaseException:
            # What dead code raises while it unwinds, NodeKilled above all, means nothing.
            if not life.dead:
                raise
        finally:
            if not life.dead:
                self._end_life(life)
            life.ended.set()

    def runtime_of(self, life: Life) -> Runtime:
        """The facets of one incarnation."""
        world = self.world
        clock = SimClock(life, world.timeline, self.oscillator, world.trace)
        self.process = SimProcess(life, self.argv, self.environment)
        return Runtime(
            clock=clock,
            chance=SimChance(life, world.seed, world.trace),
            network=SimNetwork(life, world.fabric, self.host, world.seed),
            disk=SimDisk(self.drive, clock, alive=life.alive, stall=self.stall),
            processor=SimProcessor(life, world.timeline, world.trace, self.process.core_count),
            process=self.process,
            buggify=world.buggify,
        )

    # ------------------------------------------------------------------ endings

    def kill(self) -> None:
        """End the process at once, without any of its own clean-up. No error if it does not run."""
        if self.running:
            assert self.life is not None
            life = self.life
            self.world.trace.add(kinds.NODE, life.number, KILL)
            life.dead = True
            self.resume()
            self._end_life(life)
            life.scope.cancel()

    def _end_life(self, life: Life) -> None:
        """What the kernel does when a process has ended."""
        life.dead = True
        self.drive.close_all()
        for listener in list(self.host.listeners.values()):
            listener.end(power=False)
        for conn in list(self.host.conns):
            conn.end_of_process()

    def power_loss(self, policy: CrashPolicy) -> None:
        """Cut the power: the process dies, its connections fall silent, the disk keeps what `policy` spares."""
        running = self.running
        self.world.trace.add(kinds.NODE, self.life_count, POWER_LOSS)
        if self.life is not None:
            self.life.dead = True
        self.resume()
        self.host.up = False
        for listener in list(self.host.listeners.values()):
            listener.end(power=True)
        for conn in list(self.host.conns):
            conn.end_of_power()
        self.drive.power_loss(policy)
        self.oscillator.reboot(self.rng.randrange(MONO_START_MAX_NS))
        self.boot_count += 1
        if running:
            assert self.life is not None
            self.life.scope.cancel()

    async def stop(self) -> None:
        """Ask the process to end in order (TERM) and wait until it has."""
        self.signal("TERM")
        await self.wait_ended()

    def signal(self, name: str) -> None:
        """Send a signal; one that the process does not receive kills it."""
        if not self.running:
            return
        self.world.trace.add(kinds.NODE, self.life_count, SIGNAL)
        assert self.process is not None
        if self.process.receiver is None:
            self.kill()
        else:
            self.process.receiver.deliver(name)

    async def wait_ended(self) -> None:
        """Return when no task of the present incarnation is left."""
        if self.life is not None:
            await self.life.ended.wait()

    # ------------------------------------------------------------------ standing still

    def pause(self) -> None:
        """Let none of its tasks run (SIGSTOP): its kernel goes on acknowledging until the buffers are full."""
        if self.running and not self.paused:
            self.world.trace.add(kinds.NODE, self.life_count, PAUSE)
            self.paused = True
            self.world.schedule.keep_back(self.life)

    def resume(self) -> None:
        """End a `pause`, or a stall. No error if it does not stand still."""
        if self.paused:
            self.world.trace.add(kinds.NODE, self.life_count, RESUME)
        self.paused = False
        self.busy_until_ns = 0
        self.world.schedule.release(self.life)
        self.world.timeline.at(self.world.timeline.now_ns, nothing)

    def slow_down(self, step_ns: int) -> None:
        """From now on each batch of its task steps costs it `step_ns` (a starved or throttled processor); 0 ends it."""
        self.world.schedule.charge(self.life, (lambda: self.stall(step_ns)) if step_ns else None)

    def stall(self, duration_ns: int) -> None:
        """Keep all its tasks from running for `duration_ns` from now: a plain call took that long."""
        timeline = self.world.timeline
        self.busy_until_ns = max(self.busy_until_ns, timeline.now_ns) + duration_ns
        self.world.schedule.keep_back(self.life)
        timeline.at(self.busy_until_ns, self._unstall, self.life)

    def _unstall(self, life: Life) -> object:
        # An earlier incarnation only unwinds: what keeps the present one busy is not its affair.
        if life is not self.life or (not self.paused and self.world.timeline.now_ns >= self.busy_until_ns):
            self.world.schedule.release(life)
        return None


def nothing() -> None:
    """An event that only makes trio run a batch, which released tasks join."""
