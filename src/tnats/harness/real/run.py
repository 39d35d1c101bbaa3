"""One run of a variant of a finding against real servers: set up, trouble, and the verdict on what came of it.

Phases: start the servers and create the stream, with as many replicas as there are servers; the workload runs, each
client connected to one node, and after a quiet period the faults; what comes after them says `aftermath`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any

import attrs
import trio

from tnats.client import ClientError, connect
from tnats.client.jetstream import JetStream, StreamConfig
from tnats.harness import checkers
from tnats.harness.checkers.evidence import Evidence, Result
from tnats.harness.contract import Judgement, Observed, judge
from tnats.harness.findings import Finding, Profile, Variant
from tnats.harness.history import Recorder
from tnats.harness.real.aftermath import Aftermath, ProgressCallback
from tnats.harness.real.cluster import Cluster, open_cluster
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.nemesis import Nemesis
from tnats.harness.real.operator import Operator
from tnats.harness.real.targets import Target
from tnats.harness.real.workplace import open_workplace
from tnats.harness.workloads import jetstream
from tnats.harness.workloads.queue import QueueWorkload
from tnats.harness.workloads.register import RegisterWorkload
from tnats.limits import SECOND_NS
from tnats.records import frozen
from tnats.runtime.api import Runtime

CREATE_TIMEOUT_S = 10.0
CREATE_S = 30.0
"""For so long the creation is tried in a cluster."""
POLL_NS = 200_000_000
AUDIT_SHARE = 0.02
"""Of the acknowledgements, how many are audited."""
KEY_COUNT = 5

Worker = Callable[[], Awaitable[None]]


@frozen
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

    async def audit(self, cluster: Cluster) -> None:
        """Ask the stores about acknowledged values until cancelled: a majority must keep each. They are asked after the
        acknowledgement arrived, so "volatile" is certain.
        """
        stores = [node.store for node in cluster.nodes.values()]
        async for value in self._audit_queue:
            losses_before = len(self.observed.power_losses)
            answers = [await store.survives(jetstream.encode(value)) for store in stores]
            if None in answers:
                return
            if len(self.observed.power_losses) == losses_before:
                self.observed.audited_count += 1
                self.observed.audited_volatile_count += answers.count(True) <= len(stores) // 2

    async def trouble(self, cluster: Cluster, nemesis: Nemesis) -> None:
        """The workload and the faults, for as long as the profile says."""
        clock = self.runtime.clock
        scaled = tuple(fault.scaled(self.profile.time_scale) for fault in self.variant.faults)
        total_s = self.profile.quiet_s + self.profile.duration_s
        async with AsyncExitStack() as stack:
            workers = await self.open_workers(cluster, stack)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.audit, cluster)
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
                nursery.cancel_scope.cancel()

    async def open_workers(self, cluster: Cluster, stack: AsyncExitStack) -> list[Worker]:
        """Connect the workers of the variant's workload, spread over the nodes."""
        count, rate, timeout_s = self.profile.worker_count, self.profile.rate_per_s, self.profile.timeout_s
        nodes = list(cluster.nodes.values())
        workers: list[Worker] = []
        if self.variant.workload == "queue":
            queue = self.queue()
            for worker in range(count):
                node = nodes[worker % len(nodes)]
                log = jetstream.open_log(self.runtime, node.server.url, node.name, timeout_s)
                workers.append(partial(queue.write, worker, await stack.enter_async_context(log)))
            return workers
        registers = RegisterWorkload(
            self.runtime, self.recorder, worker_count=count, rate_per_s=rate, key_count=KEY_COUNT
        )
        for worker in range(count):
            node = nodes[worker % len(nodes)]
            register = jetstream.open_register(self.runtime, node.server.url, node.name, timeout_s)
            workers.append(partial(registers.run, worker, await stack.enter_async_context(register)))
        return workers

    @property
    def config(self) -> StreamConfig:
        """Of the stream that the workload writes to."""
        config = jetstream.LOG_CONFIG if self.variant.workload == "queue" else jetstream.BUCKET_CONFIG
        return attrs.evolve(config, num_replicas=self.variant.nodes)

    def nemesis(self, cluster: Cluster) -> Nemesis:
        operator = Operator(self.runtime, cluster)
        return Nemesis(
            self.runtime, self.recorder, self.observed, cluster, operator, self.nemesis_rng, lambda: self.ack_count
        )

    def aftermath(self, cluster: Cluster, nemesis: Nemesis) -> Aftermath:
        return Aftermath(
            self.runtime,
            cluster,
            nemesis,
            self.recorder,
            self.evidence,
            self.observed,
            self.config,
            self.reader,
            self.progress,
        )

    def queue(self) -> QueueWorkload:
        return QueueWorkload(
            self.runtime,
            self.recorder,
            worker_count=self.profile.worker_count,
            rate_per_s=self.profile.rate_per_s,
            on_ack=self.on_ack,
        )


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
    async with (
        open_workplace(keep=keep) as workplace,
        open_cluster(runtime, workplace, target, variant, profile, run.store_rng) as cluster,
    ):
        nemesis = run.nemesis(cluster)
        missing = nemesis.missing(variant.faults)
        if missing:
            raise CouldNotRun(f"{finding.id} {variant.name}: `{missing[0]}` cannot be done to real processes yet")
        progress("starting the server", 0.0, 1.0)
        await cluster.start()
        await create_stream(runtime, cluster, run.config)
        await run.trouble(cluster, nemesis)
        await run.aftermath(cluster, nemesis).run(run.queue() if variant.workload == "queue" else None)
        for name, node in cluster.nodes.items():
            text = node.server.log_text()
            run.observed.logged[name] = [words for words in finding.log_words if words in text]
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


async def create_stream(runtime: Runtime, cluster: Cluster, config: StreamConfig) -> None:
    """Create what the workload writes to; a cluster may need a while to elect who can. Raises CouldNotRun."""
    start_ns = runtime.clock.mono_ns()
    while True:
        try:
            url = cluster.first.server.url
            async with connect(url, runtime=runtime, connect_timeout_s=CREATE_TIMEOUT_S) as client:
                await JetStream(client, timeout_s=CREATE_TIMEOUT_S).create_stream(config)
                return
        except ClientError as exc:
            if cluster.routes is None or runtime.clock.mono_ns() - start_ns > CREATE_S * SECOND_NS:
                name = cluster.first.server.target.name
                raise CouldNotRun(f"{name} created no stream: {type(exc).__name__}: {exc}") from None
        await runtime.clock.sleep_ns(POLL_NS)
