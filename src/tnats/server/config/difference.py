"""What a reload would change: the rows in which two configurations differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tnats.records import frozen
from tnats.server.config.options import Options
from tnats.server.config.problems import Problem
from tnats.server.config.table import Row, Section, rows_of


@frozen
class Change:
    path: str
    """Dotted, by canonical keys; list entries are not told apart."""
    row: Row
    old: Any
    new: Any

    @property
    def reloadable(self) -> bool:
        return self.row.reloadable


def differences(old: Options, new: Options) -> list[Change]:
    """Every option that differs, innermost rows only, in table order. Both must be completed (`baseline.complete`)."""
    return list(_differences(old, new, ""))


def reload_problems(changes: list[Change]) -> list[Problem]:
    """One problem per change that a running server cannot make; a reload with any changes nothing."""
    return [
        Problem(
            f"config reload not supported for {change.path}: "
            f"old={change.row.shown(change.old)}, new={change.row.shown(change.new)}"
        )
        for change in changes
        if not change.reloadable
    ]


def _differences(old: Section, new: Section, prefix: str) -> Iterator[Change]:
    rows = rows_of(type(old))
    own = {row.fields[0] for row in rows if len(row.fields) == 1}
    for row in rows:
        if len(row.fields) > 1:
            # Most of the fields it sets have rows of their own; the host of HTTP monitoring has none.
            for name in row.fields:
                if name not in own and getattr(old, name) != getattr(new, name):
                    own.add(name)
                    yield Change(f"{prefix}{row.key}", row, getattr(old, name), getattr(new, name))
            continue
        before, after = getattr(old, row.fields[0]), getattr(new, row.fields[0])
        if before == after:
            continue
        path = f"{prefix}{row.key}"
        whole = row.reloadable or not isinstance(before, Section) or not isinstance(after, Section)
        if whole:
            yield Change(path, row, before, after)
        else:
            yield from _differences(before, after, f"{path}.")
