"""Go's notations: durations, times, quoted text."""

from __future__ import annotations

import pytest

from tnats.limits import SECOND_NS
from tnats.notation import (
    DURATION_SIZE_MAX,
    duration_fault,
    format_duration,
    format_time,
    parse_duration,
    parse_time,
    quote,
)

MOMENT_NS = 1_700_000_000 * SECOND_NS


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0), ("+0", 0), ("1s", SECOND_NS), ("-1.5h", -5_400 * SECOND_NS), ("1h1m1s1ms1us1ns", 3_661_001_001_001),
        (".5ms", 500_000), ("1.s", SECOND_NS), ("3µs", 3000), ("3μs", 3000), ("0.0000000001s", 0),
        ("-5s", -5 * SECOND_NS),
    ],
)  # fmt: skip
def test_duration_is_read(text: str, duration_ns: int) -> None:
    """Signs, fractions and sums of units, as Go reads them; there is nothing wrong with it."""
    assert parse_duration(text) == duration_ns
    assert duration_fault(text) == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", 'invalid duration ""'), ("-", 'invalid duration "-"'), ("x", 'invalid duration "x"'),
        ("5", 'missing unit in duration "5"'), ("1s2", 'missing unit in duration "1s2"'),
        ("1d", 'unknown unit "d" in duration "1d"'), (".s", 'invalid duration ".s"'),
        ("1h-1m", 'unknown unit "h-" in duration "1h-1m"'), ("1 s", 'unknown unit " s" in duration "1 s"'),
        ("9999999h", 'invalid duration "9999999h"'),
    ],
)  # fmt: skip
def test_bad_duration_is_refused_in_go_s_words(text: str, fault: str) -> None:
    """It is none, and the text tells what is wrong with it."""
    assert parse_duration(text) is None
    assert duration_fault(text) == f"time: {fault}"


def test_a_duration_is_short() -> None:
    """One that is longer than any need be is none, whatever it adds up to."""
    text = "0" * (DURATION_SIZE_MAX - 1) + "s"
    assert parse_duration(text) == 0
    assert parse_duration("0" + text) is None


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"), (1, "1ns"), (1500, "1.5µs"), (539_000, "539µs"), (2_000_000, "2ms"), (SECOND_NS // 2, "500ms"),
        (1_500_000_000, "1.5s"), (123 * SECOND_NS, "2m3s"), (3_600 * SECOND_NS, "1h0m0s"), (-30 * SECOND_NS, "-30s"),
    ],
)  # fmt: skip
def test_duration_is_written(duration_ns: int, text: str) -> None:
    """As Go prints it, so that it reads the same."""
    assert format_duration(duration_ns) == text
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2023-11-14T22:13:20Z", MOMENT_NS),
        ("2023-11-14T23:13:20.5+01:00", MOMENT_NS + SECOND_NS // 2),
        ("2023-11-14T22:13:20.123456789Z", MOMENT_NS + 123456789),
        ("2023-02-30T00:00:00Z", None),
        ("2023-11-14 22:13:20Z", None),
        ("2023-11-14T22:13:20", None),
        ("2023-11-14T24:13:20Z", None),
    ],
)
def test_time_is_read(text: str, ns: int | None) -> None:
    """RFC 3339 with fraction and offset; what is no such time is None."""
    assert parse_time(text) == ns
    if ns is not None:
        assert parse_time(format_time(ns)) == ns


def test_time_is_written_without_trailing_zeros() -> None:
    """As Go's RFC3339Nano does; no time is the year 1."""
    assert format_time(1_500_000_000_120_000_000) == "2017-07-14T02:40:00.12Z"
    assert format_time(1_500_000_000_000_000_000) == "2017-07-14T02:40:00Z"
    assert format_time(None) == "0001-01-01T00:00:00Z"


def test_quoted_text_holds_no_control_characters() -> None:
    """Quotes, backslashes, controls and stray bytes are escaped; printable characters stay."""
    assert quote("plain é") == '"plain é"'
    assert quote('a"b\\c\n\x00é\udcff\u200b') == '"a\\"b\\\\c\\n\\x00é\\xff\\u200b"'
