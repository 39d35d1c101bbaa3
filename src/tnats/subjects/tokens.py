"""Subjects as token lists: validity, matching, subset and overlap (client protocol, "Subjects").

A subject is one or more tokens joined by `.`. In a pattern the token `*` stands for any one token and a final
`>` for one or more; inside a longer token (`foo*`, `fo>o`) both are ordinary characters. Case matters.

The native form is bytes, as subjects stand on the wire (any byte but the separators is allowed, valid UTF-8 or
not). Every function here also takes str, for configuration and JSON, encoded by `to_bytes`.
"""

from __future__ import annotations

STAR = b"*"
TAIL = b">"
_STAR_BYTE, _TAIL_BYTE = STAR[0], TAIL[0]  # a byte is looked for ten times as fast as a piece of one
_WHITESPACE = b" \t\n\f\r"


def to_bytes(subject: bytes | str) -> bytes:
    """The wire form of a subject; undecodable bytes survive the way through str (surrogateescape)."""
    return subject.encode("utf-8", "surrogateescape") if isinstance(subject, str) else subject


def to_text(subject: bytes) -> str:
    """The str form of a subject, undone by `to_bytes` byte for byte."""
    return subject.decode("utf-8", "surrogateescape")


def is_valid_pattern(subject: bytes | str) -> bool:
    """What SUB accepts: no empty token, `>` only as the last one."""
    tokens = to_bytes(subject).split(b".")
    return b"" not in tokens and TAIL not in tokens[:-1]


def is_valid_subject(subject: bytes | str) -> bool:
    """What configuration, permissions and streams accept: a valid pattern without white space."""
    raw = to_bytes(subject)
    return is_valid_pattern(raw) and not has_space(raw)


def has_space(subject: bytes | str) -> bool:
    """Whether white space stands in a subject, which the client protocol would take for its end."""
    raw = to_bytes(subject)
    return len(raw.translate(None, _WHITESPACE)) != len(raw)


def is_valid_literal(subject: bytes | str) -> bool:
    """What a pedantic PUB accepts: no empty token, no token that is a lone `*` or `>`."""
    tokens = to_bytes(subject).split(b".")
    return b"" not in tokens and STAR not in tokens and TAIL not in tokens


def is_publishable(subject: bytes | str) -> bool:
    """What may be named as a place to publish to: a valid literal without white space."""
    raw = to_bytes(subject)
    return is_valid_literal(raw) and not has_space(raw)


def has_wildcard(subject: bytes | str) -> bool:
    """Whether `subject`, read as a pattern, stands for more than itself."""
    raw = to_bytes(subject)
    if _STAR_BYTE not in raw and _TAIL_BYTE not in raw:
        return False
    tokens = raw.split(b".")
    return STAR in tokens or tokens[-1] == TAIL


def subject_matches(pattern: bytes | str, subject: bytes | str) -> bool:
    """Whether a message published on `subject` reaches a subscription to the valid `pattern`.

    The tokens of `subject` are opaque, even `*` and `>`. A subject with an empty token matches nothing.
    """
    wanted = to_bytes(pattern).split(b".")
    tokens = to_bytes(subject).split(b".")
    if b"" in tokens:
        return False
    if wanted[-1] == TAIL:
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
    elif len(tokens) != len(wanted):
        return False
    return all(want in (token, STAR) for want, token in zip(wanted, tokens, strict=False))


def is_subset(inner: bytes | str, outer: bytes | str) -> bool:
    """Whether every subject that the valid pattern `inner` matches is also matched by `outer`."""
    wanted = to_bytes(outer).split(b".")
    tokens = to_bytes(inner).split(b".")
    if wanted[-1] == TAIL:
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
    elif len(tokens) != len(wanted) or tokens[-1] == TAIL:
        return False
    return all(token != TAIL and want in (token, STAR) for want, token in zip(wanted, tokens, strict=False))


def subjects_overlap(first: bytes | str, second: bytes | str) -> bool:
    """Whether some subject is matched by both valid patterns."""
    left = to_bytes(first).split(b".")
    right = to_bytes(second).split(b".")
    for one, other in zip(left, right, strict=False):
        if one == TAIL or other == TAIL:
            return True
        if one != other and one != STAR and other != STAR:
            return False
    return len(left) == len(right)
