"""The option table's machinery: one row per option, and the reader that fills a record from its rows.

A *section* is an attrs class whose fields are made by `option(...)`. The row behind a field holds everything the rest
of the server wants to know about the option: key and aliases, how to read it, its default, whether a reload may change
it, which feature it belongs to, what it is for. Reading, docs, reload and the check for missing features all walk
these rows; nothing else lists the options.

Reading collects every problem and goes on, so that one run reports them all. A reader refuses a value by raising
`Refused`; the row's caller notes it at the value's position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import attrs

from tnats.notation import format_duration, quote
from tnats.records import define, frozen
from tnats.server.config.addresses import redacted_url
from tnats.server.config.features import Feature
from tnats.server.config.parser import Node
from tnats.server.config.problems import Position, Problem

S = TypeVar("S", bound="Section")
_ROW = "row"


class Refused(Exception):
    """A reader does not take a value. `position` None stands for the value's own."""

    def __init__(self, text: str, position: Position | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.position = position


class Reading:
    """What one pass over a configuration tree found: problems, and where each given option stands."""

    def __init__(self) -> None:
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []
        self.given: dict[str, Given] = {}
        """Every option given, by dotted path of canonical keys (`cluster.port`, `leafnodes.remotes[0].urls`)."""
        self.path = ""
        """Path of the option being read."""

    def error(self, text: str, position: Position | None) -> None:
        self.errors.append(Problem(text, position))

    def warn(self, text: str, position: Position | None) -> None:
        self.warnings.append(Problem(text, position))


@frozen(eq=False)
class Reader:
    """Turns a tree value into an option's value."""

    kind: str
    """For people: "integer", "duration", "list of URLs"."""
    read: Callable[[Reading, Node, str], Any]
    """(reading, value, key as written) to the option's value; raises `Refused`."""
    section: type[Section] | None = None
    """The record class of a map, or of each map in a list."""


@frozen(eq=False)
class Row:
    key: str
    reader: Reader
    aliases: tuple[str, ...]
    fields: tuple[str, ...]
    """Attributes the value goes to: one, or several in the order of the reader's tuple (`listen`)."""
    default: Any
    factory: Callable[[], Any] | None
    """Makes the default where it is a record, list or map."""
    zero_is_default: bool
    """A given 0 (or "") means "not set", as in nats-server."""
    reloadable: bool
    feature: Feature | None
    secret: bool
    doc: str

    def default_value(self) -> Any:
        return self.default if self.factory is None else self.factory()

    def shown(self, value: Any) -> str:
        """`value` for logs, as a configuration has it: no secrets, no users and passwords in URLs."""
        if self.secret and value:
            return "[REDACTED]"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int) and self.fields[0].endswith("_ns"):
            return format_duration(value)
        if isinstance(value, str):
            return repr(redacted_url(value))
        if isinstance(value, list):
            return f"[{', '.join(map(self.shown, value))}]"
        # What a map was made into is for the broker; a section is still what was written.
        return "{...}" if attrs.has(type(value)) and not isinstance(value, Section) else repr(value)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key, *self.aliases)


@frozen(eq=False)
class Given:
    """An option that a configuration sets, where, and to what."""

    row: Row
    position: Position
    value: Any

    @property
    def asks(self) -> bool:
        """Whether it asks for anything other than the default, or for nothing because its section is off."""
        if isinstance(self.value, Section) and self.value.is_off:
            return False
        return bool(self.value != self.row.default_value())


