"""The runner of the golden files: what it reads it writes again, and a difference is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden.datadriven import Case, parse, render, run_file

TEXT = """# A comment.
say word key=value many=(a, b)
input
----
word value a b input

empty
----
----
one

two
----
----

# The end.
"""


def handle(case: Case) -> str:
    if case.command == "empty":
        return "one\n\ntwo"
    return " ".join([*case.words, case.key("key"), *case.keys["many"], case.input])


def test_files_are_read_and_written_alike() -> None:
    """Rendering the parsed cases with their own output gives the file."""
    cases, tail = parse(TEXT)
    assert [(case.command, case.line) for case in cases] == [("say", 2), ("empty", 7)]
    assert "".join(render(case, case.expected) for case in cases) + "\n".join(tail) == TEXT


def test_a_difference_is_found_and_can_be_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another output fails with file and line; with TNATS_REWRITE=1 it becomes the expectation."""
    path = tmp_path / "file.txt"
    path.write_text(TEXT.replace("word value a b input", "something else"))
    monkeypatch.delenv("TNATS_REWRITE", raising=False)
    with pytest.raises(AssertionError, match=r"file\.txt:2: say printed"):
        run_file(path, handle)
    monkeypatch.setenv("TNATS_REWRITE", "1")
    run_file(path, handle)
    assert path.read_text() == TEXT
    monkeypatch.delenv("TNATS_REWRITE")
    run_file(path, handle)
