"""Habits that keep the tests and the documents readable."""

from __future__ import annotations

import ast
import re

import pytest
from tests.tidy.sources import ROOT, Source, sources, test_sources

TEXT_SUFFIXES = (".py", ".md", ".toml", ".pyi", ".pxd", ".sh", ".yml", ".yaml", ".conf", ".cfg", ".txt")
FOLDERS = ("src", "tests", "docs", "simulations", "jepsen", "conf")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|home|root|Users)/\w+")


@pytest.mark.parametrize("source", test_sources(), ids=lambda source: str(source.path.relative_to(ROOT)))
def test_tests_say_what_they_show(source: Source) -> None:
    """Every test function has a docstring that states its property."""
    assert [
        source.place(node)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and node.name != "test_sources"
        and not ast.get_docstring(node)
    ] == []


def test_modules_say_what_they_are() -> None:
    """Every module with code has a docstring."""
    assert [source.module for source in sources() if source.tree.body and not ast.get_docstring(source.tree)] == []


def test_no_path_of_one_machine() -> None:
    """No file names a directory of the machine it was written on."""
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in TEXT_SUFFIXES and path.is_file():
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    if MACHINE_PATH.search(line) and path.name != "test_habits.py":
                        found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []


def test_records_are_made_in_one_way() -> None:
    """Classes of records come from `tnats.records`: attrs' own decorators take twice as long at every start."""
    assert [
        source.place(node)
        for source in sources()
        if source.module != "tnats.records"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).startswith(("attrs.define", "attrs.frozen"))
    ] == []
