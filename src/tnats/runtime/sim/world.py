"""A whole simulated world from one seed: nodes, network, time, chance, schedule, trace.

    outcome = run_world(seed, main)      # async def main(world: World) -> T

Everything that happens inside follows from `seed`, `main` and the code: two runs give the same `Outcome.trace_hash`,
in any process. What is not simulated raises (`guard`), what waits for ever is reported (`Deadlock`), and what runs
for ever is stopped (`Livelock`).
"""

from __future__ import annotations

import gc
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import trio

from tnats.errors import InvariantBroken, sole_cause
from tnats.limits import SECOND_NS
from tnats.records import frozen
from tnats.runtime.sim.buggify import Buggify
from tnats.runtime.sim.chance import stream
from tnats.runtime.sim.fabric import Fabric
from tnats.runtime.sim.guard import guarded
from tnats.runtime.sim.life import life_of
from tnats.runtime.sim.node import Node
from tnats.runtime.sim.scheduler import Policy, Schedule, scheduled
from tnats.runtime.sim.timeline import Timeline, deadline_of_time
from tnats.runtime.sim.trace import NOTE, Trace

T = TypeVar("T")

BATCHES_PER_INSTANT_MAX = 100_000


class WorldError(Exception):
    """The world itself could not go on; the text says at which virtual time and why."""


class Deadlock(WorldError):
    """Every task waits for something that can never happen."""


class Livelock(WorldError):
    """Tasks go on for ever: without time passing, or beyond the time allowed."""


@frozen
class Settings:
    """How a world is run, apart from its seed."""

    policy: Policy = "random"
    buggify: bool = True
    time_max_ns: int = 3600 * SECOND_NS
    """Virtual time after which the run is given up as a `Livelock`."""
    keep_lines: bool = False
    """Keep the trace as text as well."""


@frozen
class Outcome(Generic[T]):
    """How a run ended."""

    seed: int
    value: T | None
    error: BaseException | None
    trace_hash: str
    trace_lines: list[str] | None
    time_ns: int
    step_count: int
    event_count: int
    """Entries of the timeline: deliveries, wake-ups, retries."""

    def unwrap(self) -> T:
        """The value of the main function; raises the error if there was one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class World:
    """What a scenario's main function is given."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.seed = seed
        self.timeline = Timeline()
        self.trace = Trace(self.timeline, keep_lines=settings.keep_lines)
        self.schedule = Schedule(stream(seed, "schedule"), settings.policy, self._on_batch, life_of)
        self.fabric = Fabric(self.timeline, self.trace, seed)
        self.buggify = Buggify(seed, enabled=settings.buggify)
        self.nodes: dict[str, Node] = {}
        self.step_count = 0
        self._nursery: trio.Nursery | None = None
        self._failure: BaseException | None = None
        self._is_hopeless = False
        """Shielded tasks wait for ever, though the world has failed."""
        self._instant_ns = -1
        self._instant_batches = 0
        self.timeline.on_error = self.fail
        self.timeline.on_stuck = self._stuck
        self.timeline.time_max_ns = settings.time_max_ns
        self.timeline.on_overtime = self._overtime

    @property
    def nursery(self) -> trio.Nursery:
        """Where nodes live; ends with the world."""
        assert self._nursery is not None
        return self._nursery

    def node(self, name: str) -> Node:
        """A new machine, not started yet."""
        node = self.nodes[name] = Node(self, name)
        return node

    def rng(self, label: str) -> random.Random:
        """A random stream for the workload or the nemesis."""
        return stream(self.seed, "world", label)

    def now_ns(self) -> int:
        """Virtual time."""
        return self.timeline.now_ns

    async def sleep_ns(self, duration_ns: int) -> None:
        """Wait in virtual time (for workload and nemesis; nodes use their own clock)."""
        await self.timeline.sleep_until_ns(self.timeline.now_ns + duration_ns)

    def deadline(self, distance_ns: int) -> trio.CancelScope:
        """A cancel scope that ends `distance_ns` from now."""
        return trio.CancelScope(deadline=deadline_of_time(self.timeline.now_ns + distance_ns))

    def note(self, subject: int, what: int) -> None:
        """Put an event of the scenario's own into the trace."""
        self.trace.add(NOTE, subject, what)

    def heal(self) -> None:
        """No network rules, no standing still, no disk faults, no more buggification. Dead nodes stay dead."""
        self.fabric.heal()
        self.buggify.enabled = False
        for node in self.nodes.values():
            node.slow_down(0)
            node.resume()
            node.drive.faults.clear()
            node.exhausted = ""

    def fail(self, exc: BaseException) -> None:
        """End the world with `exc`; the first one counts."""
        if self._is_hopeless:
            raise exc  # out of trio's own loop: nothing inside it can end this world
        if self._failure is None:
            self._failure = exc
            if self._nursery is None:
                raise exc
            self._nursery.cancel_scope.cancel()

    # ------------------------------------------------------------------ running

    async def run(self, main: Callable[[World], Awaitable[T]]) -> T:
        """Run `main`, then end all nodes."""
        value: T
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                value = await main(self)
                for node in self.nodes.values():
                    node.kill()
                nursery.cancel_scope.cancel()
        finally:
            self.timeline.stopped = True
        if self._failure is not None:
            raise self._failure
        return value

    def _on_batch(self, tasks: list[int]) -> None:
        self.step_count += len(tasks)
        self.trace.steps(tasks)
        if self.timeline.now_ns != self._instant_ns:
            self._instant_ns = self.timeline.now_ns
            self._instant_batches = 0
        self._instant_batches += 1
        if self._instant_batches == BATCHES_PER_INSTANT_MAX:
            self.fail(Livelock(f"{self._when()}: tasks run on and on without time passing"))
        elif self._instant_batches > 2 * BATCHES_PER_INSTANT_MAX:
            raise InvariantBroken(f"{self._when()}: tasks run on and on and ignore that they are cancelled")

    def _stuck(self) -> None:
        if self._failure is not None:
            self._is_hopeless = True
            raise InvariantBroken(f"{self._when()}: shielded tasks wait for ever after {self._failure!r}")
        paused = [node.name for node in self.nodes.values() if node.paused]
        waiting = "\n".join(f"  {line}" for line in self._waiting_tasks())
        hint = f" (paused: {', '.join(paused)})" if paused else ""
        self.fail(Deadlock(f"{self._when()}: nothing will ever happen again{hint}; waiting:\n{waiting}"))

    def _overtime(self) -> None:
        self.fail(Livelock(f"{self._when()}: not finished within the time allowed"))

    def _when(self) -> str:
        return f"seed {self.seed} at {self.timeline.now_ns / SECOND_NS:.9f} s"

    def _waiting_tasks(self) -> Iterator[str]:
        """One line for each task of the world, with the innermost place where it waits."""
        nurseries = [self.nursery]
        while nurseries:
            nursery = nurseries.pop(0)
            for task in sorted(nursery.child_tasks, key=lambda task: task.name):
                frames = [(frame.f_code.co_filename, line) for frame, line in task.iter_await_frames()]
                own = [f"{name.rpartition('/tnats/')[2]}:{line}" for name, line in frames if "/trio/" not in name]
                yield f"{task.name} at {' > '.join(own[-3:])}"
                nurseries += task.child_nurseries


