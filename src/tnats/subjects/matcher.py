"""Whether one of some patterns matches a subject: fast for many patterns, for many subjects, and for those that come
again.

The patterns are one tree by tokens, so that many cost no more than one, and verdicts are remembered. Where a million
subjects are asked about at once, a few patterns are one regular expression, which takes a tenth of the time. (`sublist`
finds which subscriptions match, and lets them come and go.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile

from tnats.limits import EXPRESSION_PATTERNS_MAX, MATCHED_SUBJECTS_MAX
from tnats.subjects.tokens import STAR, TAIL

_Tokens = dict[bytes, "_Tokens"]
_END = b""
"""No token is empty: with this one a pattern is complete."""


class Matcher:
    """See the module's text. Called with a subject, whose tokens are opaque."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self._root: _Tokens = {}
        self._patterns = tuple(patterns)
        self._known: dict[bytes, bool] = {}
        self._look: Callable[[bytes], object] | None = None
        self.beginnings: dict[bytes, None] = {}
        """What matching subjects begin with; `b""` is the beginning of any."""
        for pattern in self._patterns:
            node = self._root
            for token in pattern.split(b"."):
                node = node.setdefault(token, {})
            node[_END] = {}
            self.beginnings[_beginning(pattern)] = None

    def __call__(self, subject: bytes) -> bool:
        found = self._known.get(subject)
        if found is None:
            if len(self._known) >= MATCHED_SUBJECTS_MAX:
                self._known.clear()
            found = self._known[subject] = _matches(self._root, subject.split(b"."))
        return found

    def verdicts(self, subjects: Iterable[bytes]) -> Iterator[object]:
        """For each of many subjects, something true if it matches; nothing of it is remembered."""
        if self._look is None:
            self._look = self
            if len(self._patterns) <= EXPRESSION_PATTERNS_MAX:
                self._look = re.compile(b"|".join(map(_expression, self._patterns)), re.DOTALL).fullmatch
        return map(self._look, subjects)


def _expression(pattern: bytes) -> bytes:
    *tokens, last = [b"[^.]*" if token == STAR else re.escape(token) for token in pattern.split(b".")]
    return rb"\.".join([*tokens, b".*" if last == TAIL else last])


def _beginning(pattern: bytes) -> bytes:
    """All up to the first wildcard."""
    tokens = pattern.split(b".")
    literal = list(takewhile(lambda token: token not in (STAR, TAIL), tokens))
    return b".".join(literal) if len(literal) == len(tokens) else b"".join(token + b"." for token in literal)


def _matches(root: _Tokens, tokens: list[bytes]) -> bool:
    """Whether a pattern of the tree matches: level by level, since clients choose how many tokens there are."""
    level = [root]
    for token in tokens:
        below: list[_Tokens] = []
        for node in level:
            if TAIL in node:
                return True
            child = node.get(token)
            if child is not None:
                below.append(child)
            star = node.get(STAR)
            if star is not None and star is not child:
                below.append(star)
        level = below
    return any(_END in node for node in level)
