"""Many patterns at once match what each alone would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tnats.subjects.matcher import Matcher
from tnats.subjects.tokens import is_valid_pattern, subject_matches

TOKENS = st.sampled_from([b"a", b"b", b"ab"])
SUBJECTS = st.lists(TOKENS | st.just(b"*"), min_size=1, max_size=4).map(b".".join)
PATTERNS = (
    st.lists(TOKENS | st.just(b"*"), min_size=0, max_size=4)
    .flatmap(lambda tokens: st.sampled_from([tokens, [*tokens, b">"]]))
    .map(b".".join)
    .filter(is_valid_pattern)
)


@given(st.lists(PATTERNS, min_size=1, max_size=8), st.lists(SUBJECTS, min_size=1, max_size=8))
def test_patterns_match_as_each_alone(patterns: list[bytes], subjects: list[bytes]) -> None:
    """A subject is wanted if one of the patterns matches it, also when it is asked for again, or with many others."""
    matches = Matcher(patterns)
    wanted = [any(subject_matches(pattern, subject) for pattern in patterns) for subject in subjects]
    assert list(map(bool, matches.verdicts(subjects))) == wanted
    assert list(map(bool, Matcher([*patterns, *[b"none"] * 32]).verdicts(subjects))) == wanted
    for subject in subjects * 2:
        assert matches(subject) == any(subject_matches(pattern, subject) for pattern in patterns)
