"""Subject transforms: a source pattern, and a destination whose tokens say how to build the new subject.

Used by account mappings, imports, streams (`subject_transform`, republish, sources) and consumers. Destination
tokens: plain text, `$N` or `{{wildcard(n)}}` for the n-th `*` of the source, a final `>` for what the source's
`>` matched, and the functions partition, split, splitFromLeft, splitFromRight, sliceFromLeft, sliceFromRight,
left, right, random (nats-server documentation, "Subject Mapping and Transforms"). The first letter of each word
of a function's name may be of either case. Lengths and positions count bytes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from tnats.errors import TnatsError
from tnats.records import define
from tnats.subjects.draw import Draw
from tnats.subjects.tokens import STAR, TAIL, is_subset, is_valid_subject, to_bytes, to_text

_INT32_MAX = 2**31 - 1
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_CALL = re.compile(rb"\{\{\s*([A-Za-z]+)\s*\((.*)\)\s*\}\}")

INVALID_TRANSFORM = "invalid transform"
NOT_ALL_WILDCARDS = "not using all of the token wildcard(s)"
UNKNOWN_FUNCTION = "unknown function"
OUT_OF_RANGE = "wildcard index out of range"
TOO_FEW_ARGUMENTS = "not enough arguments passed to the function"
BAD_ARGUMENT = "function argument is invalid or in the wrong format"
TOO_MANY_ARGUMENTS = "too many arguments passed to the function"
NOT_FOR_IMPORT = "the only mapping function allowed for import transforms is {{Wildcard()}}"


class TransformError(TnatsError):
    """A source or destination that makes no transform; the text is nats-server's."""


def _destination_error(reason: str, place: bytes) -> TransformError:
    return TransformError(f"invalid mapping destination: {reason} in {to_text(place)}")


# Builders: source tokens and a draw -> one destination token (with dots inside where it splits).
_Builder = Callable[[list[bytes], Draw], bytes]


@define
class _Part:
    """One token of the destination. `builder` None: the token itself; `wildcards`: indexes it refers to."""

    text: bytes
    builder: _Builder | None = None
    wildcards: tuple[int, ...] = ()
    is_plain_wildcard: bool = False
    is_random: bool = False


class Transform:
    """A checked pair of source and destination; `apply` maps subjects (or patterns within the source)."""

    __slots__ = ("_has_tail", "_parts", "_source_tokens", "destination", "is_fixed", "source")

    def __init__(self, source: bytes | str, destination: bytes | str, *, strict: bool = False) -> None:
        """An empty source means `>`. `strict` is for imports, which must be reversible: only wildcards, all used.

        Raises TransformError.
        """
        self.source = to_bytes(source) or TAIL
        self.destination = to_bytes(destination)
        _check_shape(self.source, self.destination)
        self._source_tokens = self.source.split(b".")
        self._has_tail = self._source_tokens[-1] == TAIL
        wildcards = [index for index, token in enumerate(self._source_tokens) if token == STAR]
        self._parts = [_compile(token, wildcards) for token in self.destination.split(b".")]
        if strict:
            _check_reversible(self._parts, self.destination, len(wildcards))
        self.is_fixed = not any(part.is_random for part in self._parts)
        """Whether equal subjects always map alike, so that a result may be cached."""

    def __repr__(self) -> str:
        return f"Transform({to_text(self.source)!r}, {to_text(self.destination)!r})"

    def matches(self, subject: bytes) -> bool:
        """Whether `subject` (literal, or a pattern) lies within the source."""
        return is_subset(subject, self.source)

    def apply(self, subject: bytes, draw: Draw) -> bytes:
        """The new subject for one that `matches`. A `*` or `>` of a pattern is carried along."""
        tokens = subject.split(b".")
        parts = self._parts[:-1] if self._has_tail else self._parts
        built = [part.text if part.builder is None else part.builder(tokens, draw) for part in parts]
        if self._has_tail:
            built.extend(tokens[len(self._source_tokens) - 1 :])
        return b".".join(built)

    def reversed(self) -> Transform:
        """The transform back, for one made with `strict` whose wildcards each appear once."""
        order: list[int] = []
        source: list[bytes] = []
        for part in self._parts:
            order.extend(part.wildcards)
            source.append(STAR if part.is_plain_wildcard else part.text)
        numbers = iter(range(1, len(order) + 1))
        destination = [
            b"$%d" % (order.index(next(numbers)) + 1) if token == STAR else token for token in self._source_tokens
        ]
        return Transform(b".".join(source), b".".join(destination), strict=True)


