"""The lexer of the configuration language: text to tokens, pure.

Purpose
-------
nats-server's configuration files, read as nats-server reads them: a relaxed JSON with `key value`, `key: value` and
`key = value`, `#` and `//` comments, optional separators, bare words, block strings, `include` and `$variables`.

Rules
-----
* A bare word is a number only if the *whole* word is one: digits with an optional size suffix, a decimal fraction,
  or a date-time in Zulu form. Anything else that starts with a digit is a string, so that unquoted passwords
  (`4e2abc`, `12-ab`, `1.2.3.4:4222`) keep their value. nats-server refuses some of those words and garbles `[1]`;
  every word that it does accept has the same value here.
* Positions are 1-based lines and columns in characters; a token's position is its first character (inside quotes).
* Errors raise `ConfigError` with nats-server's text. Nothing else is raised, whatever the input.

Theory of operation
-------------------
A stack of frames says what encloses the cursor: the top of the file, a brace pair around the whole file (JSON), a
map, or an array. The lexer alternates between two states, "an item may start" and "a value has ended"; what may
stand in each state depends on the innermost frame alone.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NoReturn

from tnats.limits import CONFIG_NESTING_MAX
from tnats.records import frozen
from tnats.server.config.problems import ConfigError, Position, Problem


class Kind(enum.Enum):
    KEY = enum.auto()
    STRING = enum.auto()
    BOOLEAN = enum.auto()
    INTEGER = enum.auto()
    FLOAT = enum.auto()
    DATETIME = enum.auto()
    VARIABLE = enum.auto()
    INCLUDE = enum.auto()
    MAP_START = enum.auto()
    MAP_END = enum.auto()
    ARRAY_START = enum.auto()
    ARRAY_END = enum.auto()


class _Frame(enum.Enum):
    TOP = "a top-level value"
    BLOCK = "a block-level value"
    MAP = "a map value"
    ARRAY = "an array value"


@frozen
class Token:
    kind: Kind
    text: str
    """The words as written, without quotes and with escapes resolved; `$` is left off variables."""
    position: Position


_SPACES = re.compile(r"\s*")
_BLANKS = re.compile(r"[ \t]*")
_KEY = re.compile(r"[^\s=:]*")
_WORD = re.compile(r"[^ \t\r\n,;\]}'\\]*")
_INCLUDE_PATH = re.compile(r"[^ \t\r\n;}']*")
_INTEGER = re.compile(r"-?[0-9]+(?:[kmgtpe](?:b|ib?)?)?", re.IGNORECASE)
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+")
_DATETIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_BOOLEANS = frozenset({"true", "false", "yes", "no", "on", "off"})
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_INCLUDE_REFUSED = {"[": "start of an array", "{": "start of a map", "(": "start of a block", "\\": "escape sequence"}


class Lexer:
    """Iterate over it for the tokens of one file (or of one environment variable's value)."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._at = 0
        self._frames = [_Frame.TOP]
        self._line_starts = [0]
        self._line_starts.extend(index + 1 for index, char in enumerate(text) if char == "\n")

    def __iter__(self) -> Iterator[Token]:
        if "\0" in self._text:
            self._at = self._text.index("\0")
            self._fail("Unexpected EOF.")
        value_ended = False
        while True:
            frame = self._frames[-1]
            if value_ended:
                self._end_of_value(frame)
                value_ended = False
                continue
            self._skip_spaces_and_comments()
            char = self._peek()
            if char == "" and frame in (_Frame.TOP, _Frame.BLOCK):
                return
            if frame is _Frame.ARRAY:
                if char == "]":
                    yield self._close(Kind.ARRAY_END)
                    value_ended = True
                else:
                    if char == ",":
                        self._fail("Unexpected array value terminator ','.")
                    token = self._value()
                    yield token
                    value_ended = token.kind not in (Kind.MAP_START, Kind.ARRAY_START)
            elif char == "}" and frame is _Frame.MAP:
                yield self._close(Kind.MAP_END)
                value_ended = True
            elif char == "{" and frame is not _Frame.MAP:
                self._at += 1
                self._push(_Frame.BLOCK)
            elif char == "}" and frame is _Frame.BLOCK:
                self._at += 1
                self._frames.pop()
                value_ended = self._frames[-1] is _Frame.BLOCK
            elif char == "}" and not self._text[self._at + 1 :].strip():
                return  # one closing brace too many is forgiven at the end of the file
            else:
                for token in self._entry(frame):
                    yield token
                    value_ended = token.kind not in (Kind.MAP_START, Kind.ARRAY_START)

    # ------------------------------------------------------------------ items

    def _entry(self, frame: _Frame) -> Iterator[Token]:
        """A key and the start of its value, or an include."""
        char = self._peek()
        in_map = frame is _Frame.MAP
        if char in ("=", ":"):
            self._fail(f"Unexpected key separator '{char}'" + ("." if in_map else ""))
        if in_map and char == "]":
            self._fail("Unexpected array end ']' processing map.")
        if in_map and char == "":
            self._fail("Unexpected EOF processing map.")
        if char in ("'", '"'):
            start = self._at + 1
            end = self._text.find(char, start)
            if end < 0:
                self._at = len(self._text)
                self._fail("Unexpected EOF processing quoted map key." if in_map else "Unexpected EOF.")
            self._at = end + 1
            key = Token(Kind.KEY, self._text[start:end], self._position(start))
        else:
            start = self._at
            self._at = self._match(_KEY)
            key = Token(Kind.KEY, self._text[start : self._at], self._position(start))
            if in_map and self._peek() == "":
                self._fail("Unexpected EOF processing map key.")
            if key.text.lower() == "include" and self._peek().isspace():
                yield self._include()
                return
        yield key
        self._at = self._match(_SPACES)
        separated = self._peek() in ("=", ":")
        if separated:
            self._at += 1
        if in_map:
            self._at = self._match(_SPACES)
            if self._peek() == ",":
                self._fail('Unexpected map value terminator ",".')
            if self._peek() == "}":
                self._fail("Expected value but found end of map")
        elif self._peek() == "" and not separated:
            raise ConfigError([Problem(f"config is invalid ({self._position(self._at)})")])
        yield self._value()

    def _end_of_value(self, frame: _Frame) -> None:
        """What may follow a value: a separator, the end of the line, a comment, or the bracket that encloses it."""
        while True:
            self._at = self._match(_BLANKS)
            char = self._peek()
            if char == "#" or self._text.startswith("//", self._at):
                self._skip_comment()
            elif char == "/":
                self._at += 1  # a stray slash after a value is ignored, as nats-server does
            elif (
                char in ("\n", "\r", ",")
                or (char == ";" and frame is not _Frame.ARRAY)
                or (char == "}" and frame is _Frame.TOP)
            ):
                self._at += 1
                return
            elif (char == "" and frame is _Frame.TOP) or char == ("]" if frame is _Frame.ARRAY else "}"):
                return
            else:
                got = char or "EOF"
                if frame is _Frame.MAP:
                    self._fail(
                        f'Expected a map value terminator "," or a map terminator "}}", but got \'{got}\' instead.'
                    )
                if frame is _Frame.ARRAY:
                    self._fail(
                        f'Expected an array value terminator "," or an array terminator "]", but got \'{got}\' instead.'
                    )
                self._fail(f"Expected {frame.value} to end with a new line, comment or EOF, but got '{got}' instead.")

    def _include(self) -> Token:
        self._at = self._match(_BLANKS)
        char = self._peek()
        if char in ("'", '"'):
            start = self._at + 1
            end = self._text.find(char, start)
            if end < 0:
                self._at = len(self._text)
                self._fail(f"Unexpected EOF in {'quoted' if char == chr(39) else 'double quoted'} include")
            self._at = end + 1
            return Token(Kind.INCLUDE, self._text[start:end], self._position(start))
        refused = _INCLUDE_REFUSED.get(char)
        if char.isdigit() or char == "-":
            refused = "start of a number"
        elif char in ("\n", "\r"):
            refused = "new line"
        if refused is not None:
            self._at += 1
            self._fail(f"Expected include value but found {refused}")
        start = self._at
        end = self._at = self._match(_INCLUDE_PATH)
        if self._peek() == "'":
            self._at += 1
        return Token(Kind.INCLUDE, self._text[start:end], self._position(start))

    # ------------------------------------------------------------------ values

    def _value(self) -> Token:
        self._at = self._match(_BLANKS)
        start = self._at
        char = self._peek()
        if char == "[":
            return self._open(Kind.ARRAY_START, _Frame.ARRAY)
        if char == "{":
            return self._open(Kind.MAP_START, _Frame.MAP)
        if char == "'":
            end = self._text.find("'", start + 1)
            if end < 0:
                self._at = len(self._text)
                self._fail("Unexpected EOF.")
            self._at = end + 1
            return Token(Kind.STRING, self._text[start + 1 : end], self._position(start + 1))
        if char == '"':
            self._at += 1
            return Token(Kind.STRING, self._escaped('"'), self._position(start + 1))
        if char == "(":
            return self._block()
        if char == ".":
            self._fail("Floats must start with a digit")
        if char in ("\n", "\r"):
            self._at += 1
            self._fail("Expected value but found new line")
        if char == "-" and not self._text[start + 1 : start + 2].isdigit():
            self._at += 2
            got = self._text[start + 1 : start + 2] or "EOF"
            self._fail(
                "Floats must start with a digit, not '.'." if got == "." else f"Expected a digit but got '{got}'."
            )
        return self._bare(start)

    def _bare(self, start: int) -> Token:
        end = self._at = self._match(_WORD)
        word = self._text[start:end]
        position = self._position(start)
        if self._peek() == "\\":
            self._at = start
            return Token(Kind.STRING, self._escaped("'"), position)
        if self._peek() == "'":
            self._at += 1  # a quote ends a bare word and goes with it
        if word.startswith("$"):
            return Token(Kind.VARIABLE, word[1:], position)
        if word.lower() in _BOOLEANS:
            return Token(Kind.BOOLEAN, word, position)
        for kind, pattern in ((Kind.INTEGER, _INTEGER), (Kind.FLOAT, _FLOAT), (Kind.DATETIME, _DATETIME)):
            if pattern.fullmatch(word):
                return Token(kind, word, position)
        return Token(Kind.STRING, word, position)

    def _escaped(self, end_quote: str) -> str:
        r"""A string with escapes up to `end_quote`; a bare one (`'`) also ends where a bare word does.

        `\xHH` stands for one byte; bytes that together are UTF-8 become characters, others stay as surrogate escapes.
        """
        bare = end_quote == "'"
        parts: list[str] = []
        has_bytes = False
        while True:
            char = self._peek()
            if char == end_quote:
                self._at += 1
                break
            if bare and (char == "" or char in " \t\r\n,;]}"):
                break
            if char == "":
                self._fail("Unexpected EOF.")
            if char != "\\":
                end = self._match(_WORD) if bare else self._next_of('"\\')
                parts.append(self._text[self._at : end])
                self._at = end
                continue
            escape = self._text[self._at + 1 : self._at + 2]
            self._at += 2
            if escape == "x":
                parts.append(self._hex_byte())
                has_bytes = True
            elif escape in _ESCAPES:
                parts.append(_ESCAPES[escape])
            else:
                shown = "\\n" if escape == "\n" else escape
                self._fail(
                    f"Invalid escape character '{shown}'. Only the following escape characters are allowed: "
                    '\\xXX, \\t, \\n, \\r, \\", \\\\.'
                )
        whole = "".join(parts)
        if has_bytes:
            whole = whole.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        return whole

    def _hex_byte(self) -> str:
        digits = self._text[self._at : self._at + 2]
        if "\n" in digits or "\r" in digits:
            self._fail("Expected two hexadecimal digits after '\\x', but hit end of line")
        if len(digits) < 2 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            self._fail(f"Expected two hexadecimal digits after '\\x', but got '{digits}'")
        self._at += 2
        return bytes([int(digits, 16)]).decode("utf-8", "surrogateescape")

    def _block(self) -> Token:
        """`( ... )`, ended by a `)` alone on its line; everything between is the string, line ends included."""
        start = self._at + 1
        at = start
        while True:
            at = self._text.find(")", at)
            if at < 0:
                self._at = len(self._text)
                self._fail("Unexpected EOF processing block.")
            if self._text[at - 1] == "\n" and self._text[at + 1 : at + 2] in ("", "\n"):
                self._at = at + 1
                return Token(Kind.STRING, self._text[start:at], self._position(start))
            at += 1

    # ------------------------------------------------------------------ the cursor

    def _peek(self) -> str:
        """The character at the cursor, or "" at the end."""
        return self._text[self._at : self._at + 1]

    def _match(self, pattern: re.Pattern[str]) -> int:
        """Where a match of `pattern` at the cursor ends. The patterns used all match the empty string."""
        match = pattern.match(self._text, self._at)
        return match.end() if match is not None else self._at

    def _next_of(self, chars: str) -> int:
        ends = [end for char in chars if (end := self._text.find(char, self._at)) >= 0]
        return min(ends, default=len(self._text))

    def _skip_spaces_and_comments(self) -> None:
        while True:
            self._at = self._match(_SPACES)
            if self._peek() == "#" or self._text.startswith("//", self._at):
                self._skip_comment()
            else:
                return

    def _skip_comment(self) -> None:
        """Up to the end of the line, which stays."""
        self._at = self._next_of("\r\n")

    def _open(self, kind: Kind, frame: _Frame) -> Token:
        token = Token(kind, self._peek(), self._position(self._at))
        self._at += 1
        self._push(frame)
        return token

    def _push(self, frame: _Frame) -> None:
        if len(self._frames) > CONFIG_NESTING_MAX:
            self._fail(f"values are nested deeper than {CONFIG_NESTING_MAX} levels")
        self._frames.append(frame)

    def _close(self, kind: Kind) -> Token:
        token = Token(kind, self._peek(), self._position(self._at))
        self._at += 1
        self._frames.pop()
        return token

    def _position(self, offset: int) -> Position:
        line = bisect_right(self._line_starts, offset)
        return Position(self._file, line, offset - self._line_starts[line - 1] + 1)

    def _fail(self, text: str) -> NoReturn:
        position = self._position(min(self._at, len(self._text)))
        raise ConfigError([Problem(f"Parse error on line {position.line}: '{text}'", position)])
