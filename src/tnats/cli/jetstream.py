"""What the commands for JetStream share: the way to it, groups whose commands have other names too, confirmation."""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from tnats.cli.session import Session, run, session_options
from tnats.cli.values import DURATION
from tnats.client import Client, ClientError
from tnats.client.jetstream import JetStream
from tnats.limits import SECOND_NS
from tnats.records import frozen
from tnats.runtime.api import Runtime

F = TypeVar("F", bound=Callable[..., Any])

OTHER_NAMES = {
    "list": "ls",
    "l": "ls",
    "nfo": "info",
    "i": "info",
    "create": "add",
    "new": "add",
    "update": "edit",
    "delete": "rm",
    "del": "rm",
    "snapshot": "backup",
    "show": "info",
    "view": "info",
}
"""What the commands of the `nats` tool can be called as well."""


class CommandGroup(click.Group):
    """A group that takes the other names of its commands, where it has no command of that name itself."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found or super().get_command(ctx, OTHER_NAMES.get(cmd_name, cmd_name))


@frozen
class JetStreamSession:
    """The parsed options of one command, and the one way to run it."""

    session: Session
    domain: str
    api_prefix: str
    timeout_ns: int

    def open(self, client: Client) -> JetStream:
        """JetStream as the options say, on a connection."""
        timeout_s = self.timeout_ns / SECOND_NS
        return JetStream(client, domain=self.domain, api_prefix=self.api_prefix, timeout_s=timeout_s)

    def run(self, work: Callable[[JetStream], Awaitable[None]]) -> int:
        """Run `work` on a connection of its own; returns the exit code."""

        async def connected(runtime: Runtime) -> None:
            async with self.session.connect(runtime) as client:
                await work(self.open(client))

        return run(connected)


def jetstream_options(command: F) -> F:
    """Decorator: adds the options of the connection and of JetStream, passes them on as the keyword `js_session`."""

    @functools.wraps(command)
    def with_jetstream(session: Session, js_domain: str, js_api_prefix: str, timeout_ns: int, **arguments: Any) -> Any:
        return command(js_session=JetStreamSession(session, js_domain, js_api_prefix, timeout_ns), **arguments)

    decorated: Any = with_jetstream
    for option in (
        click.option(
            "--timeout",
            "timeout_ns",
            type=DURATION,
            default="5s",
            show_default=True,
            help="Wait for each answer this long.",
        ),
        click.option("--js-api-prefix", default="", help="Subject prefix of the JetStream API."),
        click.option("--js-domain", default="", help="JetStream domain to use."),
    ):
        decorated = option(decorated)
    result: F = session_options(decorated)
    return result


force_option = click.option("-f", "--force", is_flag=True, help="Act without asking.")
defaults_option = click.option(
    "--defaults", is_flag=True, hidden=True, expose_value=False, help="As ever: what is not given is not asked for."
)
"""Scripts for the `nats` tool give it."""
names_option = click.option("-n", "--names", "only_names", is_flag=True, help="Names only, one a line.")


def confirm(question: str, *, force: bool) -> None:
    """Go on only if told so. Raises click.Abort for a no, ClientError where nobody can be asked."""
    if force:
        return
    if not sys.stdin.isatty():
        raise ClientError(f"{question} Nobody can be asked here: give --force")
    click.confirm(question, abort=True, err=True)
