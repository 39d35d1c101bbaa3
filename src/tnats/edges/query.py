"""Options of a monitoring request, decoded with nats-server's words for what is wrong.

Each getter returns the default when the option is absent and raises `BadQuery` (answered with 400) when its
value does not parse. Only the first value of a repeated option counts.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from tnats.errors import TnatsError

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64_MAX = (1 << 63) - 1


class BadQuery(TnatsError):
    """The client asked for something that makes no sense; the text is the 400 answer's body."""


class Query:
    """The options of one request."""

    def __init__(self, text: str) -> None:
        """Decode `text`, the part of the target behind `?`."""
        self._values: dict[str, str] = {}
        for key, value in parse_qsl(text, keep_blank_values=True):
            self._values.setdefault(key, value)

    def text(self, name: str) -> str:
        """The option as it stands; empty when absent."""
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        """A boolean option; absent or empty is False."""
        value = self._values.get(name, "")
        if value in _TRUE:
            return True
        if value == "" or value in _FALSE:
            return False
        raise BadQuery(
            f"Error decoding boolean for '{name}': strconv.ParseBool: parsing {_quoted(value)}: invalid syntax"
        )

    def integer(self, name: str) -> int:
        """An integer option; absent or empty is 0."""
        value = self._values.get(name, "")
        if value == "":
            return 0
        if not _INTEGER.fullmatch(value):
            raise BadQuery(f"Error decoding int for '{name}': strconv.Atoi: parsing {_quoted(value)}: invalid syntax")
        number = int(value) if len(value) <= 20 else _INT64_MAX + 1
        if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
            raise BadQuery(
                f"Error decoding int for '{name}': strconv.Atoi: parsing {_quoted(value)}: value out of range"
            )
        return number


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
