"""Whether one of some patterns matches a subject: fast for many patterns, and for subjects that come again.

The patterns are one tree by tokens, so that many cost no more than one, and verdicts are remembered. (`sublist` finds
which subscriptions match, and lets them come and go.)
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from tnats.limits import MATCHED_SUBJECTS_MAX
from tnats.subjects.tokens import STAR, TAIL

_Tokens = dict[bytes, "_Tokens"]
_END = b""
"""No token is empty: with this one a pattern is complete."""


class Matcher:
    """See the module's text. Called with a subject, whose tokens are opaque."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self._root: _Tokens = {}
        self._known: dict[bytes, bool] = {}
        self.beginnings: dict[bytes, None] = {}
        """What matching subjects begin with; `b""` is the beginning of any."""
        for pattern in patterns:
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
