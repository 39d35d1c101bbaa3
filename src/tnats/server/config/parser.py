"""The parser of the configuration language: tokens to a tree of values, pure.

Every value keeps the position an error about it should name: of its key in a map, of its first character in an
array. `include` reads through the callable passed in; `$NAME` is looked up in the maps that are open at that point,
innermost first and only for keys that stand before it, then in the environment passed in, whose value is itself
parsed as a configuration value. A key that was used as a variable is marked, so that the options reader does not
take it for an unknown option.

Includes: the path is relative to the including file's directory; the included file's top level is merged into the
map where the `include` stands. It sees none of the includer's variables. (An absolute path is taken as absolute;
nats-server would look for it under the includer's directory.)
"""

from __future__ import annotations

import datetime
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from tnats.errors import TnatsError
from tnats.limits import CONFIG_NESTING_MAX
from tnats.server.config.lexer import Kind, Lexer, Token
from tnats.server.config.problems import ConfigError, Position, Problem

Read = Callable[[str], str]
"""Path to the text of that file, undecodable bytes as surrogate escapes; raises TnatsError or OSError."""

_INT64_MAX = 2**63 - 1
_TRUE = frozenset({"true", "yes", "on"})
_RAW_BCRYPT = re.compile(r"2[abxy]\$[0-9]{2}\$")
_MULTIPLIERS = {
    prefix + suffix: (1000 if suffix == "" else 1024) ** power
    for power, prefix in enumerate("kmgtpe", start=1)
    for suffix in ("", "b", "i", "ib")
}


class Node:
    """One value of the tree with the position that messages about it name."""

    __slots__ = ("depth", "position", "used", "value")

    def __init__(
        self,
        value: str | bool | int | float | datetime.datetime | dict[str, Node] | list[Node],
        position: Position,
        depth: int = 0,
    ) -> None:
        self.value = value
        self.position = position
        self.depth = depth
        """Levels of maps and arrays inside; bounded by CONFIG_NESTING_MAX however variables are combined."""
        self.used = False
        """A `$variable` referred to it."""


def parse(text: str, file: str, *, read: Read, env: Mapping[str, str]) -> dict[str, Node]:
    """The tree of one configuration file. Raises `ConfigError` with nats-server's text at the first error."""
    return _Parser(file, read, env, including=(posixpath.normpath(file),), resolving=()).parse(text)


class _Open:
    """A map or array whose closing bracket has not been seen."""

    __slots__ = ("depth", "key", "key_position", "value")

    def __init__(self, value: dict[str, Node] | list[Node]) -> None:
        self.value = value
        self.depth = 1
        self.key = ""
        self.key_position: Position | None = None


class _Parser:
    def __init__(
        self,
        file: str,
        read: Read,
        env: Mapping[str, str],
        *,
        including: tuple[str, ...],
        resolving: tuple[str, ...],
    ) -> None:
        self._file = file
        self._read = read
        self._env = env
        self._including = including
        self._resolving = resolving
        """Environment variables whose values are being parsed, to detect cycles."""
        self._open = [_Open({})]

    def parse(self, text: str) -> dict[str, Node]:
        for token in Lexer(text, self._file):
            self._take(token)
        root = self._open[0].value
        if not isinstance(root, dict):  # pragma: no cover - only a map is ever opened first
            raise TypeError(root)
        return root

    def _take(self, token: Token) -> None:
        match token.kind:
            case Kind.KEY:
                self._open[-1].key = token.text
                self._open[-1].key_position = token.position
            case Kind.MAP_START:
                self._open.append(_Open({}))
            case Kind.ARRAY_START:
                self._open.append(_Open([]))
            case Kind.MAP_END | Kind.ARRAY_END:
                closed = self._open.pop()
                self._add(Node(closed.value, token.position, closed.depth))
            case Kind.INCLUDE:
                for key, node in self._included(token).items():
                    self._open[-1].key = key
                    self._open[-1].key_position = node.position
                    self._add(node)
            case Kind.VARIABLE:
                self._add(self._variable(token))
            case _:
                self._add(Node(_scalar(token), token.position))

    def _add(self, node: Node) -> None:
        into = self._open[-1]
        into.depth = max(into.depth, node.depth + 1)
        if into.depth > CONFIG_NESTING_MAX:
            _fail(f"values are nested deeper than {CONFIG_NESTING_MAX} levels", node.position)
        if isinstance(into.value, list):
            into.value.append(node)
            return
        if into.key_position is not None:
            node.position = into.key_position
        into.value[into.key] = node

    # ------------------------------------------------------------------ include

    def _included(self, token: Token) -> dict[str, Node]:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self._file), token.text))
        prefix = f"error parsing include file '{token.text}', "
        if path in self._including:
            _fail(f"{prefix}it includes itself: {' -> '.join((*self._including, path))}", token.position)
        try:
            text = self._read(path)
        except OSError as error:
            _fail(f"{prefix}open {path}: {(error.strerror or str(error)).lower()}", token.position)
        except TnatsError as error:
            _fail(f"{prefix}{error}", token.position)
        parser = _Parser(path, self._read, self._env, including=(*self._including, path), resolving=())
        try:
            return parser.parse(text)
        except ConfigError as error:
            _fail(f"{prefix}{error}", token.position)

    # ------------------------------------------------------------------ variables

    def _variable(self, token: Token) -> Node:
        if _RAW_BCRYPT.match(token.text):
            return Node("$" + token.text, token.position)
        for scope in reversed(self._open):
            if isinstance(scope.value, dict) and token.text in scope.value:
                node = scope.value[token.text]
                node.used = True
                return Node(node.value, token.position, node.depth)
        where = f"variable reference for '{token.text}' on line {token.position.line}"
        if token.text in self._resolving:
            _fail(f"{where} could not be parsed: variable reference cycle for '{token.text}'", token.position)
        text = self._env.get(token.text)
        if text is None:
            _fail(f"{where} can not be found", token.position)
        parser = _Parser(
            f"${token.text}", self._read, self._env, including=(), resolving=(*self._resolving, token.text)
        )
        try:
            found = parser.parse(f"pk={text}").get("pk")
        except ConfigError as error:
            _fail(f"{where} could not be parsed: {error}", token.position)
        if found is None:
            _fail(f"{where} can not be found", token.position)
        return Node(found.value, token.position, found.depth)


def _scalar(token: Token) -> str | bool | int | float | datetime.datetime:
    text = token.text
    match token.kind:
        case Kind.BOOLEAN:
            return text.lower() in _TRUE
        case Kind.INTEGER:
            digits = text.rstrip("kmgtpebiKMGTPEBI")
            # The length is checked first: int() of thousands of digits is slow and limited.
            number = int(digits) * _MULTIPLIERS.get(text[len(digits) :].lower(), 1) if len(digits) <= 20 else 2**64
            if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
                _fail(f"integer '{text}' is out of the range", token.position)
            return number
        case Kind.FLOAT:
            real = float(text)
            if real in (float("inf"), float("-inf")):
                _fail(f"float '{text}' is out of the range", token.position)
            return real
        case Kind.DATETIME:
            try:
                return datetime.datetime.fromisoformat(text)
            except ValueError:
                _fail(f"expected Zulu formatted DateTime, but got '{text}'", token.position)
        case _:
            return text


def _fail(text: str, position: Position) -> NoReturn:
    raise ConfigError([Problem(text, position)])
