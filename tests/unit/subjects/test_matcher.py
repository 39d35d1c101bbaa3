"""The matcher on what clients may choose: long subjects, and tokens that look like wildcards."""

from __future__ import annotations

from tnats.subjects.matcher import Matcher


def test_a_subject_of_wildcards_costs_a_look_per_token() -> None:
    """Its tokens are opaque: each is looked for once, not as itself and as any token again and again."""
    matches = Matcher([b".".join([b"*"] * 60 + [b"x"]), b"q"])
    assert matches(b".".join([b"*"] * 60 + [b"x"]))
    assert not matches(b".".join([b"*"] * 60 + [b"y"]))


def test_patterns_and_subjects_may_be_long() -> None:
    """Thousands of tokens are no deeper than a few."""
    matches = Matcher([b".".join([b"a"] * 5000 + [b"*"])])
    assert matches(b".".join([b"a"] * 5001))
    assert not matches(b".".join([b"a"] * 5000))


def test_a_tail_stands_for_one_token_at_least() -> None:
    """As everywhere."""
    matches = Matcher([b"a.>", b"b.*.>"])
    assert [matches(subject) for subject in (b"a", b"a.x", b"a.x.y", b"b.x", b"b.x.y")] == [
        False, True, True, False, True,
    ]  # fmt: skip
