"""How commands list things: names alone, JSON, a table, or the word that there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from tnats.cli.output import note, print_json
from tnats.cli.tables import print_table

T = TypeVar("T")

Table = tuple[Sequence[str], Iterable[Sequence[str]]]
"""Columns and rows, as `print_table` takes them."""


def print_names(names: Iterable[str]) -> None:
    """One a line."""
    for name in names:
        click.echo(name)


def print_list(
    items: Sequence[T],
    as_json: bool,
    *,
    title: str,
    record: Callable[[T], Mapping[str, Any]],
    table: Callable[[Sequence[T]], Table],
    nothing: str,
) -> None:
    """`record` makes an item's JSON, `table` the columns and rows of all. `nothing`: said to people when there is none.

    For programs nothing is nothing.
    """
    if as_json:
        for item in items:
            print_json(record(item))
    elif items:
        print_table(title, *table(items))
    else:
        note(nothing)
