"""Readers of single values: each turns a tree value into what an option holds, or refuses it with a clear text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tnats.ids import KeyKind, is_public_key
from tnats.limits import SECOND_NS
from tnats.notation import duration_fault, format_duration, parse_duration, quote
from tnats.server.config.addresses import port_number, redacted_url, split_host_port
from tnats.server.config.parser import Node
from tnats.server.config.table import Reader, Reading, Refused, Section, describe, further_row, read_section

T = TypeVar("T")
S = TypeVar("S", bound=Section)

_INT32_MAX = 2**31 - 1
_SIZE_SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
LONG_TIMEOUT_NS = 60 * SECOND_NS


# ------------------------------------------------------------------ strings, numbers, booleans


def as_text(node: Node, key: str) -> str:
    if not isinstance(node.value, str):
        hint = "" if isinstance(node.value, dict | list) else "; put the value in quotes"
        raise Refused(f"field {quote(key)} should be a string, got {describe(node)}{hint}")
    return node.value


def as_integer(node: Node, key: str) -> int:
    if isinstance(node.value, bool) or not isinstance(node.value, int):
        raise Refused(f"field {quote(key)} should be an integer, got {describe(node)}")
    return node.value


def as_boolean(node: Node, key: str) -> bool:
    if not isinstance(node.value, bool):
        raise Refused(f"field {quote(key)} should be true or false, got {describe(node)}")
    return node.value


TEXT = Reader("string", lambda _, node, key: as_text(node, key))
INTEGER = Reader("integer", lambda _, node, key: as_integer(node, key))
BOOLEAN = Reader("boolean", lambda _, node, key: as_boolean(node, key))


def _path(node: Node, key: str) -> str:
    path = as_text(node, key)
    if "\0" in path:
        raise Refused(f"field {quote(key)} should be a path, and no file's name has a NUL in it")
    return path


PATH = Reader("path", lambda _, node, key: _path(node, key))


def name_without_spaces(what: str) -> Reader:
    def read(reading: Reading, node: Node, key: str) -> str:
        name = as_text(node, key)
        if " " in name:
            raise Refused(f"{what} cannot contain spaces")
        return name

    return Reader("string without spaces", read)


def integer_between(low: int, high: int, refusal: Callable[[str, int], str], kind: str = "integer") -> Reader:
    """An integer in [low, high]; otherwise refused with `refusal(key, value)`."""

    def read(reading: Reading, node: Node, key: str) -> int:
        number = as_integer(node, key)
        if not low <= number <= high:
            raise Refused(refusal(key, number))
        return number

    return Reader(kind, read)


BYTES_31_BITS = integer_between(-_INT32_MAX - 1, _INT32_MAX, lambda key, _: f"{key} value is too big", "size")


def _size(node: Node, key: str) -> int:
    """An integer of bytes, or a string that ends in K, M, G or T (powers of 1024)."""
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if not isinstance(node.value, str):
        raise Refused(f"{key.lower()} must be int64 or string")
    text = node.value
    if text == "":
        return 0
    digits, suffix = text[:-1], text[-1]
    number = digits[1:] if digits[:1] in ("-", "+") else digits
    if not (number.isascii() and number.isdigit() and len(number) <= 19):
        raise Refused(f"{key.lower()} {quote(text)} is not a size: use an integer, or digits and one of K, M, G, T")
    if suffix not in _SIZE_SUFFIXES:
        raise Refused(f"{key.lower()} sizes defined as strings must end in K, M, G, T")
    return int(digits) * _SIZE_SUFFIXES[suffix]


SIZE = Reader("size", lambda _, node, key: _size(node, key))


def choice(values: Mapping[str, T], refusal: Callable[[str], str]) -> Reader:
    """One of some words in any case; `refusal(word)` words the error."""

    def read(reading: Reading, node: Node, key: str) -> T:
        word = as_text(node, key)
        if word.lower() not in values:
            raise Refused(refusal(word))
        return values[word.lower()]

    return Reader("one of " + ", ".join(f"`{value}`" for value in values if value), read)


WRITE_TIMEOUT = choice(
    {"default": "default", "close": "close", "retry": "retry"},
    lambda _: "write_timeout must be 'default', 'close' or 'retry'",
)


# ------------------------------------------------------------------ durations


def read_duration(text: str, prefix: str = "") -> int:
    """Nanoseconds of a duration; raises `Refused`, in Go's words behind `prefix`."""
    duration_ns = parse_duration(text)
    if duration_ns is None:
        raise Refused(prefix + duration_fault(text))
    return duration_ns


