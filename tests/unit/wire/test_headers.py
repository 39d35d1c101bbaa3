"""Header blocks by example, among them the look-alikes that fooled others."""

from __future__ import annotations

import pytest

from tnats.wire import headers
from tnats.wire.headers import HeaderError, Headers

BLOCK = b"NATS/1.0\r\nA: 1\r\nX-Note: TTL: 5\r\nTTL-Long: 9\r\nTTL:  7 \r\nttl: 8\r\nTTL: 10\r\nEmpty:\r\n\r\n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"A", b"1"),
        (b"TTL", b"7 "),
        (b"ttl", b"8"),
        (b"TTL-Long", b"9"),
        (b"Empty", b""),
        (b"TT", None),
        (b"Long", None),
        (b"NATS/1.0", None),
    ],
)
def test_get_finds_the_whole_exact_key(key: bytes, value: bytes | None) -> None:
    """Neither a longer key, nor other case, nor a name inside a value is taken for the header."""
    assert headers.get_header(BLOCK, key) == value


def test_order_and_prefixes_do_not_matter() -> None:
    """A key is found though a longer one with the same beginning comes first."""
    block = headers.build_headers([(b"Nats-Schedule-Target", b"t"), (b"Nats-Schedule", b"s")])
    assert headers.get_header(block, b"Nats-Schedule") == b"s"
    assert headers.get_header(block, b"Nats-Schedule-Target") == b"t"


def test_remove_takes_every_line_of_the_key_and_nothing_else() -> None:
    """All duplicates go; every other byte stays."""
    assert headers.remove_header(BLOCK, b"TTL") == (
        b"NATS/1.0\r\nA: 1\r\nX-Note: TTL: 5\r\nTTL-Long: 9\r\nttl: 8\r\nEmpty:\r\n\r\n"
    )
    assert headers.remove_header(BLOCK, b"Missing") is BLOCK
    assert headers.remove_headers_with_prefix(BLOCK, b"TTL") == (
        b"NATS/1.0\r\nA: 1\r\nX-Note: TTL: 5\r\nttl: 8\r\nEmpty:\r\n\r\n"
    )


def test_removing_the_last_header_leaves_no_block() -> None:
    """An empty block is no headers at all; a status stays."""
    assert headers.remove_header(b"NATS/1.0\r\nA: 1\r\n\r\n", b"A") == b""
    assert headers.remove_header(b"NATS/1.0 100\r\nA: 1\r\n\r\n", b"A") == b"NATS/1.0 100\r\n\r\n"


def test_set_replaces_in_place_or_appends() -> None:
    """After a set there is exactly one such header; others keep their place."""
    assert headers.set_header(BLOCK, b"TTL", b"0") == (
        b"NATS/1.0\r\nA: 1\r\nX-Note: TTL: 5\r\nTTL-Long: 9\r\nTTL: 0\r\nttl: 8\r\nEmpty:\r\n\r\n"
    )
    assert headers.set_header(b"", b"A", b"1") == b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert headers.set_header(headers.EMPTY_BLOCK, b"A", b"1") == b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert headers.set_header(b"NATS/1.0\r\nA: 1\r\n\r\n", b"B", b"2") == b"NATS/1.0\r\nA: 1\r\nB: 2\r\n\r\n"


def test_status_block_of_no_responders() -> None:
    """The 503 that answers a request nobody hears is 32 bytes and the subject."""
    block = headers.build_headers([(b"Nats-Subject", b"foo.bar")], 503)
    assert block == b"NATS/1.0 503\r\nNats-Subject: foo.bar\r\n\r\n"
    assert len(block) == 32 + len(b"foo.bar")
    assert headers.build_headers([], 100, b"Idle Heartbeat") == b"NATS/1.0 100 Idle Heartbeat\r\n\r\n"
    assert headers.build_headers([]) == headers.EMPTY_BLOCK


@pytest.mark.parametrize(
    ("block", "parsed"),
    [
        (b"NATS/1.0\r\n\r\n", Headers(0, b"", [])),
        (b"NATS/1.0 503\r\n\r\n", Headers(503, b"", [])),
        (b"NATS/1.0 404 No Messages\r\n\r\n", Headers(404, b"No Messages", [])),
        (b"NATS/1.0   408   Request Timeout \r\n\r\n", Headers(408, b"Request Timeout", [])),
        (b"NATS/1.0\r\nA:1\r\nb:  2 \r\nA: x:y\r\n\r\n", Headers(0, b"", [(b"A", b"1"), (b"b", b"2"), (b"A", b"x:y")])),
        (b"NATS/1.0\r\nA 1\r\n\r\n", None),
        (b"NATS/1.0\r\n: 1\r\n\r\n", None),
        (b"NATS/1.0\r\nA: 1\r\n", None),
        (b"NATS/1.0\r\n", None),
        (b"NATS/2.0\r\n\r\n", None),
        (b"NATS/1.01\r\n\r\n", None),
        (b"NATS/1.0 abc\r\n\r\n", None),
        (b"", None),
    ],
)
def test_parse(block: bytes, parsed: Headers | None) -> None:
    """A well-formed block gives status, description and fields in order; anything else None."""
    assert headers.parse_headers(block) == parsed


@pytest.mark.parametrize("key", [b"", b"a b", b"a:", b"a\r\nb", b"a\tb"])
def test_a_key_that_would_break_the_block_is_refused(key: bytes) -> None:
    """No key can smuggle in another header."""
    with pytest.raises(HeaderError):
        headers.build_headers([(key, b"v")])
    with pytest.raises(HeaderError):
        headers.set_header(headers.EMPTY_BLOCK, key, b"v")


@pytest.mark.parametrize("value", [b"a\r\nB: 2", b"a\n", b"\r"])
def test_a_value_that_would_break_the_block_is_refused(value: bytes) -> None:
    """No value can smuggle in another header."""
    with pytest.raises(HeaderError):
        headers.build_headers([(b"A", value)])
