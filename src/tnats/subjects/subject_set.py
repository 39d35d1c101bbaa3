"""A set of subjects and patterns that finds those which meet another one, without comparing it with each.

A configuration may name tens of thousands of them, and every pair matters to its rules. They are kept as a tree of
tokens; a search follows the branches that can still meet. (`sublist` finds who listens to a published subject: it is
kept small and fast for that, and compares a pattern with every literal.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

END = ""
"""The branch of a node that holds the pattern which ends there: no token is empty."""

_Node = dict[str, Any]


class SubjectSet:
    """See the module's text. All that is put in or looked for must be valid."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._root: _Node = {}
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: str) -> None:
        node = self._root
        for token in pattern.split("."):
            node = node.setdefault(token, {})
        node[END] = pattern

    def discard(self, pattern: str) -> None:
        """Take one out, with the branches that lead to nothing else."""
        tokens = pattern.split(".")
        path = [self._root]
        for token in tokens:
            if token not in path[-1]:
                return
            path.append(path[-1][token])
        path[-1].pop(END, None)
        while tokens and not path.pop():
            del path[-1][tokens.pop()]

    def overlapping(self, pattern: str) -> Iterator[str]:
        """Those that share a subject with `pattern`."""
        nodes = [self._root]
        for token in pattern.split("."):
            for node in nodes:
                if ">" in node:
                    yield node[">"][END]
            if token == ">":
                for node in nodes:
                    yield from _below(node, except_for=">")
                return
            nodes = _followed(nodes, ("*", token)) if token != "*" else _stepped(nodes)
        yield from (node[END] for node in nodes if END in node)

    def covering(self, pattern: str) -> Iterator[str]:
        """Those that match whatever `pattern` matches."""
        nodes = [self._root]
        for token in pattern.split("."):
            for node in nodes:
                if ">" in node:
                    yield node[">"][END]
            nodes = _followed(nodes, dict.fromkeys(("*", token))) if token != ">" else []
        yield from (node[END] for node in nodes if END in node)

    def covered(self, pattern: str) -> Iterator[str]:
        """Those that match nothing but what `pattern` matches."""
        nodes = [self._root]
        for token in pattern.split("."):
            if token == ">":
                for node in nodes:
                    yield from _below(node)
                return
            nodes = _followed(nodes, (token,)) if token != "*" else _stepped(nodes)
        yield from (node[END] for node in nodes if END in node)


def _followed(nodes: list[_Node], tokens: Iterable[str]) -> list[_Node]:
    """Where these tokens lead."""
    return [node[token] for node in nodes for token in tokens if token in node]


def _stepped(nodes: list[_Node]) -> list[_Node]:
    """Where one token leads, whichever."""
    return [child for node in nodes for token, child in node.items() if token not in (END, ">")]


def _below(node: _Node, *, except_for: str = END) -> Iterator[str]:
    """All patterns that go on from a node, but not those by the branch `except_for`."""
    nodes = [child for token, child in node.items() if token not in (END, except_for)]
    while nodes:
        node = nodes.pop()
        for token, child in node.items():
            if token == END:
                yield child
            else:
                nodes.append(child)
