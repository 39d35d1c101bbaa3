"""JSON records from tables: one attrs field is one row, which decodes, encodes, compares and documents itself.

A record class is `@define` with fields made by `row(key, kind, ...)`. From its rows come the strict decoder
(unknown field, wrong type: nats-server's texts, because tools show them to people), the encoder (keys in row
order, `omit` leaves out what is empty), the update rules and the API level.

Why not cattrs: the API's rules are per field and unusual (keys match in any case, null means "not given", a
number must be whole and fit, several texts per kind), so hooks would spell out every line of this module again,
with an unstructuring of its own beside it. orjson does the parsing.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeVar

import attrs
import orjson

from tnats.jetstream.api.json_text import SPACES, DecodeError, first_value, quoted, written
from tnats.notation import format_time, parse_time
from tnats.records import frozen

T = TypeVar("T")

INT64_MAX = 2**63 - 1


class Kind:
    """How one value stands in JSON. `type_name` is the name error texts give it."""

    type_name = ""
    judges_null = False
    """Whether null is a value for it like any other, and not "not given"."""

    @property
    def is_plain(self) -> bool:
        """Whether its values stand in JSON as they are."""
        return type(self).encode is Kind.encode

    def decode(self, value: Any, where: str, strict: bool) -> Any:
        """The Python value; raises DecodeError. `where` is the dotted place, root first."""
        raise DecodeError(mismatch(value, where, self.type_name))

    def encode(self, value: Any) -> Any:
        """The JSON value of what `decode` returns."""
        return value

    def zero(self) -> Any:
        """What null stands for where a value is needed (in arrays and maps)."""
        return None

    def is_blank(self, value: Any) -> bool:
        """Whether `omit` leaves out this value although it is not falsy."""
        return False


def mismatch(value: Any, where: str, type_name: str) -> str:
    """The text for a value of the wrong JSON type at `where`."""
    found = {str: "string", bool: "bool", list: "array", dict: "object"}.get(type(value))
    if found is None:
        found = f"number {written(value)}" if type_name in _INTEGER_NAMES else "number"
    if "." not in where:
        return f"json: cannot unmarshal {found} into Go value of type server.{where}"
    if where.rpartition(".")[2].isdigit():
        return f"json: cannot unmarshal {found} into {where} of type {type_name}"
    return f"json: cannot unmarshal {found} into Go struct field {where} of type {type_name}"


class _Text(Kind):
    type_name = "string"

    def decode(self, value: Any, where: str, strict: bool) -> str:
        if type(value) is not str:
            raise DecodeError(mismatch(value, where, self.type_name))
        return value

    def zero(self) -> str:
        return ""


class _Bool(Kind):
    type_name = "bool"

    def decode(self, value: Any, where: str, strict: bool) -> bool:
        if type(value) is not bool:
            raise DecodeError(mismatch(value, where, self.type_name))
        return value


class _Integer(Kind):
    def __init__(self, type_name: str, low: int, high: int) -> None:
        self.type_name = type_name
        self.low = low
        self.high = high

    def decode(self, value: Any, where: str, strict: bool) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            raise DecodeError(mismatch(value, where, self.type_name))
        return value

    def zero(self) -> int:
        return 0


class _Time(Kind):
    type_name = "time.Time"

    def decode(self, value: Any, where: str, strict: bool) -> int | None:
        if type(value) is not str:
            raise DecodeError(mismatch(value, where, self.type_name))
        ns = parse_time(value)
        if ns is None:
            raise DecodeError(
                f'parsing time {quoted(value)} as "2006-01-02T15:04:05Z07:00": cannot parse {quoted(value)} as "2006"'
            )
        return None if value.startswith("0001-01-01T00:00:00") else ns

    def encode(self, value: int | None) -> str:
        return format_time(value)


class _Base64(Kind):
    type_name = "[]uint8"

    def decode(self, value: Any, where: str, strict: bool) -> bytes:
        if type(value) is not str:
            raise DecodeError(mismatch(value, where, self.type_name))
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise DecodeError("illegal base64 data at input byte 0") from None

    def encode(self, value: bytes) -> str:
        return base64.b64encode(value).decode()


class _Any(Kind):
    """Passed on as it is (values this server only carries)."""

    def decode(self, value: Any, where: str, strict: bool) -> Any:
        return value


class Choice(Kind):
    """One of a few words (an enum of str, the first of them the blank one).

    `complaint` is the text for another word, with `{raw}` for its JSON and `{quoted}` for that in quotes.
    """

    judges_null = True

    def __init__(
        self, words: type[enum.StrEnum], complaint: str = "can not unmarshal {quoted}", *, is_text: bool = False
    ) -> None:
        """`is_text`: what is no text at all is complained of as such."""
        self.words = words
        self.blank = next(iter(words))
        self.complaint = complaint
        self.is_text = is_text

    def decode(self, value: Any, where: str, strict: bool) -> enum.StrEnum:
        if type(value) is str:
            for word in self.words:
                if word.value == value:
                    return word
        if self.is_text and type(value) is not str and value is not None:
            raise DecodeError(mismatch(value, where, "").partition(" into ")[0] + " into Go value of type string")
        raw = written(value)
        raise DecodeError(self.complaint.format(raw=raw, quoted=quoted(raw)))

    def encode(self, value: enum.StrEnum) -> str:
        return value.value

    def is_blank(self, value: enum.StrEnum) -> bool:
        return value is self.blank


class ListOf(Kind):
    """An array. A null item stays None where `items_nullable`, else it is the item kind's empty value."""

    def __init__(self, item: Kind, *, items_nullable: bool = False) -> None:
        self.item = item
        self.items_nullable = items_nullable
        self.type_name = f"[]{'*' * items_nullable}{item.type_name}"

    def decode(self, value: Any, where: str, strict: bool) -> list[Any]:
        if type(value) is not list:
            raise DecodeError(mismatch(value, where, self.type_name))
        return [self._item(item, f"{where}.{index}", strict) for index, item in enumerate(value)]

    def _item(self, value: Any, where: str, strict: bool) -> Any:
        if value is None:
            return None if self.items_nullable else self.item.zero()
        return self.item.decode(value, where, strict)

    def encode(self, value: list[Any]) -> list[Any]:
        if self.item.is_plain:
            return list(value)
        return [None if item is None else self.item.encode(item) for item in value]


