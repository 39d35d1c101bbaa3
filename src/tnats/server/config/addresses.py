"""Addresses and URLs as configurations write them."""

from __future__ import annotations

from tnats.notation import quote

_ANY_PORTS = (0, -1)


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


def port_number(text: str) -> int:
    """A port as an address names it, maybe one that nobody can listen on. Raises ValueError."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise ValueError(f"could not parse port {quote(text)}")
    return int(text)


def split_host_and_maybe_port(address: str, port: int) -> tuple[str, int]:
    """`host`, `host:port`, `[v6]` or `[v6]:port` apart, with `port` for one that is not named. Raises ValueError."""
    if ":" not in address or address.endswith("]"):
        address = f"{address}:{port}"
    host, text = split_host_port(address)
    named = port_number(text)
    return host, port if named in _ANY_PORTS else named


def redacted_url(url: str) -> str:
    """`url` with `[REDACTED]` in place of the user and password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    authority, slash, path = rest.partition("/")
    _, at, host = authority.rpartition("@")
    return f"{scheme}{separator}[REDACTED]@{host}{slash}{path}" if at else url
