"""The project's Python files as syntax trees, and what they name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


@attrs.frozen
class Source:
    """One file: its path, dotted module name (for files under src) and tree."""

    path: Path
    module: str
    tree: ast.Module = attrs.field(eq=False)

    def place(self, node: ast.AST) -> str:
        """`file:line` of a node, for messages."""
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def within(module: str, package: str) -> bool:
    """Whether a module is a package, or lies below it."""
    return module == package or module.startswith(package + ".")


@cache
def sources() -> tuple[Source, ...]:
    """Every module of the package."""
    found = []
    for path in sorted((SOURCE / "tnats").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Source(path, module, ast.parse(path.read_text(encoding="utf-8"))))
    return tuple(found)


@cache
def test_sources() -> tuple[Source, ...]:
    """Every test file."""
    return tuple(
        Source(path, path.stem, ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted((ROOT / "tests").rglob("*.py"))
    )


test_sources.__test__ = False  # type: ignore[attr-defined]  # not a test for pytest to collect


@attrs.frozen
class Import:
    """One imported module, and the names taken from it (none for `import module`)."""

    module: str
    names: tuple[str, ...]
    node: ast.AST = attrs.field(eq=False)
    typing_only: bool


def imports(source: Source) -> Iterator[Import]:
    """All imports of a file, at any depth."""
    guarded: set[ast.AST] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            guarded.update(child for statement in node.body for child in ast.walk(statement))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), node, node in guarded)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield Import(node.module, tuple(alias.name for alias in node.names), node, node in guarded)


def annotations(tree: ast.Module) -> set[ast.AST]:
    """All nodes that stand inside annotations."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        roots: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            everyone = [
                *arguments.posonlyargs,
                *arguments.args,
                *arguments.kwonlyargs,
                arguments.vararg,
                arguments.kwarg,
            ]
            roots += [argument.annotation for argument in everyone if argument is not None]
            roots.append(node.returns)
        elif isinstance(node, ast.AnnAssign):
            roots.append(node.annotation)
        for root in roots:
            if root is not None:
                inside.update(ast.walk(root))
    return inside


def dotted(node: ast.AST) -> str:
    """`a.b.c` for an attribute chain on a name, else an empty string."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])
