"""The workloads, on a store in memory: the checkers are quiet on a correct one and find what is planted in others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import trio

from tnats.harness import checkers
from tnats.harness.checkers.evidence import Evidence, Replica, Stored
from tnats.harness.history import Recorder
from tnats.harness.linearizability import search
from tnats.harness.registers import RegisterModel, calls_by_key, judge, judge_key
from tnats.harness.workloads.access import Acknowledged, Delivered, Indeterminate, Refused
from tnats.harness.workloads.queue import QueueWorkload, high_water_marks
from tnats.harness.workloads.register import DELETED, RegisterWorkload
from tnats.runtime.api import Runtime
from tnats.runtime.sim.world import World, run_world

SECOND_NS = 1_000_000_000
WORKERS = 4


class MemoryLog:
    """A log shared by its accesses. Answers take a drawn time; some publishes are refused, some end unknown."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.rng = runtime.chance.rng("store")
        self.messages: dict[int, str] = {}
        self.last_seq = 0

    async def pause(self) -> None:
        await self.runtime.clock.sleep_ns(int(self.rng.random() * SECOND_NS / 50))

    def append(self, value: str) -> int:
        self.last_seq += 1
        self.messages[self.last_seq] = value
        return self.last_seq


class MemoryAccess:
    node = "n1"

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.next_seq = 1

    async def publish(self, value: str) -> Acknowledged:
        await self.log.pause()
        fate = self.log.rng.random()
        if fate < 0.05:
            raise Refused("no responders")
        if fate < 0.1:
            if fate < 0.075:
                self.log.append(value)
            raise Indeterminate("timed out")
        seq = self.log.append(value)
        await self.log.pause()
        return Acknowledged("s", seq, False)

    async def fetch(self, count: int) -> list[Delivered]:
        await self.log.pause()
        seqs = sorted(seq for seq in self.log.messages if seq >= self.next_seq)[: min(count, 40)]
        self.next_seq = seqs[-1] + 1 if seqs else self.next_seq
        return [Delivered(seq, self.log.messages[seq]) for seq in seqs]


async def in_world(main: Callable[[Runtime], object], world: World) -> None:
    node = world.node("clients")
    node.start(main)  # type: ignore[arg-type]
    await node.wait_ended()


def queue_run(seed: int, plant: Callable[[MemoryLog], None] = lambda log: None) -> tuple[Evidence, bool]:
    """Twenty virtual seconds of W1 and its drain; `plant` spoils the log at the end of the workload."""
    found: list[tuple[Evidence, bool]] = []

    async def main(runtime: Runtime) -> None:
        log = MemoryLog(runtime)
        recorder = Recorder(runtime.clock.mono_ns, WORKERS + 1)
        queue = QueueWorkload(runtime, recorder, worker_count=WORKERS, rate_per_s=50)
        with runtime.clock.deadline(runtime.clock.mono_ns() + 20 * SECOND_NS):
            async with trio.open_nursery() as nursery:
                for worker in range(WORKERS):
                    nursery.start_soon(queue.write, worker, MemoryAccess(log))
        plant(log)
        caught_up = await queue.drain(WORKERS, MemoryAccess(log))
        stored = {seq: Stored(value, "jepsen.0", seq) for seq, value in log.messages.items()}
        found.append((Evidence(recorder.history, [Replica("n1", stored, max(stored))]), caught_up))

    run_world(seed, partial(in_world, main)).unwrap()
    return found[0]


def violated(evidence: Evidence) -> list[str]:
    return [result.checker for check in checkers.STREAM if (result := check(evidence)).verdict != "ok"]


@pytest.mark.parametrize("seed", range(3))
def test_a_correct_log_passes_with_refusals_and_unknown_ends(seed: int) -> None:
    """Everything acknowledged is drained, what was refused is not there, what is unknown may be."""
    evidence, caught_up = queue_run(seed)
    operations = evidence.history.operations("publish")
    assert len(operations) > 300
    assert any(op.is_failed for op in operations)
    assert any(op.end is None for op in operations)
    assert caught_up
    assert violated(evidence) == []


def test_the_drain_gives_up_when_the_last_of_a_producer_is_lost() -> None:
    """It says so, and the loss is a postfix of its producer."""

    def lose_last(log: MemoryLog) -> None:
        for seq in range(log.last_seq - 20, log.last_seq + 1):
            del log.messages[seq]

    evidence, caught_up = queue_run(1, lose_last)
    assert not caught_up
    assert violated(evidence) == ["C1"]


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lambda log: log.messages.pop(50), ["C1", "C5"]),
        (lambda log: log.messages.update({log.last_seq + 1: log.messages[50]}), ["C4"]),
        (lambda log: log.messages.update({50: log.messages[51], 51: log.messages[50]}), ["C1"]),
        (lambda log: log.messages.update({log.last_seq + 1: "99-0"}), ["C3"]),
    ],
    ids=["lost", "twice", "swapped", "made up"],
)
def test_planted_faults_of_the_log_are_found(plant: Callable[[MemoryLog], None], expected: list[str]) -> None:
    """Each by the checkers it belongs to, and by no other. (Sequence 50 of this seed is acknowledged.)"""
    evidence, _ = queue_run(1, plant)
    assert violated(evidence) == expected


