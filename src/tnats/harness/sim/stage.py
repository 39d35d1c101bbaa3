"""What faults are carried out on: a world, and what several of them at once hold in common.

Faults overlap. A node that two faults have taken down comes back when the second ends; one that two have paused runs
when the second lets it. Each hold is counted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tnats.harness.faults import Fault
from tnats.harness.sim.recording import Recording
from tnats.runtime.sim.disk_faults import DiskFault, matching
from tnats.runtime.sim.node import Node
from tnats.runtime.sim.world import World

FILE_CLASSES = {
    "any": "*",
    "wal": "*/journal/*",
    "block": "*/streams/*.seg",
    "marker": "*/marker",
    "identity": "*/identity",
}
"""What the word after `files=` stands for; any other word is a pattern itself."""


CAPACITY_BYTES = 1 << 40
"""Of a disk that is not full."""


class Stage:
    """A world under trouble."""

    def __init__(self, world: World, recording: Recording) -> None:
        self.world = world
        self.recording = recording
        self._down: dict[str, int] = {}
        self._paused: dict[str, int] = {}
        self._slow: dict[str, list[int]] = {}
        self._full: dict[str, list[int]] = {}
        self._refusing: dict[str, list[str]] = {}
        self.over = False
        """The world has ended: nothing can be started any more."""

    def targets(self, fault: Fault) -> list[str]:
        """The nodes that a fault names."""
        return [name for name in fault.word("targets", "").split(",") if name in self.world.nodes]

    def nodes(self, fault: Fault) -> list[Node]:
        """As `targets`."""
        return [self.world.nodes[name] for name in self.targets(fault)]

    def others(self, fault: Fault) -> list[str]:
        """All other nodes."""
        names = self.targets(fault)
        return [name for name in self.world.nodes if name not in names]

    def glob(self, fault: Fault) -> str:
        """The pattern of the files that a fault names."""
        word = fault.word("files", "any")
        return FILE_CLASSES.get(word, word)

    def files(self, node: Node, fault: Fault) -> list[str]:
        """The files of `node` that a fault names and that hold something."""
        image = node.drive.image
        return [path for path in matching(image, self.glob(fault)) if image.size(image.file(path))]

    # holds

    @contextmanager
    def down(self, nodes: Sequence[Node], blow: Callable[[Node], object]) -> Iterator[None]:
        """Strike the nodes; they start again at the end of the block, unless another fault still holds them."""
        for node in nodes:
            self._down[node.name] = self._down.get(node.name, 0) + 1
            blow(node)
        try:
            yield
        finally:
            for node in nodes:
                self._down[node.name] -= 1
                if not self._down[node.name]:
                    if node.running:
                        self.recording.probe("an orderly stop took too long and was cut short")
                        node.kill()
                    self.start(node)

    def is_held(self, node: Node) -> bool:
        """Whether a fault keeps the node down."""
        return self._down.get(node.name, 0) > 0

    def start(self, node: Node) -> None:
        """Start a node again as it was started before."""
        if not node.running and not self.over:
            self.recording.note(node.name, "start", "starts")
            node.start()

    @contextmanager
    def paused(self, nodes: Sequence[Node]) -> Iterator[None]:
        """None of the nodes' tasks run inside the block."""
        for node in nodes:
            self._paused[node.name] = self._paused.get(node.name, 0) + 1
            node.pause()
        try:
            yield
        finally:
            for node in nodes:
                self._paused[node.name] -= 1
                if not self._paused[node.name]:
                    node.resume()

    @contextmanager
    def slow(self, nodes: Sequence[Node], step_ns: int) -> Iterator[None]:
        """Each step of the nodes costs `step_ns` inside the block; of several such blocks the slowest counts."""
        for node in nodes:
            self._slow.setdefault(node.name, []).append(step_ns)
            node.slow_down(max(self._slow[node.name]))
        try:
            yield
        finally:
            for node in nodes:
                self._slow[node.name].remove(step_ns)
                node.slow_down(max(self._slow[node.name], default=0))

    @contextmanager
    def full(self, nodes: Sequence[Node], free_bytes: int) -> Iterator[None]:
        """The nodes' disks have `free_bytes` left inside the block; of several such blocks the tightest counts."""
        limits = [node.drive.image.used_bytes + free_bytes for node in nodes]
        for node, limit in zip(nodes, limits, strict=True):
            self._full.setdefault(node.name, []).append(limit)
            node.drive.capacity_bytes = min(self._full[node.name])
        try:
            yield
        finally:
            for node, limit in zip(nodes, limits, strict=True):
                self._full[node.name].remove(limit)
                node.drive.capacity_bytes = min(self._full[node.name], default=CAPACITY_BYTES)

    @contextmanager
    def not_accepting(self, nodes: Sequence[Node], reason: str) -> Iterator[None]:
        """The nodes' kernels accept no connection inside the block; of several reasons the first is told."""
        for node in nodes:
            self._refusing.setdefault(node.name, []).append(reason)
            node.exhausted = self._refusing[node.name][0]
        try:
            yield
        finally:
            for node in nodes:
                self._refusing[node.name].remove(reason)
                node.exhausted = next(iter(self._refusing[node.name]), "")

    @contextmanager
    def disk_rules(self, nodes: Sequence[Node], make: Callable[[], DiskFault]) -> Iterator[list[DiskFault]]:
        """A rule on each node's disk inside the block."""
        rules = [make() for _ in nodes]
        for node, rule in zip(nodes, rules, strict=True):
            node.drive.faults.append(rule)
        try:
            yield rules
        finally:
            for node, rule in zip(nodes, rules, strict=True):
                node.drive.faults[:] = [other for other in node.drive.faults if other is not rule]
