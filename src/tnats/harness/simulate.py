"""For people who test their own trio software: one decorator that runs a test in many simulated worlds.

    @simulate(seeds=50)
    async def test_orders_survive(world: World) -> None:
        serve(world)                              # the server of tnats on the machine "server"
        shop = world.node("shop")
        shop.start(run_shop)                      # async def run_shop(runtime: Runtime) -> None
        async with trouble(world, ["shop"]):      # partitions, resets, slow links ... drawn from the seed
            await world.sleep_ns(10 * SECOND_NS)
        ...                                       # everything is healed: assert

The test function gets a world, in which time, chance, network, disk and processes follow from the seed. What it runs
on its machines uses the runtime it is given (`tnats.client.connect(url, runtime=runtime)`) instead of the real world.
A failure names its seed; `TNATS_SIM_SEED=17 pytest ...` runs that one alone.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

import tnats.harness.sim.imports  # noqa: F401
from tnats.errors import TnatsError
from tnats.harness.faults import At
from tnats.harness.sim.ledger import Ledger
from tnats.harness.sim.nemesis import Nemesis
from tnats.harness.sim.recording import Recording
from tnats.harness.sim.stage import Stage
from tnats.harness.sim.swarm import DRAWS, Scene, draw_faults
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime
from tnats.runtime.sim.node import Node
from tnats.runtime.sim.world import Settings, World, run_world
from tnats.server.compose import build
from tnats.server.config.options import Options

SEED_VARIABLE = "TNATS_SIM_SEED"
NETWORK_KINDS = ("N_PART", "N_ASYM", "N_REJECT", "N_DELAY", "N_SLOW", "N_RESET", "N_DROPCONN", "N_CLOG", "N_CHUNK")
"""What `trouble` does unless it is told otherwise."""

Test = Callable[..., Awaitable[None]]


def simulate(
    *, seeds: int = 20, seed: int | None = None, time_max_s: float = 3600.0, settings: Settings | None = None
) -> Callable[[Test], Callable[..., None]]:
    """Decorator: run an async test `(world, ...)` once for each of the seeds 1 to `seeds`, or for `seed` alone.

    The result is an ordinary test function; further parameters are pytest fixtures. A run that takes more than
    `time_max_s` of virtual time, or in which nothing can happen any more, fails too.
    """

    def decorate(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*arguments: Any, **keywords: Any) -> None:
            chosen = os.environ.get(SEED_VARIABLE, "")
            if chosen and not chosen.isdecimal():
                raise TnatsError(f"{SEED_VARIABLE}={chosen}: a seed is a whole number")
            single = int(chosen) if chosen else seed
            for number in range(1, seeds + 1) if single is None else (single,):
                run_once(
                    test, number, settings or Settings(time_max_ns=int(time_max_s * SECOND_NS)), arguments, keywords
                )

        signature = inspect.signature(test)
        first, *others = signature.parameters.values()
        if first.name != "world":
            raise TnatsError(f"{test.__name__}: the first parameter of a simulated test is `world`, not {first.name!r}")
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


def run_once(test: Test, seed: int, settings: Settings, arguments: Sequence[Any], keywords: dict[str, Any]) -> None:
    """One world; its failure is raised with the seed in a note."""

    async def main(world: World) -> None:
        await test(world, *arguments, **keywords)

    outcome = run_world(seed, main, settings)
    if outcome.error is not None:
        outcome.error.add_note(
            f"in the simulated world of seed {seed}, after {outcome.time_ns / SECOND_NS:.3f} s; "
            f"this world alone: {SEED_VARIABLE}={seed} pytest ..."
        )
        raise outcome.error


def serve(world: World, name: str = "server", options: Options | None = None) -> Node:
    """A machine that runs a NATS server on port 4222, started. Clients: `nats://NAME:4222`."""

    async def main(runtime: Runtime) -> None:
        chosen = options or Options()
        chosen.host, chosen.port = "0.0.0.0", 4222
        await build(runtime, chosen).run()

    node = world.node(name)
    node.start(main)
    return node


@asynccontextmanager
async def trouble(
    world: World,
    targets: Sequence[str],
    *,
    kinds: Sequence[str] = NETWORK_KINDS,
    servers: Sequence[str] = ("server",),
    for_s: float = 10.0,
) -> AsyncIterator[Recording]:
    """Faults of the given kinds, drawn from the seed, against `targets` and `servers` while the block runs.

    They begin within `for_s` of virtual time, and are all over, with every machine running, at the end of the block.
    Kinds: `tnats.harness.faults.KINDS`, as far as one machine can meet them. Gives the recording of what was done.
    Kinds of storage need a `kinds` that names them. Raises TnatsError for machines and kinds that there are not.
    """
    for what, names, known in (("machine", (*targets, *servers), world.nodes), ("kind of fault", kinds, DRAWS)):
        for name in names:
            if name not in known:
                raise TnatsError(f"trouble: there is no {what} {name!r}; there are: {', '.join(known)}")
    recording = Recording(world.now_ns)
    stage = Stage(world, recording)
    rng = world.rng("trouble")
    scene = Scene(list(targets), list(servers), int(for_s * SECOND_NS))
    faults = draw_faults(rng, scene, kinds, lambda rng, kind: At(int(rng.random() * for_s * SECOND_NS)))
    nemesis = Nemesis(stage, faults, Ledger("B4"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(nemesis.run)
        try:
            yield recording
        finally:
            nursery.cancel_scope.cancel()
            nemesis.end()
            world.fabric.heal()
