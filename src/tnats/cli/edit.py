"""What the commands that edit a configuration share: they show what changes, and ask."""

from __future__ import annotations

from typing import Any

import click
import orjson

from tnats.cli.jetstream import confirm
from tnats.cli.output import note
from tnats.jetstream.api.fields import to_object

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would change.")


def is_change_wanted(
    before: dict[str, Any],
    config: Any,
    question: str,
    *,
    dry_run: bool,
    force: bool,
    nothing: str = "Nothing changes",
) -> bool:
    """Show what makes `config` of the object `before`, and ask; whether to go on. `nothing`: said of no change.

    Raises like `confirm`.
    """
    lines = changes(before, to_object(config))
    for line in lines:
        note(line)
    if not lines:
        note(nothing)
    if dry_run or not lines:
        return False
    confirm(question, force=force)
    return True


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """A line for each field that differs."""
    keys = list(dict.fromkeys((*before, *after)))
    return [
        f"{key}: {orjson.dumps(before.get(key)).decode()} -> {orjson.dumps(after.get(key)).decode()}"
        for key in keys
        if before.get(key) != after.get(key)
    ]
