"""Durations, sizes, moments and pairs of options, and how they are shown."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats.cli.values import (
    DURATION,
    MOMENT,
    PAIR,
    SIZE,
    show_count,
    show_counted,
    show_duration,
    show_size,
    show_time,
    until_ns,
)
from tnats.limits import SECOND_NS

HOUR_NS = 3600 * SECOND_NS


def read(kind: click.ParamType[Any], text: str) -> Any:
    return kind.convert(text, None, None)


def test_what_is_read() -> None:
    """Go's durations with days and longer in front, sizes in powers of 1024, times in UTC or from now, pairs."""
    assert read(DURATION, "90s") == 90 * SECOND_NS
    assert read(DURATION, "1d2h") == 26 * HOUR_NS
    assert read(DURATION, "1y1M1w1d") == (365 + 30 + 7 + 1) * 24 * HOUR_NS
    assert read(DURATION, "0") == 0
    assert [read(SIZE, text) for text in ("10", "1k", "2KB", "1.5MiB", "3G", "-1")] == [
        10, 1024, 2048, 3 << 19, 3 << 30, -1,
    ]  # fmt: skip
    assert until_ns(read(MOMENT, "1970-01-01 00:00:01"), 7) == SECOND_NS
    assert until_ns(read(MOMENT, "1970-01-01T01:00:00+01:00"), 7) == 0
    assert until_ns(read(MOMENT, "5s"), 7) == 7 + 5 * SECOND_NS
    assert read(PAIR, "a: b:c") == ("a", "b:c")
    assert read(PAIR, "a=b") == ("a", "b")


@pytest.mark.parametrize(
    ("kind", "text"),
    [(DURATION, "soon"), (DURATION, ""), (DURATION, "5"), (SIZE, "much"), (SIZE, ""), (MOMENT, "noon"), (PAIR, "a")],
)
def test_what_is_not(kind: click.ParamType[Any], text: str) -> None:
    """Other texts are wrong usage, told in a line."""
    with pytest.raises(click.BadParameter):
        read(kind, text)


def test_what_is_shown() -> None:
    """In units that people read; no limit by its name."""
    assert [show_size(size) for size in (-1, 0, 1023, 1024, 1536, 5 << 30)] == [
        "unlimited", "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB",
    ]  # fmt: skip
    assert [show_count(count) for count in (-1, 0, 1_234_567)] == ["unlimited", "0", "1,234,567"]
    assert [show_counted(count, "key") for count in (0, 1, 1_234)] == ["0 keys", "1 key", "1,234 keys"]
    assert [show_duration(ns) for ns in (0, SECOND_NS, 24 * HOUR_NS, 25 * HOUR_NS)] == [
        "unlimited", "1s", "1d", "1d1h0m0s",
    ]  # fmt: skip
    assert show_time(None) == "never"
    assert show_time(1_500_000_000) == "1970-01-01 00:00:01.500"


@given(st.integers(1, 2**62))
def test_durations_come_back(ns: int) -> None:
    """What is shown is read as the same."""
    assert read(DURATION, show_duration(ns)) == ns
