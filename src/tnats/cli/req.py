"""`tnats req`: send a request and print the replies."""

from __future__ import annotations

from typing import BinaryIO

import click

from tnats.cli.output import json_option, message_record, print_json, print_message, write_bytes
from tnats.cli.pub import parse_headers, read_body
from tnats.cli.session import Session, run, session_options
from tnats.cli.values import DURATION
from tnats.client import Message, TimedOut
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime


@click.command("req")
@click.argument("subject")
@click.argument("body", required=False)
@click.option("-f", "--file", "file", type=click.File("rb"), help="Take the body from this file.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME:VALUE", help="Add a header; may be repeated.")
@click.option(
    "--replies",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Replies to wait for; 0 takes all until --timeout.",
)
@click.option(
    "--timeout",
    "timeout_ns",
    type=DURATION,
    default="5s",
    show_default=True,
    help="Wait so long in all.",
)
@click.option("--raw", is_flag=True, help="Payloads only, one a line.")
@json_option
@session_options
def command(
    session: Session,
    subject: str,
    body: str | None,
    file: BinaryIO | None,
    headers: tuple[str, ...],
    replies: int,
    timeout_ns: int,
    raw: bool,
    as_json: bool,
) -> int:
    """Send BODY as a request on SUBJECT and print the replies. Where BODY comes from: see `tnats pub --help`."""
    if raw and as_json:
        raise click.UsageError("give --raw or --json, not both")
    payload = read_body(body, file)
    timeout_s = timeout_ns / SECOND_NS
    parsed_headers = parse_headers(headers)

    def show(message: Message, duration_ns: int) -> None:
        if raw:
            write_bytes(message.data + b"\n")
        elif as_json:
            print_json({**message_record(message), "duration_ns": duration_ns})
        else:
            print_message(message, f"Received after {duration_ns / SECOND_NS * 1000:.2f} ms")

    async def request(runtime: Runtime) -> None:
        async with session.connect(runtime) as client:
            start_ns = runtime.clock.mono_ns()
            count = 0
            async with client.request_many(
                subject, payload, headers=parsed_headers, count_max=replies or None, timeout_s=timeout_s
            ) as arriving:
                async for message in arriving:
                    count += 1
                    show(message, runtime.clock.mono_ns() - start_ns)
            if count < max(replies, 1):
                wanted = f"{count} of {replies} replies" if replies > 1 else "no reply"
                raise TimedOut(f"request on {subject!r}: {wanted} within {timeout_s:g} s")

    return run(request)
