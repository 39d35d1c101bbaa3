"""W11: core messaging of the real server with 3 to 50 real clients.

The server is the one that `tnats serve` runs, in a simulated world; each client is `tnats.client` on a machine of its
own. What must hold under faults is C32 (`core_checks`), what must work after them is `Actor._prove`: every client has a
connection that it keeps, messages reach everyone, a queue group shares, requests are answered or refused.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import ClassVar

import trio

from tnats.harness.scenario import Violation
from tnats.harness.sim import core_checks
from tnats.harness.sim.clean import log_violations
from tnats.harness.sim.core_actor import Actor
from tnats.harness.sim.core_evidence import NEVER, CoreEvidence
from tnats.harness.sim.drill import Drill
from tnats.harness.sim.plan import Operation, Plan
from tnats.harness.sim.swarm import NETWORK_KINDS, Scene, draw_faults, milliseconds
from tnats.limits import MILLISECOND_NS, SECOND_NS
from tnats.runtime.api import Runtime
from tnats.runtime.sim.world import World
from tnats.server.compose import build
from tnats.server.config.options import Options

SERVER = "server"
PROCESS_KINDS = (
    "P_KILL",
    "P_TERM",
    "P_PAUSE",
    "P_SLOWCPU",
    "T_JUMP",
    "T_DRIFT",
    "T_STROBE",
    "O_RELOAD",
    "O_LAMEDUCK",
)
DISK_KINDS = ("D_POWER", "D_EMFILE")
TOKENS = ("a", "b", "c")
START_NS = SECOND_NS // 2
"""The server's time to start before the first operation."""


