"""The root of the command line: what it imports, how it fails."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from tnats.__main__ import main
from tnats.cli import app
from tnats.errors import TnatsError, leaves

LOADED = """
import sys
from tnats.__main__ import main
try:
    main({arguments!r})
except BaseException:
    pass
print(",".join(name for name in {names!r} if name in sys.modules), file=sys.__stdout__)
"""


def loaded(arguments: list[str], names: list[str]) -> str:
    """Which of the modules `names` a command has imported, in a fresh interpreter."""
    code = LOADED.format(arguments=arguments, names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return done.stdout.decode().splitlines()[-1]


def test_serve_imports_nothing_of_the_command_line() -> None:
    """`tnats serve` starts without click, rich, and the client."""
    assert loaded(["serve", "--nonsense"], ["click", "rich", "tnats.client", "tnats.cli.app"]) == ""


def test_help_imports_no_command() -> None:
    """Listing the commands imports none of them, nor trio."""
    assert loaded(["--help"], ["click", "trio", "tnats.cli.pub", "rich"]) == "click"


def test_a_command_imports_itself_alone() -> None:
    """Neither other commands nor the drawing of progress bars."""
    names = ["tnats.cli.rtt", "tnats.cli.sub", "tnats.cli.bench", "rich"]
    assert loaded(["rtt", "--help"], names) == "tnats.cli.rtt"


@pytest.mark.parametrize("name", [name for name, (module, _) in app.COMMANDS.items() if module])
def test_every_command_of_the_table_exists(name: str) -> None:
    """Each row leads to a command of that name, with help for itself and for every option."""
    command = app.root.get_command(click.Context(app.root), name)
    assert isinstance(command, click.Command)
    assert command.name == name
    commands = [command]
    while commands:
        one = commands.pop()
        assert one.help
        if isinstance(one, click.Group):
            commands += one.commands.values()
        for parameter in one.params:
            assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), parameter.name


def test_wrong_usage_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command and a missing argument: a hint on standard error, code 2."""
    assert app.main(["nonsense"]) == 2
    assert app.main(["pub"]) == 2
    assert "No such command" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version and nothing else."""
    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tnats ")


@pytest.mark.parametrize("arguments", [["--creds", "x"], ["-s", "tls://host"], ["-s", "http://host"]])
def test_operating_errors_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be done is said in one line on standard error, code 1."""
    assert app.main(["rtt", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tnats: ")
    assert captured.err.count("\n") == 1


def test_errors_of_several_clients_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Groups are opened, equal lines told once; anything that is no operating error stays a bug with its trace."""
    app.print_errors(leaves(ExceptionGroup("", [TnatsError("a"), ExceptionGroup("", [TnatsError("a")])])))
    assert capsys.readouterr().err == "tnats: a\n"


@pytest.mark.parametrize(("other", "name"), [*app.OTHER_NAMES.items()])
def test_commands_answer_to_the_names_of_the_nats_tool(other: str, name: str) -> None:
    """Each other name leads to a command of the table, and hides none."""
    assert other not in app.COMMANDS
    command = app.root.get_command(click.Context(app.root), other)
    assert command is not None
    assert command.name == name


@pytest.mark.parametrize(
    ("arguments", "tried"),
    [
        (["-s", "127.0.0.1:1", "rtt"], "127.0.0.1:1"),
        (["-s", "127.0.0.1:1", "rtt", "-s", "127.0.0.1:2"], "127.0.0.1:2"),
        (["-s", "127.0.0.1:1", "stream", "ls"], "127.0.0.1:1"),
        (["rtt"], "127.0.0.1:3"),
    ],
)
def test_the_server_is_named_before_or_after_the_command(
    arguments: list[str], tried: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands after the command counts before what stands in front of it, and both before the environment."""
    monkeypatch.setenv("NATS_URL", "127.0.0.1:3")
    assert app.main(arguments) == 1
    assert f"cannot connect to {tried}:" in capsys.readouterr().err


def test_scripts_of_the_nats_tool_may_say_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    """`--defaults` changes nothing where nothing is ever asked."""
    for command in (["stream", "add", "A"], ["consumer", "add", "A", "B"]):
        assert app.main([*command, "--defaults", "-s", "127.0.0.1:1"]) == 1
        assert "cannot connect" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "module"), [("serve", "tnats.cli.serve"), ("pub", "tnats.cli.app")])
def test_an_interrupt_that_nobody_listens_for_yet_leaves_no_trace(
    command: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the first moment ends the program as the signal does, without a word."""

    def interrupted(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{module}.main", interrupted)
    monkeypatch.setattr("gc.disable", lambda: None)
    assert main([command]) == 130
    assert capsys.readouterr() == ("", "")
