"""How commands print: for people, or one JSON object a line for programs."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from typing import Any

import click
import orjson

from tnats.client import Message

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


def message_record(message: Message, *, headers_only: bool = False) -> dict[str, Any]:
    """A message for JSON: `data` is text, or `data_base64` where it is not valid UTF-8."""
    record: dict[str, Any] = {"subject": message.subject}
    if message.reply:
        record["reply"] = message.reply
    if message.headers is not None:
        record["headers"] = message.headers
    if headers_only:
        return record
    try:
        record["data"] = message.data.decode()
    except UnicodeDecodeError:
        record["data_base64"] = base64.b64encode(message.data).decode()
    return record


def print_message(message: Message, title: str, *, headers_only: bool = False) -> None:
    """A message for people: a title line, its headers, its payload."""
    click.secho(title, fg="cyan")
    if message.headers is not None:
        for name, values in message.headers.items():
            for value in values:
                click.echo(f"{name}: {value}")
    if not headers_only:
        if message.headers is not None and message.data:
            click.echo()
        write_bytes(message.data + b"\n\n" if message.data else b"\n")
