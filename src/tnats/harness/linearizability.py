"""Is there one order of these calls that a sequential object could have answered, and that real time allows?

The search is Wing and Gong's with Lowe's memory of what was tried: walk the calls and returns in time order, choose
any call that began before the first return, ask the model, take it out, go on; at a dead end put it back. A pair (set
of calls taken, state) that was tried before is not tried again; the set is an int used as bits. Calls whose end nobody
knows have no return: they may be taken at any time after they began, or never.

The number of steps is bounded. Running out of them gives the verdict "unknown", which is never reported as "ok".
Partition a history by key first (Herlihy and Wing: a history is linearizable if that of each object is), see
`tnats.harness.registers`.

Sources: Wing and Gong, "Testing and Verifying Concurrent Objects" (1993); Lowe, "Testing for Linearizability" (2017).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

from tnats.records import define, frozen

S = TypeVar("S", bound=Hashable)
Verdict = Literal["ok", "violated", "unknown"]
STEPS_MAX = 500_000


@frozen
class Call:
    """One operation. `end` is None when nobody knows its result; then `result` says nothing."""

    start: int
    end: int | None
    f: str
    argument: Any = None
    result: Any = None


class Model(Protocol[S]):
    """The sequential object."""

    def initial(self) -> S: ...

    def step(self, state: S, call: Call) -> S | None:
        """The state after `call`, or None if the object in `state` could not have answered so.

        A call without an end is answered with the state that it leaves if it takes effect.
        """


@frozen
class Judgement:
    """`order` holds indexes of calls: a witness when ok, else the longest partial one that was found; `blocked` are
    the calls that could have come next and could not have been answered so.
    """

    verdict: Verdict
    order: tuple[int, ...]
    blocked: tuple[int, ...] = ()


@define
class Level(Generic[S]):
    """One choice of the search: the state before it, what is left to try, and what was chosen."""

    state: S
    candidates: list[int]
    chosen: int = -1


class TimeLine:
    """Calls and returns that are not taken yet, in time order, as a doubly linked list over entry numbers."""

    def __init__(self, calls: Sequence[Call]) -> None:
        # At equal times a call counts as begun before another returns: the weaker reading.
        entries = [(call.start, 0, index) for index, call in enumerate(calls)]
        entries += [(call.end, 1, index) for index, call in enumerate(calls) if call.end is not None]
        entries.sort()
        self._head = len(entries)
        self._call_of = [index for _, _, index in entries] + [-1]
        self._is_return = [kind == 1 for _, kind, _ in entries] + [True]
        self._next = [*range(1, len(entries) + 1), 0]
        self._previous = [len(entries), *range(len(entries))]
        self._places: list[list[int]] = [[] for _ in calls]
        for place, (_, _, index) in enumerate(entries):
            self._places[index].append(place)

    def candidates(self) -> list[int]:
        """The calls that began before the first return that is left."""
        found = []
        place = self._next[self._head]
        while not self._is_return[place]:
            found.append(self._call_of[place])
            place = self._next[place]
        return found

    def take(self, index: int) -> None:
        """Unlink the call and its return."""
        for place in self._places[index]:
            self._next[self._previous[place]] = self._next[place]
            self._previous[self._next[place]] = self._previous[place]

    def put_back(self, index: int) -> None:
        """Undo the last `take` that was not undone, which was of `index`."""
        for place in reversed(self._places[index]):
            self._next[self._previous[place]] = place
            self._previous[self._next[place]] = place


def search(model: Model[S], calls: Sequence[Call], steps_max: int = STEPS_MAX) -> Judgement:
    """Judge the calls of one object."""
    line = TimeLine(calls)
    required = sum(call.end is not None for call in calls)

    def by_return() -> list[int]:
        """Candidates with the earliest return last, where `pop` takes it; those without a return come first."""
        return sorted(line.candidates(), key=lambda index: -(calls[index].end or 1 << 62))

    levels: list[Level[S]] = [Level(model.initial(), by_return())]
    seen: set[tuple[int, S]] = set()
    taken = 0
    best: tuple[int, ...] = ()
    blocked: tuple[int, ...] = tuple(levels[0].candidates)
    steps = 0
    while required:
        level = levels[-1]
        if not level.candidates:
            levels.pop()
            if not levels:
                return Judgement("violated", best, blocked)
            undone = levels[-1].chosen
            line.put_back(undone)
            taken ^= 1 << undone
            required += calls[undone].end is not None
            continue
        index = level.candidates.pop()
        steps += 1
        if steps > steps_max:
            return Judgement("unknown", best, blocked)
        state = model.step(level.state, calls[index])
        if state is None:
            continue
        key = (taken | 1 << index, state)
        if key in seen:
            continue
        seen.add(key)
        taken |= 1 << index
        required -= calls[index].end is not None
        line.take(index)
        level.chosen = index
        levels.append(Level(state, by_return()))
        if len(levels) - 1 > len(best):
            best = tuple(chosen.chosen for chosen in levels[:-1])
            blocked = tuple(levels[-1].candidates)
    return Judgement("ok", tuple(level.chosen for level in levels[:-1]))
