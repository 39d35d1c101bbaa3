"""The option tables of docs/configuration.md, made from the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tnats.notation import format_duration
from tnats.server.config.features import BUILT
from tnats.server.config.options import Options
from tnats.server.config.table import Row, Section, rows_of


def option_tables() -> str:
    """Markdown: one table per section, outermost first."""
    return "\n".join(_tables(Options, "", seen=set()))


def _tables(section: type[Section], path: str, seen: set[type[Section]]) -> Iterator[str]:
    if section in seen:
        return
    seen.add(section)
    yield f"### {f'`{path}`' if path else 'Top level'}\n"
    yield "| key | value | default | reload | |"
    yield "|---|---|---|---|---|"
    for row in rows_of(section):
        cells = (_keys(row), row.reader.kind, _default(row), "yes" if row.reloadable else "", _notes(row))
        yield f"| {' | '.join(cells)} |"
    yield ""
    for row in rows_of(section):
        if row.reader.section is not None:
            yield from _tables(row.reader.section, f"{path}.{row.key}" if path else row.key, seen)


def _keys(row: Row) -> str:
    aliases = f" ({', '.join(f'`{alias}`' for alias in row.aliases)})" if row.aliases else ""
    return f"`{row.key}`{aliases}"


def _notes(row: Row) -> str:
    notes = [row.doc] if row.doc else []
    if row.feature is not None and row.feature not in BUILT:
        notes.append(f"*not available in this release: {row.feature.value}*")
    return "; ".join(notes)


def _default(row: Row) -> str:
    value: Any = row.default
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if row.fields[0].endswith("_ns") and isinstance(value, int):
        return format_duration(value) if value else ""
    if isinstance(value, int | str):
        return str(value)
    if isinstance(value, tuple) and isinstance(value[0], bool):
        return "true" if value[0] else "false"
    return format_duration(value[0]) if isinstance(value, tuple) else str(getattr(value, "value", ""))
