"""What happens when the faults have ended: service is waited for, everything is read, and once more after a restart.

A server alone is read message by message. In a cluster each node must serve within `LIVE_S`, and where a majority does
it is read all the same; then the leader has `CONVERGE_S` to call all replicas current; consumers connected to each node
read everything, as Jepsen's clients do, and each replica is read by itself.
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
from tnats.harness.real import block_files
from tnats.harness.real.cluster import Cluster, Node
from tnats.harness.real.inspection import read_replica
from tnats.harness.real.nemesis import Nemesis
from tnats.harness.real.replicas import read_replicas
from tnats.harness.real.stores import Store
from tnats.harness.real.workplace import last_line
from tnats.harness.workloads import jetstream
from tnats.harness.workloads.queue import QueueWorkload
from tnats.harness.workloads.register import RegisterWorkload
from tnats.limits import SECOND_NS
from tnats.records import define
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


@define
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
    _serving: list[Node] = attrs.field(init=False, factory=list)
    """Nodes that answered when service was last waited for."""
    _gone_count: int = attrs.field(init=False, default=0)
    """How many said then that there is no such stream."""

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
            await self.look_at_disk(name, node.store)

    async def look_at_disk(self, name: str, store: Store) -> None:
        """What the files of a stopped node hold, as far as they are understood."""
        files = await store.files("block")
        self.observed.on_disk[name] = sum(size for _, size in files)
        blocks = [path for path, _ in files if path.endswith(".blk") and f"/streams/{jetstream.STREAM}/" in path]
        if blocks or not files:
            found = [data for path in blocks for _, data in block_files.messages(store.read(path))]
            self.observed.values_on_disk[name] = {jetstream.decode(data) for data in found}

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
                for node in self._serving
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
        first = self._serving[0]
        async with connect(first.server.url, runtime=self.runtime, connect_timeout_s=READ_TIMEOUT_S) as client:
            if self.cluster.routes is None:
                return [await read_replica(client, first.server, self.evidence, reports.get(first.name, []))]
            servers = {node.name: node.server for node in self._serving}
            replicas = await read_replicas(client, servers, self.evidence)
        silent = self.observed.not_serving.items()
        replicas += [Replica(name, {}, failure=reason) for name, reason in silent if name not in servers]
        return sorted(replicas, key=lambda replica: replica.node)

    # ------------------------------------------------------------------ waiting

    async def wait_service(self) -> bool:
        """Wait until every node answers for the stream's state, all within one period of `LIVE_S`; whether so many do
        that there is something to read.
        """
        start_ns = self.runtime.clock.mono_ns()
        self._gone_count = 0
        silent = {}
        for name, node in self.cluster.nodes.items():
            if reason := await self._wait_answer(node, start_ns):
                silent[name] = reason
        self._serving = [node for name, node in self.cluster.nodes.items() if name not in silent]
        self.observed.stream_gone = not self._serving and self._gone_count > 0
        if len(self._serving) >= self.cluster.majority_count:
            self.observed.not_serving |= silent
            return True
        if not self.observed.stream_gone:
            name, reason = next(iter(silent.items()))
            count = len(self.cluster.nodes)
            text = reason if count == 1 else f"{len(self._serving)} of {count} nodes serve; {name}: {reason}"
            self.observed.unavailable = text
        return False

    async def _wait_answer(self, node: Node, start_ns: int) -> str:
        """Empty once it answers, otherwise why it does not."""
        if not node.server.is_running:
            return node.start_failure or ended_by_itself(node)
        reason = ""
        is_gone = False
        while (passed_s := (self.runtime.clock.mono_ns() - start_ns) / SECOND_NS) < LIVE_S or not reason:
            self.progress("waiting for service", passed_s, LIVE_S)
            try:
                await self._info(node)
            except ClientError as exc:
                is_gone = isinstance(exc, StreamNotFound)
                if is_gone and self.cluster.routes is None and passed_s > GONE_S:
                    break
                reason = f"{type(exc).__name__}: {exc}"
            else:
                return ""
            if not node.server.is_running:
                return ended_by_itself(node)
            await self.runtime.clock.sleep_ns(POLL_NS)
        self._gone_count += is_gone
        return f"for {LIVE_S:g} s: {reason}"

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
                self.observed.not_current = behind(await self._info(self._serving[0]), len(self.cluster.nodes))
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
    return f"the server {node.name} ended by itself; its log ends with: {last_line(node.server.log)}"
