"""docs/whats-here.md is written from the modules' own docstrings, so that it cannot go stale.

`TNATS_REWRITE=1 pytest tests/tidy/test_overview.py` writes it anew.
"""

from __future__ import annotations

import ast
import os
import re

from tests.tidy.sources import ROOT, Source, sources

OVERVIEW = ROOT / "docs" / "whats-here.md"
HEAD = """# What is here

One line per module, taken from its docstring. Packages stand in the order of the rings: what a package may import
stands before it (`tests/tidy/test_imports.py` has the table). `tests/README.md` tells where tests go.
"""
PACKAGES = (
    "tnats", "tnats.wire", "tnats.subjects", "tnats.auth", "tnats.raft", "tnats.runtime", "tnats.runtime.live",
    "tnats.runtime.sim", "tnats.storage", "tnats.broker", "tnats.replication", "tnats.jetstream", "tnats.edges",
    "tnats.client", "tnats.server", "tnats.testing", "tnats.harness", "tnats.cli",
)  # fmt: skip


def first_sentence(source: Source) -> str:
    """The first sentence of the module's docstring, on one line."""
    text = " ".join((ast.get_docstring(source.tree) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.;])\s", text, maxsplit=1)[0].rstrip(".;")


def rank(source: Source) -> tuple[int, str]:
    """Packages inside out; within one, by name."""
    homes = [index for index, package in enumerate(PACKAGES) if source.module.startswith(package + ".")]
    return max(homes, default=0), source.module


def overview() -> str:
    """The document as it should be."""
    lines, section = [HEAD], ""
    for source in sorted((one for one in sources() if first_sentence(one)), key=rank):
        package = PACKAGES[rank(source)[0]]
        if package != section:
            section = package
            lines.append(f"\n## {package}\n\n| module | what it is |\n|---|---|")
        name = source.module.removeprefix(package + ".")
        lines.append(f"| `{name}` | {first_sentence(source).replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def test_the_overview_is_current() -> None:
    """docs/whats-here.md says of every module what the module says of itself."""
    if os.environ.get("TNATS_REWRITE") == "1":
        OVERVIEW.write_text(overview(), encoding="utf-8")
    assert OVERVIEW.read_text(encoding="utf-8") == overview()