def with_placeholders(pattern: bytes) -> bytes:
    """`pattern` as a destination that maps each subject to itself: its `*` become `$1`, `$2` and so on."""
    numbers = itertools.count(1)
    return b".".join(b"$%d" % next(numbers) if token == STAR else token for token in pattern.split(b"."))


def partition_of(key: bytes, count: int) -> int:
    """The partition 0 to `count` - 1 of `key`: its 32-bit FNV-1a hash modulo `count` (unsigned); 0 for none."""
    digest = 0x811C_9DC5
    for byte in key:
        digest = ((digest ^ byte) * 0x0100_0193) & 0xFFFF_FFFF
    count &= 0xFFFF_FFFF
    return digest % count if count else 0


def _check_shape(source: bytes, destination: bytes) -> None:
    if not is_valid_subject(source):
        raise TransformError("invalid subject")
    tokens = destination.split(b".")
    if b"" in tokens or TAIL in tokens[:-1]:
        raise _destination_error(INVALID_TRANSFORM, destination)
    if STAR in tokens or (tokens[-1] == TAIL) != (source.split(b".")[-1] == TAIL):
        raise TransformError("invalid subject")


def _check_reversible(parts: list[_Part], destination: bytes, wildcard_count: int) -> None:
    for part in parts:
        if part.builder is not None and not part.is_plain_wildcard:
            raise _destination_error(NOT_FOR_IMPORT, part.text)
    if sum(len(part.wildcards) for part in parts) < wildcard_count:
        raise _destination_error(NOT_ALL_WILDCARDS, destination)


def _compile(token: bytes, wildcards: list[int]) -> _Part:
    """One destination token; `wildcards` are the positions of the source's `*`."""
    if token[:1] == b"$":
        index = _integer(token[1:])
        return _Part(token) if index is None else _wildcard_part(token, index, wildcards)
    if len(token) <= 4 or not (token.startswith(b"{{") and token.endswith(b"}}")):
        return _Part(token)
    call = _CALL.search(token)
    function = _FUNCTIONS.get(call.group(1)) if call is not None else None
    if call is None or function is None:
        raise _destination_error(UNKNOWN_FUNCTION, token)
    return function(token, re.split(rb",\s*", call.group(2)), wildcards)


def _wildcard_part(token: bytes, index: int, wildcards: list[int]) -> _Part:
    position = _position(token, index, wildcards)
    return _Part(token, lambda tokens, draw: tokens[position], (index,), is_plain_wildcard=True)


def _compile_wildcard(token: bytes, arguments: list[bytes], wildcards: list[int]) -> _Part:
    if arguments == [b""]:
        raise _destination_error(TOO_FEW_ARGUMENTS, token)
    if len(arguments) > 1:
        raise _destination_error(TOO_MANY_ARGUMENTS, token)
    return _wildcard_part(token, _argument(token, arguments[0]), wildcards)


def _compile_partition(token: bytes, arguments: list[bytes], wildcards: list[int]) -> _Part:
    count = _argument32(token, arguments[0])
    indexes = tuple(_argument(token, argument) for argument in arguments[1:])
    positions = [_position(token, index, wildcards) for index in indexes]
    if not positions:
        return _Part(token, lambda tokens, draw: b"%d" % partition_of(b".".join(tokens), count))
    return _Part(
        token,
        lambda tokens, draw: b"%d" % partition_of(b"".join([tokens[at] for at in positions]), count),
        indexes,
    )


def _compile_random(token: bytes, arguments: list[bytes], wildcards: list[int]) -> _Part:
    if len(arguments) > 1:
        raise _destination_error(TOO_FEW_ARGUMENTS, token)  # nats-server says so, though there are too many
    bound = max(1, _argument32(token, arguments[0]))
    return _Part(token, lambda tokens, draw: b"%d" % draw.below(bound), is_random=True)


