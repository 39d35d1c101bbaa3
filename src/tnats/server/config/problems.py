"""Where a configuration value stands, what is wrong with it, and the error that reports everything at once."""

from __future__ import annotations

from collections.abc import Sequence

from tnats.errors import TnatsError
from tnats.records import frozen


@frozen
class Position:
    """A place in a configuration file, or on the command line (`line` 0, `file` then holds the flag)."""

    file: str
    line: int
    column: int
    """Both 1-based, in characters. (nats-server counts the columns of line 1 from 0; every other line agrees.)"""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@frozen
class Problem:
    """One thing wrong with the configuration. `position` is None where no single value is to blame."""

    text: str
    position: Position | None = None

    def __str__(self) -> str:
        return f"{self.position}: {self.text}" if self.position is not None else self.text


class ConfigError(TnatsError):
    """The configuration cannot be used. Holds every problem found, so that one run shows them all.

    The text has one line per problem, warnings first, as nats-server prints them.
    """

    def __init__(self, errors: Sequence[Problem], warnings: Sequence[Problem] = ()) -> None:
        self.errors = tuple(errors)
        self.warnings = tuple(warnings)
        super().__init__("\n".join(map(str, (*self.warnings, *self.errors))))
