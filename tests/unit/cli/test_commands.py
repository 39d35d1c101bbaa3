"""The pieces of single commands that need no server."""

from __future__ import annotations

import io
from collections.abc import Iterator

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats.cli.app import root
from tnats.cli.bench_load import Result, Span, latency_summary, rates, share
from tnats.cli.pub import parse_headers, read_body
from tnats.cli.reply import fill_template, split_template
from tnats.client import ClientError


def test_headers_of_options() -> None:
    """NAME:VALUE, blanks around both dropped, the same name several times, colons in the value kept."""
    assert parse_headers(("A:1", "B: x:y ", "A:2")) == {"A": ["1", "2"], "B": ["x:y"]}
    assert parse_headers(()) is None
    for text in ("novalue", ":x"):
        with pytest.raises(ClientError, match="NAME:VALUE"):
            parse_headers((text,))


def test_body_comes_from_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument; a file; standard input for "-" or when it is no terminal; both at once are wrong usage."""

    class Input:
        buffer = io.BytesIO(b"piped")

        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Input())
    assert read_body("text", None) == b"text"
    assert read_body(None, io.BytesIO(b"file")) == b"file"
    assert read_body(None, None) == b""
    assert read_body("-", None) == b"piped"
    with pytest.raises(click.UsageError):
        read_body("text", io.BytesIO(b"file"))


def test_templates_are_split_before_they_are_filled() -> None:
    """Whatever a subject holds stays inside the word of its placeholder."""
    words = split_template("echo '{{1}} and {{2}}' {{2}} {{3}}")
    assert fill_template(words, "a.b; rm") == ["echo", "a and b; rm", "b; rm", ""]
    for template in ("", "  ", "echo 'open"):
        with pytest.raises(ClientError):
            split_template(template)


@given(st.lists(st.text(alphabet="ab $;'\"|&`", min_size=1), min_size=1, max_size=4))
def test_no_subject_adds_a_word(tokens: list[str]) -> None:
    """The number of words is the template's, for any subject."""
    assert len(fill_template(["cmd", "{{1}}", "{{2}}-{{3}}"], ".".join(tokens))) == 3


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_shares_add_up(messages: int, clients: int) -> None:
    """Every message has one sender, and no two clients differ by more than one."""
    shares = [share(messages, clients, index) for index in range(clients)]
    assert sum(shares) == messages
    assert max(shares) - min(shares) <= 1


@given(st.lists(st.integers(1, 10**9), min_size=1))
def test_percentiles_are_measured_values_in_order(latencies_ns: list[int]) -> None:
    """Nearest rank: each percentile is one of the values, at least so many per cent are not above it."""
    summary = latency_summary(latencies_ns)
    for percentile in (50, 90, 99, 99.9):
        value = summary[f"p{percentile:g}"]
        assert value in latencies_ns
        assert sum(one <= value for one in latencies_ns) >= len(latencies_ns) * percentile / 100
        assert sum(one < value for one in latencies_ns) < len(latencies_ns) * percentile / 100
    assert summary["min"] == min(latencies_ns)
    assert summary["max"] == max(latencies_ns)


def test_rates_of_several_clients() -> None:
    """Together they are measured from the first start to the last end."""
    result = Result("pub", "a", 10, [Span(0, 2_000_000_000, 100, 1000), Span(1_000_000_000, 4_000_000_000, 300, 3000)])
    total = rates(result.total())
    assert (total["messages"], total["bytes"], total["seconds"]) == (400, 4000, 4.0)
    assert (total["messages_per_second"], total["bytes_per_second"]) == (100.0, 1000.0)
    record = result.record()
    assert [client["messages_per_second"] for client in record["clients"]] == [50.0, 100.0]
    assert "latency_ns" not in record


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """The commands of a group, and of the groups within, by their full names."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        found = command.get_command(context, word)
        assert found is not None
        yield from leaves(found, f"{name} {word}")


def test_programs_can_read_what_every_command_says() -> None:
    """All that is asked of a server can be had as JSON."""
    context = click.Context(root)
    for word in ("stream", "consumer", "kv", "object", "account", "bench", "pub", "sub", "req", "rtt"):
        group = root.get_command(context, word)
        assert group is not None
        for name, command in leaves(group, word):
            options = [option for parameter in command.params for option in parameter.opts]
            assert "--json" in options or name in ("bench service serve", "pub"), name
