"""Validity, matching, subset and overlap of subjects, by table."""

from __future__ import annotations

import pytest

from tnats.subjects import tokens


@pytest.mark.parametrize(
    ("subject", "pattern", "config", "literal"),
    [
        (b"foo", True, True, True),
        (b"foo.bar", True, True, True),
        (b"foo.*.bar", True, True, False),
        (b"foo.>", True, True, False),
        (b">", True, True, False),
        (b"*", True, True, False),
        (b"foo*.b>ar.>x", True, True, True),
        (b"", False, False, False),
        (b".", False, False, False),
        (b".foo", False, False, False),
        (b"foo.", False, False, False),
        (b"foo..bar", False, False, False),
        (b"foo.>.bar", False, False, False),
        (b">.>", False, False, False),
        (b"foo.b ar", True, False, True),
        (b"foo. ", True, False, True),
        (b"foo\t", True, False, True),
        (b"foo\x0c", True, False, True),
        (b"foo\x0b", True, True, True),
        (b"\xff\x00", True, True, True),
    ],
)
def test_validity_differs_by_who_asks(subject: bytes, pattern: bool, config: bool, literal: bool) -> None:
    """SUB checks the shape, configuration white space too, a pedantic PUB lone wildcards, and who names a place to
    publish to all of it; str asks the same.
    """
    for form in (subject, tokens.to_text(subject)):
        assert tokens.is_valid_pattern(form) is pattern
        assert tokens.is_valid_subject(form) is config
        assert tokens.is_valid_literal(form) is literal
        assert tokens.is_publishable(form) is (config and literal)


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        ("foo", "foo", True),
        ("foo", "FOO", False),
        ("foo.*", "foo.bar", True),
        ("foo.*", "foo", False),
        ("foo.*", "foo.bar.baz", False),
        ("foo.>", "foo", False),
        ("foo.>", "foo.a.b.c", True),
        (">", "foo", True),
        (">", "foo..bar", False),
        ("*.*", "foo.", False),
        ("foo*", "foobar", False),
        ("foo*", "foo*", True),
        ("foo.bar", "foo.*", False),
        ("foo.*", "foo.*", True),
        ("foo.*", "foo.>", True),
        ("*.bar", "foo.baz", False),
    ],
)
def test_matching(pattern: str, subject: str, matches: bool) -> None:
    """`*` is one token, `>` one or more; tokens of the subject are opaque; empty tokens match nothing."""
    assert tokens.subject_matches(pattern, subject) is matches
    assert tokens.subject_matches(pattern.encode(), subject.encode()) is matches


@pytest.mark.parametrize(
    ("inner", "outer", "subset", "overlap"),
    [
        ("foo", "foo", True, True),
        ("foo.*", "foo.>", True, True),
        ("foo.>", "foo.*", False, True),
        ("foo.>", ">", True, True),
        (">", "foo.>", False, True),
        (">", "*", False, True),
        ("*.bar", "foo.*", False, True),
        ("foo.bar", "foo.*", True, True),
        ("foo.*", "foo.bar", False, True),
        ("foo.*.x", "foo.bar.y", False, False),
        ("foo", "foo.>", False, False),
        ("foo.>", "foo.*.*.>", False, True),
    ],
)
def test_subset_and_overlap(inner: str, outer: str, subset: bool, overlap: bool) -> None:
    """Subset asks for every subject, overlap for one; overlap does not depend on the order."""
    assert tokens.is_subset(inner, outer) is subset
    assert tokens.subjects_overlap(inner, outer) is overlap
    assert tokens.subjects_overlap(outer, inner) is overlap


def test_text_form_keeps_every_byte() -> None:
    """Subjects that are not UTF-8 survive the way through str."""
    raw = bytes(range(256))
    assert tokens.to_bytes(tokens.to_text(raw)) == raw
