"""Carries out the faults of a plan: waits for each one's anchor, strikes, keeps the time, ends it.

An anchor on a disk call or a place in the code strikes inside that very call: a kill there comes before the call has
any effect. Which faults struck is kept, for a fault whose moment never came has shown nothing.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable

import trio

from tnats.harness.faults import AfterAcks, At, AtBarrier, BeforeCall, Every, Fault
from tnats.harness.sim.kinds import REAL_WORDS, SIM_KINDS, Act
from tnats.harness.sim.ledger import Ledger
from tnats.harness.sim.plan import PlanError
from tnats.harness.sim.recording import NEMESIS, Note
from tnats.harness.sim.stage import Stage


class Nemesis:
    """Troubles one world once."""

    def __init__(
        self,
        stage: Stage,
        faults: tuple[Fault, ...],
        ledger: Ledger,
        on_strike: Callable[[Fault], None] = lambda fault: None,
    ) -> None:
        """`on_strike` is told of each fault that is carried out, just before. Raises PlanError."""
        for fault in faults:
            if fault.kind not in SIM_KINDS or REAL_WORDS & fault.parameters.keys():
                raise PlanError(f"fault '{fault}': only a cluster of real servers can be given that")
        self.ack_count = 0
        """How many acknowledgements clients have got; counted by `acked`."""
        self.struck = [0] * len(faults)
        """How often each fault was carried out."""
        self._stage = stage
        self._faults = faults
        self._ledger = ledger
        self._on_strike = on_strike
        self._acked = trio.lowlevel.ParkingLot()
        self._acts: list[Act] = []
        self._on_call: list[Callable[[str, str, str], None]] = []
        self._on_barrier: list[Callable[[str], None]] = []

    def acked(self) -> None:
        """A client got an acknowledgement."""
        self.ack_count += 1
        self._acked.unpark_all()

    async def run(self) -> None:
        """Carry out all faults, until cancelled or done."""
        world = self._stage.world
        for node in world.nodes.values():
            node.disk_observer = lambda call, path, name=node.name: self._met_call(name, call, path)
        world.buggify.observer = self._met_barrier
        async with trio.open_nursery() as nursery:
            for index in range(len(self._faults)):
                nursery.start_soon(self._follow, index, name=f"fault {index + 1}")

    def _met_call(self, name: str, call: str, path: str) -> None:
        for observer in list(self._on_call):
            observer(name, call, path)

    def _met_barrier(self, name: str) -> None:
        for observer in list(self._on_barrier):
            observer(name)

    async def _follow(self, index: int) -> None:
        fault = self._faults[index]
        world = self._stage.world
        anchor = fault.anchor
        if isinstance(anchor, At):
            await world.sleep_ns(anchor.time_ns)
            await self._carry_out(index)
        elif isinstance(anchor, Every):
            await world.sleep_ns(anchor.first_ns)
            while True:
                due_ns = world.now_ns() + anchor.period_ns
                await self._carry_out(index)
                await world.sleep_ns(max(0, due_ns - world.now_ns()))
        elif isinstance(anchor, AfterAcks):
            while self.ack_count < anchor.count:
                await self._acked.park()
            await self._carry_out(index)
        else:
            await self._at_event(index, anchor)

    async def _at_event(self, index: int, anchor: BeforeCall | AtBarrier) -> None:
        """Strike inside the call that the anchor names, then go on from here."""
        struck = trio.Event()
        act: list[Act] = []
        seen = 0

        def strike() -> None:
            nonlocal seen
            seen += 1
            if seen == anchor.count:
                act.append(self._begin(index))
                lead.append(next(act[0], None))
                struck.set()

        lead: list[int | None] = []
        if isinstance(anchor, BeforeCall):
            targets = self._stage.targets(self._faults[index])

            def on_call(name: str, call: str, path: str) -> None:
                if call == anchor.call and name in targets and fnmatch.fnmatchcase(path, anchor.glob):
                    strike()

            self._on_call.append(on_call)
        else:

            def on_barrier(name: str) -> None:
                if name == anchor.name:
                    strike()

            self._on_barrier.append(on_barrier)
        await struck.wait()
        await self._go_on(index, act[0], lead[0])

    async def _carry_out(self, index: int) -> None:
        act = self._begin(index)
        await self._go_on(index, act, next(act, None))

    def _begin(self, index: int) -> Act:
        fault = self._faults[index]
        refusal = self._ledger.refusal(fault) or ("" if self._stage.targets(fault) else "there is no such node")
        if refusal:
            self._stage.recording.note(NEMESIS, "refused", f"{fault.kind}: {refusal}")
            return nothing()
        self._ledger.enter(fault)
        self._on_strike(fault)
        act = SIM_KINDS[fault.kind](self._stage, fault)
        self._acts.append(act)
        return act

    async def _go_on(self, index: int, act: Act, duration_ns: int | None) -> None:
        """See a fault through whose blow fell and that goes on after `duration_ns` (None: there was nothing to do)."""
        if duration_ns is None:
            return
        fault = self._faults[index]
        note = self._note(index, fault)
        try:
            while duration_ns is not None:
                await self._stage.world.sleep_ns(duration_ns)
                duration_ns = next(act, None)
        finally:
            act.close()
            self._stage.recording.end(note)

    def end(self) -> None:
        """End whatever still goes on. After `run` is over, or after the world has ended."""
        self._on_call.clear()
        self._on_barrier.clear()
        for act in self._acts:
            act.close()

    def _note(self, index: int, fault: Fault) -> Note:
        self.struck[index] += 1
        targets = tuple(self._stage.targets(fault))
        recording = self._stage.recording
        recording.probe(fault.kind)
        return recording.note(NEMESIS, "fault", f"F{index + 1} {fault}", targets=targets)

    def missed(self) -> list[Fault]:
        """The faults whose moment never came, or that found nothing to strike."""
        return [fault for fault, count in zip(self._faults, self.struck, strict=True) if not count]


def nothing() -> Act:
    """The act of a fault that is not carried out."""
    yield from ()