class CoreDrill(Drill):
    """Core messaging keeps its promises under faults of network, processes and clocks, and works again after them."""

    kinds: ClassVar[tuple[str, ...]] = (*NETWORK_KINDS, *PROCESS_KINDS, *DISK_KINDS)
    probes: ClassVar[tuple[str, ...]] = (
        "a client reconnected",
        "a client found its connection dead by pings",
        "a message was published without a connection",
        "messages went down with their connection",
        "a flush timed out",
        "a request ended in: reply",
        "a request ended in: no responders",
        "a request ended in: timed out",
        "a request ended in: lost",
        "a message was never confirmed",
        *kinds,
    )
    calm: ClassVar[dict[str, int | str]] = {**Drill.calm, "reconnects": 0, "max_pending": 0}
    CLIENTS: ClassVar[tuple[int, ...]] = (3, 4, 5, 8)
    OPERATIONS: ClassVar[tuple[int, int]] = (40, 120)
    PENDING: ClassVar[tuple[int, ...]] = (0, 0, 64 * 1024)
    """The server's max_pending; 0 for its default."""
    BULK: ClassVar[float] = 0.3
    """How many publications are bursts."""
    QUEUES: ClassVar[float] = 0.3
    """How many subscriptions are members of a queue group."""
    LISTENERS: ClassVar[int] = 4
    MEMBERS: ClassVar[int] = 3

    def __init__(self, plan: Plan | None = None) -> None:
        super().__init__(plan)
        self.evidence = CoreEvidence()
        self.actors: dict[str, Actor] = {}
        self.healed = trio.Event()
        self._world: World
        self._start_ns = 0
        self._arrived: dict[str, dict[str, None]] = {}
        self._events: dict[str, trio.Event] = {}
        self._live_failure: Violation | None = None

    # ------------------------------------------------------------------ the plan

    @classmethod
    def draw(cls, seed: int) -> Plan:
        rng = cls.rng(seed)
        count = rng.choice(cls.CLIENTS)
        parameters: dict[str, int | str] = {
            "clients": count,
            "duration_ms": rng.choice((3000, 6000, 10000)),
            "policy": rng.choice(("random", "random", "random", "priority", "fifo")),
            "buggify": rng.choice((0, 1)),
            "reconnects": rng.choice((0, 1, 1)),
            "max_pending": rng.choice(cls.PENDING),
            "budget": "B1",
        }
        duration_ns = int(parameters["duration_ms"]) * MILLISECOND_NS
        clients = [f"c{number}" for number in range(1, count + 1)]
        faults = draw_faults(rng, Scene(clients, [SERVER], duration_ns), cls.kinds)
        operations = cls.draw_operations(rng, clients, rng.randint(*cls.OPERATIONS), duration_ns)
        return Plan(cls.name(), seed, parameters, faults, operations)

    @classmethod
    def draw_operations(
        cls, rng: random.Random, clients: list[str], count: int, duration_ns: int
    ) -> tuple[Operation, ...]:
        """A mix of subscriptions, messages and requests over a few subjects."""

        def subject() -> str:
            return ".".join(rng.choice(TOKENS) for _ in range(rng.choice((1, 2, 2, 3))))

        def pattern() -> str:
            tokens = [rng.choice((*TOKENS, "*")) for _ in range(rng.choice((1, 2, 2, 3)))]
            if rng.random() < 0.3:
                tokens[-1] = ">"
            return ".".join(tokens)

        def subscription(client: str, at_ns: int) -> Operation:
            label = f"s{rng.randrange(4)}"
            arguments = {"label": label, "subject": pattern()}
            if rng.random() < cls.QUEUES:
                arguments["queue"] = rng.choice(("q1", "q2"))
            if rng.random() < 0.3:
                arguments["reply"] = "1"
            return Operation(at_ns, client, "subscribe", arguments)

        found = []
        for client in clients:
            found += [subscription(client, 0) for _ in range(rng.choice((0, 1, 2)))]
            found.append(Operation(0, client, "flush"))
        for _ in range(count):
            at_ns, client = milliseconds(rng.random() * duration_ns), rng.choice(clients)
            draw = rng.random()
            if draw < 0.5:
                arguments = {"subject": subject(), "size": str(rng.choice((0, 10, 100, 1000, 20000)))}
                if rng.random() < cls.BULK:
                    arguments["count"] = str(rng.choice((5, 50)))
                if rng.random() < 0.2:
                    arguments["headers"] = "1"
                found.append(Operation(at_ns, client, "publish", arguments))
            elif draw < 0.7:
                found.append(Operation(at_ns, client, "flush"))
            elif draw < 0.8:
                target = rng.choice((subject(), subject(), "nobody.there"))
                found.append(Operation(at_ns, client, "request", {"subject": target, "timeout": "1s"}))
            elif draw < 0.92:
                found.append(subscription(client, at_ns))
            elif draw < 0.98:
                found.append(Operation(at_ns, client, "unsubscribe", {"label": f"s{rng.randrange(4)}"}))
            else:
                found.append(Operation(at_ns, client, "reconnect"))
        return tuple(sorted(found, key=lambda operation: operation.at_ns))

    # ------------------------------------------------------------------ phases

    async def prepare(self, world: World) -> None:
        self._world = world
        server = world.node(SERVER)
        self.recording.note(SERVER, "start", "starts")
        server.start(self.serve)
        await world.sleep_ns(START_NS)
        self._start_ns = world.now_ns()
        names = [f"c{number}" for number in range(1, self.plan.number("clients") + 1)]
        for name, own in self.plan.operations_of(names).items():
            reconnects = bool(self.plan.number("reconnects"))
            self.actors[name] = self.make_actor(name, own, reconnects=reconnects)
            node = world.node(name)
            self.recording.note(name, "start", "starts")
            node.start(self.actors[name].run)

    def make_actor(self, name: str, operations: list[Operation], *, reconnects: bool) -> Actor:
        """The client of one machine."""
        return Actor(self, name, operations, reconnects=reconnects)

    async def serve(self, runtime: Runtime) -> None:
        """The server machine's main function."""
        await build(runtime, self.options(), read_options=self.options).run()

    def options(self) -> Options:
        """The server's configuration: times are scaled down with the clients'."""
        options = Options()
        options.host, options.port = "0.0.0.0", 4222
        options.ping_interval_ns = 2 * SECOND_NS
        options.write_deadline_ns = 2 * SECOND_NS
        options.lame_duck_duration_ns, options.lame_duck_grace_period_ns = 3 * SECOND_NS, SECOND_NS
        pending = self.plan.number("max_pending")
        if pending:
            options.max_pending = pending
            options.max_payload = pending // 2
        return options

    async def wait_until(self, time_ns: int) -> None:
        """Wait for a time of the safety phase."""
        await self._world.sleep_ns(max(0, self._start_ns + time_ns - self._world.now_ns()))

    async def prove(self, world: World) -> None:
        self.healed.set()
        await self.everyone("", "collected")
        if self._live_failure is not None:
            raise self._live_failure

    def unproved(self) -> str:
        waiting = [f"{actor.name} is {actor.state}" for actor in self.actors.values() if actor.state != "done"]
        return "; ".join(waiting[:5])

    # what actors tell

    def place(self, name: str) -> int:
        """Which actor this is, from 0."""
        return list(self.actors).index(name)

    async def everyone(self, name: str, what: str) -> None:
        """Wait until every actor has come as far as `what`."""
        arrived = self._arrived.setdefault(what, {})
        event = self._events.setdefault(what, trio.Event())
        if name:
            arrived[name] = None
        if len(arrived) == len(self.actors):
            event.set()
        await event.wait()

    def fail_live(self, text: str) -> None:
        """Something did not work after the faults."""
        if self._live_failure is None:
            self._live_failure = Violation(text, rule="LIVE work", note_index=len(self.recording.notes) - 1)

    def session_ended(self, name: str, reason: str) -> None:
        """A connection ended; once all have proved theirs after the faults, none may."""
        event = self._events.get("settled")
        if event is not None and event.is_set() and len(self._arrived.get("collected", ())) < len(self.actors):
            self.fail_live(f"{name} lost its connection after everything was healed: {reason}")

    # ------------------------------------------------------------------ the verdict

    def judge(self, world: World) -> Iterator[Violation]:
        yield from log_violations(world.nodes[SERVER])
        yield from core_checks.check(self.evidence)
        slow = sum("Slow Consumer" in line for _, line in world.nodes[SERVER].log_lines)
        self.recording.probe("the server cut off a slow consumer", slow)
        unconfirmed = [sent for sent in self.evidence.sent.values() if sent.handled == NEVER]
        self.recording.probe("a message was never confirmed", len(unconfirmed))
        if not world.nodes[SERVER].running:
            yield Violation("the server ended by itself", rule="C34 ended")
