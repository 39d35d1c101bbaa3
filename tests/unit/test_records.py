"""Records: what `tnats.records` makes behaves as attrs' own classes do."""

from __future__ import annotations

import attrs
import pytest

from tnats.records import define, frozen


@frozen
class Place:
    name: str
    number: int = 0
    secret: str = attrs.field(default="", repr=False, eq=False)


@frozen
class Deeper(Place):
    more: int = 1


@define
class Box:
    inner: object = None


@define(eq=False)
class Thing:
    size: int = 0


@define
class Nothing:
    pass


@define
class Failure(Exception):
    text: str


def test_records_are_equal_by_value_within_their_class() -> None:
    """Fields decide, save those that are kept out; another class, even a derived one, is never equal."""
    assert Place("a", 1) == Place("a", 1, "x")
    assert Place("a", 1) != Place("a", 2)
    assert Place("a") != Deeper("a", more=0)
    assert Deeper("a", 1) == Deeper("a", 1)
    assert Nothing() == Nothing()


def test_frozen_records_are_keys_and_others_are_not() -> None:
    """Equal frozen records find the same entry; what may change has no hash."""
    assert {Place("a", 1, "x"): 1}[Place("a", 1, "y")] == 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(Box())
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Place("a").number = 2  # type: ignore[misc]


def test_records_without_equality_and_exceptions_are_equal_to_themselves_alone() -> None:
    """`eq=False`, and every exception: identity."""
    thing, failure = Thing(), Failure("x")
    assert thing == thing
    assert thing != Thing()
    assert {thing: 1}[thing] == 1
    assert failure == failure
    assert failure != Failure("x")


def test_records_are_shown_by_their_fields() -> None:
    """In order, without what is kept out, and without an end to what holds itself."""
    assert repr(Deeper("a", 1, "hidden")) == "Deeper(name='a', number=1, more=1)"
    box = Box()
    box.inner = [box]
    assert repr(box) == "Box(inner=[...])"


def test_own_methods_are_kept() -> None:
    """What a class says itself is not replaced."""

    @define
    class Word:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Word) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "a word"

    assert Word("A") == Word("a")
    assert hash(Word("a")) == 7
    assert repr(Word("a")) == "a word"


def test_replaced_records_keep_their_class() -> None:
    """`attrs.evolve` and `attrs.fields` know them."""
    assert attrs.evolve(Place("a", 1), number=2) == Place("a", 2)
    assert [field.name for field in attrs.fields(Place)] == ["name", "number", "secret"]