def _duration(reading: Reading, node: Node, key: str) -> int:
    if isinstance(node.value, str):
        return read_duration(node.value, f"error parsing {key.lower()}: ")
    seconds = as_integer(node, key)
    reading.warn(
        f"invalid use of field {quote(key.lower())}: {key.lower()} should be converted to a duration", node.position
    )
    return seconds * SECOND_NS


DURATION = Reader("duration", _duration)
"""A quoted duration; a bare integer counts seconds and draws a warning."""


def duration_text(refuse: Callable[[int], str | None], *, label: str = "") -> Reader:
    """Only a duration string. `refuse(duration_ns)` gives the text that refuses a value, or None."""

    def read(reading: Reading, node: Node, key: str) -> int:
        duration_ns = read_duration(as_text(node, key), f"error parsing {label or key.lower()}: ")
        text = refuse(duration_ns)
        if text is not None:
            raise Refused(text)
        return duration_ns

    return Reader("duration", read)


ANY_DURATION_TEXT = duration_text(lambda _: None)


def timeout(section: str, *, warn_if_long: bool = False) -> Reader:
    """Seconds as a number, or a duration string."""

    def read(reading: Reading, node: Node, key: str) -> int:
        value = node.value
        if isinstance(value, str):
            timeout_ns = read_duration(value, f"error parsing {section} config, 'timeout' ")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            timeout_ns = round(value * SECOND_NS)
        else:
            raise Refused(f"error parsing {section} config, 'timeout' wrong type")
        if warn_if_long and timeout_ns > LONG_TIMEOUT_NS:
            reading.warn(
                f"invalid use of field {quote(key)}: timeout of {value} ({timeout_ns / SECOND_NS:f} seconds) is high, "
                "consider keeping it under 60 seconds. possibly caused by unquoted duration; "
                "use '1m' instead of 1m, for example",
                node.position,
            )
        return timeout_ns

    return Reader("seconds or duration", read)


def at_least(minimum_ns: int, what: str, minimum: str) -> Reader:
    return duration_text(
        lambda given_ns: (
            f"invalid {what} of {format_duration(given_ns)}, minimum is {minimum}" if given_ns < minimum_ns else None
        )
    )


# ------------------------------------------------------------------ addresses


def _listen(reading: Reading, node: Node, key: str) -> tuple[str, int]:
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return "", node.value
    if not isinstance(node.value, str):
        raise Refused(f"expected port or host:port, got {describe(node)}")
    try:
        host, port = split_host_port(node.value)
    except ValueError as error:
        raise Refused(f"could not parse address string {quote(node.value)}") from error
    try:
        return host, port_number(port)
    except ValueError as error:
        raise Refused(str(error)) from error


LISTEN = Reader("`host:port` or port", _listen)
LISTEN_ROW = further_row("listen", LISTEN, ("host", "port"), doc="`host` and `port` in one")
"""For every section that has these two."""


def parse_url(text: str, what: str) -> str:
    """The URL without surrounding space; raises `Refused`. The text of a bad URL may hold a password: not shown."""
    url = text.strip()
    try:
        _ = urlsplit(url).port  # raises for a port that is no number
        valid = True
    except ValueError:
        valid = False
    if not valid or any(char < " " or char == "\x7f" for char in url):
        raise Refused(f"error parsing {what} url: not a valid URL (not shown, since it may hold a password)")
    return url


