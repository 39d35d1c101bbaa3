"""One run of a variant of a finding against a real server on one node: set up, trouble, heal, read, judge.

Phases: start the server and create the stream; the workload runs, and after a quiet period the faults; then the faults
end, the server is started if it is down, and must serve again within `LIVE_S`; everything is read back, once by
consumers and once message by message; the server is stopped in order and started, and all is read once more.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import attrs
import trio

from tnats.client import ClientError, connect
from tnats.client.jetstream import JetStream, StreamNotFound
from tnats.harness import checkers
from tnats.harness.checkers.evidence import Evidence, Replica, Result
from tnats.harness.contract import Judgement, Observed, judge
from tnats.harness.findings import Finding, Profile, Variant
from tnats.harness.history import Recorder
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.inspection import read_replica
from tnats.harness.real.nemesis import Nemesis
from tnats.harness.real.processes import ServerProcess
from tnats.harness.real.stores import DirectoryStore, Store, open_fault_fs
from tnats.harness.real.targets import Target
from tnats.harness.real.workplace import Workplace, open_workplace
from tnats.harness.workloads import jetstream
from tnats.harness.workloads.queue import QueueWorkload
from tnats.harness.workloads.register import RegisterWorkload
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime

LIVE_S = 36.0
"""Service must be back within four of nats-server's longest election time-outs; one node needs no election."""
GONE_S = 5.0
"""A server that answers for so long that there is no such stream has recovered without it."""
CREATE_TIMEOUT_S = 10.0
POLL_NS = 200_000_000
AUDIT_SHARE = 0.02
"""Of the acknowledgements, how many are audited."""
KEY_COUNT = 5
WRITE_BACK_S = 30.0
"""Linux's default: dirty_expire_centisecs."""

Worker = Callable[[], Awaitable[None]]
ProgressCallback = Callable[[str, float, float], None]
"""Told the phase, and of how many seconds how many have passed."""


@attrs.frozen
class Report:
    """What a run came to."""

    finding: Finding
    variant: Variant
    profile: str
    target: str
    seed: int
    started: str
    evidence: Evidence
    observed: Observed
    results: tuple[Result, ...]
    judgement: Judgement
    directory: str
    """Where store and logs were kept; empty if they were not."""

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """The counts of all checkers, by checker."""
        return {result.checker: dict(result.figures) for result in self.results}


