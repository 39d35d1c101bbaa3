"""`tnats sub`: subscribe and print what arrives."""

from __future__ import annotations

import click

from tnats.cli.output import json_option, message_record, note, print_json, print_message, write_bytes
from tnats.cli.session import Session, run, session_options
from tnats.client import Disconnected, Event, Message, Reconnected, SlowConsumer
from tnats.runtime.api import Runtime


@click.command("sub")
@click.argument("subject")
@click.option("--queue", default="", help="Queue group: each message goes to one of its members.")
@click.option("--count", default=0, type=click.IntRange(min=0), help="Stop after so many messages.")
@click.option("--raw", is_flag=True, help="Payloads only, one a line.")
@click.option("--headers-only", is_flag=True, help="Leave payloads out.")
@json_option
@session_options
def command(
    session: Session, subject: str, queue: str, count: int, raw: bool, headers_only: bool, as_json: bool
) -> int:
    """Print the messages on SUBJECT until interrupted, or until --count of them have come."""
    if raw and as_json:
        raise click.UsageError("give --raw or --json, not both")

    def show(message: Message, number: int) -> None:
        if raw:
            write_bytes(message.data + b"\n")
        elif as_json:
            print_json(message_record(message, headers_only=headers_only))
        else:
            reply = f' with reply "{message.reply}"' if message.reply else ""
            print_message(message, f'[#{number}] Received on "{message.subject}"{reply}', headers_only=headers_only)

    async def subscribe(runtime: Runtime) -> None:
        async with session.connect(runtime, on_event=note_event) as client:
            subscription = client.subscribe(subject, queue=queue, max_messages=count)
            await client.flush()
            if not raw and not as_json:
                note(f"Subscribed to {subject!r}" + (f" in queue group {queue!r}" if queue else ""))
            number = 0
            async for message in subscription:
                number += 1
                show(message, number)

    return run(subscribe)


def note_event(event: Event) -> None:
    """Tell on standard error what may have cost messages."""
    if isinstance(event, Disconnected):
        note(f"Disconnected from {event.url}: {event.reason}")
    elif isinstance(event, Reconnected):
        note(f"Reconnected to {event.url}")
    elif isinstance(event, SlowConsumer):
        note(f"Messages are being dropped: {event.pending_count} wait to be printed")
