"""`tnats rtt`: measure the round trip to a server."""

from __future__ import annotations

import click

from tnats.cli.output import json_option, print_json
from tnats.cli.session import Session, run, session_options
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime


@click.command("rtt")
@click.option("--count", default=5, show_default=True, type=click.IntRange(min=1), help="PINGs to send.")
@json_option
@session_options
def command(session: Session, count: int, as_json: bool) -> int:
    """Time PING to PONG on a standing connection, several times in a row."""

    async def measure(runtime: Runtime) -> None:
        async with session.connect(runtime) as client:
            url, name = client.servers[0], client.server_info.server_name
            times_ns = [await client.round_trip_ns() for _ in range(count)]
        if as_json:
            print_json({"url": url, "server_name": name, "times_ns": times_ns})
            return
        average_ns = sum(times_ns) / count
        print(f"{url} ({name}): {count} round trips")
        for label, value_ns in (("best", min(times_ns)), ("mean", average_ns), ("worst", max(times_ns))):
            print(f"  {label:6}{value_ns / SECOND_NS * 1000:9.3f} ms")

    return run(measure)
