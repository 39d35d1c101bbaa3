"""What the commands that edit a configuration share: they show what changes, and ask."""

from __future__ import annotations

from typing import Any

import click
import orjson

from tnats.cli.jetstream import confirm
from tnats.cli.output import note
from tnats.cli.values import show_duration, show_time
from tnats.jetstream.api.fields import DURATION, TIME, Kind, ListOf, MapOf, Record, rows_of

ABSENT = "none"
SERVER_METADATA = "_nats."
"""Keys that the server adds whatever it is told."""

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would change.")


def is_change_wanted(before: Any, after: Any, question: str, *, dry_run: bool, force: bool) -> bool:
    """Show what makes one configuration the other, and ask; whether to go on. Raises like `confirm`."""
    lines = changes(before, after)
    for line in lines:
        note(line)
    if not lines:
        note("Nothing would change" if dry_run else "Nothing changes")
    if dry_run or not lines:
        return False
    confirm(question, force=force)
    return True


def changes(before: Any, after: Any) -> list[str]:
    """A line for each field that differs between two records of one kind."""
    old, new = facts(before), facts(after)
    keys = dict.fromkeys((*new, *old))
    return [f"{key}: {old.get(key, ABSENT)} -> {new.get(key, ABSENT)}" for key in keys if old.get(key) != new.get(key)]


def facts(record: Any) -> dict[str, str]:
    """The fields of a record as people read them, those of records within under `field.field`."""
    found: dict[str, str] = {}
    for name, row in rows_of(type(record)):
        value = getattr(record, name)
        if isinstance(row.kind, Record):
            within = facts(value) if value is not None else {}
            found |= {f"{row.key}.{key}": text for key, text in within.items()}
        elif isinstance(row.kind, MapOf):
            shown = {key: item for key, item in value.items() if not key.startswith(SERVER_METADATA)}
            found |= {f"{row.key}.{key}": show(row.kind.item, item) for key, item in shown.items()}
        elif value is not None and not (row.omit and not value):
            found[row.key] = show(row.kind, value)
    return found


def show(kind: Kind, value: Any) -> str:
    """One value."""
    if kind is DURATION:
        return show_duration(value, ABSENT)
    if kind is TIME:
        return show_time(value)
    if isinstance(kind, ListOf) and kind.item is DURATION:
        return ", ".join(show_duration(item, "0s") for item in value)
    return orjson.dumps(kind.encode(value)).decode()