def url(what: str) -> Reader:
    return Reader("URL", lambda _, node, key: parse_url(as_text(node, key), what))


def _urls(reading: Reading, node: Node, key: str, what: str, *, one: bool) -> list[str]:
    if isinstance(node.value, str) and one:
        return [parse_url(node.value, what)]
    if not isinstance(node.value, list):
        raise Refused(f"Expected {key} to be an array{' or string' if one else ''}, got {describe(node)}")
    seen: dict[str, None] = {}
    for item in node.value:
        try:
            found = parse_url(as_text(item, key), what)
        except Refused as refused:
            reading.error(refused.text, item.position)
            continue
        if found in seen:
            reading.warn(
                f"invalid use of field {quote(redacted_url(found))}: Duplicate {what} entry detected", item.position
            )
        seen[found] = None
    return list(seen)


def urls(what: str, *, one: bool = False) -> Reader:
    """A list of URLs without duplicates; with `one`, also a single URL."""
    return Reader("list of URLs", lambda reading, node, key: _urls(reading, node, key, what, one=one))


# ------------------------------------------------------------------ lists, maps, sections


def texts(what: str) -> Reader:
    """One string or an array of strings."""

    def read(reading: Reading, node: Node, key: str) -> list[str]:
        if isinstance(node.value, str):
            return [node.value]
        if not isinstance(node.value, list):
            raise Refused(f"error parsing {what}: expected a string or an array of strings, got {describe(node)}")
        found = []
        for item in node.value:
            if isinstance(item.value, str):
                found.append(item.value)
            else:
                reading.error(
                    f"error parsing {what}: expected a string in the array, got {describe(item)}", item.position
                )
        return found

    return Reader("string or list of strings", read)


def _text_list(reading: Reading, node: Node, key: str) -> list[str]:
    if not isinstance(node.value, list):
        raise Refused(f"Expected {key} field to be an array, got {describe(node)}")
    return [as_text(item, key) for item in node.value]


TEXT_LIST = Reader("list of strings", _text_list)


def text_map(what: str, as_value: Callable[[Node, str], Any] = as_text, kind: str = "map of strings") -> Reader:
    """A map whose keys are free. A key that was used as a variable stays in it, as in nats-server."""

    def read(reading: Reading, node: Node, key: str) -> dict[str, Any]:
        if not isinstance(node.value, dict):
            raise Refused(f"error parsing {what}: expected a map, got {describe(node)}")
        found = {}
        for name, item in node.value.items():
            try:
                found[name] = as_value(item, name)
            except Refused as refused:
                reading.error(f"error parsing {what}: {refused.text}", item.position)
        return found

    return Reader(kind, read)


def public_key(kind: KeyKind, refusal: Callable[[str], str]) -> Reader:
    def read(reading: Reading, node: Node, key: str) -> str:
        text = as_text(node, key)
        if not is_public_key(text, kind):
            raise Refused(refusal(text))
        return text

    return Reader("public nkey", read)


def section(record: type[S], what: str) -> Reader:
    return Reader("map", lambda reading, node, key: read_section(reading, record, node, what), record)


def section_list(record: type[S], what: str, convert: Callable[[S, Node], Any] | None = None) -> Reader:
    """An array of maps; entries that are refused are noted and left out. `convert` gives what the option holds."""

    def read(reading: Reading, node: Node, key: str) -> list[Any]:
        if not isinstance(node.value, list):
            raise Refused(f"Expected {key} field to be an array, got {describe(node)}")
        found = []
        outer = reading.path
        for index, item in enumerate(node.value):
            reading.path = f"{outer}[{index}]"
            try:
                entry = read_section(reading, record, item, what)
                found.append(entry if convert is None else convert(entry, item))
            except Refused as refused:
                reading.error(refused.text, refused.position or item.position)
        reading.path = outer
        return found

    return Reader("list of maps", read, record)
