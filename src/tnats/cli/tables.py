"""Tables and lists of facts for people, drawn with rich on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

PIPE_WIDTH = 400
"""Columns where no terminal says how many there are: nothing is cut."""

GAP = 2
"""Between two columns of a table."""
WHOLE_TEXT_MAX = 23
"""Texts up to so long are not broken: a name, a time."""
BROKEN_TEXT_MIN = 16


class PipeConsole(Console):
    """A console that leaves it to the root of the command line what happens when nobody reads any more."""

    def on_broken_pipe(self) -> None:
        """Go on raising what rich has caught."""
        raise  # noqa: PLE0704 - rich calls this where it handles the error


def console(*, stderr: bool = False) -> PipeConsole:
    """Standard output (or standard error), as wide as the terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return PipeConsole(width=None if stream.isatty() else PIPE_WIDTH, highlight=False, soft_wrap=False, stderr=stderr)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; columns whose name begins with # hold numbers, one without a name is left out where it is empty.

    On a terminal too narrow for it, long texts and headings are broken; numbers and words of headings never are.
    """
    rows = list(rows)
    shown = [place for place, column in enumerate(columns) if column or any(row[place] for row in rows)]
    out = console()
    out.print(escape(title), style="bold")
    table = Table(box=SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), show_edge=False)
    widths = column_widths(
        [columns[place] for place in shown], [[row[place] for place in shown] for row in rows], out.width
    )
    for place, width in zip(shown, widths, strict=True):
        column = columns[place]
        name = escape(column.lstrip("#"))
        table.add_column(name, justify="right" if column.startswith("#") else "left", width=width, overflow="fold")
    for row in rows:
        table.add_row(*(escape(row[place]) for place in shown))
    out.width = max(out.width, sum(widths) + GAP * len(widths))
    out.print(table)


def column_widths(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide the columns of a table are that has `room` columns of a terminal, and takes more if it must."""
    widths, least = [], []
    for place, column in enumerate(columns):
        name = column.lstrip("#")
        longest = max((len(row[place]) for row in rows), default=0)
        is_broken = longest > WHOLE_TEXT_MAX and not column.startswith("#")
        widths.append(max(longest, len(name)))
        least.append(max(BROKEN_TEXT_MIN if is_broken else longest, *map(len, name.split() or [""])))
    while sum(widths) + GAP * len(widths) > room and widths != least:
        slack = [width - smallest for width, smallest in zip(widths, least, strict=True)]
        widths[slack.index(max(slack))] -= 1
    return widths


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
