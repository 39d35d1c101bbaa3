"""The root of the command line: a table of sub-commands, each imported only when it is called.

A sub-command is a module with a click command named `command`. Its one-line help stands in the table, so that
`tnats --help` imports none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module

import click

import tnats
from tnats.cli.connection import connection_options
from tnats.errors import TnatsError, leaves

COMMANDS = {
    "serve": (None, "Run a server. `tnats serve --help` lists its options."),
    "pub": ("tnats.cli.pub", "Publish messages."),
    "sub": ("tnats.cli.sub", "Subscribe and print what arrives."),
    "req": ("tnats.cli.req", "Send a request and print the replies."),
    "reply": ("tnats.cli.reply", "Answer requests."),
    "rtt": ("tnats.cli.rtt", "Measure the round trip to a server."),
    "stream": ("tnats.cli.stream", "Administer streams, and look into them."),
    "consumer": ("tnats.cli.consumer", "Administer consumers, and get messages from them."),
    "kv": ("tnats.cli.kv", "Use key-value buckets."),
    "object": ("tnats.cli.object_store", "Use object stores."),
    "account": ("tnats.cli.account", "Show what the account uses and may use."),
    "bench": ("tnats.cli.bench", "Measure throughput and latency."),
    "check": ("tnats.cli.check", "Verify the store of a stopped server, and name what is damaged."),
    "sim": ("tnats.cli.sim", "Search simulated worlds for bugs; replay, shrink and show them."),
    "jepsen": ("tnats.cli.jepsen", "Run Jepsen's findings about NATS against a server."),
}
"""Name: (module, one line of help). `serve` never gets here: `tnats.__main__` takes it first."""

OTHER_NAMES = {
    "publish": "pub",
    "subscribe": "sub",
    "request": "req",
    "str": "stream",
    "st": "stream",
    "s": "stream",
    "con": "consumer",
    "c": "consumer",
    "obj": "object",
    "a": "account",
}
"""What the commands of the `nats` tool can be called as well."""

EXIT_FAILURE = 1


class CommandTable(click.Group):
    """A click group that finds its commands in `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module_name, _ = COMMANDS.get(OTHER_NAMES.get(cmd_name, cmd_name), (None, ""))
        if module_name is None:
            return None
        found: click.Command = import_module(module_name).command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tnats.__version__, "-v", "--version", prog_name="tnats", message="%(prog)s %(version)s")
@partial(connection_options, is_early=True)
def root(**early: str | None) -> None:
    """A NATS server on trio, and tools for any NATS server.

    How to reach the server (-s, --user, --token...) may be said before the command as well as after it.
    """


def main(arguments: Sequence[str]) -> int:
    """Run a sub-command; returns the exit code: 0, 1 failed, 2 wrong usage, 128 + n ended by signal n. Raises
    KeyboardInterrupt where the command leaves signals to the interpreter.
    """
    try:
        result = root.main(list(arguments), prog_name="tnats", standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except click.exceptions.Abort as abort:
        if isinstance(abort.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None  # `tnats.__main__` ends for it
        return EXIT_FAILURE
    except TnatsError as exc:
        print_errors([exc])
        return EXIT_FAILURE
    except ExceptionGroup as group:
        if group.split(TnatsError)[1] is not None:
            raise
        print_errors(leaves(group))
        return EXIT_FAILURE
    return result if isinstance(result, int) else 0


def print_errors(errors: Iterable[Exception]) -> None:
    """One line for each on standard error, the same one only once."""
    for text in dict.fromkeys(map(str, errors)):
        print(f"tnats: {text}", file=sys.stderr)
