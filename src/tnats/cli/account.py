"""`tnats account`: what the account uses and may use."""

from __future__ import annotations

import click

from tnats.cli.jetstream import CommandGroup, JetStreamSession, jetstream_options
from tnats.cli.output import json_option, print_json
from tnats.cli.tables import Fact, print_facts
from tnats.cli.values import show_count, show_size
from tnats.client.jetstream import JetStream
from tnats.jetstream.api.fields import to_object
from tnats.jetstream.api.messages import AccountInfo, Usage


@click.group("account", cls=CommandGroup)
def command() -> None:
    """Show what the account uses and may use."""


@command.command("info")
@json_option
@jetstream_options
def info(js_session: JetStreamSession, as_json: bool) -> int:
    """Show the connection, and JetStream's use and limits."""

    async def work(js: JetStream) -> None:
        found = await js.account_info()
        if as_json:
            print_json(to_object(found))
            return
        server = js.client.server_info
        connection = [
            ("Server", f"{server.server_name} ({server.version})"),
            ("URL", js.client.servers[0]),
            ("Client id", str(server.client_id or "")),
            ("Maximum payload", show_size(server.max_payload)),
        ]
        sections = [("Connection", connection), ("JetStream", usage_facts(found))]
        sections += [(f"Tier {name}", usage_facts(tier)) for name, tier in sorted(found.tiers.items())]
        print_facts("Account", sections)

    return js_session.run(work)


def usage_facts(usage: AccountInfo | Usage) -> list[Fact]:
    """What is used, of what is allowed."""
    limits = usage.limits
    facts = [
        ("Memory", f"{show_size(usage.memory)} of {show_size(limits.max_memory)}"),
        ("Storage", f"{show_size(usage.storage)} of {show_size(limits.max_storage)}"),
        ("Streams", f"{show_count(usage.streams)} of {show_count(limits.max_streams)}"),
        ("Consumers", f"{show_count(usage.consumers)} of {show_count(limits.max_consumers)}"),
        ("Largest memory stream", show_size(limits.memory_max_stream_bytes or -1)),
        ("Largest file stream", show_size(limits.storage_max_stream_bytes or -1)),
    ]
    if isinstance(usage, AccountInfo):
        facts += [
            ("Domain", usage.domain),
            ("API level", str(usage.api.level)),
            ("API requests", f"{show_count(usage.api.total)}, {show_count(usage.api.errors)} of them refused"),
        ]
    return facts
