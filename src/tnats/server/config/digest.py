"""The digest of a configuration: sha256 over the tree written as JSON, byte for byte as nats-server writes it.

`nats-server -t`, varz `config_digest` and reload logs show it. The JSON is what Go's encoding/json makes of the tree:
keys sorted, no spaces, `<`, `>`, `&`, U+2028 and U+2029 escaped, each byte that is not UTF-8 replaced by U+FFFD, one
newline at the end.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping

from tnats.server.config.parser import Node

_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def config_digest(root: Mapping[str, Node]) -> str:
    """`sha256:<hex>` of a parsed configuration; equal files (comments and order apart) have equal digests."""
    hasher = hashlib.sha256()
    for part in canonical_json(root):
        hasher.update(part.encode())
    hasher.update(b"\n")
    return f"sha256:{hasher.hexdigest()}"


def canonical_json(value: object) -> Iterator[str]:
    """The JSON of a value in parts. Recursion is bounded: the parser limits nesting to CONFIG_NESTING_MAX."""
    if isinstance(value, Node):
        yield from canonical_json(value.value)
    elif isinstance(value, str):
        yield _string(value)
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, int):
        yield str(value)
    elif isinstance(value, float):
        yield _float(value)
    elif isinstance(value, Mapping):
        separator = "{"
        for key in sorted(value):
            yield f"{separator}{_string(key)}:"
            yield from canonical_json(value[key])
            separator = ","
        yield "{}" if separator == "{" else "}"
    elif isinstance(value, list):
        separator = "["
        for item in value:
            yield separator
            yield from canonical_json(item)
            separator = ","
        yield "[]" if separator == "[" else "]"
    else:  # a date-time: the grammar has only whole seconds in Zulu form
        yield _string(f"{value:%Y-%m-%dT%H:%M:%SZ}")


def _string(text: str) -> str:
    parts = ['"']
    for char in text:
        if char in _SHORT_ESCAPES:
            parts.append(_SHORT_ESCAPES[char])
        elif char < " " or char in "<>&\u2028\u2029":
            parts.append(f"\\u{ord(char):04x}")
        elif "\ud800" <= char <= "\udfff":
            parts.append("\ufffd")
        else:
            parts.append(char)
    parts.append('"')
    return "".join(parts)


def _float(number: float) -> str:
    """The fewest digits that give the same double; with an exponent below 1e-6 and from 1e21 on."""
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    all_digits = (whole + fraction).lstrip("0")
    digits = all_digits.rstrip("0")
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if not digits:
        return f"{sign}0"
    # The number of digits before the point; negative for zeros behind it.
    point = len(all_digits) - len(fraction) + int(exponent or "0")
    if point > 21 or point < -5:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{point - 1:+d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}{'.' if digits[point:] else ''}{digits[point:]}"
