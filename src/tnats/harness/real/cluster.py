"""The servers under test with their stores and the network between them: one alone, or the members of a cluster."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from tnats.harness.findings import Profile, Variant
from tnats.harness.real.configuration import Membership
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.processes import ServerProcess
from tnats.harness.real.routes import Routes, open_routes
from tnats.harness.real.stores import DirectoryStore, Store, open_fault_fs
from tnats.harness.real.targets import Target
from tnats.harness.real.workplace import Workplace
from tnats.harness.selection import minority_count
from tnats.records import define
from tnats.runtime.api import Runtime

WRITE_BACK_S = 30.0
"""Linux's default: dirty_expire_centisecs."""


@define(eq=False)
class Node:
    """One server with its store. Who changes its state holds the lock."""

    server: ServerProcess
    store: Store
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    is_paused: bool = False
    is_member: bool = True
    """False after it left the cluster, until it joins again."""
    departed: str = ""
    """What it called itself when it left, until its removal was confirmed."""
    start_failure: str = ""
    """Why the last start failed; empty when it went well."""

    @property
    def name(self) -> str:
        return self.server.name


@define(eq=False)
class Cluster:
    """All nodes. `routes` is None for a server alone."""

    nodes: dict[str, Node]
    routes: Routes | None
    victims: tuple[str, ...]
    """The minority whose files may be damaged, drawn once for the run."""

    @property
    def names(self) -> list[str]:
        return list(self.nodes)

    @property
    def majority_count(self) -> int:
        return len(self.nodes) // 2 + 1

    def running(self) -> list[Node]:
        """Members that can answer."""
        nodes = self.nodes.values()
        return [node for node in nodes if node.is_member and node.server.is_running and not node.is_paused]

    @property
    def first(self) -> Node:
        return next(iter(self.nodes.values()))

    async def start(self) -> None:
        """All at once. Raises CouldNotRun for the first that does not."""
        failures: list[CouldNotRun] = []
        async with trio.open_nursery() as nursery:

            async def start(server: ServerProcess) -> None:
                try:
                    await server.start()
                except CouldNotRun as exc:
                    failures.append(exc)
                    nursery.cancel_scope.cancel()

            for node in self.nodes.values():
                nursery.start_soon(start, node.server)
        if failures:
            raise failures[0]

    async def stop(self) -> None:
        """All at once, in order."""
        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                nursery.start_soon(node.server.stop)


@asynccontextmanager
async def open_cluster(
    runtime: Runtime, workplace: Workplace, target: Target, variant: Variant, profile: Profile, rng: random.Random
) -> AsyncIterator[Cluster]:
    """As many servers as the variant asks for, not started yet. Raises CouldNotRun, NetworkError."""
    names = [f"n{number}" for number in range(1, variant.nodes + 1)]
    async with AsyncExitStack() as stack:
        nodes: dict[str, Node] = {}
        for name in names:
            store = await stack.enter_async_context(open_store(workplace, name, variant, profile, rng))
            server = ServerProcess(runtime, workplace, target, name, store.path, variant.sync_interval)
            nodes[name] = Node(server, store)
        routes: Routes | None = None
        if variant.nodes > 1:
            ports = {name: workplace.reserve_port() for name in names}
            routes = await stack.enter_async_context(open_routes(runtime, random.Random(rng.random()), ports))
            for name, node in nodes.items():
                node.server.join(Membership(ports[name], list(routes.ports(name).values())))
        victims = sorted(rng.sample(names, minority_count(len(names)))) if variant.nodes > 1 else names
        yield Cluster(nodes, routes, tuple(victims))


@asynccontextmanager
async def open_store(
    workplace: Workplace, name: str, variant: Variant, profile: Profile, rng: random.Random
) -> AsyncIterator[Store]:
    """The kind of store that the variant asks for. Raises CouldNotRun."""
    if variant.store == "faultfs":
        async with open_fault_fs(
            workplace,
            name,
            rng.randrange(1 << 30),
            names=variant.names,
            write_back_s=WRITE_BACK_S * profile.time_scale if variant.write_back else 0.0,
        ) as store:
            yield store
        return
    path = workplace.directory / f"{name}-store"
    path.mkdir()
    yield DirectoryStore(path, rng)
