"""A set of subjects finds what a comparison with each of them finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats.subjects.subject_set import SubjectSet
from tnats.subjects.tokens import is_subset, subjects_overlap

TOKENS = st.sampled_from(["a", "b", "*", "a*", "*>"])
PATTERNS = st.builds(
    lambda tokens, tail: ".".join(tokens + tail), st.lists(TOKENS, max_size=3), st.sampled_from([["a"], ["*"], [">"]])
)


@pytest.mark.parametrize(
    ("search", "compare"),
    [
        (SubjectSet.overlapping, subjects_overlap),
        (SubjectSet.covering, is_subset),
        (SubjectSet.covered, lambda pattern, member: is_subset(member, pattern)),
    ],
)
@given(members=st.lists(PATTERNS, unique=True), pattern=PATTERNS)
def test_a_search_finds_what_comparisons_find(
    search: Callable[[SubjectSet, str], object], compare: Callable[[str, str], bool], members: list[str], pattern: str
) -> None:
    """Each member that relates to the pattern so is found, once, and no other."""
    found = list(search(SubjectSet(members), pattern))  # type: ignore[call-overload]
    assert sorted(found) == sorted(member for member in members if compare(pattern, member))


@given(members=st.lists(PATTERNS, unique=True), taken=st.lists(PATTERNS), data=st.data())
def test_what_was_taken_out_is_not_found(members: list[str], taken: list[str], data: st.DataObject) -> None:
    """And all else is; when nothing is left, nothing is kept of it."""
    if members:
        taken = taken + data.draw(st.lists(st.sampled_from(members)))
    subjects = SubjectSet(members)
    for pattern in taken:
        subjects.discard(pattern)
    left = [member for member in members if member not in taken]
    assert sorted(subjects.covered(">")) == sorted(left)
    for pattern in left:
        subjects.discard(pattern)
    assert vars(subjects) == vars(SubjectSet())


def test_many_subjects_are_compared_in_no_time() -> None:
    """As many as one request can name: pairs of them would be 450 million."""
    subjects = SubjectSet()
    for number in range(30_000):
        subject = f"orders.{number}.*"
        assert not any(subjects.covering(subject))
        assert not any(subjects.covered(subject))
        assert not any(subjects.overlapping(subject))
        subjects.add(subject)
