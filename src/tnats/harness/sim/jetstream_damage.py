"""Streams and consumers on a disk that damages what it keeps: row 8 of the contract's verdicts, for one server.

Nobody can bring back what the only copy has lost, so little is asked for, and that without exception:

| rule | property |
|---|---|
| C1 acked | an acknowledged message is served with its content, or reading it is an error: never "no such message" |
| C2 reused | no sequence is given to another message |
| C3 invented | what is served was published, at that sequence if it was acknowledged |
| C14 skipped | a message that is served and was never delivered is delivered by the consumer |
| C33 silent | what cannot be read is named by the health check, with its range, as soon as the server serves |
| C33 alarm | without damage there is no alarm |
| LIVE halt | a server that does not start any more says why |

The last of these readings comes after one more loss of power. C14 is asked where the fate of every fetch is known (a
third of all readings). Workers, verbs and arguments: `jetstream_consume`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import ClassVar

import attrs

from tnats.client import ClientError, NoResponders
from tnats.client.jetstream import (
    AckPolicy,
    ApiError,
    ConsumerConfig,
    ConsumerNotFound,
    JetStream,
    MessageNotFound,
    StreamConfig,
    StreamNotFound,
)
from tnats.harness.checkers.deliveries import deliveries
from tnats.harness.checkers.evidence import Replica, Stored
from tnats.harness.faults import At, Fault
from tnats.harness.history import Event, Operation
from tnats.harness.scenario import Violation
from tnats.harness.sim.bodies import payload, value_of
from tnats.harness.sim.clean import log_violations
from tnats.harness.sim.jetstream import LOOK_NS, SERVER
from tnats.harness.sim.jetstream_consume import ACK_WAIT_NS, STREAM, ConsumeDrill
from tnats.harness.sim.jetstream_worker import OPERATION_S
from tnats.harness.sim.ledger import CLASSES
from tnats.harness.sim.plan import Plan
from tnats.harness.sim.storage import astray_once
from tnats.harness.stream_reading import told_lost
from tnats.limits import MILLISECOND_NS
from tnats.records import define
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.runtime.sim.world import World

AT_REST = ("D_BITFLIP", "D_TRUNC", "D_ZERO", "D_SWAPFILE")
DAMAGE = (*AT_REST, "D_MISDIRECT", "D_DUPFILE")
AFTER = "after"
"""The value of a publish behind the damage."""
CONSUMER = "C"


def blackout(damage: Fault) -> Fault:
    """A loss of power just before damage at rest: what the journal has is in no other file then."""
    anchor = damage.anchor
    assert isinstance(anchor, At)
    parameters: dict[str, int | str] = {"targets": SERVER, "policy": CrashPolicy.STRICT.value}
    parameters["down_ns"] = 2 * MILLISECOND_NS
    return Fault(At(max(0, anchor.time_ns - MILLISECOND_NS)), "D_POWER", parameters)


@define
class Look:
    """What one start of the server serves, and what it says about itself."""

    held: Replica
    health: list[str]
    drained: list[int]
    """Sequences that the consumer delivered; empty where there is none any more."""
    has_consumer: bool
    ended: str = ""
    """Why the server ended instead."""


class DamageDrill(ConsumeDrill):
    """Damage is an error that names it, everything else is served and delivered, and nothing is made up."""

    kinds: ClassVar[tuple[str, ...]] = (*DAMAGE, "D_POWER", "P_KILL", "P_TERM")
    probes: ClassVar[tuple[str, ...]] = (
        *kinds,
        "a message could not be read",
        "everything could be read after damage",
        "a publish went well after damage",
        "a stream was lost with what made it known",
    )
    THEMES: ClassVar[tuple[str, ...]] = ("DP",)
    follows: ClassVar[bool] = False

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.looks: list[Look] = []

    @classmethod
    def draw(cls, seed: int) -> Plan:
        plan = super().draw(seed)
        rng = cls.rng(seed + 1)
        faults = [astray_once(rng, fault) for fault in plan.faults]
        blackouts = [blackout(fault) for fault in faults if fault.kind in AT_REST and rng.random() < 0.5]
        return attrs.evolve(plan, faults=(*faults, *blackouts))

    @classmethod
    def draw_parameters(cls, rng: random.Random) -> dict[str, int | str]:
        return {"budget": "B3", "what_if": 0}

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return (CONSUMER,)

    def streams(self) -> Sequence[StreamConfig]:
        return (StreamConfig(STREAM, subjects=["s.*"], allow_direct=True),)

    def consumers(self) -> Sequence[ConsumerConfig]:
        return (ConsumerConfig(CONSUMER, ack_policy=AckPolicy.EXPLICIT, ack_wait_ns=ACK_WAIT_NS, max_ack_pending=1000),)

    # ------------------------------------------------------------------ the liveness phase

    async def prove(self, world: World) -> None:
        machine = world.nodes[SERVER]
        for name in self.workers:
            world.nodes[name].kill()
        for policy in (None, CrashPolicy.STRICT):
            if policy is None:
                machine.kill()
            else:
                machine.power_loss(policy)
            await machine.wait_ended()
            self.stage.start(machine)
            self.looks.append(await self._look(world))

    async def _look(self, world: World) -> Look:
        """Everything that this start of the server has to say."""
        machine = world.nodes[SERVER]
        start_count = len(self.servers)
        while machine.running:
            await world.sleep_ns(LOOK_NS)
            jetstream = self.servers[-1].jetstream
            if len(self.servers) > start_count and jetstream is not None and jetstream.is_ready:
                break
        look = Look(Replica(f"start {machine.life_count}", {}), [], [], False)
        if not machine.running:
            look.ended = next((line for _, line in reversed(machine.log_lines) if "[FTL]" in line), "")
            look.held.failure = "the server does not start"
            return look

        async def read(js: JetStream) -> None:
            await self._read(js, look)

        await self.as_reader(read)
        jetstream = self.servers[-1].jetstream
        assert jetstream is not None
        look.health = jetstream.health()
        return look

    async def _read(self, js: JetStream, look: Look) -> None:
        held = look.held
        stream = js.stream(STREAM)
        # Those that were acknowledged, and what unanswered publishes may have put behind them.
        acked = [publish.told("seq") for publish in self._acked()]
        for seq in sorted({1, *acked, *(seq + 1 for seq in acked)}):
            try:
                message = await stream.get(seq)
            except MessageNotFound:
                held.missing[seq] = ""
            except StreamNotFound as exc:  # what made it known was damaged; its files are kept
                held.failure = str(exc)
                self.recording.probe("a stream was lost with what made it known")
                return
            except ApiError as exc:
                held.missing[seq] = str(exc)
            except ClientError as exc:
                held.failure = str(exc)
                return
            else:
                held.messages[seq] = Stored(value_of(message.data), message.subject, message.time_ns)
        try:
            look.has_consumer = True
            while batch := await stream.consumer(CONSUMER).fetch(50, timeout_s=OPERATION_S, no_wait=True):
                look.drained += [each.metadata.stream_sequence for each in batch]
        except (ConsumerNotFound, NoResponders):
            look.has_consumer = False
        try:
            await js.publish("s.b", payload(AFTER, 0), timeout_s=OPERATION_S, retries=0)
            self.recording.probe("a publish went well after damage")
        except ClientError as exc:
            self.recording.note(SERVER, "failure", f"a publish is refused: {exc}")

    def _acked(self) -> list[Operation]:
        return [publish for publish in self.history.operations("publish") if publish.is_ok]

    # ------------------------------------------------------------------ the verdict

    def _unproved(self) -> set[str]:
        """Values that were acknowledged last before a loss of power: damage that takes them looks like a write that was
        never ended (`docs/storage.md`, "Torn or damaged?").
        """
        found: set[str] = set()
        last: list[Event] = []
        for event in self.history.events:
            if event.f == "publish" and event.type == "ok":
                last = [*last, event] if last and last[0].time_ns == event.time_ns else [event]
            elif event.f == "D_POWER":
                found.update(each.value for each in last)
        return found

    def judge(self, world: World) -> Iterator[Violation]:
        is_damaged = CLASSES.index(self.ledger.reached) >= CLASSES.index("B3")
        yield from log_violations(world.nodes[SERVER], may_refuse=is_damaged)
        if is_damaged and not any(any(look.held.missing.values()) or look.held.failure for look in self.looks):
            self.recording.probe("everything could be read after damage")
        for look in self.looks:
            yield from self._judge_look(look, is_damaged=is_damaged)

    def _judge_look(self, look: Look, *, is_damaged: bool) -> Iterator[Violation]:
        held = look.held
        if held.failure:
            if not (look.ended or look.health):
                yield Violation(f"{held.node}: {held.failure}, and nothing says why", rule="LIVE halt")
            elif not is_damaged:
                yield Violation(f"{held.node}: {held.failure}: {look.ended or look.health[0]}", rule="LIVE open")
            return
        if look.health and not is_damaged:
            text = f"{held.node}: nothing was damaged, yet the health check says: {look.health[0]}"
            yield Violation(text, rule="C33 alarm")
        unproved = self._unproved() if is_damaged else set()
        for publish in self._acked():
            if publish.value not in unproved or held.missing.get(publish.told("seq")):
                yield from self._judge_message(look, publish)
        yield from self._judge_values(look)
        yield from self._judge_consumer(look)

    def _judge_message(self, look: Look, publish: Operation) -> Iterator[Violation]:
        held, seq = look.held, publish.told("seq")
        stored = held.messages.get(seq)
        if stored is not None:
            if stored.value != publish.value:
                text = f"{publish.value} was acknowledged at {seq}; {held.node} serves {stored.value} there"
                yield Violation(text, rule="C2 reused")
            return
        self.recording.probe("a message could not be read")
        if not held.missing[seq]:
            text = f"{publish.value} was acknowledged at {seq}; {held.node} says that there is no such message"
            yield Violation(text, rule="C1 acked")
        named = any(first <= seq <= last for first, last in told_lost(STREAM, look.health))
        if not named and not any(line.endswith(f"message {seq}") for line in look.health):
            text = f"{held.node}: message {seq} cannot be read ({held.missing[seq]}), and the health check does not"
            yield Violation(f"{text} name it: {look.health or 'all is well'}", rule="C33 silent")

    def _judge_values(self, look: Look) -> Iterator[Violation]:
        attempts = {publish.value: publish for publish in self.history.operations("publish")}
        for seq, stored in look.held.messages.items():
            publish = attempts.get(stored.value)
            if stored.value == AFTER:
                continue
            if publish is None or publish.is_failed:
                text = f"{look.held.node} serves {stored.value[:60]!r} at {seq}, which nobody published"
                yield Violation(text, rule="C3 invented")
            elif publish.is_ok and publish.told("seq") != seq:
                text = f"{look.held.node} serves {stored.value} at {seq}; it was acknowledged at {publish.told('seq')}"
                yield Violation(text, rule="C3 invented")

    def _judge_consumer(self, look: Look) -> Iterator[Violation]:
        if not look.has_consumer:
            if not look.health:
                yield Violation(f"{look.held.node}: the consumer is gone, and all is well", rule="C33 silent")
            return
        known = {each.seq for each in deliveries(self.history)}
        known.update(seq for earlier in self.looks for seq in earlier.drained)
        # What was on its way to a worker when that died counts as delivered, and nobody wrote it down.
        unsure = any(fetch.end is None or fetch.end.type == "info" for fetch in self.history.operations("fetch"))
        for publish in self._acked():
            seq = publish.told("seq")
            if seq in look.held.messages and seq not in known and not unsure:
                text = f"{look.held.node}: the consumer never delivered {publish.value} at {seq}, which is served"
                yield Violation(text, rule="C14 skipped")
