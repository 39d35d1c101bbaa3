"""Moments against a dictionary that is looked through every time."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from tnats.moments import HEAP_COUNT_MIN, Moments

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 20)),
        st.tuples(st.just("forget"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 20)),
    ),
    max_size=300,
)


@given(STEPS)
def test_the_last_moment_of_each_counts(steps: list[tuple[str, int, int]]) -> None:
    """The earliest is next, of several that are equal the one that was set first; few others are kept."""
    moments: Moments[int] = Moments()
    model: dict[int, tuple[int, int]] = {}
    for number, (what, key, moment_ns) in enumerate(steps):
        if what == "set":
            moments.set(key, moment_ns)
            if model.get(key, (-1, 0))[0] != moment_ns:
                model[key] = (moment_ns, number)
        elif what == "forget":
            moments.forget(key)
            model.pop(key, None)
        else:
            due = [(entry, key) for key, entry in model.items() if entry[0] <= moment_ns]
            expected = min(due)[1] if due else None
            assert moments.pop_due(moment_ns) == expected
            if expected is not None:
                del model[expected]
        assert len(moments) == len(model)
        assert moments.next_ns() == min((entry[0] for entry in model.values()), default=None)
        assert len(moments._heap) <= HEAP_COUNT_MIN + 2 * max(len(model), 6) + 1


def test_who_is_gone_is_not_kept() -> None:
    """Neither by what it waited for when it was forgotten, nor by what it had waited for before."""

    class Somebody:
        pass

    moments: Moments[Somebody] = Moments()
    somebody = Somebody()
    for moment_ns in (10**18, 10**17):
        moments.set(somebody, moment_ns)
    moments.forget(somebody)
    watched = weakref.ref(somebody)
    del somebody
    gc.collect()
    assert watched() is None
