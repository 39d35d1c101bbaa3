"""JSON texts that orjson alone cannot judge: what a request begins with, and what is wrong with it in Go's words.

nats-server takes the first value of a body and leaves the rest, and its complaints, which tools show to people, name
the place of a fault and repeat a number as it was written.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

SPACES = b" \t\r\n"
"""What may stand around values in JSON."""
_SPACES = SPACES.decode()
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
_VALUE_STARTS = frozenset('{["-0123456789tfn')
_SYNTAX = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Expecting ':' delimiter": "after object key",
    "Expecting ',' delimiter": "after object key:value pair",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
    "Illegal trailing comma before end of array": "looking for beginning of value",
    "Invalid \\escape": "in string escape code",
    "Invalid \\uXXXX escape": "in \\u hexadecimal character escape",
    "Invalid control character at": "in string literal",
}
"""What the json module of Python says of a fault (its messages, word for word), and how nats-server says it."""


class DecodeError(Exception):
    """A request body that is no JSON, or not what its table says; the text goes into "invalid JSON: {err}"."""


class Fraction(float):
    """A number that is not written as an integer; it remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> Fraction:
        number = super().__new__(cls, text)
        number.text = text
        return number


def written(value: Any) -> str:
    """A JSON value as it was written, nearly."""
    return value.text if isinstance(value, Fraction) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def first_value(body: bytes) -> Any:
    """The JSON value that a body begins with, numbers as they are written; what may begin another one may follow it.

    Raises DecodeError.
    """
    text = body.decode("latin-1")  # a character a byte: faults are told by offset

    def refuse(constant: str) -> None:  # Infinity and NaN, which JSON has not
        raise json.JSONDecodeError("Expecting value", text, text.find(constant))

    try:
        decoder = json.JSONDecoder(parse_constant=refuse)
        _, end = decoder.raw_decode(text, len(text) - len(text.lstrip(_SPACES)))
    except json.JSONDecodeError as fault:
        raise _syntax_error(text, fault.pos, fault.msg) from None
    except RecursionError:
        raise DecodeError("exceeded max depth") from None
    rest = text[end:].lstrip(_SPACES)
    if rest and rest[0] not in _VALUE_STARTS:
        raise _syntax_error(text, len(text) - len(rest), "")
    whole = _ESCAPE.sub(_without_half, body[:end].decode(errors="replace"))
    return json.loads(whole, parse_float=Fraction)


def _without_half(escape: re.Match[str]) -> str:
    """An escape, but for half of a surrogate pair, which is no character."""
    return "\\ufffd" if escape["half"] else escape[0]


def _syntax_error(text: str, at: int, said: str) -> DecodeError:
    if at >= len(text) or said.startswith("Unterminated"):
        return DecodeError("unexpected EOF")
    shown = text[at] if " " <= text[at] <= "~" else f"\\x{ord(text[at]):02x}"
    where = _SYNTAX.get(said, "looking for beginning of value")
    return DecodeError(f"invalid character '{shown}' {where} at offset {at + 1}")


def quoted(text: str) -> str:
    """`text` in double quotes, escaped as the API's error texts escape it."""
    return orjson.dumps(text).decode()