class Run:
    """The state of one run between its phases."""

    def __init__(
        self, runtime: Runtime, variant: Variant, profile: Profile, seed: int, progress: ProgressCallback
    ) -> None:
        self.runtime = runtime
        self.variant = variant
        self.profile = profile
        # Apart, so that how many acknowledgements arrive does not shift what the nemesis draws.
        self.nemesis_rng = random.Random(f"{seed}.nemesis")
        self.store_rng = random.Random(f"{seed}.store")
        self.audit_rng = random.Random(f"{seed}.audit")
        self.progress = progress
        self.observed = Observed()
        # One worker more than there are writers: it checks service and reads at the end.
        self.recorder = Recorder(runtime.clock.mono_ns, profile.worker_count + 1)
        self.evidence = Evidence(self.recorder.history)
        self.ack_count = 0
        self._audits: trio.MemorySendChannel[str]
        self._audits, self._audit_queue = trio.open_memory_channel[str](1)

    @property
    def reader(self) -> int:
        """The worker of the last phases."""
        return self.profile.worker_count

    def on_ack(self, value: str) -> None:
        """Count, and have some of them audited; while one audit is under way no other begins."""
        self.ack_count += 1
        if self.audit_rng.random() < AUDIT_SHARE:
            try:
                self._audits.send_nowait(value)
            except trio.WouldBlock:
                pass

    async def audit(self, store: Store) -> None:
        """Ask the store about acknowledged values until cancelled. It is asked after the acknowledgement arrived, so
        "volatile" is certain.
        """
        async for value in self._audit_queue:
            losses_before = len(self.observed.power_losses)
            survives = await store.survives(jetstream.encode(value))
            if survives is None:
                return
            if len(self.observed.power_losses) == losses_before:
                self.observed.audited_count += 1
                self.observed.audited_volatile_count += not survives

    async def trouble(self, server: ServerProcess, store: Store, nemesis: Nemesis) -> None:
        """The workload and the faults, for as long as the profile says."""
        async with AsyncExitStack() as stack:
            await self.trouble_workers(await self.open_workers(server, stack), store, nemesis)

    async def trouble_workers(self, workers: list[Worker], store: Store, nemesis: Nemesis) -> None:
        clock = self.runtime.clock
        scaled = tuple(fault.scaled(self.profile.time_scale) for fault in self.variant.faults)
        total_s = self.profile.quiet_s + self.profile.duration_s
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.audit, store)
            for worker in workers:
                nursery.start_soon(worker)
            start_ns = clock.mono_ns()

            async def faults() -> None:
                await clock.sleep_ns(int(self.profile.quiet_s * SECOND_NS))
                await nemesis.run(scaled)

            nursery.start_soon(faults)
            while (passed_s := (clock.mono_ns() - start_ns) / SECOND_NS) < total_s:
                self.progress("workload and faults", passed_s, total_s)
                await clock.sleep_ns(POLL_NS)
            async with nemesis.between_faults():
                nursery.cancel_scope.cancel()

    async def open_workers(self, server: ServerProcess, stack: AsyncExitStack) -> list[Worker]:
        """Connect the workers of the variant's workload."""
        count, rate, timeout_s = self.profile.worker_count, self.profile.rate_per_s, self.profile.timeout_s
        workers: list[Worker] = []
        if self.variant.workload == "queue":
            queue = self.queue()
            for worker in range(count):
                log = jetstream.open_log(self.runtime, server.url, server.name, timeout_s)
                workers.append(partial(queue.write, worker, await stack.enter_async_context(log)))
            return workers
        registers = RegisterWorkload(
            self.runtime, self.recorder, worker_count=count, rate_per_s=rate, key_count=KEY_COUNT
        )
        for worker in range(count):
            register = jetstream.open_register(self.runtime, server.url, server.name, timeout_s)
            workers.append(partial(registers.run, worker, await stack.enter_async_context(register)))
        return workers

    def queue(self) -> QueueWorkload:
        return QueueWorkload(
            self.runtime,
            self.recorder,
            worker_count=self.profile.worker_count,
            rate_per_s=self.profile.rate_per_s,
            on_ack=self.on_ack,
        )

    async def wait_service(self, server: ServerProcess, nemesis: Nemesis) -> bool:
        """Heal, then wait until the stream's state is answered."""
        await nemesis.heal()
        if not server.is_running:
            self.observed.unavailable = nemesis.start_failure
            return False
        config = jetstream.LOG_CONFIG if self.variant.workload == "queue" else jetstream.BUCKET_CONFIG
        start_ns = self.runtime.clock.mono_ns()
        reason = ""
        while (passed_s := (self.runtime.clock.mono_ns() - start_ns) / SECOND_NS) < LIVE_S:
            self.progress("waiting for service", passed_s, LIVE_S)
            try:
                async with connect(server.url, runtime=self.runtime) as client:
                    await JetStream(client, timeout_s=2.0).stream(config.name).info()
                    self.observed.stream_gone = False
                    return True
            except ClientError as exc:
                self.observed.stream_gone = isinstance(exc, StreamNotFound)
                if self.observed.stream_gone and passed_s > GONE_S:
                    return False
                reason = f"{type(exc).__name__}: {exc}"
            if not server.is_running:
                self.observed.unavailable = f"the server ended by itself; its log ends with: {server.last_log_line()}"
                return False
            await self.runtime.clock.sleep_ns(POLL_NS)
        if not self.observed.stream_gone:
            self.observed.unavailable = f"for {LIVE_S:g} s: {reason}"
        return False

    async def read_back(self, server: ServerProcess, nemesis: Nemesis) -> None:
        """Drain by consumers, read message by message, restart in order, read again."""
        timeout_s = max(5.0, self.profile.timeout_s)
        if self.variant.workload == "register":
            async with jetstream.open_register(self.runtime, server.url, server.name, timeout_s) as register:
                await RegisterWorkload.read_all(self.recorder, self.reader, register)
            return
        self.progress("reading back", 0.0, 1.0)
        async with jetstream.open_log(self.runtime, server.url, server.name, timeout_s) as log:
            queue = self.queue()
            if not await queue.publish(self.reader, log):
                self.observed.unavailable = "a publish after the faults was not acknowledged"
            await queue.drain(self.reader, log)
        async with connect(server.url, runtime=self.runtime) as client:
            reports = self.observed.reports
            self.evidence.replicas.append(await read_replica(client, server, self.evidence, reports))
        self.progress("reading back after a restart", 0.5, 1.0)
        await server.stop()
        if not await self.wait_service(server, nemesis):
            return
        async with connect(server.url, runtime=self.runtime) as client:
            self.evidence.restarted.append(await read_replica(client, server, self.evidence))


