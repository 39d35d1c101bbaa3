"""Tables of options that describe a configuration: which sets which field, how they are added and applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from tnats.client import ClientError
from tnats.client.jetstream import Storage
from tnats.jetstream.api.fields import decode
from tnats.jetstream.api.json_text import DecodeError
from tnats.records import frozen

F = TypeVar("F", bound=Callable[..., Any])

config_file_option = click.option(
    "--config", "config_file", type=click.File("rb"), help="JSON file with a configuration; options go on top of it."
)


def choice(words: Any, **others: Any) -> tuple[click.Choice[str], Callable[[str], Any]]:
    """The type of an option that names a word of an enum, and the way to it; `others` are further spellings."""
    table = {word.value: word for word in words if word.value} | others
    return click.Choice(list(table)), table.__getitem__


def same(value: Any) -> Any:
    """Options whose value is the field's."""
    return value


@frozen
class Option:
    """One option. `convert` makes the field's value out of the option's; `editable`: also for the `edit` command."""

    flags: str
    field: str
    type: Any
    help: str
    convert: Callable[[Any], Any] = same
    editable: bool = True
    many: bool = False

    @property
    def parameter(self) -> str:
        """The keyword under which click gives the value."""
        return "set_" + self.flags.split("/")[0].lstrip("-").replace("-", "_")

    def decorate(self, command: F) -> F:
        """Add it to a command."""
        is_flag = self.type is bool
        return click.option(
            self.flags,
            self.parameter,
            type=None if is_flag else self.type,
            is_flag=is_flag,
            multiple=self.many,
            default=None,
            help=self.help,
        )(command)


def words_option(flags: str, field: str, words: Any, help: str, *, editable: bool = True, **others: Any) -> Option:
    """An option that names a word of an enum."""
    kind, convert = choice(words, **others)
    return Option(flags, field, kind, help, convert, editable)


STORAGE, to_storage = choice(Storage)


def config_options(
    rows: tuple[Option, ...], more: Sequence[Callable[[Any], Any]], *, editing: bool
) -> Callable[[F], F]:
    """Decorator: adds the option of a configuration file, `rows` (if `editing`, those that are editable) and `more`."""

    def decorate(command: F) -> F:
        for option in reversed(more):
            command = option(command)
        for row in reversed(rows):
            if row.editable or not editing:
                command = row.decorate(command)
        return config_file_option(command)

    return decorate


def split_commas(texts: Iterable[str]) -> list[str]:
    """The values of an option that takes several, with commas or by repeating."""
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def read_config(record: type[Any], file: Any) -> Any:
    """A record out of a JSON file. Raises ClientError."""
    try:
        return decode(record, file.read(), strict=True)
    except DecodeError as exc:
        raise ClientError(f"{file.name}: {exc}") from None


def apply_options(config: Any, rows: tuple[Option, ...], given: dict[str, Any]) -> None:
    """Set the fields of `config` whose options were given."""
    for row in rows:
        value = given.pop(row.parameter, None)
        if value is None or (row.many and not value):
            continue
        if row.many and row.type is str:
            value = split_commas(value)
        setattr(config, row.field, row.convert(value))
