"""Tables for people."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tnats.cli.tables import column_widths, print_table


def test_columns_are_as_wide_as_what_they_hold() -> None:
    """Where there is room nothing is broken."""
    assert column_widths(["Name", "#Ack floor"], [["a" * 30, "1"]], 100) == [30, 9]


def test_what_can_be_broken_gives_way_first_and_only_as_far_as_words_go() -> None:
    """Headings of several words and long texts get narrow; numbers, times and words stay whole, beyond the room too."""
    columns = ["Name", "#Ack floor", "#Size", "Time"]
    rows = [["a" * 40, "123456", "1.2 GiB", "2026-11-30 01:07:15.706"]]
    assert column_widths(columns, rows, 70) == [23, 9, 7, 23]
    assert column_widths(columns, rows, 1) == [16, 6, 7, 23]


def test_a_column_without_a_name_is_shown_where_it_holds_something(capsys: pytest.CaptureFixture[str]) -> None:
    """Marks such as "paused" need no column in tables without any."""
    print_table("One", ["Name", ""], [["a", ""]])
    print_table("Two", ["Name", ""], [["a", "paused"]])
    one, two = capsys.readouterr().out.split("Two")
    assert [line.rstrip() for line in one.splitlines()] == ["One", "Name", "─────", "a"]
    assert "a     paused" in two


def test_who_reads_no_more_ends_a_command_quietly() -> None:
    """As in `tnats stream ls | head -1`: the error reaches the caller as itself, in a task as well."""
    code = """
import click, sys, tnats.cli.session
from tnats.cli import app
from tnats.cli.tables import print_table
async def work(runtime):
    print_table("One", ["Name"], [["a"]] * 50_000)
@app.root.command("shown")
def command():
    return tnats.cli.session.run(work)
app.COMMANDS["shown"] = ("shown", "")
sys.modules["shown"] = sys.modules["__main__"]
sys.exit(app.main(["shown"]))
"""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