_hopeless_ends: list[BaseException] = []
"""How worlds ended that nothing could end in order. Their tasks hang on these, and would complain when collected."""


def run_world(seed: int, main: Callable[[World], Awaitable[T]], settings: Settings | None = None) -> Outcome[T]:
    """Run `main` in a new world. Errors inside are in the outcome; KeyboardInterrupt is raised."""
    world = World(seed, settings or Settings())
    value: T | None = None
    error: BaseException | None = None
    with quiet_collector(), scheduled(world.schedule), guarded():
        try:
            value = trio.run(world.run, main, clock=world.timeline)
        except BaseException as exc:
            error = world._failure or sole_cause(exc)
            if is_interrupt(error):
                raise KeyboardInterrupt from None
            if world._is_hopeless:
                _hopeless_ends.append(exc)
    return Outcome(
        seed=seed,
        value=value,
        error=error,
        trace_hash=world.trace.hexdigest(),
        trace_lines=world.trace.lines,
        time_ns=world.timeline.now_ns,
        step_count=world.step_count,
        event_count=world.timeline.event_count,
    )


def is_interrupt(exc: BaseException) -> bool:
    """Whether somebody pressed Ctrl-C, in whichever task that was heard."""
    if isinstance(exc, BaseExceptionGroup):
        return any(map(is_interrupt, exc.exceptions))
    return isinstance(exc, KeyboardInterrupt)


LEFT_OBJECTS_MAX = 200_000
"""How many objects earlier worlds may hold together before it is looked for which of them are garbage by now."""

_left_object_count = 0


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the garbage collector from running at times that do not repeat."""
    global _left_object_count  # noqa: PLW0603  # the collector is global too
    enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()  # what this world leaves behind, while all that was there before is still out of its sight
        _left_object_count += len(gc.get_objects())
        gc.unfreeze()
        if _left_object_count > LEFT_OBJECTS_MAX:
            _left_object_count = 0
            gc.collect()  # the collector's own occasions are too rare here
        if enabled:
            gc.enable()