@asynccontextmanager
async def open_store(
    workplace: Workplace, variant: Variant, profile: Profile, rng: random.Random
) -> AsyncIterator[Store]:
    """The kind of store that the variant asks for."""
    if variant.store == "faultfs":
        async with open_fault_fs(
            workplace,
            rng.randrange(1 << 30),
            names=variant.names,
            write_back_s=WRITE_BACK_S * profile.time_scale if variant.write_back else 0.0,
        ) as store:
            yield store
        return
    path = workplace.directory / "store"
    path.mkdir()
    yield DirectoryStore(path, rng)


async def run_variant(
    runtime: Runtime,
    finding: Finding,
    variant: Variant,
    profile_name: str,
    target: Target,
    *,
    seed: int,
    keep: bool,
    progress: ProgressCallback,
) -> Report:
    """Run one variant; raises CouldNotRun when the run says nothing about the target."""
    profile = finding.profiles[profile_name]
    run = Run(runtime, variant, profile, seed, progress)
    started = datetime.fromtimestamp(runtime.clock.wall_ns() / SECOND_NS, UTC).isoformat(timespec="seconds")
    async with open_workplace(keep=keep) as workplace, open_store(workplace, variant, profile, run.store_rng) as store:
        server = ServerProcess(runtime, workplace, target, "n1", store.path, variant.sync_interval)
        nemesis = Nemesis(runtime, run.recorder, run.observed, server, store, run.nemesis_rng, lambda: run.ack_count)
        missing = nemesis.missing(variant.faults)
        if missing:
            raise CouldNotRun(f"{finding.id} {variant.name}: `{missing[0]}` cannot be done to real processes yet")
        progress("starting the server", 0.0, 1.0)
        await server.start()
        await create_stream(runtime, server, variant)
        await run.trouble(server, store, nemesis)
        if await run.wait_service(server, nemesis):
            try:
                await run.read_back(server, nemesis)
            except ClientError as exc:
                run.observed.unavailable = f"while reading back: {type(exc).__name__}: {exc}"
        elif run.observed.stream_gone:
            run.evidence.replicas.append(Replica(server.name, {}))
        await server.stop()
    suite = checkers.STREAM if variant.workload == "queue" else checkers.REGISTERS
    results = tuple(check(run.evidence) for check in suite)
    judgement = judge(variant, run.evidence, results, run.observed)
    return Report(
        finding=finding,
        variant=variant,
        profile=profile_name,
        target=target.name,
        seed=seed,
        started=started,
        evidence=run.evidence,
        observed=run.observed,
        results=results,
        judgement=judgement,
        directory=str(workplace.directory) if keep else "",
    )


async def create_stream(runtime: Runtime, server: ServerProcess, variant: Variant) -> None:
    """Create what the workload writes to. Raises CouldNotRun."""
    config = jetstream.LOG_CONFIG if variant.workload == "queue" else jetstream.BUCKET_CONFIG
    try:
        async with connect(server.url, runtime=runtime) as client:
            await JetStream(client, timeout_s=CREATE_TIMEOUT_S).create_stream(config)
    except ClientError as exc:
        raise CouldNotRun(f"{server.target.name} created no stream: {type(exc).__name__}: {exc}") from None
