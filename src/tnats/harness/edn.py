"""Extensible data notation, as much of it as Jepsen histories use: write and read.

Maps, vectors, lists, sets, strings, keywords, symbols, integers, floats, booleans, nil; tagged elements and
characters are refused. In Python a keyword is a `Keyword` (a str), a list or vector a list, a set a dict of None
values (order kept). Source: edn-format/edn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any


class Keyword(str):
    """`:name`; the text is without the colon."""

    __slots__ = ()


class EdnError(ValueError):
    """The text is no EDN that this reader takes; says where."""


ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
UNESCAPES = {"\\": "\\", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


def write(value: Any) -> str:
    """One line of EDN. Keys of mappings that are plain str become keywords. Raises TypeError for other types."""
    if value is None:
        return "nil"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, Keyword):
        return f":{value}"
    if isinstance(value, str):
        return '"' + "".join(ESCAPES.get(character, character) for character in value) + '"'
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{write(Keyword(key) if isinstance(key, str) else key)} {write(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(write(item) for item in value) + "]"
    raise TypeError(f"no EDN for {type(value).__name__}")


TOKEN = re.compile(r'[\s,]*+(?:;[^\n]*+[\s,]*+)*+("(?:[^"\\]|\\.)*"|#\{|[\[\](){}]|[^\s,"\[\](){};]+)')
INTEGER = re.compile(r"[+-]?\d+N?\Z")
CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}


def read(text: str) -> Any:
    """The one value in `text`. Raises EdnError."""
    tokens = _tokens(text)
    value = _value(next(tokens, None), tokens)
    if next(tokens, None) is not None:
        raise EdnError("more than one value")
    return value


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while match := TOKEN.match(text, position):
        yield match[1]
        position = match.end()
    rest = text[position:].strip(" ,\t\r\n")
    if rest and not rest.startswith(";"):
        raise EdnError(f"unreadable at character {position}: {rest[:20]!r}")


def _value(token: str | None, tokens: Iterator[str]) -> Any:
    if token is None:
        raise EdnError("ends too early")
    if token in CLOSING:
        return _collection(token, tokens)
    if token in ("]", ")", "}"):
        raise EdnError(f"unexpected {token}")
    if token.startswith('"'):
        return re.sub(r"\\(.)", lambda match: UNESCAPES.get(match[1], match[1]), token[1:-1], flags=re.DOTALL)
    if token.startswith(":"):
        return Keyword(token[1:])
    return _atom(token)


def _collection(opening: str, tokens: Iterator[str]) -> Any:
    items = []
    for token in tokens:
        if token == CLOSING[opening]:
            break
        items.append(_value(token, tokens))
    else:
        raise EdnError(f"{opening} is not closed")
    if opening == "#{":
        return dict.fromkeys(items)
    if opening != "{":
        return items
    if len(items) % 2:
        raise EdnError("a map with a key and no value")
    return dict(zip(items[::2], items[1::2], strict=True))


def _atom(token: str) -> Any:
    constants = {"nil": None, "true": True, "false": False}
    if token in constants:
        return constants[token]
    if INTEGER.match(token):
        return int(token.rstrip("N"))
    try:
        return float(token.rstrip("M"))
    except ValueError:
        if token.startswith(("#", "\\")):
            raise EdnError(f"tagged elements and characters are not read: {token}") from None
        return token