def _compile_split(token: bytes, arguments: list[bytes], wildcards: list[int]) -> _Part:
    index, separator = _two_arguments(token, arguments)
    position = _position(token, index, wildcards)
    return _Part(token, lambda tokens, draw: _split(tokens[position], separator), (index,))


def _compile_cut(
    cut: Callable[[bytes, int], bytes],
) -> Callable[[bytes, list[bytes], list[int]], _Part]:
    """A function of one wildcard and a number of bytes. A number outside the token leaves it as it is."""

    def compile_token(token: bytes, arguments: list[bytes], wildcards: list[int]) -> _Part:
        index, second = _two_arguments(token, arguments)
        size = _argument32(token, second)
        position = _position(token, index, wildcards)

        def build(tokens: list[bytes], draw: Draw) -> bytes:
            text = tokens[position]
            return cut(text, size) if 0 < size < len(text) else text

        return _Part(token, build, (index,))

    return compile_token


def _two_arguments(token: bytes, arguments: list[bytes]) -> tuple[int, bytes]:
    if len(arguments) < 2:
        raise _destination_error(TOO_FEW_ARGUMENTS, token)
    if len(arguments) > 2:
        raise _destination_error(TOO_MANY_ARGUMENTS, token)
    return _argument(token, arguments[0]), arguments[1]


def _integer(text: bytes) -> int | None:
    return int(text) if len(text) <= 19 and _INTEGER.fullmatch(text) else None


def _argument(token: bytes, text: bytes) -> int:
    number = _integer(text.strip())
    if number is None:
        raise _destination_error(BAD_ARGUMENT, token)
    return number


def _argument32(token: bytes, text: bytes) -> int:
    number = _argument(token, text)
    if number > _INT32_MAX:
        raise _destination_error(BAD_ARGUMENT, token)
    return number


def _position(token: bytes, index: int, wildcards: list[int]) -> int:
    if not wildcards:
        raise _destination_error(OUT_OF_RANGE, token)
    if not 1 <= index <= len(wildcards):
        raise _destination_error(OUT_OF_RANGE, b"%s: [%d]" % (token, index))
    return wildcards[index - 1]


def _split(text: bytes, separator: bytes) -> bytes:
    """The non-empty pieces as tokens. Without a separator, every character is a piece."""
    if separator:
        pieces = text.split(separator)
    else:
        pieces = [to_bytes(character) for character in to_text(text)]
    return b".".join([piece for piece in pieces if piece])


def _split_from_left(text: bytes, size: int) -> bytes:
    return text[:size] + b"." + text[size:]


def _split_from_right(text: bytes, size: int) -> bytes:
    return text[:-size] + b"." + text[-size:]


def _slice_from_left(text: bytes, size: int) -> bytes:
    return b".".join([text[at : at + size] for at in range(0, len(text), size)])


def _slice_from_right(text: bytes, size: int) -> bytes:
    first = len(text) % size
    pieces = [text[at : at + size] for at in range(first, len(text), size)]
    return b".".join([text[:first], *pieces] if first else pieces)


def _left(text: bytes, size: int) -> bytes:
    return text[:size]


def _right(text: bytes, size: int) -> bytes:
    return text[-size:]


def _spellings(name: str) -> list[bytes]:
    """All spellings of a camel case name with the first letter of each word in either case."""
    words = re.findall(r"[A-Z][a-z]+", name)
    choices = [(word, word.lower()) for word in words]
    return ["".join(choice).encode() for choice in itertools.product(*choices)]


_FUNCTIONS = {
    spelling: function
    for name, function in {
        "Wildcard": _compile_wildcard,
        "Partition": _compile_partition,
        "Random": _compile_random,
        "Split": _compile_split,
        "SplitFromLeft": _compile_cut(_split_from_left),
        "SplitFromRight": _compile_cut(_split_from_right),
        "SliceFromLeft": _compile_cut(_slice_from_left),
        "SliceFromRight": _compile_cut(_slice_from_right),
        "Left": _compile_cut(_left),
        "Right": _compile_cut(_right),
    }.items()
    for spelling in _spellings(name)
}
