"""Seeded randomness: one stream per node, incarnation, label and call, and one for entropy."""

from __future__ import annotations

import random

from tnats.runtime.sim import trace as kinds
from tnats.runtime.sim.life import Life
from tnats.runtime.sim.trace import Trace


def stream(seed: int, *names: object) -> random.Random:
    """The random stream that `names` have under `seed`. Independent of all others, the same in every process."""
    return random.Random(f"{seed}/" + "/".join(map(str, names)))


class SimChance:
    """`tnats.runtime.api.Chance` of one incarnation."""

    __slots__ = ("_counts", "_entropy", "_life", "_seed", "_trace")

    def __init__(self, life: Life, seed: int, trace: Trace) -> None:
        self._life = life
        self._seed = seed
        self._trace = trace
        self._entropy = stream(seed, life.node.name, life.number, "entropy")
        self._counts: dict[str, int] = {}

    def rng(self, label: str) -> random.Random:
        """The n-th call with a label gives that label's n-th stream."""
        self._life.check()
        count = self._counts[label] = self._counts.get(label, 0) + 1
        self._trace.add(kinds.RNG, self._life.number, count)
        return stream(self._seed, self._life.node.name, self._life.number, "rng", label, count)

    def entropy(self, count: int) -> bytes:
        self._life.check()
        self._trace.add(kinds.ENTROPY, self._life.number, count)
        return self._entropy.randbytes(count)
