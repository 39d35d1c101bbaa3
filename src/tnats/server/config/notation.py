"""How configuration files write durations, addresses and quoted text: Go's notations, read and written."""

from __future__ import annotations

import re

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, micro sign
    "μs": 1_000,  # U+03BC, Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_INT64_MAX = 2**63 - 1
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
_QUOTE_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def parse_duration_ns(text: str) -> int:
    """Nanoseconds of a Go duration such as `1h30m`, `1.5s`, `-250ms` or `0`. Raises ValueError with Go's text."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if rest == "":
        raise ValueError(f"time: invalid duration {quote(text)}")
    total_ns = 0
    while rest:
        match = _DURATION_PART.match(rest)
        if match is None:  # the pattern matches the empty string
            raise ValueError(f"time: invalid duration {quote(text)}")
        whole, fraction, unit = match.group(1), match.group(2) or "", match.group(3)
        if (not whole and not fraction) or len(whole) > 19:
            raise ValueError(f"time: invalid duration {quote(text)}")
        if not unit:
            raise ValueError(f"time: missing unit in duration {quote(text)}")
        unit_ns = _UNITS_NS.get(unit)
        if unit_ns is None:
            raise ValueError(f"time: unknown unit {quote(unit)} in duration {quote(text)}")
        fraction = fraction[:18]  # more digits than a nanosecond of any unit can show
        total_ns += int(whole or "0") * unit_ns + int(fraction or "0") * unit_ns // 10 ** len(fraction)
        if total_ns > _INT64_MAX:
            raise ValueError(f"time: invalid duration {quote(text)}")
        rest = rest[match.end() :]
    return sign * total_ns


def format_duration(duration_ns: int) -> str:
    """Go's form of a duration: `2m0s`, `1.5s`, `100ms`, `0s`."""
    if duration_ns == 0:
        return "0s"
    sign = "-" if duration_ns < 0 else ""
    size_ns = abs(duration_ns)
    if size_ns < 1_000:
        return f"{sign}{size_ns}ns"
    if size_ns < 1_000_000:
        return f"{sign}{_decimal(size_ns, 1_000)}µs"
    if size_ns < 1_000_000_000:
        return f"{sign}{_decimal(size_ns, 1_000_000)}ms"
    minutes, rest_ns = divmod(size_ns, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest_ns, 1_000_000_000)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(size: int, unit: int) -> str:
    whole, rest = divmod(size, unit)
    if rest == 0:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0")


def quote(text: str) -> str:
    """`text` in double quotes with escapes, as Go's %q prints it in error messages."""
    parts = ['"']
    for char in text:
        if char in _QUOTE_ESCAPES:
            parts.append(_QUOTE_ESCAPES[char])
        elif "\udc80" <= char <= "\udcff":
            parts.append(f"\\x{ord(char) - 0xDC00:02x}")
        elif char.isprintable():
            parts.append(char)
        elif char < "\x80":
            parts.append(f"\\x{ord(char):02x}")
        elif char <= "\uffff":
            parts.append(f"\\u{ord(char):04x}")
        else:
            parts.append(f"\\U{ord(char):08x}")
    parts.append('"')
    return "".join(parts)


def split_host_port(address: str) -> tuple[str, str]:
    """`host:port`, `[v6]:port` or `:port` apart; the port stays text. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon:
        raise ValueError("missing port in address")
    if host.startswith("["):
        if not host.endswith("]") or "[" in host[1:] or "]" in host[:-1]:
            raise ValueError("malformed brackets in address")
        return host[1:-1], port
    if ":" in host:
        raise ValueError("too many colons in address")
    if "[" in host or "]" in host:
        raise ValueError("unexpected bracket in address")
    return host, port


def redacted_url(url: str) -> str:
    """`url` with `[REDACTED]` in place of the user and password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    authority, slash, path = rest.partition("/")
    _, at, host = authority.rpartition("@")
    return f"{scheme}{separator}[REDACTED]@{host}{slash}{path}" if at else url
