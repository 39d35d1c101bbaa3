"""How a command finds its server: the options, which may stand before the name of the command as well as after it.

Apart from `session`, which uses them, so that the root of the command line need not import a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from tnats.records import frozen

F = TypeVar("F", bound=Callable[..., Any])


@frozen
class ConnectionOption:
    """One option. Before the command it has no default and hears no environment: then it says nothing."""

    flags: tuple[str, ...]
    parameter: str
    help: str
    envvar: str | None = None
    default: str | None = None

    def decorate(self, command: F, *, is_early: bool) -> F:
        """Add it to a command, or (`is_early`) to the root."""
        if is_early:
            return click.option(*self.flags, self.parameter, hidden=True, help=self.help)(command)
        return click.option(
            *self.flags,
            self.parameter,
            envvar=self.envvar,
            default=self.default,
            show_default=self.default is not None,
            help=f"{self.help} [env: {self.envvar}]" if self.envvar else self.help,
        )(command)


CONNECTION_OPTIONS = (
    ConnectionOption(
        ("-s", "--server"), "servers", "Server address, or several with commas.", "NATS_URL", "nats://127.0.0.1:4222"
    ),
    ConnectionOption(("--user",), "user", "User name.", "NATS_USER"),
    ConnectionOption(("--password",), "password", "Password.", "NATS_PASSWORD"),
    ConnectionOption(("--token",), "token", "Token.", "NATS_TOKEN"),
    ConnectionOption(("--creds",), "creds", "Credentials file: not available yet.", "NATS_CREDS"),
    ConnectionOption(("--connection-name",), "connection_name", "Shown by the server.", None, "tnats CLI"),
)


def connection_options(command: F, *, is_early: bool = False) -> F:
    """Decorator: adds all of them."""
    for option in reversed(CONNECTION_OPTIONS):
        command = option.decorate(command, is_early=is_early)
    return command


def given_early(context: click.Context) -> dict[str, str]:
    """What was given before the command, by parameter, where the command line does not say something else after it."""
    early = context.find_root().params
    return {
        name: early[name]
        for name in (option.parameter for option in CONNECTION_OPTIONS)
        if early.get(name) is not None and context.get_parameter_source(name) is not ParameterSource.COMMANDLINE
    }