def test_high_water_marks_count_acknowledged_values_alone() -> None:
    """The highest counter of each producer that got an acknowledgement."""
    evidence, _ = queue_run(2)
    marks = high_water_marks(evidence.history)
    acked = [op.value for op in evidence.acked()]
    assert set(marks) == {value.partition("-")[0] for value in acked}
    assert all(f"{producer}-{counter}" in acked for producer, counter in marks.items())


class MemoryRegisters:
    """A correct bucket, but for what `stale` lets happen: a get at the leader shows the revision before the newest."""

    node = "n1"

    def __init__(self, runtime: Runtime, stale: float) -> None:
        self.log = MemoryLog(runtime)
        self.stale = stale
        self.keys: dict[str, list[tuple[str | None, int]]] = {}

    async def write(self, key: str, value: str, fits: Callable[[str | None, int], bool]) -> int:
        await self.log.pause()
        revisions = self.keys.setdefault(key, [(None, 0)])
        if not fits(*revisions[-1]):
            raise Refused("wrong last sequence", is_conflict=True)
        fate = self.log.rng.random()
        if fate > 0.03:
            revisions.append((value, self.log.append(value)))
        await self.log.pause()
        if fate < 0.06:
            raise Indeterminate("timed out")
        return revisions[-1][1] if revisions[-1][0] == value else self.revision(key, value)

    def revision(self, key: str, value: str) -> int:
        return next(revision for found, revision in self.keys[key] if found == value)

    async def put(self, key: str, value: str) -> int:
        return await self.write(key, value, lambda found, revision: True)

    async def create(self, key: str, value: str) -> int:
        return await self.write(key, value, lambda found, revision: found is None or found.startswith(DELETED))

    async def update(self, key: str, value: str, revision: int) -> int:
        return await self.write(key, value, lambda found, newest: newest == revision)

    async def delete(self, key: str, marker: str) -> int:
        return await self.write(key, marker, lambda found, revision: True)

    async def get(self, key: str, *, direct: bool) -> tuple[str | None, int]:
        await self.log.pause()
        revisions = self.keys.get(key, [(None, 0)])
        is_stale = not direct and len(revisions) > 1 and self.log.rng.random() < self.stale
        found = revisions[-2 if is_stale else -1]
        await self.log.pause()
        return found


def register_run(seed: int, stale: float = 0.0) -> Evidence:
    """Thirty virtual seconds of W3."""
    found: list[Evidence] = []

    async def main(runtime: Runtime) -> None:
        registers = MemoryRegisters(runtime, stale)
        recorder = Recorder(runtime.clock.mono_ns, WORKERS + 1)
        workload = RegisterWorkload(runtime, recorder, worker_count=WORKERS, rate_per_s=40, key_count=3)
        with runtime.clock.deadline(runtime.clock.mono_ns() + 30 * SECOND_NS):
            async with trio.open_nursery() as nursery:
                for worker in range(WORKERS):
                    nursery.start_soon(workload.run, worker, registers)
        await workload.read_all(recorder, WORKERS, registers)
        found.append(Evidence(recorder.history))

    run_world(seed, partial(in_world, main)).unwrap()
    return found[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_correct_bucket_passes_with_unknown_ends(seed: int) -> None:
    """Every kind of operation occurs, keys are retired, conflicts and unknown ends are explained."""
    evidence = register_run(seed)
    operations = evidence.history.operations()
    assert {op.f for op in operations if op.is_ok} == {"get", "get-direct", "put", "update", "create", "delete"}
    assert any(op.end is None for op in operations)
    assert len({op.value[0] for op in operations}) > 3
    assert [result.texts for check in checkers.REGISTERS if (result := check(evidence)).verdict != "ok"] == []


@pytest.mark.parametrize("stale", [0.0, 0.05])
def test_the_search_agrees_with_the_fast_path_on_whole_histories(stale: float) -> None:
    """On every key, with hundreds of calls and several unknown ends, within the step budget."""
    verdicts = []
    for calls in calls_by_key(register_run(2, stale).history).values():
        fast, text = judge_key(calls)
        assert search(RegisterModel(), calls).verdict == judge(calls)[0]
        assert fast in ("unsure", judge(calls)[0]), text
        verdicts.append(fast)
    assert "ok" in verdicts
    assert ("violated" in verdicts) == (stale > 0)


def test_stale_reads_at_the_leader_are_found() -> None:
    """A few of them in hundreds of operations."""
    results = [check(register_run(1, stale=0.05)) for check in checkers.REGISTERS]
    assert [result.checker for result in results if result.verdict == "violated"] == ["C8"]
