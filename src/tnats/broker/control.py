"""Control lines of clients: which verb a line begins with, complete or not yet (client protocol, "Verbs").

A verb is known by its letters, in either case. PUB, HPUB, SUB, UNSUB and -ERR need a space or tab before their
arguments; CONNECT and INFO do not; PING, PONG and +OK are followed by anything that is not a line feed.
"""

from __future__ import annotations

import enum

BLANKS = b" \t"


class Verb(enum.Enum):
    """What clients may send; the value is the verb in upper case."""

    PUB = b"PUB"
    SUB = b"SUB"
    PING = b"PING"
    PONG = b"PONG"
    HPUB = b"HPUB"
    UNSUB = b"UNSUB"
    CONNECT = b"CONNECT"
    INFO = b"INFO"
    OK = b"+OK"
    ERR = b"-ERR"


_NEED_BLANK = frozenset((Verb.PUB, Verb.HPUB, Verb.SUB, Verb.UNSUB, Verb.ERR))
WITHOUT_ARGUMENTS = frozenset((Verb.PING, Verb.PONG, Verb.OK))
_SIZE_MAX = max(len(verb.value) for verb in Verb)
_BY_FIRST_BYTE = {
    first: tuple(
        (verb.value, len(verb.value), verb, verb in _NEED_BLANK) for verb in Verb if verb.value[:1] == first.upper()
    )
    for first in {case(verb.value[:1]) for verb in Verb for case in (bytes.upper, bytes.lower)}
}
"""The few verbs that can follow from a line's first byte: clients may send SUB and UNSUB by the thousand."""


def split_verb(line: bytes) -> tuple[Verb, bytes] | None:
    """Verb and arguments of a line (without blanks before them, nor the line end), or None for an unknown one."""
    for text, size, verb, needs_blank in _BY_FIRST_BYTE.get(line[:1], ()):
        if line[:size].upper() == text:
            rest = line[size:]
            if needs_blank and rest[:1] not in (b" ", b"\t"):
                return None
            return verb, rest.removesuffix(b"\n").removesuffix(b"\r").lstrip(BLANKS)
    return None


def could_begin_verb(part: bytes) -> bool:
    """Whether a line without an end yet may still become one with a known verb."""
    start = part[:_SIZE_MAX].upper()
    for verb in Verb:
        if verb.value.startswith(start):
            return True
        if start.startswith(verb.value):
            return split_verb(part) is not None
    return False
