"""Options of a monitoring request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats.edges.query import BadQuery, Query


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", False), ("x=1", True), ("x=t", True), ("x=TRUE", True), ("x=0", False), ("x=False", False), ("x=", False)],
)
def test_flag_reads_every_spelling_go_reads(text: str, expected: bool) -> None:
    """A boolean option takes exactly the spellings of Go's ParseBool, and absent means False."""
    assert Query(text).flag("x") is expected


def test_flag_names_what_is_wrong() -> None:
    """A value that is no boolean is refused with nats-server's own text."""
    with pytest.raises(BadQuery) as caught:
        Query("subs=q").flag("subs")
    assert str(caught.value) == ("Error decoding boolean for 'subs': strconv.ParseBool: parsing \"q\": invalid syntax")


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("n=7", 7), ("n=-3", -3), ("n=%2B4", 4)])
def test_integer(text: str, expected: int) -> None:
    """An integer option takes a sign and decimal digits; absent means 0."""
    assert Query(text).integer("n") == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("x", "invalid syntax"),
        ("1_000", "invalid syntax"),
        ("9" * 19, "value out of range"),
        ("9" * 400, "value out of range"),
    ],
)
def test_integer_names_what_is_wrong(value: str, reason: str) -> None:
    """Text and numbers beyond 64 bits are told apart, and underscores are no digits."""
    with pytest.raises(BadQuery) as caught:
        Query(f"limit={value}").integer("limit")
    assert str(caught.value) == f"Error decoding int for 'limit': strconv.Atoi: parsing \"{value}\": {reason}"


@given(st.text())
def test_any_text_is_a_query(text: str) -> None:
    """No query string makes decoding raise anything but BadQuery."""
    query = Query(text)
    for read in (query.text, query.flag, query.integer):
        try:
            read("a")
        except BadQuery:
            pass


def test_unsigned_takes_no_sign() -> None:
    """Ids are told apart from numbers: a sign or a number beyond 64 bits is refused with nats-server's own text."""
    assert Query("cid=18446744073709551615").unsigned("cid") == 2**64 - 1
    for value, reason in (("-1", "invalid syntax"), ("18446744073709551616", "value out of range")):
        with pytest.raises(BadQuery) as caught:
            Query(f"cid={value}").unsigned("cid")
        assert str(caught.value) == f"Error decoding uint64 for 'cid': strconv.ParseUint: parsing \"{value}\": {reason}"
