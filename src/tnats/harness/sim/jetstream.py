"""What all drills of JetStream have in common: the server of `tnats serve` with its store, and clients that use it.

Theory of operation
-------------------
* The server runs in the tiny profile: parts of the journal and segment files are so small that a run fills several.
* A *worker* is a client on a machine of its own (`jetstream_worker`); what it does and hears is a history, the same as
  a run against a real server writes, judged by the same checkers.
* A server that ended by itself, because its disk failed while it started, is started again, as an operator's supervisor
  would.
* After the faults all content is read; then power fails, the server starts, and it is read again: `readings`.
* At some acknowledgements (`what_if` of a thousand) the disk is cloned, crashed by a drawn policy, and served by a
  second server on the side (C30): `readings_then`, each with the history up to that moment.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import attrs
import trio

import tnats.harness.sim.imports  # noqa: F401
from tnats.client import Client, ClientError, connect
from tnats.client.jetstream import JetStream, StreamConfig
from tnats.errors import TnatsError
from tnats.harness.checkers.evidence import Evidence, Replica, Result
from tnats.harness.faults import Fault
from tnats.harness.history import History, Recorder
from tnats.harness.scenario import Violation
from tnats.harness.sim.ack_audit import AckAudit
from tnats.harness.sim.clean import ErrorAudit, log_violations
from tnats.harness.sim.drill import COLD, Drill
from tnats.harness.sim.hygiene import leftovers
from tnats.harness.sim.jetstream_faults import (
    CLOCK,
    CLOCK_KINDS,
    DEATH,
    DEATHS,
    DISK_KINDS,
    EVERYTHING,
    FATAL_KINDS,
    JUMPS_MAX,
    NETWORK_KINDS,
    PROCESS_KINDS,
)
from tnats.harness.sim.jetstream_reading import ACCOUNT, read_stream, store_content
from tnats.harness.sim.jetstream_worker import OPERATION_S, Worker
from tnats.harness.sim.lazy_losses import LazyLosses
from tnats.harness.sim.plan import Operation, Plan
from tnats.harness.sim.swarm import Scene, draw_faults, milliseconds, telling_anchor
from tnats.harness.sim.sync_lag import SyncLag
from tnats.harness.sim.tiny_profile import tiny_profile
from tnats.harness.stream_reading import told_lost
from tnats.limits import MILLISECOND_NS, SECOND_NS
from tnats.runtime.api import Runtime
from tnats.runtime.sim.chance import stream as chance_stream
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.runtime.sim.node import Node as Machine
from tnats.runtime.sim.world import World
from tnats.server.compose import build
from tnats.server.config.jetstream import JetStreamOptions
from tnats.server.config.options import Options
from tnats.server.node import Node

SERVER = "server"
READER = "reader"
STORE = "/data/jetstream"
URL = "nats://server:4222"
MARK = re.compile(rb"c\d+-\d+[ \"\r]")
"""The value of a message, with what follows it."""
FILE_BYTES_MAX = 1 << 30
LOOK_NS = SECOND_NS // 5
SYNC_INTERVAL_NS = 2 * SECOND_NS
SYNC_WORDS = ("always", "lazy")


class JetStreamDrill(Drill):
    """See the module. A subclass says what the streams are, what workers do, and how that is judged."""

    kinds: ClassVar[tuple[str, ...]] = (*NETWORK_KINDS, *PROCESS_KINDS, *CLOCK_KINDS, *DISK_KINDS)
    probes: ClassVar[tuple[str, ...]] = (
        *kinds,
        "a crash was tried on a copy of the disk",
        "an acknowledgement was audited",
    )
    calm: ClassVar[dict[str, int | str]] = {**Drill.calm, "what_if": 0, "sync": "always"}
    CLIENTS: ClassVar[tuple[int, ...]] = (2, 3)
    OPERATIONS: ClassVar[tuple[int, int]] = (25, 70)
    DURATIONS_MS: ClassVar[tuple[int, ...]] = (2000, 4000, 8000)
    THEMES: ClassVar[tuple[str, ...]] = (EVERYTHING, EVERYTHING, DEATH, DEATH, "D", "DP", "PT", "N")
    """What a seed is about, by the first letters of the kinds of its faults: some need more aim than others."""
    SYNCS: ClassVar[tuple[str, ...]] = ("always",)
    worker_kind: ClassVar[type[Worker]] = Worker
    is_in_files: ClassVar[bool] = True
    """What is acknowledged outlives the server."""

    def __init__(self, plan: Plan | None = None) -> None:
        super().__init__(plan)
        self.workers: dict[str, Worker] = {}
        self.healed = trio.Event()
        self.recorder: Recorder
        self.readings: list[Replica] = []
        self.readings_then: list[tuple[int, Replica]] = []
        """(events of the history until then, what a power loss at that moment would have left)"""
        self.lazy_losses: LazyLosses | None = None
        self.lag: SyncLag
        self.servers: list[Node] = []
        self.audit: AckAudit | None = None
        self.errors = ErrorAudit()
        self.left_over: list[Violation] = []
        self.alarms: list[str] = []
        """What the health check says at rest."""
        self._world: World
        self._start_ns = 0
        self._rng: random.Random
        self._proved: dict[str, None] = {}
        self._proved_all = trio.Event()
        self._live_failure: Violation | None = None

    @property
    def history(self) -> History:
        return self.recorder.history

    # ------------------------------------------------------------------ the plan

    @classmethod
    def draw(cls, seed: int) -> Plan:
        rng = cls.rng(seed)
        count = rng.choice(cls.CLIENTS)
        parameters: dict[str, int | str] = {
            "clients": count,
            "duration_ms": rng.choice(cls.DURATIONS_MS),
            "policy": rng.choice(("random", "random", "random", "priority", "fifo")),
            "buggify": rng.choice((0, 1)),
            "what_if": rng.choice((0, 30, 60)),
            "sync": rng.choice(cls.SYNCS),
            "budget": "B1",
            "cold": rng.choice(COLD),
            **cls.draw_parameters(rng),
        }
        duration_ns = int(parameters["duration_ms"]) * MILLISECOND_NS
        names = [f"c{number}" for number in range(1, count + 1)]
        scene = Scene(names, [SERVER], duration_ns, files=("any", "wal", "wal", "block"))
        theme = rng.choice(cls.THEMES)
        kinds = [kind for kind in cls.kinds if kind[:1] in theme]
        if theme == DEATH:
            kinds = list(DEATHS)
        if theme == CLOCK:
            kinds = ["T_JUMP"] * JUMPS_MAX + kinds
        faults = draw_faults(rng, scene, kinds, telling_anchor, least=int(theme != EVERYTHING))
        faults = tuple(at_server(fault) if fault.kind in CLOCK_KINDS else fault for fault in faults)
        operations = []
        for _ in range(rng.randint(*cls.OPERATIONS)):
            at_ns, name = milliseconds(rng.random() * duration_ns), rng.choice(names)
            verb, arguments = cls.draw_operation(rng, parameters)
            operations.append(Operation(at_ns, name, verb, {key: str(value) for key, value in arguments.items()}))
        operations.sort(key=lambda operation: operation.at_ns)
        return Plan(cls.name(), seed, parameters, faults, tuple(operations))

    @classmethod
    def draw_parameters(cls, rng: random.Random) -> dict[str, int | str]:
        """Further parameters of a plan."""
        return {}

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        """One operation: its verb and arguments."""
        raise AssertionError("a drill of JetStream draws its operations")

    def streams(self) -> Sequence[StreamConfig]:
        """The streams that the run begins with."""
        return ()

    async def furnish(self, js: JetStream) -> None:
        """Make whatever else the run begins with."""

    # ------------------------------------------------------------------ the server

    @property
    def is_lazy(self) -> bool:
        """Whether the server acknowledges what it will sync within an interval. Raises FaultError."""
        return self.plan.choice("sync", SYNC_WORDS, "always") == "lazy"

    def profile(self) -> Any:
        return tiny_profile()

    def lasting(self, world: World) -> list[Machine]:
        return [world.nodes[SERVER], *(world.nodes[name] for name in self.workers)]

    def options(self) -> Options:
        """The server's configuration: times are scaled down with the clients'."""
        interval = (SYNC_INTERVAL_NS, False) if self.is_lazy else (0, True)
        jetstream = JetStreamOptions(enabled=True, store_dir=STORE, sync_interval=interval)
        # Left to itself a server takes three quarters of what is free when it starts: on a full disk, nothing.
        jetstream.max_file_store = FILE_BYTES_MAX
        options = Options(jetstream=jetstream)
        options.host, options.port = "0.0.0.0", 4222
        options.ping_interval_ns = 2 * SECOND_NS
        options.write_deadline_ns = 2 * SECOND_NS
        options.lame_duck_duration_ns, options.lame_duck_grace_period_ns = 3 * SECOND_NS, SECOND_NS
        return options

    async def serve(self, runtime: Runtime) -> None:
        """The server machine's main function."""
        try:
            node = build(runtime, self.options(), read_options=self.options)
            self.servers.append(node)
            await node.run()
        except* TnatsError as group:
            self.recording.note(SERVER, "failure", str(group.exceptions[0]))
            self.recording.probe("the server ended because its disk or network failed")

    def may_have_stopped(self) -> bool:
        """Whether a fault was carried out that stops a store until the next start, or makes a start end as fatal."""
        return any(kind in self.ledger.kinds for kind in FATAL_KINDS)

    async def keep_up(self, world: World) -> None:
        """Start the server again whenever it ended by itself."""
        machine = world.nodes[SERVER]
        while True:
            await world.sleep_ns(LOOK_NS)
            if self.lazy_losses is not None:
                self.lazy_losses.look(is_running=machine.running and not machine.stands_still)
            if not machine.running and not self.stage.is_held(machine):
                self.stage.start(machine)

    # ------------------------------------------------------------------ phases

    async def prepare(self, world: World) -> None:
        self._world = world
        self._rng = chance_stream(world.seed, "what if")
        machine = world.node(SERVER)
        machine.drive.cold = int(self.plan.parameters.get("cold", 0)) / 100
        self.recording.note(SERVER, "start", "starts")
        if not self.is_lazy and self.is_in_files:
            self.audit = AckAudit(machine.drive, chance_stream(world.seed, "audit"), self._life_of, self._content_of)
        machine.host.on_write = self._on_write
        machine.start(self.serve)
        names = [f"c{number}" for number in range(1, self.plan.number("clients") + 1)]
        self.recorder = Recorder(world.now_ns, len(names))
        if self.is_lazy:
            window_ns = SYNC_INTERVAL_NS + SECOND_NS
            self.lag = SyncLag(self.recording, SERVER, self.recorder.time_ns)
            self.lazy_losses = LazyLosses(window_ns, self.recorder.time_ns, lambda: len(self.servers), self.lag.synced)
            machine.drive.on_sync = self.lazy_losses.on_sync
        await self.as_reader(self._furnish)
        self._start_ns = world.now_ns()
        for number, (name, own) in enumerate(self.plan.operations_of(names).items()):
            self.workers[name] = self.worker_kind(self, name, number, own)
            self.recording.note(name, "start", "starts")
            world.node(name).start(self.workers[name].run)

    def _on_write(self, data: bytes) -> None:
        self.errors.on_write(data)
        if self.audit is not None:
            self.audit.on_write(data)

    def server_life(self) -> int:
        """Which incarnation of the server it is now."""
        return self._world.nodes[SERVER].life_count

    def _life_of(self, stream: str) -> int:
        """The number that the catalogue has given a stream at its making; 0 when there is none."""
        jetstream = self.servers[-1].jetstream
        account = None if jetstream is None else jetstream.accounts.get(ACCOUNT)
        if account is None or stream not in account.streams:
            return 0
        return account.streams[stream].record.number

    def _content_of(self, stream: str, life: int, seq: int) -> bytes | None:
        """What in the store's files tells a message from all others."""
        jetstream = self.servers[-1].jetstream
        if jetstream is None or not life or self._life_of(stream) != life:
            return None
        try:
            message = jetstream.accounts[ACCOUNT].streams[stream].store.load_nowait(seq)
        except (KeyError, TnatsError):
            return None
        found = None if message is None else MARK.search(message.headers + message.payload)
        return None if found is None else found[0]

    def struck(self, fault: Fault) -> None:
        self.recorder.nemesis(fault.kind, str(fault))
        if fault.kind == "D_POWER" and self.lazy_losses is not None:
            self.lazy_losses.power_lost()
            self.lag.end()

    async def _furnish(self, js: JetStream) -> None:
        for config in self.streams():
            await js.create_stream(config)
        await self.furnish(js)

    async def as_reader(self, action: Any) -> None:
        """Carry out `action(js)` on a machine of its own, again and again until it succeeds."""
        world = self._world
        machine = world.nodes.get(READER) or world.node(READER)

        async def main(runtime: Runtime) -> None:
            while True:
                try:
                    async with connected(runtime, READER) as client:
                        await action(JetStream(client, timeout_s=OPERATION_S))
                        return
                except* ClientError as group:
                    self.recording.note(READER, "failure", str(group.exceptions[0]))
                await runtime.clock.sleep_ns(LOOK_NS)

        machine.start(main)
        await machine.wait_ended()

    async def act(self, world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.keep_up, world, name="supervisor")
            await super().act(world)
            nursery.cancel_scope.cancel()

    async def wait_until(self, time_ns: int) -> None:
        """Wait for a time of the safety phase."""
        await self._world.sleep_ns(max(0, self._start_ns + time_ns - self._world.now_ns()))

    async def wait_ns(self, duration_ns: int) -> None:
        """Wait in virtual time."""
        await self._world.sleep_ns(duration_ns)

    async def settle(self, world: World) -> None:
        try:
            await super().settle(world)
        except Violation as violation:
            # That an acknowledgement was worth nothing says more than what came of it.
            if self.audit is not None and self.audit.volatile:
                raise Violation(self.audit.volatile[0], rule="C29 volatile") from violation
            raise

    async def prove(self, world: World) -> None:
        """Every worker gets its work done; then everything is read, power fails, and it is read once more."""
        machine = world.nodes[SERVER]
        if self.may_have_stopped():
            machine.kill()
            await machine.wait_ended()
            self.stage.start(machine)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.keep_up, world, name="supervisor")
            self.healed.set()
            await self._proved_all.wait()
            nursery.cancel_scope.cancel()
        if self._live_failure is not None:
            raise self._live_failure
        await self.read("at rest")
        if not self.is_lazy:
            machine.power_loss(CrashPolicy.STRICT)
            self.recording.note(SERVER, "power", "power is cut once more")
        else:
            machine.kill()
        await machine.wait_ended()
        self.stage.start(machine)
        await self.read("after one more start")
        await world.sleep_ns(SECOND_NS)
        self.left_over = list(leftovers(machine, STORE))
        jetstream = self.servers[-1].jetstream
        assert jetstream is not None
        self.alarms = jetstream.health()

    async def read(self, when: str) -> None:
        """Read all streams, into `readings`."""
        for config in self.streams():
            found: list[Replica] = []
            first_ns = self.recorder.time_ns()

            async def read(js: JetStream, name: str = config.name, found: list[Replica] = found) -> None:
                found[:] = [await read_stream(js, name, f"{name} {when}")]

            await self.as_reader(read)
            found[0].read_ns = first_ns, self.recorder.time_ns()
            self.readings += found

    def readings_of(self, stream: str) -> list[Replica]:
        """What was read of one stream, one after the other."""
        return [replica for replica in self.readings if replica.name == stream]

    def has_proved(self, name: str) -> None:
        """A worker got everything done after the faults."""
        self._proved[name] = None
        if len(self._proved) == len(self.workers):
            self._proved_all.set()

    def fail_live(self, text: str) -> None:
        """Something did not work after the faults."""
        if self._live_failure is None:
            self._live_failure = Violation(text, rule="LIVE work", note_index=len(self.recording.notes) - 1)
        self._proved_all.set()

    def unproved(self) -> str:
        waiting = [f"{worker.name} is {worker.state}" for worker in self.workers.values() if worker.state != "done"]
        return "; ".join(waiting[:5])

    # ------------------------------------------------------------------ what if

    async def acked(self) -> None:
        """A worker got an acknowledgement; now and then: what would be there if the power failed now?"""
        self.nemesis.acked()
        if self.is_lazy:
            self.lag.acked()
        if self.healed.is_set() or self.is_lazy or self._rng.random() * 1000 >= self.plan.number("what_if"):
            return
        self.recording.probe("a crash was tried on a copy of the disk")
        event_count = len(self.recorder.history.events)
        image = self._world.nodes[SERVER].drive.image.clone()
        machine = self._world.node(f"side{len(self.readings_then) + 1}")
        image.crash(self._rng.choice(list(CrashPolicy)), machine.drive.rng)
        machine.drive.image = image
        when = f"after a power loss at {self._world.now_ns() / SECOND_NS:.6f} s"
        await self._look_aside(machine, event_count, when)

    async def _look_aside(self, machine: Machine, event_count: int, when: str) -> None:
        """Start a server on a machine that nobody talks to, and read its store."""
        is_read = trio.Event()
        now_ns = self.recorder.time_ns()

        async def serve(runtime: Runtime) -> None:
            node = build(runtime, self.options())
            async with trio.open_nursery() as nursery:
                await nursery.start(node.run)
                assert node.jetstream is not None
                for config in self.streams():
                    found = await store_content(node.jetstream, config.name, f"{config.name} {when}")
                    found.read_ns = now_ns, now_ns + SECOND_NS  # over within a moment, on a clock a little behind
                    self.readings_then.append((event_count, found))
                await self.look_further(node, event_count, when)
                is_read.set()
                nursery.cancel_scope.cancel()

        machine.start(serve)
        await is_read.wait()
        machine.kill()

    async def look_further(self, node: Node, event_count: int, when: str) -> None:
        """Look at more than the streams' messages."""

    # ------------------------------------------------------------------ the verdict

    def evidence(self) -> Iterator[Evidence]:
        """What checkers look at: the history with all readings, and what was known at each look aside."""
        history = self.recorder.history
        for config in self.streams():
            own = self.readings_of(config.name)
            for replica in own:
                replica.named_lost += tuple(self.told_lost(config.name))
            yield Evidence(of_stream(history, config.name), own[:1], own[1:], self.unsynced_ns)
        for event_count, replica in self.readings_then:
            yield Evidence(of_stream(History(history.events[:event_count]), replica.name), [replica])

    @property
    def unsynced_ns(self) -> tuple[tuple[int, int], ...]:
        """From when to when losses of power may have taken what was acknowledged."""
        return () if self.lazy_losses is None else tuple(self.lazy_losses.spans_ns)

    def told_lost(self, stream: str) -> list[tuple[int, int]]:
        """The ranges of sequences that the server named as lost at some start; it need not do so for ever."""
        return list(told_lost(stream, (line for _, line in self._world.nodes[SERVER].log_lines)))

    def false_alarms(self) -> Iterator[Violation]:
        """Losses and damage that the server tells of, where nothing can be lost."""
        for config in self.streams():
            for first, last in self.told_lost(config.name):
                self.alarms.append(f"{config.name} lost {first} to {last}")
        for text in self.alarms:
            yield Violation(f"nothing was lost or damaged, yet the server says: {text}", rule="C33 alarm")

    def results(self, evidence: Evidence) -> Iterator[Result]:
        """What the checkers say of one evidence."""
        yield from ()

    def judge(self, world: World) -> Iterator[Violation]:
        yield from log_violations(world.nodes[SERVER], may_refuse=self.may_have_stopped())
        for text in self.errors.strange:
            yield Violation(f"the server answered with an error that is not in the table: {text}", rule="C34 error")
        self.recording.probe("an error was audited", self.errors.audited_count)
        if self.audit is not None:
            self.recording.probe("an acknowledgement was audited", self.audit.audited_count)
            for text in self.audit.volatile:
                yield Violation(text, rule="C29 volatile")
        for evidence in self.evidence():
            for result in self.results(evidence):
                if result.verdict != "ok":  # what could not be decided was not shown either
                    yield Violation(result.text, rule=f"{result.checker} {result.title}")
        if not self.is_lazy:
            yield from self.false_alarms()
        yield from self.left_over
        if not world.nodes[SERVER].running:
            yield Violation("the server ended by itself", rule="C34 ended")


def at_server(fault: Fault) -> Fault:
    """The same fault against the server."""
    return attrs.evolve(fault, parameters={**fault.parameters, "targets": SERVER})


def of_stream(history: History, stream: str) -> History:
    """The events that concern one stream, or all."""
    return History(event for event in history.events if event.extra.get("stream", stream) == stream)


@asynccontextmanager
async def connected(runtime: Runtime, name: str) -> AsyncIterator[Client]:
    """A client of the server that notices soon when its connection is dead, and never gives up."""
    async with connect(
        URL,
        runtime=runtime,
        name=name,
        discover_servers=False,
        ping_interval_s=1.0,
        reconnect_wait_max_s=0.5,
        reconnect_attempts_max=None,
    ) as client:
        yield client
