"""The configuration language, held to its rules by any text and any value."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from tnats.auth.users import Authenticator
from tnats.server.config.baseline import complete
from tnats.server.config.digest import canonical_json, config_digest
from tnats.server.config.lexer import Lexer
from tnats.server.config.load import read_options
from tnats.server.config.parser import Node, parse
from tnats.server.config.problems import ConfigError
from tnats.server.config.validation import unsupported, validate
from tnats.server.flags import Flags, merge, parse_flags

PIECES = st.sampled_from(
    [
        "{", "}", "[", "]", "(", ")", "=", ":", ",", ";", "\n", "\r\n", " ", "\t", "'", '"', "\\", "\\x4", "#", "//",
        "$", "$A", "$2a$11$", "include ", "a", "10k", "-1", "1.5", "2016-05-04T18:53:41Z", "true", ".", "-", "é", "\0",
        "/", "port", "authorization", "users", "cluster", "tls", "accounts", "jetstream", "user", "permissions",
    ]
)  # fmt: skip
TEXTS = st.text() | st.lists(PIECES).map("".join)
SCALARS = st.text() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)


def no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def plain(value: object) -> object:
    if isinstance(value, Node):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


@given(TEXTS)
def test_any_text_gives_tokens_or_the_configuration_error(text: str) -> None:
    """The lexer raises nothing else, and every token's position lies inside the text."""
    lines = text.split("\n")
    try:
        for token in Lexer(text, "f"):
            assert 1 <= token.position.line <= len(lines)
            assert 1 <= token.position.column <= len(lines[token.position.line - 1]) + 1
    except ConfigError:
        pass


@given(TEXTS, st.dictionaries(st.sampled_from(["A", "B"]), TEXTS))
def test_any_text_gives_options_or_the_configuration_error(text: str, env: dict[str, str]) -> None:
    """From text to a checked configuration nothing but ConfigError is raised, whatever stands in the file."""
    try:
        options = read_options("f", read=lambda path: text if path == "f" else no_file(path), env=env)
    except ConfigError:
        return
    complete(options)
    validate(options)
    unsupported(options)
    Authenticator(options.credentials())
    assert "given" not in repr(options)


def quoted(text: str) -> str:
    """`text` as a double-quoted string of the language."""
    escapes = {"\\": "\\\\", '"': '\\"', "\0": "\\x00"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


def written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    assert isinstance(value, dict)
    return "{" + ", ".join(f"'{key}': {written(inner)}" for key, inner in value.items()) + "}"


def keys_can_be_quoted(value: object) -> bool:
    """Quoted keys know no escapes: a key with the quote itself, or NUL, cannot be written."""
    if isinstance(value, dict):
        return all("'" not in key and "\0" not in key and keys_can_be_quoted(inner) for key, inner in value.items())
    return not isinstance(value, list) or all(map(keys_can_be_quoted, value))


@given(VALUES.filter(keys_can_be_quoted))
def test_written_values_read_back(value: object) -> None:
    """Any tree of strings, booleans, integers, lists and maps survives the way through a file."""
    root = parse(f"value: {written(value)}", "f", read=no_file, env={})
    assert plain(root) == {"value": value}


@given(st.dictionaries(st.text(), VALUES, max_size=3).filter(keys_can_be_quoted))
def test_digest_depends_on_the_values_alone(value: dict[str, object]) -> None:
    """Spelled as JSON with other spacing or as this language with other separators: one digest."""
    spelled = "\n".join(f"'{key}' {written(inner)}" for key, inner in reversed(value.items()))
    one = parse(
        f"{{{', '.join(f'{chr(39)}{key}{chr(39)}: {written(inner)}' for key, inner in value.items())}}}",
        "f",
        read=no_file,
        env={},
    )
    other = parse(spelled, "g", read=no_file, env={})
    assert config_digest(one) == config_digest(other)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-(2**60), max_value=2**60))
@example(2.2269699640872136e-05)
@example(-0.0)
def test_fractions_are_digested_as_json_numbers(number: float) -> None:
    """The digest's number is JSON and stands for the same double."""
    text = "".join(canonical_json(number))
    assert isinstance(json.loads(text), int | float)
    assert float(text) == number
    assert len(text) <= len(repr(number)) + 22


WORDS = st.sampled_from(
    ["-p", "--port", "-p=5", "5", "-D", "-D=false", "-c", "x.conf", "--cluster", "nats://a:b@h:1", "--routes", "-js",
     "--user", "u", "--", "-", "-v", "help", "-sl", "reload=1", "--tls", "--tlscert", "-m", "0x10", "-VV", ""]
)  # fmt: skip


@given(st.lists(WORDS | st.text(max_size=8), max_size=8))
def test_any_command_line_gives_flags_or_an_answer(argv: list[str]) -> None:
    """Nothing but ConfigError comes out of flags."""
    found = parse_flags(argv, program="n", version="1", own_version="2")
    if isinstance(found, Flags):
        options = read_options("f", read=lambda _: "port: 1", env={})
        try:
            merge(options, found)
        except ConfigError:
            return
        complete(options)
