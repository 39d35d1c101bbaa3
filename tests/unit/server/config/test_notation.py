"""Go's durations, quoted text and addresses."""

from __future__ import annotations

import pytest

from tnats.server.config.notation import format_duration, parse_duration_ns, quote, split_host_port


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0), ("+0", 0), ("1s", 10**9), ("-1.5h", -5_400 * 10**9), ("1h1m1s1ms1us1ns", 3_661_001_001_001),
        (".5s", 500_000_000), ("1.s", 10**9), ("3µs", 3000), ("3μs", 3000), ("0.0000000001s", 0),
    ],
)  # fmt: skip
def test_duration_is_read(text: str, duration_ns: int) -> None:
    """Signs, fractions and sums of units."""
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", 'time: invalid duration ""'), ("-", 'time: invalid duration "-"'),
        ("5", 'time: missing unit in duration "5"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'), (".s", 'time: invalid duration ".s"'),
        ("1s2", 'time: missing unit in duration "1s2"'), ("9999999h", 'time: invalid duration "9999999h"'),
        ("1 s", 'time: unknown unit " s" in duration "1 s"'),
    ],
)  # fmt: skip
def test_bad_duration_is_refused_in_go_s_words(text: str, error: str) -> None:
    """The text tells what is wrong with it."""
    with pytest.raises(ValueError, match=r"^time: ") as caught:
        parse_duration_ns(text)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"), (1, "1ns"), (1500, "1.5µs"), (2_000_000, "2ms"), (1_500_000_000, "1.5s"), (120 * 10**9, "2m0s"),
        (3_661 * 10**9, "1h1m1s"), (-30 * 10**9, "-30s"),
    ],
)  # fmt: skip
def test_duration_is_written(duration_ns: int, text: str) -> None:
    """As Go prints it."""
    assert format_duration(duration_ns) == text


def test_quoted_text_holds_no_control_characters() -> None:
    """Quotes, backslashes, controls and stray bytes are escaped; printable characters stay."""
    assert quote('a"b\\c\n\x00é\udcff\u200b') == '"a\\"b\\\\c\\n\\x00é\\xff\\u200b"'


@pytest.mark.parametrize(
    ("text", "parts"), [("h:1", ("h", "1")), (":1", ("", "1")), ("[::1]:2", ("::1", "2")), ("h:", ("h", ""))]
)
def test_address_is_split(text: str, parts: tuple[str, str]) -> None:
    """Host and port, IPv6 in brackets."""
    assert split_host_port(text) == parts


@pytest.mark.parametrize("text", ["h", "::1:2", "[::1", "[::1]2", "h]:1", ""])
def test_bad_address_is_refused(text: str) -> None:
    """What is no host and port raises ValueError."""
    with pytest.raises(ValueError, match="address"):
        split_host_port(text)