class MapOf(Kind):
    """An object with free keys; encoded in key order, so that equal maps give equal bytes."""

    def __init__(self, item: Kind) -> None:
        self.item = item
        self.type_name = f"map[string]{item.type_name}"

    def decode(self, value: Any, where: str, strict: bool) -> dict[str, Any]:
        if type(value) is not dict:
            raise DecodeError(mismatch(value, where, self.type_name))
        return {
            key: self.item.zero() if item is None else self.item.decode(item, f"{where}.{key}", strict)
            for key, item in value.items()
        }

    def encode(self, value: dict[str, Any]) -> dict[str, Any]:
        return {key: self.item.encode(value[key]) for key in sorted(value)}


class Record(Kind):
    """A nested record. `type_name`: what error texts call it, where that is another name than ours."""

    def __init__(self, record: type[Any], type_name: str = "") -> None:
        self.record = record
        self.type_name = f"server.{type_name or record.__name__}"

    def decode(self, value: Any, where: str, strict: bool) -> Any:
        if type(value) is not dict:
            raise DecodeError(mismatch(value, where, self.type_name))
        return _decode_object(self.record, value, where, strict)

    def encode(self, value: Any) -> dict[str, Any]:
        return to_object(value)

    def zero(self) -> Any:
        return self.record()


class Inline(Record):
    """A record whose keys stand among those of its parent (`StreamInfo` in its answers); never decoded."""


_INTEGER_NAMES = frozenset({"int", "int32", "int64", "uint64", "time.Duration"})

TEXT = _Text()
BOOL = _Bool()
INT = _Integer("int", -(2**63), INT64_MAX)
INT64 = _Integer("int64", -(2**63), INT64_MAX)
INT32 = _Integer("int32", -(2**31), 2**31 - 1)
UINT64 = _Integer("uint64", 0, 2**64 - 1)
DURATION = _Integer("time.Duration", -(2**63), INT64_MAX)
TIME = _Time()
BASE64 = _Base64()
ANY = _Any()


class Update(enum.Enum):
    """What an update may do to a config field."""

    FREE = "changes at will"
    FIXED = "never changes"
    RULED = "changes by a rule of its own"


