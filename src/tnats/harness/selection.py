"""Whom a fault hits, and between whom a partition runs: drawn from the words of scenario files.

| `targets=` | nodes |
|---|---|
| `one` | one |
| `minority` | as many as may fail without harm: 2 of 5, 1 of 3 |
| `majority` | one more than half |
| `all` | all |
| `victims` | some of the minority that is drawn once for a run: files of others are never damaged |
| `n1,n3` | these |

Several with bars between them (`one|majority`): one of them, drawn each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from tnats.harness.faults import FaultError

PARTITIONS = ("complete", "isolate", "ring")
"""What a partition may be (see `partition`)."""
Pair = tuple[str, str]
"""From whom, to whom."""


def minority_count(count: int) -> int:
    """How many of `count` nodes may fail without harm to the others' majority."""
    return (count - 1) // 2


def counts(node_count: int) -> dict[str, int]:
    """How many nodes each word means."""
    return {
        "one": 1,
        "minority": max(1, minority_count(node_count)),
        "majority": node_count // 2 + 1,
        "all": node_count,
    }


def check(targets: str, names: Sequence[str]) -> None:
    """Raise FaultError unless each of the words means some of `names`."""
    for word in targets.split("|"):
        named = () if word == "victims" or word in counts(len(names)) else word.split(",")
        for name in named:
            if name not in names:
                raise FaultError(f"targets={targets}: no node {name!r} among {', '.join(names)}")


def choose(targets: str, names: Sequence[str], victims: Sequence[str], rng: random.Random) -> list[str]:
    """The nodes that `targets`, which must be right, means this time, in the order of `names`."""
    word = rng.choice(targets.split("|"))
    count = counts(len(names)).get(word)
    if count is not None:
        chosen = rng.sample(list(names), count)
    elif word == "victims":
        chosen = rng.sample(list(victims), rng.randint(1, len(victims)))
    else:
        chosen = word.split(",")
    return [name for name in names if name in chosen]


def split(groups: Sequence[Iterable[str]]) -> list[Pair]:
    """Every pair whose ends are in different groups."""
    numbered = [(name, number) for number, group in enumerate(groups) for name in group]
    return [(a, b) for a, one in numbered for b, other in numbered if one != other]


def described(pairs: Iterable[Pair]) -> list[str]:
    """Pairs by whom they come from: `n1 to n3 n4`."""
    grouped: dict[str, list[str]] = {}
    for source, target in pairs:
        grouped.setdefault(source, []).append(target)
    return [f"{source} to {' '.join(targets)}" for source, targets in grouped.items()]


def ring(names: Sequence[str]) -> list[Pair]:
    """All pairs but neighbours on a circle: each node sees a majority with itself in it, no two the same one."""
    count, reach = len(names), (len(names) // 2 + 1) // 2
    near = {(a, (a + step) % count) for a in range(count) for step in range(-reach, reach + 1)}
    return [(names[a], names[b]) for a in range(count) for b in range(count) if a != b and (a, b) not in near]


def partition(kind: str, targets: Sequence[str], names: Sequence[str]) -> list[Pair]:
    """What a partition cuts: `complete` the targets together from the rest, `isolate` each of them from everybody,
    `ring` as of `ring`. Raises FaultError for another kind.
    """
    rest = [name for name in names if name not in targets]
    if kind == "complete":
        return split([targets, rest])
    if kind == "isolate":
        return split([*([name] for name in targets), rest])
    if kind == "ring":
        return ring(names)
    raise FaultError(f"kind={kind}: a partition is one of {', '.join(PARTITIONS)}")
