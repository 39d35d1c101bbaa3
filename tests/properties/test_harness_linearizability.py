"""The linearizability search and the register's fast path against brute force, on small random histories."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tnats.harness.linearizability import Call, Model, search
from tnats.harness.registers import RegisterModel, judge_key
from tnats.harness.workloads.register import CONFLICT


def brute_force(model: Model[Any], calls: Sequence[Call]) -> bool:
    """Try every order of every set of calls that leaves out only calls without an end."""
    open_calls = [call for call in calls if call.end is None]
    ended = [call for call in calls if call.end is not None]
    for count in range(len(open_calls) + 1):
        for some in itertools.combinations(open_calls, count):
            for order in itertools.permutations([*ended, *some]):
                if respects_time(order) and answers(model, order):
                    return True
    return False


def respects_time(order: Sequence[Call]) -> bool:
    return not any(
        later.end is not None and later.end < earlier.start for earlier, later in itertools.combinations(order, 2)
    )


def answers(model: Model[Any], order: Sequence[Call]) -> bool:
    state = model.initial()
    for call in order:
        state = model.step(state, call)
        if state is None:
            return False
    return True


class CasRegister:
    """A register of small numbers with compare-and-set: Knossos's usual model."""

    def initial(self) -> int:
        return 0

    def step(self, state: int, call: Call) -> int | None:
        if call.f == "write":
            return int(call.argument)
        if call.f == "read":
            return state if call.end is None or call.result == state else None
        old, new = call.argument
        if call.end is None:
            return int(new) if state == old else state
        if call.result:
            return int(new) if state == old else None
        return state if state != old else None


@st.composite
def spans(draw: st.DrawFn, count_max: int) -> list[tuple[int, int | None]]:
    """Start and end of each call: distinct times, some never end."""
    count = draw(st.integers(1, count_max))
    times = draw(st.permutations(range(2 * count)))
    pairs = [sorted(times[2 * index : 2 * index + 2]) for index in range(count)]
    return [(start, None if draw(st.integers(0, 4)) == 0 else end) for start, end in pairs]


@st.composite
def cas_histories(draw: st.DrawFn) -> list[Call]:
    small = st.integers(0, 2)
    calls = []
    for start, end in draw(spans(6)):
        f = draw(st.sampled_from(("read", "write", "cas")))
        if f == "read":
            calls.append(Call(start, end, f, None, draw(small)))
        elif f == "write":
            calls.append(Call(start, end, f, draw(small)))
        else:
            calls.append(Call(start, end, f, (draw(small), draw(small)), draw(st.booleans())))
    return calls


@given(cas_histories())
def test_the_search_agrees_with_brute_force_on_registers_with_compare_and_set(calls: list[Call]) -> None:
    """Verdicts are equal, and the order that proves "ok" is one that brute force accepts."""
    judgement = search(CasRegister(), calls)
    assert (judgement.verdict == "ok") == brute_force(CasRegister(), calls)
    if judgement.verdict == "ok":
        order = [calls[index] for index in judgement.order]
        assert respects_time(order)
        assert answers(CasRegister(), order)


@given(cas_histories(), st.integers(0, 6))
def test_a_search_without_enough_steps_never_says_ok_or_violated_wrongly(calls: list[Call], steps_max: int) -> None:
    """Out of steps means unknown; a verdict that is given under a bound is the one without it."""
    judgement = search(CasRegister(), calls, steps_max)
    assert judgement.verdict in ("unknown", search(CasRegister(), calls).verdict)


@st.composite
def register_histories(draw: st.DrawFn) -> list[Call]:
    """Calls on one key: mostly what a correct store answers at drawn moments, some answers then changed."""
    drawn = draw(spans(6))
    moments = [draw(st.integers(start, end if end is not None else start + 8)) for start, end in drawn]
    value: str | None = None
    revision, last = 0, 0
    told = [0]
    calls: list[Call | None] = [None] * len(drawn)
    for index in sorted(range(len(drawn)), key=lambda index: (moments[index], index)):
        start, end = drawn[index]
        f = draw(st.sampled_from(("get", "get", "put", "update", "create", "delete")))
        if f == "get":
            calls[index] = Call(start, end if end is not None else 99, f, (None, None), (value, revision))
            continue
        expected = draw(st.sampled_from(told)) if f == "update" else 0 if f == "create" else None
        wanted = f"{'deleted ' if f == 'delete' else ''}{index}"
        free = value is None or value.startswith("deleted")
        fits = free if f == "create" else expected in (None, revision)
        if not fits:
            calls[index] = Call(start, end, f, (wanted, expected), CONFLICT if end is not None else None)
            continue
        if end is not None or draw(st.booleans()):
            last += draw(st.integers(1, 2))
            value, revision = wanted, last
        if end is not None:
            told.append(revision)
        calls[index] = Call(start, end, f, (wanted, expected), (wanted, revision) if end is not None else None)
    done = [call for call in calls if call is not None]
    return [mutated(draw, done, call) for call in tell(done)]


def tell(calls: list[Call]) -> list[Call]:
    """Give a write of unknown fate the revision that a read reported with its value."""
    told = {call.result[0]: call.result for call in calls if call.f == "get"}
    return [
        Call(call.start, call.end, call.f, call.argument, told.get(call.argument[0]))
        if call.f != "get" and call.end is None
        else call
        for call in calls
    ]


def mutated(draw: st.DrawFn, calls: list[Call], call: Call) -> Call:
    """Sometimes another answer than the right one."""
    if call.end is None or draw(st.integers(0, 5)):
        return call
    if call.f == "get":
        results = [(None, 0)] + [
            other.result for other in calls if other.f != "get" and isinstance(other.result, tuple)
        ]
        return Call(call.start, call.end, call.f, call.argument, draw(st.sampled_from(results)))
    if call.argument[1] is not None and isinstance(call.result, tuple) and draw(st.booleans()):
        return Call(call.start, call.end, call.f, call.argument, CONFLICT)
    if isinstance(call.result, tuple):
        return Call(call.start, call.end, call.f, call.argument, (call.result[0], draw(st.integers(1, 8))))
    return call


@given(register_histories())
def test_fast_path_search_and_brute_force_agree_on_registers_with_revisions(calls: list[Call]) -> None:
    """The fast path may be unsure; what it says is what both others say."""
    right = "ok" if brute_force(RegisterModel(), calls) else "violated"
    assert search(RegisterModel(), calls).verdict == right
    assert judge_key(calls)[0] in (right, "unsure")
