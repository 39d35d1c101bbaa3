"""Verbs of control lines, whole and cut."""

from __future__ import annotations

import pytest

from tnats.broker.control import Verb, could_begin_verb, split_verb


@pytest.mark.parametrize(
    ("line", "verb", "arguments"),
    [
        (b"PUB foo 1\r\n", Verb.PUB, b"foo 1"),
        (b"pub\t foo 1 \r\n", Verb.PUB, b"foo 1 "),
        (b"hPuB a 1 2\n", Verb.HPUB, b"a 1 2"),
        (b"SUB foo 1\r\n", Verb.SUB, b"foo 1"),
        (b"unsub 1\r\n", Verb.UNSUB, b"1"),
        (b"CONNECT{}\r\n", Verb.CONNECT, b"{}"),
        (b"connect   {}\r\n", Verb.CONNECT, b"{}"),
        (b"INFO{}\r\n", Verb.INFO, b"{}"),
        (b"PINGPONG\r\n", Verb.PING, b"PONG"),
        (b"pong\n", Verb.PONG, b""),
        (b"+ok\r\n", Verb.OK, b""),
        (b"-ERR 'x'\r\n", Verb.ERR, b"'x'"),
        (b"SUB \r\n", Verb.SUB, b""),
    ],
)
def test_known_verbs(line: bytes, verb: Verb, arguments: bytes) -> None:
    """Either case; blanks before the arguments and the line end are not among them."""
    assert split_verb(line) == (verb, arguments)


@pytest.mark.parametrize(
    "line", [b"", b"\r\n", b"PUBfoo 1\r\n", b"SUB\r\n", b"-ERRx\r\n", b"RS+ a\r\n", b"MSG a 1 1\r\n", b"PIN\r\n"]
)
def test_unknown_verbs(line: bytes) -> None:
    """What is no client's verb, or lacks the blank that it needs, is unknown."""
    assert split_verb(line) is None


@pytest.mark.parametrize(
    "line", [b"PUB foo 1", b"hpub a 1 2", b"UNSUB 1", b"CONNECT {}", b"ping", b"+OK", b"-ERR 'x'", b"INFO {}"]
)
def test_lawful_lines_are_lawful_from_the_first_byte_on(line: bytes) -> None:
    """Every beginning of a known line could become one, so that cutting it anywhere does not matter."""
    assert all(could_begin_verb(line[:size]) for size in range(1, len(line) + 1))


@pytest.mark.parametrize("part", [b"X", b"PUX", b"PUBX", b"\r", b"SUBfoo", b"-ERRx", b"R", b"A", b"L", b"M"])
def test_unlawful_beginnings_are_seen_at_once(part: bytes) -> None:
    """No need to wait for the line end to know that a verb is none."""
    assert not could_begin_verb(part)
