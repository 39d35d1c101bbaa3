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
_UNSIGNED = re.compile(r"[0-9]+", re.ASCII)
_INT64_MAX = (1 << 63) - 1
_UINT64_MAX = (1 << 64) - 1
_DIGITS_MAX = 20
"""With the sign; longer numbers are out of every range."""


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
        return self._number(name, "int", "Atoi", _INTEGER, -_INT64_MAX - 1, _INT64_MAX)

    def unsigned(self, name: str) -> int:
        """An integer option that is an id: no sign; absent or empty is 0."""
        return self._number(name, "uint64", "ParseUint", _UNSIGNED, 0, _UINT64_MAX)

    def _number(self, name: str, kind: str, parser: str, form: re.Pattern[str], least: int, most: int) -> int:
        value = self._values.get(name, "")
        if value == "":
            return 0
        problem = f"Error decoding {kind} for '{name}': strconv.{parser}: parsing {_quoted(value)}"
        if not form.fullmatch(value):
            raise BadQuery(f"{problem}: invalid syntax")
        number = int(value) if len(value) <= _DIGITS_MAX else most + 1
        if not least <= number <= most:
            raise BadQuery(f"{problem}: value out of range")
        return number


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
