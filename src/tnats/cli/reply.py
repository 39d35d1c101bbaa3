"""`tnats reply`: answer requests with a fixed body, the request itself, or what a program prints.

`--command` never meets a shell: the template is split into words first, as a shell would, and only then are
placeholders replaced, so that nothing in a message can add a word, a redirection or a second command. The request's
payload is the program's standard input.
"""

from __future__ import annotations

import re
import shlex

import click
import trio

from tnats.cli.output import json_option, message_record, note, print_json, print_message
from tnats.cli.session import Session, run, session_options
from tnats.client import ClientError, Message
from tnats.runtime.api import Runtime

DEFAULT_QUEUE = "tnats-reply"
PLACEHOLDER = re.compile(r"\{\{(\d+)\}\}")
COMMANDS_AT_ONCE_MAX = 16


@click.command("reply")
@click.argument("subject")
@click.argument("body", required=False)
@click.option("--echo", is_flag=True, help="Answer with the request's own headers and payload.")
@click.option("--command", "template", metavar="TEMPLATE", help="Answer with what this program prints.")
@click.option("--queue", default=DEFAULT_QUEUE, show_default=True, help="Queue group to share the work in.")
@click.option("--count", default=0, type=click.IntRange(min=0), help="Stop after so many requests.")
@json_option
@session_options
def command(
    session: Session,
    subject: str,
    body: str | None,
    echo: bool,
    template: str | None,
    queue: str,
    count: int,
    as_json: bool,
) -> int:
    """Answer requests on SUBJECT with BODY, or as --echo or --command say.

    In --command, {{1}} stands for the first token of the request's subject, {{2}} for the second, and so on; the
    payload comes on the program's standard input. The template is not run by a shell.
    """
    if (body is not None) + echo + (template is not None) != 1:
        raise click.UsageError("give exactly one of BODY, --echo and --command")
    words = split_template(template) if template is not None else []

    async def answer(message: Message) -> None:
        if echo:
            await message.respond(message.data, headers=message.headers)
        elif words:
            await answer_by_program(message, words)
        else:
            await message.respond((body or "").encode())

    async def serve(runtime: Runtime) -> None:
        slots = trio.Semaphore(COMMANDS_AT_ONCE_MAX)
        async with session.connect(runtime) as client:
            subscription = client.subscribe(subject, queue=queue, max_messages=count)
            await client.flush()
            note(f"Answering on {subject!r} in queue group {queue!r}")
            async with trio.open_nursery() as nursery:

                async def handle(message: Message) -> None:
                    try:
                        await answer(message)
                    finally:
                        slots.release()

                number = 0
                async for message in subscription:
                    number += 1
                    if as_json:
                        print_json(message_record(message))
                    else:
                        print_message(message, f'[#{number}] Request on "{message.subject}"')
                    if not message.reply:
                        continue
                    await slots.acquire()
                    nursery.start_soon(handle, message)

    return run(serve)


def split_template(template: str) -> list[str]:
    """The words of a command line. Raises ClientError when its quotes do not match or it is empty."""
    try:
        words = shlex.split(template)
    except ValueError as exc:
        raise ClientError(f"--command {template!r}: {exc}") from None
    if not words:
        raise ClientError("--command: no program given")
    return words


def fill_template(words: list[str], subject: str) -> list[str]:
    """`words` with {{n}} replaced by the n-th token of `subject`; empty where it has none."""
    tokens = subject.split(".")

    def token(found: re.Match[str]) -> str:
        index = int(found[1]) - 1
        return tokens[index] if 0 <= index < len(tokens) else ""

    return [PLACEHOLDER.sub(token, word) for word in words]


async def answer_by_program(message: Message, words: list[str]) -> None:
    """Run the program and answer with its output; with an empty body and a 500 status header if it fails."""
    command_line = fill_template(words, message.subject)
    try:
        done = await trio.run_process(command_line, stdin=message.data, capture_stdout=True, check=False)
    except OSError as exc:
        await fail(message, f"{command_line[0]}: {(exc.strerror or str(exc)).lower()}")
        return
    if done.returncode:
        await fail(message, f"{command_line[0]}: exit code {done.returncode}")
    else:
        await message.respond(done.stdout)


async def fail(message: Message, reason: str) -> None:
    """Say why there is no answer, here and in the error headers of the services convention (ADR-32)."""
    note(f"No answer: {reason}")
    await message.respond(b"", headers={"Nats-Service-Error": reason, "Nats-Service-Error-Code": "500"})
