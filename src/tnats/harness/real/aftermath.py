"""What happens when the faults have ended: service is waited for, everything is read, and once more after a restart.

A server alone is read message by message. In a cluster each node must serve within `LIVE_S`; then the leader has
`CONVERGE_S` to call all replicas current; consumers connected to each node read everything, as Jepsen's clients do,
and each replica is read by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

import attrs

from tnats.client import ClientError, connect
from tnats.client.jetstream import JetStream, StreamConfig, StreamInfo, StreamNotFound
from tnats.harness.checkers.evidence import Evidence, Replica
from tnats.harness.contract import Observed
from tnats.harness.history import Recorder
from tnats.harness.real.cluster import Cluster, Node
from tnats.harness.real.inspection import read_replica
from tnats.harness.real.nemesis import Nemesis
from tnats.harness.real.replicas import read_replicas
from tnats.harness.workloads import jetstream
from tnats.harness.workloads.queue import QueueWorkload
from tnats.harness.workloads.register import RegisterWorkload
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime

LIVE_S = 36.0
"""Service must be back within four of nats-server's longest election time-outs; one node needs no election."""
GONE_S = 5.0
"""A server alone that answers for so long that there is no such stream has recovered without it."""
CONVERGE_S = 60.0
ANSWER_S = 2.0
READ_TIMEOUT_S = 5.0
POLL_NS = 200_000_000

ProgressCallback = Callable[[str, float, float], None]
"""Told the phase, and of how many seconds how many have passed."""


@attrs.define
class Aftermath:
    """The last phases of one run; what they find stands in `evidence` and `observed`."""

    runtime: Runtime
    cluster: Cluster
    nemesis: Nemesis
    recorder: Recorder
    evidence: Evidence
    observed: Observed
    config: StreamConfig
    """Of the stream that the workload wrote to."""
    reader: int
    """The worker in whose name is read."""
    progress: ProgressCallback

    async def run(self, queue: QueueWorkload | None) -> None:
        """Heal, wait, read, restart, read. Without `queue` the workload was one of registers."""
        await self.nemesis.heal()
        if await self.wait_service():
            await self.wait_current()
            try:
                await self.read_back(queue)
            except ClientError as exc:
                self.observed.unavailable = f"while reading back: {type(exc).__name__}: {exc}"
        elif self.observed.stream_gone:
            self.evidence.replicas += [Replica(name, {}) for name in self.cluster.names]
        await self.cluster.stop()
        for name, node in self.cluster.nodes.items():
            self.observed.on_disk[name] = sum(size for _, size in await node.store.files("block"))

    async def read_back(self, queue: QueueWorkload | None) -> None:
        """Drain by consumers, read message by message, restart in order, read again. Raises ClientError."""
        self.progress("reading back", 0.0, 1.0)
        if queue is None:
            first = self.cluster.first
            url, name = first.server.url, first.name
            async with jetstream.open_register(self.runtime, url, name, READ_TIMEOUT_S) as register:
                await RegisterWorkload.read_all(self.recorder, self.reader, register)
            return
        async with AsyncExitStack() as stack:
            logs = [
                await stack.enter_async_context(
                    jetstream.open_log(self.runtime, node.server.url, node.name, READ_TIMEOUT_S)
                )
                for node in self.cluster.nodes.values()
            ]
            for log in logs:
                if not await queue.publish(self.reader, log):
                    self.observed.unavailable = f"a publish at {log.node} after the faults was not acknowledged"
            for log in logs:
                await queue.drain(self.reader, log)
        self.evidence.replicas += await self.read(self.observed.reports)
        self.progress("reading back after a restart", 0.5, 1.0)
        await self.cluster.stop()
        await self.nemesis.heal()
        if await self.wait_service():
            await self.wait_current()
            self.evidence.restarted += await self.read({})

    async def read(self, reports: Mapping[str, list[str]]) -> list[Replica]:
        """What each node holds. `reports`: what the health check of each has said before."""
        first = self.cluster.first
        async with connect(first.server.url, runtime=self.runtime) as client:
            if self.cluster.routes is None:
                return [await read_replica(client, first.server, self.evidence, reports.get(first.name, []))]
            servers = {name: node.server for name, node in self.cluster.nodes.items()}
            return await read_replicas(client, servers, self.evidence)

    # ------------------------------------------------------------------ waiting

    async def wait_service(self) -> bool:
        """Wait until every node answers for the stream's state. All must within one period of `LIVE_S`."""
        for node in self.cluster.nodes.values():
            if not node.server.is_running:
                self.observed.unavailable = node.start_failure or ended_by_itself(node)
                return False
        start_ns = self.runtime.clock.mono_ns()
        return all([await self._wait_answer(node, start_ns) for node in self.cluster.nodes.values()])

    async def _wait_answer(self, node: Node, start_ns: int) -> bool:
        alone = self.cluster.routes is None
        reason = ""
        while (passed_s := (self.runtime.clock.mono_ns() - start_ns) / SECOND_NS) < LIVE_S or not reason:
            self.progress("waiting for service", passed_s, LIVE_S)
            try:
                await self._info(node)
            except ClientError as exc:
                self.observed.stream_gone = isinstance(exc, StreamNotFound)
                if self.observed.stream_gone and alone and passed_s > GONE_S:
                    return False
                reason = f"{type(exc).__name__}: {exc}"
            else:
                self.observed.stream_gone = False
                return True
            if not node.server.is_running:
                self.observed.unavailable = ended_by_itself(node)
                return False
            await self.runtime.clock.sleep_ns(POLL_NS)
        if not self.observed.stream_gone:
            where = "" if alone else f"at {node.name} "
            self.observed.unavailable = f"{where}for {LIVE_S:g} s: {reason}"
        return False

    async def _info(self, node: Node) -> StreamInfo:
        async with connect(node.server.url, runtime=self.runtime) as client:
            return await JetStream(client, timeout_s=ANSWER_S).stream(self.config.name).info()

    async def wait_current(self) -> None:
        """Wait until the leader calls every other replica current; say which ones it does not."""
        if self.cluster.routes is None:
            return
        start_ns = self.runtime.clock.mono_ns()
        while True:
            try:
                self.observed.not_current = behind(await self._info(self.cluster.first), len(self.cluster.nodes))
            except ClientError as exc:
                self.observed.not_current = f"{type(exc).__name__}: {exc}"
            passed_s = (self.runtime.clock.mono_ns() - start_ns) / SECOND_NS
            if not self.observed.not_current or passed_s > CONVERGE_S:
                return
            self.progress("waiting for replicas", passed_s, CONVERGE_S)
            await self.runtime.clock.sleep_ns(POLL_NS)


def behind(info: StreamInfo, node_count: int) -> str:
    """Which replicas its leader does not call current, and how far they are; empty if there is none."""
    if info.cluster is None or not info.cluster.leader:
        return "the stream has no leader"
    late = [
        f"{peer.name} ({'offline' if peer.offline else f'{peer.lag} entries behind'})"
        for peer in info.cluster.replicas
        if not peer.current or peer.lag
    ]
    if not late and len(info.cluster.replicas) + 1 < node_count:
        return f"the stream has {len(info.cluster.replicas) + 1} replicas of {node_count}"
    return ", ".join(late)


def ended_by_itself(node: Node) -> str:
    return f"the server {node.name} ended by itself; its log ends with: {node.server.last_log_line()}"
