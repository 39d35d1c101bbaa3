"""Subject transforms against what nats-server answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tnats.subjects.draw import Draw
from tnats.subjects.transforms import Transform, TransformError, partition_of, with_placeholders

VECTORS = [
    [field.encode() for field in line.split(" | ")]
    for line in Path(__file__).with_name("transform_vectors.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("source", "destination", "subject", "mapped"), VECTORS)
def test_vectors(source: bytes, destination: bytes, subject: bytes, mapped: bytes) -> None:
    """Each published subject becomes the one that nats-server 2.15.1 delivered."""
    transform = Transform(source, destination)
    assert transform.matches(subject)
    assert transform.apply(subject, Draw(1)) == mapped


@pytest.mark.parametrize(
    ("source", "destination", "text"),
    [
        ("foo.*", "bar.$2", "invalid mapping destination: wildcard index out of range in $2: [2]"),
        ("foo", "bar.$1", "invalid mapping destination: wildcard index out of range in $1"),
        (
            "foo.*",
            "{{wildcard(1,2)}}",
            "invalid mapping destination: too many arguments passed to the function in {{wildcard(1,2)}}",
        ),
        (
            "foo.*",
            "{{wildcard()}}",
            "invalid mapping destination: not enough arguments passed to the function in {{wildcard()}}",
        ),
        (
            "foo.*",
            "{{wildcard(x)}}",
            "invalid mapping destination: function argument is invalid or in the wrong format in {{wildcard(x)}}",
        ),
        ("foo.*", "{{nope(1)}}", "invalid mapping destination: unknown function in {{nope(1)}}"),
        ("foo.*", "{{LEFT(1,2)}}", "invalid mapping destination: unknown function in {{LEFT(1,2)}}"),
        ("foo.*", "{{wildcard 1}}", "invalid mapping destination: unknown function in {{wildcard 1}}"),
        (
            "foo.*",
            "{{partition(3000000000,1)}}",
            "invalid mapping destination: function argument is invalid or in the wrong format"
            " in {{partition(3000000000,1)}}",
        ),
        (
            "foo.*",
            "{{split(1)}}",
            "invalid mapping destination: not enough arguments passed to the function in {{split(1)}}",
        ),
        (
            "foo.*",
            "{{left(1,2,3)}}",
            "invalid mapping destination: too many arguments passed to the function in {{left(1,2,3)}}",
        ),
        (
            "foo.*",
            "{{left(1,99999999999999999999)}}",
            "invalid mapping destination: function argument is invalid or in the wrong format"
            " in {{left(1,99999999999999999999)}}",
        ),
        ("foo.a", "b..c", "invalid mapping destination: invalid transform in b..c"),
        ("foo.>", "bar", "invalid subject"),
        ("foo", "bar.>", "invalid subject"),
        ("foo.*", "bar.*", "invalid subject"),
        ("foo..a", "b", "invalid subject"),
    ],
)
def test_faults_are_named(source: str, destination: str, text: str) -> None:
    """A pair that makes no transform is refused, in nats-server's words with the token at fault."""
    with pytest.raises(TransformError) as caught:
        Transform(source, destination)
    assert str(caught.value) == text


@pytest.mark.parametrize("token", ["$0", "$-1", "{{wildcard(0)}}", "{{partition(5,0)}}", "{{left(-1,2)}}"])
def test_wildcards_count_from_one(token: str) -> None:
    """A wildcard index below 1 names nothing and is refused."""
    with pytest.raises(TransformError, match="wildcard index out of range"):
        Transform("foo.*", f"bar.{token}")


@pytest.mark.parametrize(
    ("destination", "text"),
    [
        ("bar.$1", "not using all of the token wildcard(s) in bar.$1"),
        ("{{split(1,-)}}.$2", "the only mapping function allowed for import transforms is {{Wildcard()}} in"),
        ("{{partition(3)}}.$1.$2", "the only mapping function allowed for import transforms is {{Wildcard()}} in"),
    ],
)
def test_strict_is_reversible_only(destination: str, text: str) -> None:
    """An import transform uses every wildcard and nothing but wildcards."""
    with pytest.raises(TransformError) as caught:
        Transform("foo.*.*", destination, strict=True)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("source", "destination", "subject"),
    [
        ("foo.*.*", "bar.$2.x.$1", b"foo.a.b"),
        ("*.a.*.*", "$3.$1.$2", b"1.a.2.3"),
        ("foo.*.>", "bar.{{wildcard(1)}}.y.>", b"foo.a.b.c"),
        ("foo", "bar.baz", b"foo"),
        ("foo.>", "$JS.API.>", b"foo.STREAM.INFO.x"),
    ],
)
def test_reversed_undoes(source: str, destination: str, subject: bytes) -> None:
    """The reverse of a strict transform leads back to the subject it came from."""
    transform = Transform(source, destination, strict=True)
    draw = Draw(1)
    assert transform.reversed().apply(transform.apply(subject, draw), draw) == subject


def test_placeholders_map_a_pattern_to_itself() -> None:
    """`with_placeholders` gives the destination that changes nothing."""
    assert with_placeholders(b"a.*.b*.*.>") == b"a.$1.b*.$2.>"
    transform = Transform(b"a.*.*.>", with_placeholders(b"a.*.*.>"))
    assert transform.apply(b"a.x.y.z.w", Draw(1)) == b"a.x.y.z.w"


def test_pattern_is_carried_through() -> None:
    """A subscription within the source maps to the subscription within the destination."""
    assert Transform("a.*.>", "b.$1.c.>").apply(b"a.*.x.>", Draw(1)) == b"b.*.c.x.>"


def test_split_never_makes_empty_tokens() -> None:
    """Separators in a row or at the ends leave no empty token, where nats-server loses the message."""
    assert Transform("*", "x.{{split(1,-)}}").apply(b"--a---b--", Draw(1)) == b"x.a.b"


def test_random_covers_its_range_and_is_not_fixed() -> None:
    """`{{random(n)}}` draws 0 to n - 1 about evenly, and says that it must not be cached."""
    transform = Transform("lit", "x.{{random(4)}}")
    assert not transform.is_fixed
    assert Transform("*", "x.{{partition(4,1)}}").is_fixed
    draw = Draw(5)
    counts = Counter(transform.apply(b"lit", draw) for _ in range(4000))
    assert sorted(counts) == [b"x.0", b"x.1", b"x.2", b"x.3"]
    assert min(counts.values()) > 850


def test_partition_of_no_partitions_is_zero() -> None:
    """`partition(0)` sends everything to 0."""
    assert partition_of(b"anything", 0) == 0
