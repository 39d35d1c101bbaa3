"""The storage core of one node under power loss, failing calls and damage: streams on one journal.

Each stream has one writer that appends and removes messages as the plan says, through the store that the server uses,
and applies committed entries as a stream does. At some acknowledgements the question is asked what would be there if
the power failed right now: the disk is cloned, crashed by a drawn policy, and opened by the real code on the side.

Operations: `append` (size, count), `remove` (back: how many sequences behind the last), `checkpoint`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar

import attrs
import trio

import tnats.harness.sim.imports  # noqa: F401
from tnats.errors import TnatsError
from tnats.harness.faults import AfterAcks, Anchor, Fault
from tnats.harness.scenario import Violation
from tnats.harness.sim import storage_evidence
from tnats.harness.sim.bodies import payload, value_of
from tnats.harness.sim.drill import COLD, Drill
from tnats.harness.sim.ledger import CLASSES
from tnats.harness.sim.plan import Operation, Plan
from tnats.harness.sim.storage_evidence import DAMAGED, Life, Reading
from tnats.harness.sim.swarm import SUDDEN_KINDS, Scene, before_call, draw_faults, milliseconds
from tnats.limits import MILLISECOND_NS, SECOND_NS
from tnats.runtime.api import Clock, Disk, DiskError, Runtime
from tnats.runtime.sim.chance import stream as chance_stream
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import Fail, SyncFault
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.runtime.sim.world import World
from tnats.storage.encryption import Cipher, Encryption
from tnats.storage.errors import DataDamaged, StorageError, StoreBusy, StoreFull
from tnats.storage.journal import JournalOptions
from tnats.storage.message_log import Message
from tnats.storage.store import OpenStream, Store, StoreOptions
from tnats.storage.store_open import open_store
from tnats.storage.stream_log import StreamLogOptions

SERVER = "server"
DIRECTORY = "/data"
OPTIONS = StoreOptions(JournalOptions(part_bytes=16 * 1024), StreamLogOptions(segment_bytes=9 * 1024))
RETRY_NS = SECOND_NS // 20
SIZES = (0, 50, 600, 5000)


def astray_once(rng: random.Random, fault: Fault) -> Fault:
    """Most often one write lands elsewhere, and not all of a while."""
    if fault.kind != "D_MISDIRECT" or rng.random() < 0.2:
        return fault
    return attrs.evolve(fault, parameters={**fault.parameters, "times_count": 1})


class StepClock:
    """A clock for a look on the side: time passes by sleeping alone, and a sleep is one checkpoint."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def mono_ns(self) -> int:
        return self._now_ns

    def wall_ns(self) -> int:
        return self._now_ns

    async def sleep_ns(self, duration_ns: int) -> None:
        self._now_ns += duration_ns
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def running_store(
    disk: Disk, clock: Clock, entropy: random.Random, boot_id: str, cipher: str
) -> AsyncIterator[Store]:
    """The store with its task; closed in order at the end."""
    options = attrs.evolve(OPTIONS, encryption=Encryption("a key", Cipher(cipher)) if cipher else None)
    store = await open_store(disk, clock, entropy.randbytes, DIRECTORY, boot_id=boot_id, options=options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        yield store
        store.stop()
    await store.close()


async def opened(store: Store, name: str, *, is_packing: bool) -> OpenStream:
    """A stream with what its log says applied."""
    stream = await store.open_stream(name)
    stream.log.is_packing = is_packing
    for entry in await stream.commit.replay():
        await apply(stream, entry.index, None if entry.body is None else bytes(entry.body))
    stream.log.end_recovery()
    return stream


async def apply(stream: OpenStream, index: int, body: bytes | None) -> None:
    """One committed entry: `SEQUENCE BODY` appends, `-SEQUENCE` removes; a lost one has no effect that is known."""
    if body is not None:
        sequence, _, content = body.partition(b" ")
        if sequence.startswith(b"-"):
            stream.log.remove([int(sequence[1:])])
        else:
            await stream.log.append([Message(int(sequence), 1, b"s", b"", content)])
    stream.applied = index


async def content_of(stream: OpenStream, life: Life) -> dict[int, str]:
    """Everything that is served, and what is answered for acknowledged sequences that are not."""
    found: dict[int, str] = {}
    index = stream.log.index
    sequence = index.next_live(1)
    wanted = dict.fromkeys(life.acked)
    while sequence:
        wanted[sequence] = None
        sequence = index.next_live(sequence + 1)
    for sequence in wanted:
        try:
            found[sequence] = value_of((await stream.log.load(sequence)).payload)
        except KeyError:
            pass
        except (DataDamaged, DiskError):
            found[sequence] = DAMAGED
    return found


async def read_store(store: Store, lives: dict[str, Life], when: str, *, is_packing: bool) -> Reading:
    """Open and read every stream."""
    content: dict[str, dict[int, str]] = {}
    for name, life in lives.items():
        content[name] = await content_of(await opened(store, name, is_packing=is_packing), life)
    return Reading(when, content, store.health())


class StorageDrill(Drill):
    """What was acknowledged survives, and nothing else appears."""

    kinds: ClassVar[tuple[str, ...]] = ("D_POWER", "P_KILL", "P_TERM", "D_SLOW", "P_SLOWCPU", "P_PAUSE")
    budget: ClassVar[str] = "B1"
    least: ClassVar[int] = 0
    """Faults at least of each kind that a seed has at all."""
    calm: ClassVar[dict[str, int | str]] = {**Drill.calm, "what_if": 0, "streams": 1, "packing": 0, "cipher": ""}

    def __init__(self, plan: Plan | None = None) -> None:
        super().__init__(plan)
        self.lives: dict[str, Life] = {}
        self.readings: list[Reading] = []
        self.lives_then: list[tuple[dict[str, Life], Reading, frozenset[int]]] = []
        """What would have been there after a power loss at some moment, with what was known and `unproved` then."""
        self._world: World
        self._phase = "work"
        self._operations: dict[str, list[Operation]] = {}
        self._done: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._proved = trio.Event()
        self._open_failure = ""
        self._fired = 0
        """Calls that the present rules have made fail, at the last look."""
        self._rng: random.Random

    # ------------------------------------------------------------------ the plan

    @classmethod
    def draw(cls, seed: int) -> Plan:
        rng = cls.rng(seed)
        parameters: dict[str, int | str] = {
            "streams": rng.choice((1, 2, 3)),
            "duration_ms": rng.choice((1000, 2000, 4000)),
            "policy": rng.choice(("random", "random", "priority", "fifo")),
            "buggify": rng.choice((0, 1)),
            "what_if": rng.choice((0, 100, 300)),
            "packing": rng.choice((0, 1)),
            "cipher": rng.choice(("", "", *Cipher)),
            "budget": cls.budget,
            "cold": rng.choice(COLD),
        }
        duration_ns = int(parameters["duration_ms"]) * MILLISECOND_NS
        names = [f"s{number}" for number in range(1, int(parameters["streams"]) + 1)]
        scene = Scene([], [SERVER], duration_ns, files=("any", "any", "wal", "block"))
        drawn = draw_faults(rng, scene, cls.kinds, cls.anchor, least=cls.least)
        faults = tuple(astray_once(rng, fault) for fault in drawn)
        return Plan(cls.name(), seed, parameters, faults, tuple(cls.draw_operations(rng, names, duration_ns)))

    @staticmethod
    def anchor(rng: random.Random, kind: str) -> Anchor | None:
        """Deaths come at moments that matter: inside a disk call, after an acknowledgement."""
        if kind not in SUDDEN_KINDS or rng.random() < 0.3:
            return None
        return AfterAcks(rng.randint(1, 60)) if rng.random() < 0.3 else before_call(rng, kind)

    @staticmethod
    def draw_operations(rng: random.Random, names: list[str], duration_ns: int) -> Iterator[Operation]:
        times = sorted(milliseconds(rng.random() * duration_ns) for _ in range(rng.randint(20, 60)))
        for at_ns in times:
            draw, name = rng.random(), rng.choice(names)
            if draw < 0.75:
                arguments = {"size": str(rng.choice(SIZES)), "count": str(rng.choice((1, 1, 3, 8)))}
                yield Operation(at_ns, name, "append", arguments)
            elif draw < 0.93:
                yield Operation(at_ns, name, "remove", {"back": str(rng.randrange(12))})
            else:
                yield Operation(at_ns, name, "checkpoint")

    # ------------------------------------------------------------------ phases

    async def prepare(self, world: World) -> None:
        self._world = world
        self._rng = chance_stream(world.seed, "what if")
        names = [f"s{number}" for number in range(1, self.plan.number("streams") + 1)]
        self._operations = self.plan.operations_of(names)
        self.lives = {name: Life(name) for name in names}
        node = world.node(SERVER)
        node.drive.cold = int(self.plan.parameters.get("cold", 0)) / 100
        self.recording.note(SERVER, "start", "starts")
        node.start(self.serve)

    async def serve(self, runtime: Runtime) -> None:
        """The node's main function: opens the store and does what the phase asks for."""
        entropy = runtime.chance.rng("store")
        try:
            async with self._store(runtime, entropy) as store:
                self._open_failure = ""
                if self._phase == "read":
                    self.readings.append(await read_store(store, self.lives, self._when(), is_packing=self._is_packing))
                    return
                with runtime.process.signals() as signals:
                    async with trio.open_nursery() as nursery:
                        for name in self.lives:
                            stream = await opened(store, name, is_packing=self._is_packing)
                            nursery.start_soon(self._write, runtime, store, stream)
                        await signals.next()
                        nursery.cancel_scope.cancel()
        except* (StorageError, DiskError) as group:
            self._open_failure = str(group.exceptions[0])
            self.recording.note(SERVER, "failure", self._open_failure)
            self.recording.probe("the store stopped or did not open")

    def _store(self, runtime: Runtime, entropy: random.Random) -> AbstractAsyncContextManager[Store]:
        return running_store(runtime.disk, runtime.clock, entropy, runtime.process.boot_id(), self._cipher)

    @property
    def _is_packing(self) -> bool:
        return self.plan.parameters.get("packing") == 1

    @property
    def _cipher(self) -> str:
        return self.plan.choice("cipher", ("", *Cipher), "")

    def _when(self) -> str:
        return f"start {self._world.nodes[SERVER].life_count}"

    async def _write(self, runtime: Runtime, store: Store, stream: OpenStream) -> None:
        """One stream's writer, until the node ends or its store takes nothing more."""
        name = stream.name
        mine = self._operations[name]
        try:
            while self._done.get(name, 0) < len(mine):
                operation = mine[self._done.get(name, 0)]
                await self._world.sleep_ns(max(0, operation.at_ns - self._world.now_ns()))
                self._done[name] = self._done.get(name, 0) + 1
                await self._perform(runtime, store, stream, operation)
            while self._phase == "work":
                await runtime.clock.sleep_ns(RETRY_NS)
            while not await self._append(runtime, store, stream, [10]):
                await runtime.clock.sleep_ns(RETRY_NS)
        except StorageError as exc:
            self.recording.note(SERVER, "failure", f"{name}: {exc}")
            self.recording.probe("a write failed and froze the store")
            return
        self._counts[name] = self._counts.get(name, 0)
        self._proved_by(name)

    def _proved_by(self, name: str) -> None:
        self._done[f"{name} proved"] = 1
        if all(f"{each} proved" in self._done for each in self.lives):
            self._proved.set()

    async def _perform(self, runtime: Runtime, store: Store, stream: OpenStream, operation: Operation) -> None:
        if operation.verb == "append":
            await self._append(runtime, store, stream, [operation.number("size")] * operation.number("count", 1))
        elif operation.verb == "remove":
            await self._remove(store, stream, operation.number("back"))
        elif operation.verb == "checkpoint":
            try:
                await stream.checkpoint()
            except StoreFull:
                self.recording.probe("a checkpoint found the disk full")
        else:
            raise operation.unknown_verb()

    async def _append(self, runtime: Runtime, store: Store, stream: OpenStream, sizes: list[int]) -> bool:
        """Append messages as one batch; whether they were acknowledged. Raises StorageError when nobody knows."""
        life = self.lives[stream.name]
        first = stream.log.index.last + 1
        bodies, values = [], []
        for place, size in enumerate(sizes):
            count = self._counts[stream.name] = self._counts.get(stream.name, 0) + 1
            value = f"{stream.name}-{count}"
            life.attempted[value] = first + place
            values.append(value)
            bodies.append(b"%d %b" % (first + place, payload(value, size)))
        note = self.recording.note(SERVER, "append", f"{values[0]} and on, {len(values)} at {first}")
        if not await self._commit(stream, bodies):
            life.refused.update(dict.fromkeys(values))
            return False
        for place, value in enumerate(values):
            ack = self.recording.note(SERVER, "ack", f"{value} at {first + place}", cause=note.index)
            life.ack(first + place, value, ack.index)
            self.nemesis.acked()
        await self._apply_committed(stream)
        await self._what_if()
        return True

    async def _remove(self, store: Store, stream: OpenStream, back: int) -> None:
        life = self.lives[stream.name]
        sequence = stream.log.index.last - back
        if sequence < 1:
            return
        life.doomed[sequence] = None
        note = self.recording.note(SERVER, "remove", f"{stream.name} {sequence}")
        if await self._commit(stream, [b"-%d" % sequence]):
            life.removed[sequence] = self.recording.note(
                SERVER, "ack", f"{sequence} is removed", cause=note.index
            ).index
            self.nemesis.acked()
            await self._apply_committed(stream)

    async def _commit(self, stream: OpenStream, bodies: list[bytes]) -> bool:
        try:
            await stream.commit.propose_nowait(bodies).wait()
        except (StoreFull, StoreBusy):
            self.recording.probe("a write was refused for want of space")
            return False
        return True

    async def _apply_committed(self, stream: OpenStream) -> None:
        for entry in await stream.commit.committed():
            await apply(stream, entry.index, None if entry.body is None else bytes(entry.body))

    async def _what_if(self) -> None:
        """Now and then, and always after a call has failed: what would be there if the power failed now?"""
        rules = self._world.nodes[SERVER].drive.faults
        fired = sum(rule.fired for rule in rules if isinstance(rule.effect, Fail | SyncFault))
        has_failed, self._fired = fired > self._fired, fired
        if not has_failed and self._rng.random() * 1000 >= self.plan.number("what_if"):
            return
        self.recording.probe("a crash was tried on a copy of the disk")
        node = self._world.nodes[SERVER]
        drive = SimDrive(chance_stream(self._world.seed, "side", len(self.lives_then)))
        drive.image = node.drive.image.clone()
        policy = CrashPolicy.STRICT if has_failed else self._rng.choice(list(CrashPolicy))
        drive.image.crash(policy, drive.rng)
        lives = {name: life.copy() for name, life in self.lives.items()}
        unproved = storage_evidence.unproved(self.recording.notes, is_cut=True)
        when = f"after a power loss at {self._world.now_ns() / SECOND_NS:.6f} s"
        clock = StepClock(node.oscillator.wall_ns())
        try:
            async with running_store(SimDisk(drive, clock), clock, drive.rng, "side", self._cipher) as store:  # type: ignore[arg-type]
                reading = await read_store(store, lives, when, is_packing=self._is_packing)
        except* TnatsError as group:
            reading = Reading(when, {}, [], str(group.exceptions[0]))
        self.lives_then.append((lives, reading, unproved))

    async def prove(self, world: World) -> None:
        """A restart, a write to every stream, then three readings: after clean ends and after a power loss."""
        node = world.nodes[SERVER]
        self._phase = "prove"
        node.kill()
        await node.wait_ended()
        self.recording.note(SERVER, "start", "starts anew")
        node.start()
        if not await self._all_written():
            self.readings.append(Reading(self._when(), {}, [], self._open_failure))
            return
        node.signal("TERM")
        await node.wait_ended()
        self._phase = "read"
        for policy in (None, CrashPolicy.STRICT, None):
            if policy is not None:
                node.power_loss(policy)
            node.start()
            await node.wait_ended()

    async def _all_written(self) -> bool:
        """Whether every stream takes writes; False when the store does not open."""
        while not self._proved.is_set():
            if not self._world.nodes[SERVER].running:
                return False
            await self._world.sleep_ns(RETRY_NS)
        return True

    def unproved(self) -> str:
        return f"not every stream takes writes; {self._open_failure or 'no failure was reported'}"

    # ------------------------------------------------------------------ the verdict

    def judge(self, world: World) -> Iterator[Violation]:
        reached = self.ledger.reached
        self.recording.probe(f"class {reached}")
        for lives, reading, unproved in self.lives_then:
            yield from storage_evidence.judge(lives, reading, reached, unproved)
        unproved = storage_evidence.unproved(self.recording.notes)
        for reading in self.readings:
            if DAMAGED in [value for content in reading.content.values() for value in content.values()]:
                self.recording.probe("damage was named")
            yield from storage_evidence.judge(self.lives, reading, reached, unproved)
        contents = [reading.content for reading in self.readings if not reading.failure]
        if contents and any(content != contents[0] for content in contents) and CLASSES.index(reached) < 3:
            yield Violation("two starts of the store served different contents", rule="C31 recovery")
