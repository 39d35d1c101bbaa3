"""How commands print: for people, or one JSON object a line for programs."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import click
import orjson

from tnats.client import Message

Advance = Callable[[int], None]
"""Called with how much was done since the last call."""

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def print_json(record: Mapping[str, Any]) -> None:
    """One line of JSON on standard output."""
    write_bytes(orjson.dumps(record) + b"\n")


def write_bytes(data: bytes) -> None:
    """Bytes as they are on standard output, at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    """A line about the command itself: on standard error, so that standard output holds data alone."""
    click.secho(text, err=True, dim=True)


def print_outcome(text: str, as_json: bool, **record: Any) -> None:
    """What was done: `record` for programs, `text` for people."""
    if as_json:
        print_json(record)
    else:
        note(text)


def message_record(message: Message, *, headers_only: bool = False) -> dict[str, Any]:
    """A message for JSON: `data` is text, or `data_base64` where it is not valid UTF-8."""
    record: dict[str, Any] = {"subject": message.subject}
    if message.reply:
        record["reply"] = message.reply
    if message.headers is not None:
        record["headers"] = message.headers
    if headers_only:
        return record
    return {**record, **data_record(message.data)}


def data_record(data: bytes) -> dict[str, str]:
    """A payload for JSON."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode()}


def print_message(message: Message, title: str, *, headers_only: bool = False) -> None:
    """A message for people: a title line, its headers, its payload."""
    print_parts(title, message.headers, None if headers_only else message.data)


def print_parts(title: str, headers: Mapping[str, Sequence[str]] | None, data: bytes | None) -> None:
    """As `print_message`, from the parts."""
    click.secho(title, fg="cyan")
    for name, values in (headers or {}).items():
        for value in values:
            click.echo(f"{name}: {value}")
    if data is not None:
        if headers is not None and data:
            click.echo()
        write_bytes(data + b"\n\n" if data else b"\n")


def progress_bar(title: str, total: int, *, shown: bool, in_bytes: bool = False) -> Any:
    """A context manager that gives an `Advance`: a bar on a terminal, nothing elsewhere."""
    if not shown or not sys.stderr.isatty():
        return nullcontext(ignore_progress)
    from tnats.cli.progress import Bar

    return Bar(title, total, in_bytes=in_bytes)


def ignore_progress(count: int) -> None:
    """Nobody watches."""
