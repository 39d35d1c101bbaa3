"""Tables and lists of facts for people, drawn with rich on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import ROUNDED
from rich.console import Console
from rich.markup import escape
from rich.table import Table

PIPE_WIDTH = 400
"""Columns where no terminal says how many there are: nothing is cut."""


def console(*, stderr: bool = False) -> Console:
    """Standard output (or standard error), as wide as the terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(width=None if stream.isatty() else PIPE_WIDTH, highlight=False, soft_wrap=False, stderr=stderr)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; columns whose name begins with # hold numbers, one without a name is left out where it is empty."""
    rows = list(rows)
    shown = [place for place, column in enumerate(columns) if column or any(row[place] for row in rows)]
    table = Table(box=ROUNDED)
    for place in shown:
        column = columns[place]
        table.add_column(
            escape(column.lstrip("#")), justify="right" if column.startswith("#") else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(escape(row[place]) for place in shown))
    out = console()
    out.print(escape(title), style="bold")
    out.print(table)


Fact = tuple[str, str]


def print_facts(title: str, sections: Iterable[tuple[str, Iterable[Fact]]]) -> None:
    """Facts under headings, names aligned; headings without facts and facts without a value are left out."""
    shown = [(heading, [fact for fact in facts if fact[1] != ""]) for heading, facts in sections]
    width = max((len(name) for _, facts in shown for name, _ in facts), default=0)
    out = console()
    out.print(escape(title), style="bold")
    for heading, facts in shown:
        if not facts:
            continue
        if heading:
            out.print(f"\n{escape(heading)}:", style="cyan")
        for name, value in facts:
            out.print(f"  {escape(name):>{width}}: {escape(value)}")
