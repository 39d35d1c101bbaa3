"""Times, durations and quoted text as Go writes them, and so NATS: in the API, in headers, configurations and reports.

A time is an int: nanoseconds since the Unix epoch, UTC; its text is RFC 3339. "No time" is the year 1 (`ZERO_TIME`),
which is None here. Durations are ints in nanoseconds; their text is `1h30m0.5s`.
"""

from __future__ import annotations

import calendar
import datetime
import functools
import re

from tnats.limits import SECOND_NS

ZERO_TIME = "0001-01-01T00:00:00Z"
DURATION_NS_MAX = 2**63 - 1
DURATION_SIZE_MAX = 256
"""Characters of a duration: longer ones say nothing that shorter ones cannot, and cost time."""

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_SECONDS_MIN = calendar.timegm((1, 1, 1, 0, 0, 0))
_SECONDS_MAX = calendar.timegm((9999, 12, 31, 23, 59, 59))
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
_UNIT_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, micro sign
    "μs": 1_000,  # U+03BC, Greek mu
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
}


def parse_time(text: str) -> int | None:
    """The instant that an RFC 3339 text names, None for a text that is none. The year 1 gives a negative number."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[i]) for i in range(1, 7))
    if not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(max(year, 1), month)[1] or year < 1:
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    offset_s = 0
    if found[8]:
        offset_hour, offset_minute = int(found[9]), int(found[10])
        if offset_hour > 23 or offset_minute > 59:
            return None
        offset_s = (offset_hour * 60 + offset_minute) * 60 * (1 if found[8] == "+" else -1)
    fraction_ns = int((found[7] or "0")[:9].ljust(9, "0"))
    seconds = calendar.timegm((year, month, day, hour, minute, second)) - offset_s
    return seconds * SECOND_NS + fraction_ns if _SECONDS_MIN <= seconds <= _SECONDS_MAX else None


def format_time(ns: int | None) -> str:
    """RFC 3339 in UTC, the fraction without trailing zeros; None is the API's zero time."""
    if ns is None:
        return ZERO_TIME
    seconds, fraction_ns = divmod(ns, SECOND_NS)
    text = _format_second(seconds)
    if fraction_ns:
        text += f".{fraction_ns:09d}".rstrip("0")
    return text + "Z"


@functools.lru_cache(maxsize=256)
def _format_second(seconds: int) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)  # noqa: DTZ001 - UTC throughout
    return moment.isoformat()


def parse_duration(text: str) -> int | None:
    """Nanoseconds of a Go duration (`1h1m`, `-1.5s`, `0`), None for a text that is none or overflows 64 bits."""
    found = _read_duration(text)
    return found if isinstance(found, int) else None


def duration_fault(text: str) -> str:
    """What Go says of a text that is no duration."""
    found = _read_duration(text)
    return found if isinstance(found, str) else ""


def _read_duration(text: str) -> int | str:
    """Nanoseconds, or what is wrong with the text."""
    invalid = "time: invalid duration "
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest or len(rest) > DURATION_SIZE_MAX:
        return invalid + quote(text)
    total_ns = 0
    position = 0
    while position < len(rest):
        found = _DURATION_PART.match(rest, position)
        assert found is not None  # it matches the empty string
        whole, fraction, unit = found[1], found[2] or "", found[3]
        if not (whole or fraction):
            return invalid + quote(text)
        unit_ns = _UNIT_NS.get(unit)
        if unit_ns is None:
            fault = f"unknown unit {quote(unit)}" if unit else "missing unit"
            return f"time: {fault} in duration {quote(text)}"
        total_ns += int(whole or 0) * unit_ns + int(fraction or 0) * unit_ns // 10 ** len(fraction)
        position = found.end()
    return sign * total_ns if total_ns <= DURATION_NS_MAX else invalid + quote(text)


def format_duration(ns: int) -> str:
    """Go's notation: `0s`, `1.5ms`, `2m0s`, `1h0m0.25s`."""
    if ns == 0:
        return "0s"
    sign, rest = ("-", -ns) if ns < 0 else ("", ns)
    if rest < SECOND_NS:
        for unit, unit_ns in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if rest >= unit_ns:
                return sign + _decimal(rest, unit_ns) + unit
    minutes, second_ns = divmod(rest, 60 * SECOND_NS)
    hours, minutes = divmod(minutes, 60)
    text = _decimal(second_ns, SECOND_NS) + "s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    if hours:
        text = f"{hours}h{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0")


_QUOTE_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def quote(text: str) -> str:
    """`text` in double quotes, escaped as Go's `%q` does: what is not printable becomes an escape.

    Bytes that are not UTF-8 are given as surrogates (`surrogateescape`).
    """
    # Subjects and names of plain characters are by far the most common.
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    short = _QUOTE_ESCAPES.get(character)
    if short is not None:
        return short
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
