"""Golden files driven by data: commands and what they print, in one file that a reviewer can read.

    # A comment.
    command word key=value key=(a,b)
    lines of input, if the command takes any
    ----
    what it printed

A case ends at the first empty line after the `----`. Output that has empty lines itself stands between `----` doubled
before and doubled after it. `TNATS_REWRITE=1` writes what comes out into the file instead of comparing; read the
difference before committing it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import attrs

_WORD = re.compile(r"([^\s=()]+)(?:=(?:\(([^)]*)\)|(\S+)))?")


@attrs.define
class Case:
    """One command. `words`: arguments without a key; `keys`: those with one, a list if it was in parentheses.

    `header`: the comments before it and the command's own line, as they stand in the file.
    """

    command: str
    words: list[str]
    keys: dict[str, list[str]]
    input: str
    line: int
    header: list[str]
    expected: str = ""

    def key(self, name: str, default: str = "") -> str:
        return self.keys[name][0] if name in self.keys else default

    def number(self, name: str, default: int) -> int:
        return int(self.key(name, str(default)))

    def flag(self, name: str) -> bool:
        return name in self.words


Handler = Callable[[Case], str]


def parse(text: str) -> tuple[list[Case], list[str]]:
    """The cases of a file, and the lines after the last one."""
    lines = text.split("\n")
    cases: list[Case] = []
    at = 0
    header: list[str] = []
    while at < len(lines):
        line = lines[at]
        if not line.strip() or line.startswith("#"):
            header.append(line)
            at += 1
            continue
        case = _command(line, at + 1, header)
        header = []
        at += 1
        body = []
        while at < len(lines) and lines[at] != "----":
            body.append(lines[at])
            at += 1
        case.input = "\n".join(body)
        at += 1
        output = []
        if at < len(lines) and lines[at] == "----":
            at += 1
            while at < len(lines) and lines[at : at + 2] != ["----", "----"]:
                output.append(lines[at])
                at += 1
            at += 3
        else:
            while at < len(lines) and lines[at]:
                output.append(lines[at])
                at += 1
            at += 1
        case.expected = "\n".join(output)
        cases.append(case)
    return cases, header


def _command(line: str, number: int, header: list[str]) -> Case:
    command, _, rest = line.partition(" ")
    words: list[str] = []
    keys: dict[str, list[str]] = {}
    for match in _WORD.finditer(rest):
        word, group, value = match.groups()
        if group is not None:
            keys[word] = [part.strip() for part in group.split(",") if part.strip()]
        elif value is not None:
            keys[word] = [value]
        else:
            words.append(word)
    return Case(command, words, keys, "", number, [*header, line])


def render(case: Case, output: str) -> str:
    parts = list(case.header)
    if case.input:
        parts.append(case.input)
    parts.append("----")
    if "\n\n" in f"\n{output}\n" and output:
        parts += ["----", output, "----", "----"]
    elif output:
        parts.append(output)
    return "\n".join(parts) + "\n\n"


def run_file(path: Path, handler: Handler) -> None:
    """Run every case of `path`. Raises AssertionError at the first one that prints something else."""
    rewrite = os.environ.get("TNATS_REWRITE") == "1"
    cases, tail = parse(path.read_text())
    written = []
    for case in cases:
        output = handler(case).strip("\n")
        written.append(render(case, output))
        if not rewrite:
            assert output == case.expected, f"{path.name}:{case.line}: {case.command} printed\n{output}"
    if rewrite:
        text = "".join(written) + "\n".join(tail)
        path.write_text(text.rstrip("\n") + "\n")


def files(folder: Path) -> list[Path]:
    """The golden files of a folder, in order."""
    return sorted(folder.glob("*.txt"))
