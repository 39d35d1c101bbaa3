"""Carries out fault records on real processes, their stores, and the network between them.

Faults overlap where their records do, but each node is changed by one at a time: whoever changes it holds its lock.
What was done stands in the history as the nemesis's operations. A server that does not start after a fault is noted and
tried again by the next fault, and at the end. A cancelled nemesis ends between two steps, never in one: a server that
was killed for a power loss has lost its power; what lasts (pauses, partitions, servers that are down or have left) is
ended by `heal`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from functools import partial

import trio

from tnats.harness import selection
from tnats.harness.contract import Observed, PowerLoss
from tnats.harness.faults import AfterAcks, At, Every, Fault
from tnats.harness.history import Recorder
from tnats.harness.real.cluster import Cluster, Node
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.operator import Operator
from tnats.harness.real.routes import Link
from tnats.harness.real.stores import FILE_CLASSES
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime
from tnats.runtime.sim.disk_image import CrashPolicy

POLL_NS = 20_000_000
WORDS: Mapping[str, Container[str]] = {
    "files": FILE_CLASSES,
    "kind": selection.PARTITIONS,
    "name": ("new", "old"),
    "policy": [policy.value for policy in CrashPolicy],
    "stop": ("kill", "term"),
    "way": ("in", "out"),
}
"""What parameters may be; `files` several with bars between them."""


class Nemesis:
    """Troubles a cluster, or a server alone. `ack_count` tells how many acknowledgements clients have got."""

    def __init__(
        self,
        runtime: Runtime,
        recorder: Recorder,
        observed: Observed,
        cluster: Cluster,
        operator: Operator,
        rng: random.Random,
        ack_count: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._recorder = recorder
        self._observed = observed
        self._cluster = cluster
        self._rng = rng
        self._ack_count = ack_count
        self._operator = operator
        self._on_nodes: dict[str, Callable[[Fault, Node], Awaitable[None]]] = {
            "P_KILL": self._kill,
            "P_TERM": self._terminate,
            "P_CRASHLOOP": self._crash_loop,
            "P_PAUSE": self._pause,
            "D_POWER": self._power,
            "D_BITFLIP": self._damage,
            "D_TRUNC": self._damage,
        }
        self._on_cluster: dict[str, Callable[[Fault, list[Node]], Awaitable[None]]] = {
            "N_PART": self._partition,
            "N_ASYM": self._deafen,
            "N_DELAY": self._delay,
            "N_SLOW": self._slow,
            "M_REMOVE": self._remove,
            "M_ADD": self._add,
            "O_DECOYS": self._decoys,
        }

    def missing(self, faults: tuple[Fault, ...]) -> list[str]:
        """Faults that cannot be carried out here, for their kind, a word, or for when they are to happen."""
        known = [*self._on_nodes, *(self._on_cluster if self._cluster.routes is not None else ())]
        return [
            str(fault)
            for fault in faults
            if fault.kind not in known
            or not is_understood(fault)
            or not isinstance(fault.anchor, At | Every | AfterAcks)
        ]

    async def run(self, faults: tuple[Fault, ...]) -> None:
        """Carry out all of them, each at its time, until cancelled."""
        start_ns = self._runtime.clock.mono_ns()
        async with trio.open_nursery() as nursery:
            for fault in faults:
                nursery.start_soon(self._follow, fault, start_ns)

    async def _follow(self, fault: Fault, start_ns: int) -> None:
        clock = self._runtime.clock
        match fault.anchor:
            case At(time_ns):
                await clock.sleep_until_ns(start_ns + time_ns)
                await self.carry_out(fault)
            case Every(period_ns, first_ns):
                due_ns = start_ns + first_ns
                while True:
                    await clock.sleep_until_ns(due_ns)
                    await self.carry_out(fault)
                    due_ns = max(due_ns + period_ns, clock.mono_ns())
            case AfterAcks(count):
                while self._ack_count() < count:
                    await clock.sleep_ns(POLL_NS)
                await self.carry_out(fault)

    async def carry_out(self, fault: Fault) -> None:
        """One fault, whole."""
        chosen = selection.choose(fault.word("targets", "one"), self._cluster.names, self._cluster.victims, self._rng)
        nodes = [self._cluster.nodes[name] for name in chosen]
        if fault.kind in self._on_cluster:
            await self._on_cluster[fault.kind](fault, nodes)
            return
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(self._alone, partial(self._on_nodes[fault.kind], fault), node)

    async def _alone(self, action: Callable[[Node], Awaitable[None]], node: Node) -> None:
        """`action` on a node that nobody else changes meanwhile; one that has left the cluster is let be."""
        async with node.lock:
            if node.is_member:
                await action(node)

    async def heal(self) -> None:
        """End what lasts, and have every server running. Sets the nodes' `start_failure`."""
        if self._cluster.routes is not None:
            self._cluster.routes.heal()
        async with trio.open_nursery() as nursery:
            for node in self._cluster.nodes.values():
                nursery.start_soon(self._heal, node)

    async def _heal(self, node: Node) -> None:
        async with node.lock:
            self._resume(node)
            if not node.is_member:
                await self._join(node, "new")
            elif not node.server.is_running:
                await self._start(node)

    # ------------------------------------------------------------------ processes

    async def _start(self, node: Node) -> None:
        with trio.CancelScope(shield=True):
            try:
                await node.server.start()
            except CouldNotRun as exc:
                node.start_failure = str(exc)
                self._recorder.nemesis("start-failed", str(exc))
            else:
                node.start_failure = ""
                self._recorder.nemesis("start", node.server.server_name)
                self._observed.reports.setdefault(node.name, []).append((await node.server.health()).text)

    async def _down(self, fault: Fault) -> None:
        await self._runtime.clock.sleep_ns(fault.number("down_ns", SECOND_NS))

    async def _kill(self, fault: Fault, node: Node) -> None:
        self._recorder.nemesis("kill", node.name)
        await node.server.kill()
        await self._down(fault)
        await self._start(node)

    async def _crash_loop(self, fault: Fault, node: Node) -> None:
        """A server that dies while it starts; the nemesis waits for service after the last time alone."""
        for _ in range(fault.number("times_count", 3)):
            self._recorder.nemesis("kill", node.name)
            await node.server.kill()
            await self._down(fault)
            await node.server.launch()
            await self._runtime.clock.sleep_ns(fault.number("up_ns", SECOND_NS // 2))
        await node.server.kill()
        await self._start(node)

    async def _terminate(self, fault: Fault, node: Node) -> None:
        self._recorder.nemesis("stop", node.name)
        with trio.CancelScope(shield=True):
            await node.server.stop()
        await self._down(fault)
        await self._start(node)

    async def _pause(self, fault: Fault, node: Node) -> None:
        self._recorder.nemesis("pause", node.name)
        node.server.pause()
        node.is_paused = True
        await self._runtime.clock.sleep_ns(fault.number("for_ns", SECOND_NS))
        self._resume(node)

    def _resume(self, node: Node) -> None:
        if node.is_paused:
            node.server.resume()
            node.is_paused = False
            self._recorder.nemesis("resume", node.name)

    # ------------------------------------------------------------------ disks

    async def _power(self, fault: Fault, node: Node) -> None:
        policy = fault.word("policy", "strict")
        self._recorder.nemesis("power-loss", [node.name, policy])
        with trio.CancelScope(shield=True):
            await node.server.kill()
            killed_ns = self._recorder.time_ns()
            self._observed.hit[node.name] = None
            await node.store.power_loss(policy)
        node.server.boot_count += 1
        try:
            await self._down(fault)
        finally:
            self._observed.power_losses.append(PowerLoss(node.name, killed_ns, self._recorder.time_ns()))
        await self._start(node)

    async def _damage(self, fault: Fault, node: Node) -> None:
        """`stop=term` or `stop=kill` ends the server first and starts it after; without, it goes on running."""
        stop = fault.word("stop", "")
        with trio.CancelScope(shield=True):
            if stop == "term":
                await node.server.stop()
            elif stop == "kill":
                await node.server.kill()
            await self._damage_files(fault, node)
        if stop:
            await self._down(fault)
            await self._start(node)

    async def _damage_files(self, fault: Fault, node: Node) -> None:
        """One drawn file, unless its server replaces it just then."""
        found = [(path, size) for path, size in await node.store.files(fault.word("files", "any")) if size]
        if not found:
            return
        path, size = self._rng.choice(found)
        place = f"{node.name} {path.removeprefix(str(node.store.path))}"
        try:
            if fault.kind == "D_BITFLIP":
                bits = fault.number("bits_count", 2)
                await node.store.flip(path, bits)
                self._recorder.nemesis("bitflip", [place, size, bits])
            else:
                cut = await node.store.truncate(path)
                self._recorder.nemesis("truncate", [place, size, cut])
        except FileNotFoundError:
            return
        self._observed.hit[node.name] = None

    # ------------------------------------------------------------------ the network between them

    async def _on_links(
        self,
        what: str,
        fault: Fault,
        pairs: Iterable[selection.Pair],
        begin: Callable[[Link], None],
        end: Callable[[Link], None],
    ) -> None:
        """Do something to links, and undo it after `for`; without that `heal` does."""
        assert self._cluster.routes is not None
        pairs = list(pairs)
        links = self._cluster.routes.between(pairs)
        self._recorder.nemesis(f"start-{what}", selection.described(pairs))
        for link in links:
            begin(link)
        if "for_ns" in fault.parameters:
            await self._runtime.clock.sleep_ns(fault.number("for_ns", 0))
            for link in links:
                end(link)
            self._recorder.nemesis(f"stop-{what}")

    async def _partition(self, fault: Fault, nodes: list[Node]) -> None:
        kind = fault.word("kind", "isolate")
        pairs = selection.partition(kind, [node.name for node in nodes], self._cluster.names)
        await self._on_links("partition", fault, pairs, Link.cut, Link.mend)

    async def _deafen(self, fault: Fault, nodes: list[Node]) -> None:
        """`way=in`: the targets hear nothing; `way=out`: they are not heard."""
        targets = [node.name for node in nodes]
        hears = fault.word("way", "in") == "in"
        cut = selection.partition("complete", targets, self._cluster.names)
        pairs = [(a, b) for a, b in cut if (b if hears else a) in targets]
        await self._on_links("one-way", fault, pairs, Link.cut, Link.mend)

    def _around(self, nodes: list[Node]) -> list[selection.Pair]:
        return selection.partition("isolate", [node.name for node in nodes], self._cluster.names)

    async def _delay(self, fault: Fault, nodes: list[Node]) -> None:
        added_ns, jitter_ns = fault.number("added_ns", SECOND_NS // 10), fault.number("jitter_ns", 0)
        await self._on_links(
            "delay",
            fault,
            self._around(nodes),
            lambda link: link.slow_down(delay_ns=added_ns, jitter_ns=jitter_ns),
            lambda link: link.slow_down(),
        )

    async def _slow(self, fault: Fault, nodes: list[Node]) -> None:
        rate = fault.number("rate_count", 64 * 1024)
        await self._on_links(
            "slow",
            fault,
            self._around(nodes),
            lambda link: link.slow_down(rate_bytes=rate),
            lambda link: link.slow_down(),
        )

    # ------------------------------------------------------------------ membership, administration

    async def _remove(self, fault: Fault, nodes: list[Node]) -> None:
        """They are killed and wiped, and an operator tells the others to go on without them; `stream` names a stream
        that is told first. With `down` they come back under their old names, whatever became of that.
        """
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(self._alone, partial(self._leave, fault), node)

    async def _leave(self, fault: Fault, node: Node) -> None:
        clock = self._runtime.clock
        node.departed = node.server.server_name
        self._recorder.nemesis("leave", node.departed)
        await node.server.kill()
        node.is_member = False
        node.store.wipe()
        down_ns = fault.number("down_ns", 0)
        back_ns = clock.mono_ns() + down_ns
        with trio.move_on_after(down_ns / SECOND_NS if down_ns else math.inf):
            if stream := fault.word("stream", ""):
                text = await self._operator.remove_from_stream(stream, node.departed)
                self._recorder.nemesis("removed-from-stream", [node.departed, text])
            await self._confirm_removal(node)
        if down_ns:
            await clock.sleep_until_ns(back_ns)
            await self._enter(node)

    async def _confirm_removal(self, node: Node) -> None:
        answer = await self._operator.remove(node.departed)
        self._recorder.nemesis("removed", [node.departed, answer.text])
        if answer.is_success and answer.running_count < self._cluster.majority_count:
            text = f"{answer.text} to the removal of {node.departed}, with {answer.running_count} of "
            self._observed.early_removals.append(f"{text}{len(self._cluster.nodes)} nodes running")
        if answer.is_success:
            node.departed = ""

    async def _add(self, fault: Fault, nodes: list[Node]) -> None:
        """`name=old`: as if nothing had been, with an empty store; `name=new`: as somebody else."""
        for node in nodes:
            async with node.lock:
                if not node.is_member:
                    await self._join(node, fault.word("name", "new"))

    async def _join(self, node: Node, name: str) -> None:
        if node.departed:
            await self._confirm_removal(node)  # the others must not wait for one who never comes back
        if name == "new":
            node.server.rename()
        await self._enter(node)

    async def _enter(self, node: Node) -> None:
        self._recorder.nemesis("join", node.server.server_name)
        node.departed = ""
        node.is_member = True
        await self._start(node)

    async def _decoys(self, fault: Fault, nodes: list[Node]) -> None:
        """Other streams come and go, so that the group that keeps the list of streams has something to write down."""
        made = await self._operator.decoys(fault.number("times_count", 5))
        self._recorder.nemesis("decoys", made)


def is_understood(fault: Fault) -> bool:
    """Whether its words are some of `WORDS`."""
    return all(
        word in WORDS[name]
        for name, value in fault.parameters.items()
        if name in WORDS
        for word in (str(value).split("|") if name == "files" else [value])
    )