@frozen
class Row:
    """What the table knows of one field."""

    key: str
    kind: Kind
    omit: bool = False
    update: Update = Update.FREE
    level: Callable[[Any], int] | None = None
    """The API level that a value of this field needs; None: any server understands it."""


def row(
    key: str,
    kind: Kind,
    *,
    default: Any = attrs.NOTHING,
    factory: Callable[[], Any] | None = None,
    omit: bool = False,
    update: Update = Update.FREE,
    level: Callable[[Any], int] | None = None,
) -> Any:
    """An attrs field that is one row of a record's table."""
    metadata = {"row": Row(key, kind, omit, update, level)}
    if factory is not None:
        return attrs.field(factory=factory, metadata=metadata)
    return attrs.field(default=default, metadata=metadata)


@frozen
class _Table:
    rows: tuple[tuple[str, Row], ...]
    by_key: dict[str, tuple[str, Row]]
    values: Callable[[Any], tuple[Any, ...]]
    """Gives a record's values, one per row."""
    columns: tuple[_Column, ...]

    @staticmethod
    def of(record: type[Any]) -> _Table:
        rows = tuple((field.name, field.metadata["row"]) for field in attrs.fields(record) if "row" in field.metadata)
        by_key = {row.key: (name, row) for name, row in rows}
        return _Table(rows, by_key, _getter([name for name, _ in rows]), tuple(_column(row) for _, row in rows))


_Column = tuple[str, bool, Callable[[Any], bool] | None, Callable[[Any], Any] | None, bool]
"""How a row is encoded: its key ("": the value's keys stand here themselves), `omit`, what is blank beside what is
falsy, how the value is encoded (None: as it is), and whether None is."""


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of these attributes; attrgetter gives a tuple of two or more only."""
    return attrgetter(*names) if len(names) > 1 else lambda record: tuple(getattr(record, name) for name in names)


def _column(row: Row) -> _Column:
    kind = row.kind
    is_blank = None if type(kind).is_blank is Kind.is_blank else kind.is_blank
    return row.key, row.omit, is_blank, None if kind.is_plain else kind.encode, isinstance(kind, _Time)


_tables: dict[type[Any], _Table] = {}


def _table(record: type[Any]) -> _Table:
    found = _tables.get(record)
    if found is None:
        found = _tables[record] = _Table.of(record)
    return found


def rows_of(record: type[Any]) -> Iterator[tuple[str, Row]]:
    """(attribute name, row) of every field, in order."""
    return iter(_table(record).rows)


def _decode_object(record: type[T], value: Mapping[str, Any], where: str, strict: bool) -> T:
    by_key = _table(record).by_key
    values: dict[str, Any] = {}
    for key, item in value.items():
        found = by_key.get(key) or by_key.get(key.lower())
        if found is None:
            if strict:
                raise DecodeError(f"json: unknown field {quoted(key)}")
            continue
        name, row = found
        if item is None and not row.kind.judges_null:
            values.pop(name, None)
            continue
        values[name] = row.kind.decode(item, f"{where}.{row.key}", strict)
    return record(**values)


def decode(record: type[T], body: bytes, *, strict: bool = True) -> T:
    """The record that a request body holds; an empty body is the record's defaults. Raises DecodeError."""
    if not body.strip(SPACES):
        return record()
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = first_value(body)
    try:
        return _decode_value(record, value, strict)
    except DecodeError:
        # Once more, for the texts: with numbers as they are written.
        _decode_value(record, first_value(body), strict)
        raise


def _decode_value(record: type[T], value: Any, strict: bool) -> T:
    name = record.__name__
    if value is None:
        return record()
    if type(value) is not dict:
        raise DecodeError(mismatch(value, name, f"server.{name}"))
    return _decode_object(record, value, name, strict)


def to_object(record: Any) -> dict[str, Any]:
    """The JSON object of a record, keys in row order, without what its rows leave out when empty."""
    table = _table(type(record))
    result: dict[str, Any] = {}
    for value, (key, omit, is_blank, encode, encodes_none) in zip(table.values(record), table.columns, strict=True):
        if omit and (not value or (is_blank is not None and is_blank(value))):
            continue
        if encode is None:
            result[key] = value
        elif value is None and not encodes_none:
            if key:
                result[key] = None
        elif key:
            result[key] = encode(value)
        else:
            result.update(encode(value))
    return result