@define(eq=False, repr=False)
class Section:
    """Base of the option records. Equality and repr come from the rows; secrets are not shown."""

    UNKNOWN_KEY: ClassVar[str] = "unknown field {}"
    """nats-server's words for a key without a row; `{}` is the quoted key."""
    FURTHER_ROWS: ClassVar[tuple[Row, ...]] = ()
    """Rows that have no field of their own name: `listen` sets `host` and `port`."""

    @property
    def is_off(self) -> bool:
        """The section is there but nothing of it takes effect (a listener without a port)."""
        return False

    def finish(self, reading: Reading, node: Node) -> None:
        """Checks across fields, called if no row was refused. Raises `Refused` to drop the record."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in field_names(type(self)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        rows = {row.fields[0]: row for row in rows_of(type(self)) if len(row.fields) == 1}
        shown = (f"{name}={row.shown(getattr(self, name))}" for name, row in rows.items())
        return f"{type(self).__name__}({', '.join(shown)})"


def option(
    reader: Reader,
    default: Any = attrs.NOTHING,
    *,
    factory: Callable[[], Any] | None = None,
    key: str = "",
    aliases: tuple[str, ...] = (),
    zero_is_default: bool = False,
    reloadable: bool = False,
    feature: Feature | None = None,
    secret: bool = False,
    doc: str = "",
) -> Any:
    """A section's field with its row. `key` defaults to the field's name."""
    details = {
        "key": key,
        "reader": reader,
        "factory": factory,
        "aliases": aliases,
        "zero_is_default": zero_is_default,
        "reloadable": reloadable,
        "feature": feature,
        "secret": secret,
        "doc": doc,
    }
    if factory is not None:
        return attrs.field(factory=factory, metadata={_ROW: details})
    return attrs.field(default=default, metadata={_ROW: details})


def further_row(key: str, reader: Reader, fields: tuple[str, ...], feature: Feature | None = None, *, doc: str) -> Row:
    """A row for `Section.FURTHER_ROWS`."""
    return Row(
        key=key,
        reader=reader,
        aliases=(),
        fields=fields,
        default=None,
        factory=None,
        zero_is_default=False,
        reloadable=False,
        feature=feature,
        secret=False,
        doc=doc,
    )


_rows: dict[type[Section], tuple[Row, ...]] = {}
_rows_by_key: dict[type[Section], dict[str, Row]] = {}
_names: dict[type[Section], tuple[str, ...]] = {}


def rows_of(section: type[Section]) -> tuple[Row, ...]:
    """All rows of a section, in the order they are written in its class; built on first use."""
    rows = _rows.get(section)
    if rows is None:
        own = [
            Row(
                **{**field.metadata[_ROW], "key": field.metadata[_ROW]["key"] or field.name},
                fields=(field.name,),
                default=None if field.metadata[_ROW]["factory"] else field.default,
            )
            for field in attrs.fields(section)
            if _ROW in field.metadata
        ]
        rows = _rows[section] = (*section.FURTHER_ROWS, *own)
    return rows


def field_names(section: type[Section]) -> tuple[str, ...]:
    """The attributes that hold options (others, such as positions, do not take part in equality)."""
    names = _names.get(section)
    if names is None:
        names = _names[section] = tuple(name for row in rows_of(section) for name in row.fields if len(row.fields) == 1)
    return names


def _by_key(section: type[Section]) -> dict[str, Row]:
    found = _rows_by_key.get(section)
    if found is None:
        found = _rows_by_key[section] = {key: row for row in rows_of(section) for key in row.keys}
    return found


def read_section(reading: Reading, section: type[S], node: Node, what: str) -> S:
    """A record of `section` from a map. Keys are taken in file order: of two aliases the later one wins.

    Problems of single options are noted in `reading` and the option keeps its default. Raises `Refused` if the value
    is no map, or if the section's own check refuses the whole.
    """
    if not isinstance(node.value, dict):
        raise Refused(f"Expected {what} to be a map, got {describe(node)}")
    record = section()
    outer = reading.path
    errors_before = len(reading.errors)
    for key, child in node.value.items():
        row = _by_key(section).get(key.lower())
        if row is None:
            if not child.used:
                reading.error(section.UNKNOWN_KEY.format(quote(key)), child.position)
            continue
        reading.path = f"{outer}.{row.key}" if outer else row.key
        try:
            value = row.reader.read(reading, child, key)
        except Refused as refused:
            reading.error(refused.text, refused.position or child.position)
        else:
            reading.given[reading.path] = Given(row, child.position, value)
            _store(record, row, value)
        reading.path = outer
    if len(reading.errors) == errors_before:
        record.finish(reading, node)
    return record


def _store(record: Section, row: Row, value: Any) -> None:
    if len(row.fields) > 1:
        for name, part in zip(row.fields, value, strict=True):
            setattr(record, name, part)
    elif not (row.zero_is_default and not value):
        setattr(record, row.fields[0], value)


def describe(node: Node) -> str:
    """A value's type for error messages, with the value where it is short."""
    value = node.value
    if isinstance(value, bool):
        return f"the boolean {'true' if value else 'false'}"
    if isinstance(value, int):
        return f"the integer {value}"
    if isinstance(value, float):
        return f"the number {value}"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "an array"
    return "a date-time"
