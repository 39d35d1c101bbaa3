"""Includes, variables and positions: what the corpus of single files cannot show."""

from __future__ import annotations

import pytest

from tnats.server.config.digest import config_digest
from tnats.server.config.parser import Node, parse
from tnats.server.config.problems import ConfigError


def plain(value: object) -> object:
    """A tree without its nodes."""
    if isinstance(value, Node):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def tree(text: str, files: dict[str, str] | None = None, env: dict[str, str] | None = None) -> dict[str, Node]:
    def read(path: str) -> str:
        if path not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory", path)
        return (files or {})[path]

    return parse(text, "etc/nats.conf", read=read, env=env or {})


def refusal(text: str, files: dict[str, str] | None = None, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        tree(text, files, env)
    return str(caught.value)


def test_scalars_have_their_types_and_values() -> None:
    """Every form of scalar reads as the value it stands for."""
    text = """
        string: plain, quoted: "a\\tb\\x41", raw: 'a\\tb', empty: ""
        yes: yes, off: OFF
        whole: 12, negative: -3k, k: 1k, kib: 1KiB, m: 2m, gb: 1gb, e: 1e
        real: 0.5, below: -1.25
        address: 127.0.0.1:4222, duration: 10s, hex: 4e2abc
        block (
one
 two )
)
        list: [1, two
          3.5 # comment
          {a: b}]
    """
    assert plain(tree(text)) == {
        "string": "plain", "quoted": "a\tbA", "raw": "a\\tb", "empty": "",
        "yes": True, "off": False,
        "whole": 12, "negative": -3000, "k": 1000, "kib": 1024, "m": 2_000_000, "gb": 2**30, "e": 10**18,
        "real": 0.5, "below": -1.25,
        "address": "127.0.0.1:4222", "duration": "10s", "hex": "4e2abc",
        "block": "\none\n two )\n",
        "list": [1, "two", 3.5, {"a": "b"}],
    }  # fmt: skip


def test_bytes_that_are_not_utf8_survive_escapes() -> None:
    """Escaped bytes join to characters where they are UTF-8 and stay single bytes where they are not."""
    assert plain(tree('a: "\\xc3\\xa9\\xff"')) == {"a": "é\udcff"}


def test_position_is_that_of_the_key_or_of_the_array_element() -> None:
    """Messages point at the key of a map entry, and at the first character of an array's element."""
    root = tree("a: 1\n  'b c': [\n    x\n]")
    inner = root["b c"].value
    assert str(root["a"].position) == "etc/nats.conf:1:1"
    assert str(root["b c"].position) == "etc/nats.conf:2:4"
    assert isinstance(inner, list)
    assert str(inner[0].position) == "etc/nats.conf:3:5"


def test_include_merges_into_the_map_it_stands_in() -> None:
    """Included keys join the enclosing map, paths are relative to the including file, positions name their file."""
    files = {"etc/parts/a.conf": "x: 1\ninclude 'b.conf'", "etc/parts/b.conf": "\ny: 2", "/abs.conf": "z: 3"}
    root = tree('m { include "parts/a.conf"; include /abs.conf }\nx: 0', files)
    assert plain(root) == {"m": {"x": 1, "y": 2, "z": 3}, "x": 0}
    inner = root["m"].value
    assert isinstance(inner, dict)
    assert str(inner["y"].position) == "etc/parts/b.conf:2:1"


def test_include_of_a_missing_file_names_it() -> None:
    """The error says which file, as nats-server does."""
    assert "error parsing include file 'nope.conf', open etc/nope.conf: no such file or directory" in refusal(
        "include nope.conf"
    )


def test_include_cycle_is_an_error() -> None:
    """A file that includes itself, directly or through others, is refused instead of followed for ever."""
    text = refusal("include a.conf", {"etc/a.conf": "include b.conf", "etc/b.conf": "include a.conf"})
    assert "it includes itself: etc/nats.conf -> etc/a.conf -> etc/b.conf -> etc/a.conf" in text


def test_parse_error_in_an_included_file_names_both() -> None:
    """The error shows the include and the place in the included file."""
    text = refusal("include a.conf", {"etc/a.conf": "\nx: [1"})
    assert text.startswith(
        "etc/nats.conf:1:9: error parsing include file 'a.conf', etc/a.conf:2:6: Parse error on line 2"
    )


def test_variable_is_found_in_the_innermost_map_first() -> None:
    """Scopes are searched outwards, only for keys that stand before the reference; keys used so are marked."""
    root = tree("V: 1\nm { V: 2, a: $V }\nb: $V")
    assert plain(root) == {"V": 1, "m": {"V": 2, "a": 2}, "b": 1}
    assert root["V"].used
    assert not root["b"].used


def test_variable_comes_from_the_environment_as_a_value() -> None:
    """An environment variable is parsed: numbers are numbers, brackets are lists, quotes make strings."""
    env = {"PORT": "4333", "LIST": "[a, b]", "NAME": "'10k'", "INNER": "$PORT"}
    text = "a: $PORT, b: $LIST, c: $NAME, d: $INNER"
    assert plain(tree(text, env=env)) == {"a": 4333, "b": ["a", "b"], "c": "10k", "d": 4333}


def test_included_file_does_not_see_the_includers_variables() -> None:
    """An include stands for itself; it sees its own keys and the environment only."""
    assert "variable reference for 'V' on line 1 can not be found" in refusal(
        "V: 1\ninclude a.conf", {"etc/a.conf": "x: $V"}
    )


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({}, "variable reference for 'X' on line 1 can not be found"),
        ({"X": "$Y", "Y": "$X"}, "variable reference cycle for 'X'"),
        ({"X": "[1"}, "variable reference for 'X' on line 1 could not be parsed"),
    ],
)
def test_variable_that_gives_no_value_is_an_error(env: dict[str, str], text: str) -> None:
    """Unknown, circular and malformed variables are refused."""
    assert text in refusal("a: $X", env=env)


@pytest.mark.parametrize("version", ["2a", "2b", "2x", "2y"])
def test_bare_bcrypt_hash_is_no_variable(version: str) -> None:
    """A hash may stand unquoted, whichever program wrote it."""
    assert plain(tree(f"p: ${version}$11$abc./x")) == {"p": f"${version}$11$abc./x"}


def test_nesting_is_bounded() -> None:
    """Deep brackets, and variables that pile up brackets, are refused before any walk could overflow the stack."""
    assert "nested deeper than 100 levels" in refusal("a: " + "[" * 100_000)
    lines = ["v0: [x]", *(f"v{n}: [$v{n - 1}]" for n in range(1, 200))]
    assert "nested deeper than 100 levels" in refusal("\n".join(lines))


def test_digest_does_not_depend_on_order_comments_or_spelling() -> None:
    """Two files that say the same have the same digest."""
    one = tree("# c\nport: 1k\nserver_name: x\nm { b: 2, a: 1 }")
    other = tree('{"m": {"a": 1, "b": 2}, "server_name": "x", "port": 1000}')
    assert config_digest(one) == config_digest(other)
    assert config_digest(one) != config_digest(tree("port: 1k"))


def test_digest_of_a_key_used_as_variable_is_stable() -> None:
    """A port given by way of another key reads as both and has one digest (nats-server's)."""
    root = tree("port = 4222\nmonitor_port = $port")
    assert plain(root) == {"port": 4222, "monitor_port": 4222}
    assert config_digest(root) == config_digest(tree("port: 4222, monitor_port: 4222"))
