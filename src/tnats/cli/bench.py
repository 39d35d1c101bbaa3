"""`tnats bench`: measure throughput and latency of a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import click
import trio

from tnats.cli import bench_load
from tnats.cli.bench_load import Result, Span, rates, share
from tnats.cli.output import Advance, ignore_progress, json_option, note, print_json, progress_bar
from tnats.cli.session import Session, run, session_options
from tnats.client import Client
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime

SERVE_QUEUE = "tnats-bench"

messages_option = click.option(
    "--messages",
    "--msgs",
    "messages",
    default=100_000,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many messages in all.",
)
size_option = click.option(
    "--size", "size_bytes", default=128, show_default=True, type=click.IntRange(min=0), help="Payload bytes."
)
clients_option = click.option(
    "--clients", default=1, show_default=True, type=click.IntRange(min=1), help="Connections to use."
)


class BenchGroup(click.Group):
    """Imports what is about JetStream only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "js"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "js":
            from tnats.cli import bench_js

            return bench_js.command
        return super().get_command(ctx, cmd_name)


@click.group("bench", cls=BenchGroup)
def command() -> None:
    """Measure throughput and latency. Start `bench sub` or `bench service serve` before their counterparts."""


@command.command("pub")
@click.argument("subject")
@messages_option
@size_option
@clients_option
@json_option
@session_options
def publish(session: Session, subject: str, messages: int, size_bytes: int, clients: int, as_json: bool) -> int:
    """Publish on SUBJECT as fast as the server takes it."""
    result = Result("pub", subject, size_bytes)
    payload = bytes(size_bytes)

    async def load(runtime: Runtime, client: Client, index: int, advance: Advance) -> Span:
        count = share(messages, clients, index)
        return await bench_load.publish_load(runtime, client, subject, payload, count, advance)

    return measure(session, result, clients, messages, load, as_json)


@command.command("sub")
@click.argument("subject")
@messages_option
@clients_option
@json_option
@session_options
def subscribe(session: Session, subject: str, messages: int, clients: int, as_json: bool) -> int:
    """Receive --messages from SUBJECT with every client; the clock starts at the first one."""
    result = Result("sub", subject, 0)

    async def load(runtime: Runtime, client: Client, index: int, advance: Advance) -> Span:
        return await bench_load.subscribe_load(runtime, client, subject, messages, advance)

    return measure(session, result, clients, messages * clients, load, as_json)


@command.group("service")
def service() -> None:
    """Requests and replies: `serve` answers what `request` asks."""


@service.command("request")
@click.argument("subject")
@messages_option
@size_option
@clients_option
@json_option
@session_options
def request(session: Session, subject: str, messages: int, size_bytes: int, clients: int, as_json: bool) -> int:
    """Send requests on SUBJECT, each client one after the other, and report their latency."""
    result = Result("service request", subject, size_bytes)
    payload = bytes(size_bytes)

    async def load(runtime: Runtime, client: Client, index: int, advance: Advance) -> Span:
        count = share(messages, clients, index)
        return await bench_load.request_load(runtime, client, subject, payload, count, result.latencies_ns, advance)

    return measure(session, result, clients, messages, load, as_json)


@service.command("serve")
@click.argument("subject")
@click.option("--count", default=0, type=click.IntRange(min=0), help="Stop after so many requests.")
@size_option
@session_options
def serve(session: Session, subject: str, count: int, size_bytes: int) -> int:
    """Answer requests on SUBJECT until interrupted."""

    async def answer(runtime: Runtime) -> None:
        async with session.connect(runtime) as client:
            note(f"Answering on {subject!r}")
            await bench_load.serve_load(client, subject, SERVE_QUEUE, bytes(size_bytes), count, ignore_progress)

    return run(answer)


def measure(
    session: Session,
    result: Result,
    client_count: int,
    message_count: int,
    load: Callable[[Runtime, Client, int, Advance], Awaitable[Span]],
    as_json: bool,
    prepare: Callable[[Client], Awaitable[None]] | None = None,
) -> int:
    """Run `prepare` on one client and then `load` on every one at once, show progress, fill and print `result`."""

    async def work(runtime: Runtime) -> None:
        async with AsyncExitStack() as stack:
            sessions = [session.connect_to_publish(runtime) for _ in range(client_count)]
            clients = [await stack.enter_async_context(one) for one in sessions]
            if prepare is not None:
                await prepare(clients[0])
            spans: list[Span | None] = [None] * client_count
            with progress_bar(result.kind, message_count, shown=not as_json) as advance:

                async def one(index: int) -> None:
                    spans[index] = await load(runtime, clients[index], index, advance)

                async with trio.open_nursery() as nursery:
                    for index in range(client_count):
                        nursery.start_soon(one, index)
            result.spans = [span for span in spans if span is not None]
        if as_json:
            print_json(result.record())
        else:
            print_result(result)

    return run(work)


def print_result(result: Result) -> None:
    """The figures for people."""
    total = rates(result.total())
    print(f"{result.kind} on {result.subject!r}, {len(result.spans)} client{'s' if len(result.spans) > 1 else ''}")
    print(f"  {rate_line(total)}")
    if len(result.spans) > 1:
        for number, span in enumerate(result.spans, 1):
            print(f"  client {number:3}: {rate_line(rates(span))}")
    if result.latencies_ns:
        summary = bench_load.latency_summary(result.latencies_ns)
        parts = [f"{name} {value_ns / SECOND_NS * 1_000_000:,.0f} us" for name, value_ns in summary.items()]
        print(f"  latency: {', '.join(parts)}")


def rate_line(figures: dict[str, float]) -> str:
    """One line of counts and rates."""
    return (
        f"{figures['messages']:,.0f} messages in {figures['seconds']:.2f} s: "
        f"{figures['messages_per_second']:,.0f} msgs/s, {figures['bytes_per_second'] / 1_000_000:,.2f} MB/s"
    )
