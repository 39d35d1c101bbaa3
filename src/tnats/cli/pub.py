"""`tnats pub`: publish messages."""

from __future__ import annotations

import sys
from typing import BinaryIO

import click

from tnats.cli.output import json_option, print_outcome
from tnats.cli.session import Session, run, session_options
from tnats.cli.values import DURATION, show_counted
from tnats.client import ClientError
from tnats.runtime.api import Runtime

COUNT_PLACE = b"{{Count}}"


@click.command("pub")
@click.argument("subject")
@click.argument("body", required=False)
@click.option("-f", "--file", "file", type=click.File("rb"), help="Take the body from this file.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME:VALUE", help="Add a header; may be repeated.")
@click.option("--reply", default="", help="Reply subject of the messages.")
@click.option("--count", default=1, show_default=True, type=click.IntRange(min=1), help="How many to publish.")
@click.option("--sleep", "sleep_ns", type=DURATION, default="0s", help="Wait so long between two messages.")
@json_option
@session_options
def command(
    session: Session,
    subject: str,
    body: str | None,
    file: BinaryIO | None,
    headers: tuple[str, ...],
    reply: str,
    count: int,
    sleep_ns: int,
    as_json: bool,
) -> int:
    """Publish BODY on SUBJECT, and wait until the server has it.

    Without BODY and --file the body is read from standard input, unless that is a terminal; a BODY of "-" always
    means standard input. {{Count}} in the body is replaced by the number of the message, from 1.
    """
    payload = read_body(body, file)
    parsed_headers = parse_headers(headers)

    async def publish(runtime: Runtime) -> None:
        async with session.connect_to_publish(runtime) as client:
            for number in range(1, count + 1):
                if number > 1 and sleep_ns:
                    await runtime.clock.sleep_ns(sleep_ns)
                data = payload.replace(COUNT_PLACE, b"%d" % number)
                await client.publish(subject, data, reply=reply, headers=parsed_headers)
        byte_count = client.statistics.bytes_out
        text = f"Published {show_counted(count, 'message')}, {show_counted(byte_count, 'byte')}, to {subject!r}"
        print_outcome(text, as_json, subject=subject, messages=count, bytes=byte_count)

    return run(publish)


def read_body(body: str | None, file: BinaryIO | None) -> bytes:
    """The payload from the argument, a file, or standard input; empty when there is none of them."""
    if file is not None:
        if body is not None:
            raise click.UsageError("give BODY or --file, not both")
        return file.read()
    if body == "-" or (body is None and not sys.stdin.isatty()):
        return sys.stdin.buffer.read()
    return (body or "").encode("utf-8", "surrogateescape")


def parse_headers(texts: tuple[str, ...]) -> dict[str, list[str]] | None:
    """`NAME:VALUE` options as headers; None when there are none. Raises ClientError."""
    headers: dict[str, list[str]] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise ClientError(f"header {text!r}: write it as NAME:VALUE")
        headers.setdefault(name.strip(), []).append(value.strip())
    return headers or None
